//! The door for operators, in HTTP: health, metrics and a page to look at; the only file that names the HTTP crates.

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use super::{Operations, page, prometheus};

/// The most connections at one time; one more waits.
const CONNECTIONS_MAX: usize = 64;
/// How long a request may take to come.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a connection may take for all it does: one request, and one answer.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(15);
/// The most bytes of a request's head.
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// How long the listener waits when the system has no connection to give.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// Nothing from elsewhere, no script, no form, in nobody's frame.
const CONTENT_SECURITY_POLICY: &str =
    "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Where operators come in.
#[derive(Debug)]
pub struct Door {
    socket: TcpListener,
    address: SocketAddr,
    names: Arc<[String]>,
}

impl Door {
    /// Listens, and lets nobody in yet.
    ///
    /// # Errors
    /// The address cannot be listened on.
    pub async fn bind(address: SocketAddr, names: Vec<String>) -> io::Result<Self> {
        let socket = TcpListener::bind(address).await?;
        let address = socket.local_addr()?;
        Ok(Self { socket, address, names: names.into() })
    }

    /// The address listened on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers, for ever.
    pub async fn serve(self, operations: Arc<Operations>) {
        let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        // The semaphore is never closed.
        while let Ok(permit) = Arc::clone(&room).acquire_owned().await {
            let Ok((stream, _)) = self.socket.accept().await else {
                sleep(ACCEPT_PAUSE).await;
                continue;
            };
            let (operations, names) = (Arc::clone(&operations), Arc::clone(&self.names));
            tokio::spawn(async move {
                // Whoever does not get an answer has left, or is too slow.
                let _ = timeout(CONNECTION_TIMEOUT, converse(stream, operations, names)).await;
                drop(permit);
            });
        }
    }
}

async fn converse(stream: TcpStream, operations: Arc<Operations>, names: Arc<[String]>) -> hyper::Result<()> {
    let answer = service_fn(move |request: Request<Incoming>| {
        let response = respond(&request, &operations, &names);
        async move { Ok::<_, Infallible>(response) }
    });
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(REQUEST_TIMEOUT)
        .max_buf_size(HEAD_BYTES_MAX)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), answer)
        .await
}

fn respond<B>(request: &Request<B>, operations: &Operations, names: &[String]) -> Response<Full<Bytes>> {
    const PLAIN: &str = "text/plain; charset=utf-8";
    let plain = |status, text: &str| response(status, PLAIN, text.to_owned());
    if !is_for_here(request, names) {
        let text =
            "nobody here by this name: ask by address, as localhost, or by the name given to --admin\n";
        return plain(StatusCode::MISDIRECTED_REQUEST, text);
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut refusal = plain(StatusCode::METHOD_NOT_ALLOWED, "there is only something to look at here\n");
        refusal.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
        return refusal;
    }
    match request.uri().path() {
        "/" => {
            response(StatusCode::OK, "text/html; charset=utf-8", page::html(operations, first(request.uri())))
        }
        "/style.css" => response(StatusCode::OK, "text/css; charset=utf-8", page::STYLE.to_owned()),
        "/metrics" => response(StatusCode::OK, prometheus::CONTENT_TYPE, prometheus::text(operations)),
        "/healthz" => match operations.trouble() {
            None => plain(StatusCode::OK, "ok\n"),
            Some(trouble) => plain(StatusCode::SERVICE_UNAVAILABLE, &format!("{trouble}\n")),
        },
        _ => plain(StatusCode::NOT_FOUND, "there are /, /metrics and /healthz\n"),
    }
}

fn response(status: StatusCode, content_type: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    let headers: [(HeaderName, &'static str); 6] = [
        (header::CONTENT_TYPE, content_type),
        (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ];
    for (name, value) in headers {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Whether a request means this server: a page of the web whose name was made to lead here asks by that name.
fn is_for_here<B>(request: &Request<B>, names: &[String]) -> bool {
    let mut hosts = request.headers().get_all(header::HOST).iter();
    let host = match (hosts.next(), hosts.next()) {
        (Some(host), None) => host.to_str().ok(),
        _ => None,
    };
    let authority = request.uri().authority().map(hyper::http::uri::Authority::as_str);
    host.is_some_and(|host| is_own(host, names)) && authority.is_none_or(|host| is_own(host, names))
}

/// No name leads to an address that is asked for as such, so each may be.
fn is_own(host: &str, names: &[String]) -> bool {
    let without_port = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => host.split(':').next().unwrap_or(host),
    };
    without_port.parse::<IpAddr>().is_ok()
        || without_port.eq_ignore_ascii_case("localhost")
        || names.iter().any(|name| name.eq_ignore_ascii_case(without_port))
}

/// Where the page's keys begin: `?from=N`.
fn first(uri: &Uri) -> u32 {
    let query = uri.query().unwrap_or_default();
    let number = query.split('&').find_map(|part| part.strip_prefix("from="));
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_was_made_to_lead_here_is_refused() {
        let names = ["store.example".to_owned()];
        for host in
            ["localhost", "LOCALHOST:1", "127.0.0.1:9090", "[::1]:9090", "10.0.0.1", "store.example:80"]
        {
            assert!(is_own(host, &names), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "evil.example:9090",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "[evil]",
        ] {
            assert!(!is_own(host, &names), "{host}");
        }
        let asked = |uri: &str, hosts: &[&str]| {
            let mut request = Request::builder().uri(uri);
            for host in hosts {
                request = request.header("host", *host);
            }
            is_for_here(&request.body(()).unwrap(), &names)
        };
        assert!(asked("/", &["localhost"]));
        assert!(!asked("/", &[]));
        assert!(!asked("/", &["localhost", "localhost"]));
        assert!(!asked("http://evil.example/", &["localhost"]));
    }

    #[test]
    fn the_first_key_is_in_the_query() {
        let of = |text: &str| first(&text.parse().unwrap());
        assert_eq!(
            (of("/"), of("/?from=7"), of("/?a=1&from=8"), of("/?from=-1"), of("/?from=x")),
            (0, 7, 8, 0, 0)
        );
    }
}

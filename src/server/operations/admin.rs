//! The door for operators, in HTTP: health, metrics and a page to look at; the only file that names the HTTP crates.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
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
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use super::{Operations, page, prometheus};
use crate::net::origin;

/// How long the listener waits when the system has no connection to give.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// Nothing from elsewhere, no script, no form, in nobody's frame.
const CONTENT_SECURITY_POLICY: &str =
    "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// What whoever comes in may take.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    /// The most connections at one time; one more waits.
    connections_max: usize,
    /// How long the head of a request may take to come.
    request_timeout: Duration,
    /// How long a connection may take for all it does: one request, and one answer.
    connection_timeout: Duration,
    /// The most bytes of a request's head.
    head_bytes_max: usize,
}

const BOUNDS: Bounds = Bounds {
    connections_max: 64,
    request_timeout: Duration::from_secs(5),
    connection_timeout: Duration::from_secs(15),
    head_bytes_max: 16 * 1024,
};

/// Where operators come in.
#[derive(Debug)]
pub struct Door {
    socket: TcpListener,
    address: SocketAddr,
    names: Arc<[String]>,
    bounds: Bounds,
}

impl Door {
    /// Listens, and lets nobody in yet.
    ///
    /// # Errors
    /// The address cannot be listened on.
    pub async fn bind(address: SocketAddr, names: Vec<String>) -> io::Result<Self> {
        let socket = TcpListener::bind(address).await?;
        let address = socket.local_addr()?;
        Ok(Self { socket, address, names: names.into(), bounds: BOUNDS })
    }

    /// The address listened on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers, for ever.
    pub async fn serve(self, operations: Arc<Operations>) {
        let bounds = self.bounds;
        let room = Arc::new(Semaphore::new(bounds.connections_max));
        // The semaphore is never closed.
        while let Ok(permit) = Arc::clone(&room).acquire_owned().await {
            let Ok((stream, _)) = self.socket.accept().await else {
                sleep(ACCEPT_PAUSE).await;
                continue;
            };
            let (operations, names) = (Arc::clone(&operations), Arc::clone(&self.names));
            tokio::spawn(async move {
                converse(stream, operations, names, bounds).await;
                drop(permit);
            });
        }
    }
}

async fn converse<S>(stream: S, operations: Arc<Operations>, names: Arc<[String]>, bounds: Bounds)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let answer = service_fn(move |request: Request<Incoming>| {
        let response = respond(&request, &operations, &names);
        async move { Ok::<_, Infallible>(response) }
    });
    let conversation = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(bounds.request_timeout)
        .max_buf_size(bounds.head_bytes_max)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), answer);
    // Whoever does not get an answer has left, or is too slow.
    let _ = timeout(bounds.connection_timeout, conversation).await;
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
    host.is_some_and(|host| origin::is_own_host(host, names))
        && authority.is_none_or(|host| origin::is_own_host(host, names))
}

/// Where the page's keys begin: `?from=N`.
fn first(uri: &Uri) -> u32 {
    let query = uri.query().unwrap_or_default();
    let number = query.split('&').find_map(|part| part.strip_prefix("from="));
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
    use tokio::net::TcpStream;

    use super::super::Phase;
    use super::*;
    use crate::broker::{Broker, Hooks, Settings};
    use crate::server::service::{Service, StoreSettings};

    const REQUEST: &[u8] = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
    /// Far more than anything takes: whoever waits longer waits in vain.
    const PATIENCE: Duration = Duration::from_secs(10);
    const NEVER: Duration = Duration::from_secs(3600);
    const SOON: Duration = Duration::from_millis(20);
    const PATIENT: Bounds = Bounds { request_timeout: NEVER, connection_timeout: NEVER, ..BOUNDS };

    fn operations() -> Arc<Operations> {
        let service = Service::open(StoreSettings::default(), Arc::new(|_| {}), Arc::default()).unwrap();
        let broker = Broker::new(Settings::default(), Hooks::new(Arc::<Service>::clone(&service)));
        let operations = Operations::new(broker, service);
        operations.enter(Phase::Serving);
        Arc::new(operations)
    }

    async fn opened(bounds: Bounds) -> SocketAddr {
        let door = Door::bind("127.0.0.1:0".parse().unwrap(), Vec::new()).await.unwrap();
        let address = door.address();
        tokio::spawn(Door { bounds, ..door }.serve(operations()));
        address
    }

    async fn said(address: SocketAddr, bytes: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        stream
    }

    async fn rest(mut stream: impl AsyncRead + Unpin) -> String {
        let mut rest = String::new();
        timeout(PATIENCE, stream.read_to_string(&mut rest)).await.expect("it is not closed").unwrap();
        rest
    }

    #[tokio::test]
    async fn a_request_that_does_not_come_is_not_waited_for() {
        for bounds in
            [Bounds { request_timeout: SOON, ..PATIENT }, Bounds { connection_timeout: SOON, ..PATIENT }]
        {
            let address = opened(bounds).await;
            for bytes in [b"".as_slice(), b"GET /healthz HTTP/1.1\r\nHost: local"] {
                let rest = rest(said(address, bytes).await).await;
                assert!(!rest.contains("200 OK"), "{rest}");
            }
        }
    }

    #[tokio::test]
    async fn who_does_not_read_the_answer_is_cut_off() {
        let (mut client, server) = duplex(64);
        client.write_all(REQUEST).await.unwrap();
        let bounds = Bounds { connection_timeout: SOON, ..PATIENT };
        timeout(PATIENCE, converse(server, operations(), Arc::default(), bounds)).await.unwrap();
        assert_eq!(rest(client).await.len(), 64, "what was on the way, and no more");
    }

    #[tokio::test]
    async fn a_head_has_as_many_bytes_as_it_may_and_no_more() {
        let bounds = Bounds { head_bytes_max: 8 * 1024, ..PATIENT };
        for (len, status) in [(7_000, "HTTP/1.1 200 OK"), (9_000, "HTTP/1.1 431 ")] {
            let (mut client, server) = duplex(64 * 1024);
            let fill = "x".repeat(len);
            let head = format!("GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: {fill}\r\n\r\n");
            client.write_all(head.as_bytes()).await.unwrap();
            timeout(PATIENCE, converse(server, operations(), Arc::default(), bounds)).await.unwrap();
            let rest = rest(client).await;
            assert!(rest.starts_with(status), "{rest}");
        }
    }

    #[tokio::test]
    async fn one_connection_too_many_waits_for_another_to_end() {
        let address = opened(Bounds { connections_max: 1, ..PATIENT }).await;
        let first = said(address, b"GET ").await;
        let second = said(address, REQUEST).await;
        // Far more turns than an answer takes.
        for _ in 0..100_000 {
            tokio::task::yield_now().await;
        }
        assert!(second.try_read(&mut [0]).is_err(), "there is no answer yet");
        drop(first);
        assert!(rest(second).await.ends_with("\r\n\r\nok\n"));
    }

    #[test]
    fn a_name_that_was_made_to_lead_here_is_refused() {
        let names = ["store.example".to_owned()];
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

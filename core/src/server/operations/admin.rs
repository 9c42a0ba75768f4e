//! The admin listener: HTTP with a health check, metrics and a status page.

use std::collections::VecDeque;
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
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use super::monitor::ServerMonitor;
use super::{page, prometheus};
use crate::net::{ListeningSocket, origin};

/// Delay after a failed accept, such as for lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// Style, script and data of this server only, no inline script, and no embedding in frames.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; \
    base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

/// Limits for clients.
#[derive(Clone, Copy, Debug)]
struct HttpLimits {
    /// The most connections at a time. One more closes an older one.
    connections_max: usize,
    /// Time limit for the head of a request.
    request_timeout: Duration,
    /// Time limit for a connection: one request and one response.
    connection_timeout: Duration,
    /// The largest head of a request, in bytes.
    head_bytes_max: usize,
}

const LIMITS: HttpLimits = HttpLimits {
    connections_max: 64,
    request_timeout: Duration::from_secs(5),
    connection_timeout: Duration::from_secs(15),
    head_bytes_max: 16 * 1024,
};

/// A bound admin listener.
#[derive(Debug)]
pub struct AdminListener {
    socket: ListeningSocket,
    address: SocketAddr,
    names: Arc<[String]>,
    limits: HttpLimits,
}

impl AdminListener {
    /// Binds the address; connections wait until [`AdminListener::serve`].
    ///
    /// # Errors
    /// The address cannot be listened on.
    pub async fn bind(address: SocketAddr, names: Vec<String>) -> io::Result<Self> {
        let socket = ListeningSocket::bind(address).await?;
        let address = socket.address()?;
        Ok(Self { socket, address, names: names.into(), limits: LIMITS })
    }

    /// Returns the bound address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves connections. Never returns.
    pub async fn serve(self, monitor: Arc<ServerMonitor>) {
        let limits = self.limits;
        let mut connections = Connections::default();
        loop {
            let Ok((stream, remote)) = self.socket.accept().await else {
                sleep(ACCEPT_PAUSE).await;
                continue;
            };
            let (monitor, names) = (Arc::clone(&monitor), Arc::clone(&self.names));
            connections.make_room(limits.connections_max);
            let task = tokio::spawn(serve_connection(stream, monitor, names, limits));
            connections.0.push_back((remote.ip(), task.abort_handle()));
        }
    }
}

/// The open connections, the oldest first.
///
/// A new connection never waits: clients that open connections and send nothing would delay health checks.
#[derive(Debug, Default)]
struct Connections(VecDeque<(IpAddr, AbortHandle)>);

impl Connections {
    /// Makes room for one more connection: closes the oldest one of the address that has the most.
    fn make_room(&mut self, connections_max: usize) {
        self.0.retain(|(_, task)| !task.is_finished());
        if self.0.len() < connections_max {
            return;
        }
        let count = |address: &IpAddr| self.0.iter().filter(|(other, _)| other == address).count();
        // `max_by_key` returns the last maximum, so the oldest connections come last.
        let offender =
            (0..self.0.len()).rev().max_by_key(|at| self.0.get(*at).map(|(address, _)| count(address)));
        if let Some((_, task)) = offender.and_then(|at| self.0.remove(at)) {
            task.abort();
        }
    }
}

async fn serve_connection<S>(stream: S, monitor: Arc<ServerMonitor>, names: Arc<[String]>, limits: HttpLimits)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let service = service_fn(move |request: Request<Incoming>| {
        let (monitor, names) = (Arc::clone(&monitor), Arc::clone(&names));
        async move { Ok::<_, Infallible>(respond(&request, &monitor, &names).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.request_timeout)
        .max_buf_size(limits.head_bytes_max)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    // An error means that the client has disconnected or is too slow.
    let _ = timeout(limits.connection_timeout, connection).await;
}

async fn respond(
    request: &Request<Incoming>,
    monitor: &ServerMonitor,
    names: &[String],
) -> Response<Full<Bytes>> {
    const PLAIN: &str = "text/plain; charset=utf-8";
    let plain = |status, text: &str| response(status, PLAIN, text.to_owned());
    if !is_for_this_server(request, names) {
        let text = "unknown host name: use an address, localhost or a name given to --admin\n";
        return plain(StatusCode::MISDIRECTED_REQUEST, text);
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut refusal = plain(StatusCode::METHOD_NOT_ALLOWED, "method not allowed: use GET or HEAD\n");
        refusal.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
        return refusal;
    }
    let html = |status, body| response(status, "text/html; charset=utf-8", body);
    let query = request.uri().query().unwrap_or_default();
    match request.uri().path() {
        "/" => html(StatusCode::OK, page::html(monitor, query).await),
        "/key" => match page::key_html(monitor, query) {
            (true, body) => html(StatusCode::OK, body),
            (false, body) => html(StatusCode::NOT_FOUND, body),
        },
        "/style.css" => response(StatusCode::OK, "text/css; charset=utf-8", page::STYLE.to_owned()),
        "/script.js" => response(StatusCode::OK, "text/javascript; charset=utf-8", page::SCRIPT.to_owned()),
        "/metrics" => response(StatusCode::OK, prometheus::CONTENT_TYPE, prometheus::text(monitor).await),
        "/livez" => plain(StatusCode::OK, "ok\n"),
        "/readyz" if !matches!(query, "" | "role=owner") => {
            plain(StatusCode::BAD_REQUEST, "unknown parameter: use /readyz or /readyz?role=owner\n")
        }
        path @ ("/healthz" | "/readyz") => {
            let is_standby_ready = path == "/readyz" && query.is_empty();
            let reason =
                if is_standby_ready { monitor.not_ready_reason() } else { monitor.unavailable_reason() };
            match reason {
                None => plain(StatusCode::OK, "ok\n"),
                Some(reason) => plain(StatusCode::SERVICE_UNAVAILABLE, &format!("{reason}\n")),
            }
        }
        _ => {
            let text = "not found: use /, /metrics, /livez, /readyz or /healthz\n";
            plain(StatusCode::NOT_FOUND, text)
        }
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
fn is_for_this_server<B>(request: &Request<B>, names: &[String]) -> bool {
    let mut hosts = request.headers().get_all(header::HOST).iter();
    let host = match (hosts.next(), hosts.next()) {
        (Some(host), None) => host.to_str().ok(),
        _ => None,
    };
    let authority = request.uri().authority().map(hyper::http::uri::Authority::as_str);
    host.is_some_and(|host| origin::is_own_host(host, names))
        && authority.is_none_or(|host| origin::is_own_host(host, names))
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
    /// Far longer than any step takes; only a failing test waits this long.
    const PATIENCE: Duration = Duration::from_secs(10);
    const NEVER: Duration = Duration::from_secs(3600);
    const SOON: Duration = Duration::from_millis(20);
    const PATIENT: HttpLimits = HttpLimits { request_timeout: NEVER, connection_timeout: NEVER, ..LIMITS };

    fn monitor() -> Arc<ServerMonitor> {
        let service = Service::open(StoreSettings::default(), Arc::new(|_| {}), Arc::default()).unwrap();
        let broker = Broker::new(Settings::default(), Hooks::new(Arc::<Service>::clone(&service)));
        let monitor = ServerMonitor::new(broker, service);
        monitor.set_phase(Phase::Serving);
        Arc::new(monitor)
    }

    async fn listen(limits: HttpLimits) -> SocketAddr {
        let listener = AdminListener::bind("127.0.0.1:0".parse().unwrap(), Vec::new()).await.unwrap();
        let address = listener.address();
        tokio::spawn(AdminListener { limits, ..listener }.serve(monitor()));
        address
    }

    async fn send(address: SocketAddr, bytes: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        stream
    }

    async fn rest(mut stream: impl AsyncRead + Unpin) -> String {
        let mut rest = String::new();
        timeout(PATIENCE, stream.read_to_string(&mut rest)).await.expect("not closed in time").unwrap();
        rest
    }

    #[tokio::test]
    async fn a_request_that_is_not_sent_in_time_is_disconnected() {
        for limits in [
            HttpLimits { request_timeout: SOON, ..PATIENT },
            HttpLimits { connection_timeout: SOON, ..PATIENT },
        ] {
            let address = listen(limits).await;
            for bytes in [b"".as_slice(), b"GET /healthz HTTP/1.1\r\nHost: local"] {
                let rest = rest(send(address, bytes).await).await;
                assert!(!rest.contains("200 OK"), "{rest}");
            }
        }
    }

    #[tokio::test]
    async fn a_server_is_alive_in_each_phase_and_ready_while_it_serves() {
        let listener = AdminListener::bind("127.0.0.1:0".parse().unwrap(), Vec::new()).await.unwrap();
        let (address, monitor) = (listener.address(), monitor());
        tokio::spawn(listener.serve(Arc::clone(&monitor)));
        for (phase, statuses) in [
            (Phase::Starting, [200, 503, 503, 503, 400]),
            (Phase::Serving, [200, 200, 200, 200, 400]),
            (Phase::Draining, [200, 503, 503, 503, 400]),
        ] {
            monitor.set_phase(phase);
            let paths = ["/livez", "/readyz", "/readyz?role=owner", "/healthz", "/readyz?role=standby"];
            for (path, status) in paths.into_iter().zip(statuses) {
                let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
                let response = rest(send(address, request.as_bytes()).await).await;
                assert!(
                    response.starts_with(&format!("HTTP/1.1 {status} ")),
                    "{path} in {phase:?}: {response}"
                );
            }
        }
    }

    #[tokio::test]
    async fn a_client_that_does_not_read_the_response_is_disconnected() {
        let (mut client, server) = duplex(64);
        client.write_all(REQUEST).await.unwrap();
        let limits = HttpLimits { connection_timeout: SOON, ..PATIENT };
        timeout(PATIENCE, serve_connection(server, monitor(), Arc::default(), limits)).await.unwrap();
        assert_eq!(rest(client).await.len(), 64, "the size of the pipe");
    }

    #[tokio::test]
    async fn a_request_head_over_the_limit_is_refused() {
        let limits = HttpLimits { head_bytes_max: 8 * 1024, ..PATIENT };
        for (len, status) in [(7_000, "HTTP/1.1 200 OK"), (9_000, "HTTP/1.1 431 ")] {
            let (mut client, server) = duplex(64 * 1024);
            let fill = "x".repeat(len);
            let head = format!("GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: {fill}\r\n\r\n");
            client.write_all(head.as_bytes()).await.unwrap();
            timeout(PATIENCE, serve_connection(server, monitor(), Arc::default(), limits)).await.unwrap();
            let rest = rest(client).await;
            assert!(rest.starts_with(status), "{rest}");
        }
    }

    #[tokio::test]
    async fn a_connection_over_the_limit_is_served_and_closes_the_oldest_one() {
        let address = listen(HttpLimits { connections_max: 2, ..PATIENT }).await;
        let mut idle = Vec::new();
        for _ in 0..2 {
            idle.push(send(address, b"GET ").await);
        }
        assert!(rest(send(address, REQUEST).await).await.ends_with("\r\n\r\nok\n"));
        let mut idle = idle.into_iter();
        let mut closed = Vec::new();
        // Closed without a response, possibly with a reset.
        assert!(timeout(PATIENCE, idle.next().unwrap().read_to_end(&mut closed)).await.is_ok());
        assert!(closed.is_empty());
        assert!(idle.next().unwrap().try_read(&mut [0]).is_err(), "the other connection stays open");
    }

    #[tokio::test]
    async fn a_health_check_does_not_wait_for_pages() {
        let listener = AdminListener::bind("127.0.0.1:0".parse().unwrap(), Vec::new()).await.unwrap();
        let (address, monitor) = (listener.address(), monitor());
        tokio::spawn(listener.serve(Arc::clone(&monitor)));
        let turn = monitor.page_turn.lock().await;
        let page = send(address, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
        assert!(rest(send(address, REQUEST).await).await.ends_with("\r\n\r\nok\n"));
        assert!(page.try_read(&mut [0]).is_err(), "the page waits for its turn");
        drop(turn);
        assert!(rest(page).await.ends_with("</html>\n"));
    }

    #[tokio::test]
    async fn the_address_with_the_most_connections_makes_room() {
        let mut connections = Connections::default();
        for address in ["192.0.2.1", "192.0.2.2", "192.0.2.1", "192.0.2.3"] {
            let task = tokio::spawn(std::future::pending::<()>());
            connections.0.push_back((address.parse().unwrap(), task.abort_handle()));
        }
        let mut addresses = |connections_max| {
            connections.make_room(connections_max);
            connections.0.iter().map(|(address, _)| address.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(addresses(5).len(), 4);
        assert_eq!(addresses(4), ["192.0.2.2", "192.0.2.1", "192.0.2.3"], "the oldest of the first address");
        assert_eq!(addresses(3), ["192.0.2.1", "192.0.2.3"], "the oldest of all, if no address has more");
    }

    #[test]
    fn a_request_for_a_foreign_host_name_is_refused() {
        let names = ["store.example".to_owned()];
        let is_accepted = |uri: &str, hosts: &[&str]| {
            let mut request = Request::builder().uri(uri);
            for host in hosts {
                request = request.header("host", *host);
            }
            is_for_this_server(&request.body(()).unwrap(), &names)
        };
        assert!(is_accepted("/", &["localhost"]));
        assert!(!is_accepted("/", &[]));
        assert!(!is_accepted("/", &["localhost", "localhost"]));
        assert!(!is_accepted("http://evil.example/", &["localhost"]));
    }
}

//! Broker URLs: parsing, and the default ports (pure).

use super::kube::url::KubeUrl;
use crate::commands::CommandError;
use crate::commands::url_secret::without_secret;
use crate::net::websocket;

/// Default port without TLS.
pub const PLAIN_PORT: u16 = 1883;
/// Default port with TLS.
pub const TLS_PORT: u16 = 8883;
/// Default port of WebSockets without TLS, that of HTTP.
const WEB_PORT: u16 = 80;
/// Default port of WebSockets with TLS, that of HTTPS.
const WEB_TLS_PORT: u16 = 443;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokerUrl {
    pub user: Option<String>,
    /// Name or address, without brackets.
    pub host: String,
    pub port: u16,
    pub tls: bool,
    /// Path of the WebSocket; `None` without one.
    pub web_socket: Option<String>,
    /// The service in a cluster that kubectl leads to; `None` on the network.
    pub kube: Option<KubeUrl>,
}

/// Parses `mqtt://[USER@]HOST[:PORT]`, `tcp://` or without a scheme; `mqtts://` or `ssl://`; `ws://[USER@]HOST[:PORT][/PATH]`, or
/// `wss://`; or `kube:`, as in [`KubeUrl`].
///
/// # Errors
/// A usage error, which never contains a password.
pub fn parse(url: &str) -> Result<BrokerUrl, CommandError> {
    if let Some(kube) = KubeUrl::parse(url)? {
        let (host, port) = (kube.service.clone(), kube.port);
        return Ok(BrokerUrl { user: None, host, port, tls: true, web_socket: None, kube: Some(kube) });
    }
    // The text before an `@` or behind a `?` can be a secret, so it is not taken as a host.
    let (scheme, rest) = match url.split_once("://") {
        Some(parts) => parts,
        None if !url.is_empty() && !url.contains(['@', '/', '?']) => ("mqtt", url),
        None => return Err(CommandError::usage("the broker is not a URL").hint("-b mqtt://HOST[:PORT]")),
    };
    let (user, place) = rest.rsplit_once('@').map_or((None, rest), |(user, place)| (Some(user), place));
    if user.is_some_and(|user| user.contains(':')) {
        return Err(CommandError::usage("a password in the URL is not accepted: other users can see it"));
    }
    // The @ belongs to a path, or to a password with a slash: taken as a user it would lead to another host.
    if user.is_some_and(|user| user.contains('/')) {
        return Err(CommandError::usage("an @ is allowed before the host only").hint("write %40 in a path"));
    }
    // Schemes are case-insensitive (RFC 3986, 3.1).
    let scheme = &*scheme.to_ascii_lowercase();
    let (tls, default_port) = match scheme {
        // Paho and Mosquitto's bridges call them tcp and ssl.
        "mqtt" | "tcp" => (false, PLAIN_PORT),
        "mqtts" | "ssl" => (true, TLS_PORT),
        "ws" => (false, WEB_PORT),
        "wss" => (true, WEB_TLS_PORT),
        other => {
            // A quote or a blank in front of it is shown; any other character may belong to a secret.
            let is_scheme = other.chars().all(|c| c.is_ascii_alphanumeric() || "+-. '\"".contains(c));
            let named =
                if is_scheme { format!("unknown scheme {other}://") } else { "invalid scheme".to_owned() };
            return Err(CommandError::usage(named).hint("-b mqtt://HOST[:PORT]"));
        }
    };
    if user.is_some_and(str::is_empty) {
        return Err(CommandError::usage(format!("no user name before the @ in {}", without_secret(url))));
    }
    let (place, web_socket) = match scheme {
        "ws" | "wss" => {
            let (place, path) = place.split_at(place.find('/').unwrap_or(place.len()));
            let path = if matches!(path, "" | "/") { websocket::DEFAULT_PATH } else { path };
            if path.contains(|c: char| !c.is_ascii_graphic() || "#\"<>\\^`{|}".contains(c)) {
                return Err(CommandError::usage(format!("invalid path in {}", without_secret(url)))
                    .hint(format!("-b {scheme}://HOST[:PORT]/PATH")));
            }
            (place, Some(path.to_owned()))
        }
        _ => (place.strip_suffix('/').unwrap_or(place), None),
    };
    let (host, port) = split_port(place, default_port).ok_or_else(|| {
        CommandError::usage(format!("invalid host or port in {}", without_secret(url)))
            .hint(format!("-b {scheme}://HOST[:PORT]"))
    })?;
    let (user, host) = (user.map(str::to_owned), host.to_owned());
    Ok(BrokerUrl { user, host, port, tls, web_socket, kube: None })
}

fn split_port(place: &str, default: u16) -> Option<(&str, u16)> {
    let (host, port) = match place.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']')?;
            let port = if rest.is_empty() { None } else { Some(rest.strip_prefix(':')?) };
            (host, port)
        }
        None => match place.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (place, None),
        },
    };
    let odd = |c: char| c.is_whitespace() || c.is_control() || "/?#[]@".contains(c);
    if host.is_empty() || host.contains(odd) {
        return None;
    }
    match port {
        None => Some((host, default)),
        Some(port) if port.bytes().all(|byte| byte.is_ascii_digit()) => {
            let port = port.parse().ok().filter(|port| *port != 0)?;
            Some((host, port))
        }
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(url: &str) -> (String, u16) {
        let BrokerUrl { host, port, .. } = parse(url).unwrap();
        (host, port)
    }

    #[test]
    fn a_url_names_host_and_port() {
        assert_eq!(parsed("mqtt://localhost"), ("localhost".to_owned(), 1883));
        assert_eq!(parsed("mqtt://aio-broker:18883/"), ("aio-broker".to_owned(), 18883));
        assert_eq!(parsed("mqtt://[::1]:1884"), ("::1".to_owned(), 1884));
        assert_eq!(parsed("mqtt://[::1]"), ("::1".to_owned(), 1883));
        assert_eq!(parsed("localhost:1884"), ("localhost".to_owned(), 1884));
        assert_eq!(parsed("localhost"), ("localhost".to_owned(), 1883));
        assert_eq!(parsed("tcp://h"), ("h".to_owned(), 1883));
        assert_eq!(parsed("ssl://h"), ("h".to_owned(), 8883));
        assert!(parse("ssl://h").unwrap().tls && !parse("tcp://h").unwrap().tls);
        assert_eq!(parsed("mqtts://aio-broker"), ("aio-broker".to_owned(), 8883));
        assert_eq!(parsed("mqtts://aio-broker:18883"), ("aio-broker".to_owned(), 18883));
        assert_eq!(parse("mqtt://ann@h").unwrap().user.as_deref(), Some("ann"));
        assert!(parse("mqtts://h").unwrap().tls && !parse("mqtt://h").unwrap().tls);
        assert_eq!(parse("MQTTS://h").unwrap(), parse("mqtts://h").unwrap());
        assert_eq!(parse("Ws://h/A").unwrap(), parse("ws://h/A").unwrap());
    }

    #[test]
    fn a_websocket_url_has_a_path() {
        let parsed = |url| {
            let BrokerUrl { user, host, port, tls, web_socket, .. } = parse(url).unwrap();
            (user, host, port, tls, web_socket.unwrap())
        };
        let of = |host: &str, port, tls, path: &str| (None, host.to_owned(), port, tls, path.to_owned());
        assert_eq!(parsed("ws://h"), of("h", 80, false, "/mqtt"));
        assert_eq!(parsed("wss://h/"), of("h", 443, true, "/mqtt"));
        assert_eq!(parsed("wss://[::1]:8443/a/b?c=d"), of("::1", 8443, true, "/a/b?c=d"));
        assert_eq!(parsed("ws://ann@h:1/x").0.as_deref(), Some("ann"));
    }

    #[test]
    fn invalid_urls_are_rejected() {
        for url in [
            "",
            "a/b",
            "ann@h",
            "http://localhost",
            "mqtt://",
            "mqtt://h:",
            "mqtt://h:0",
            "mqtt://h:65536",
            "mqtt://h:+1",
            "mqtt://h/topic",
            "mqtt://::1",
            "mqtt://[::1",
            "mqtt://[::1]1883",
            "wss://",
            "ws://h:/mqtt",
            "ws://h/a b",
            "ws://h/a\u{7}",
            "ws://h/#a",
            "mqtt://@h",
            "ws://h/a@b",
        ] {
            assert!(parse(url).is_err(), "{url}");
        }
    }

    #[test]
    fn a_password_is_rejected_and_not_printed() {
        for url in [
            "mqtt://u:secret@h",
            "mqtts://u:secret@h",
            "u:secret@h",
            "http://u:secret@h",
            "wss://u/secret@h",
            "wss://u:secret/secret@h",
            "mqtt://h?password=secret",
            "mqtt://h/?user=u&password=secret",
            "mqtts://ann@h:8883?password=secret",
            "h?password=secret",
            "http://h?password=secret",
            "http?password=secret://h",
            "mqtt://h#secret",
            "ws://h?password=secret",
            "wss://h/a?password=secret#b",
        ] {
            let error = parse(url).unwrap_err();
            assert!(!format!("{error:?}").contains("secret"), "{url}");
        }
    }
}

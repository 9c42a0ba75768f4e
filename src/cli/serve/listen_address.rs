//! Values of `--listen` and `--ws-origin`: addresses, URLs and origins.

const SHAPE: &str = "an address is HOST:PORT, for example 127.0.0.1:1883 or [::1]:1883, PORT for 127.0.0.1, or a URL: \
                     mqtt://, mqtts://, ws:// or wss:// followed by HOST:PORT";

/// Where to listen, as typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenAddress {
    /// Name or address, without brackets.
    pub host: String,
    /// 0 stands for any free port.
    pub port: u16,
    /// Whether a failure to listen here is an error.
    pub is_required: bool,
    pub scheme: Scheme,
    /// Path of the WebSockets; `None` accepts any path.
    pub path: Option<String>,
    pub anonymous: Option<bool>,
    pub client_certificate: Option<ClientCertificate>,
}

/// Protocol of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// MQTT, with TLS if the server has a certificate.
    Default,
    Mqtt,
    Mqtts,
    Ws,
    Wss,
}

/// Whether a listener requests client certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientCertificate {
    Required,
    /// Requested, but clients without one are accepted.
    Optional,
    None,
}

impl ListenAddress {
    /// Returns the address without options of its own.
    pub fn at(host: &str, port: u16, is_required: bool) -> Self {
        Self {
            host: host.to_owned(),
            port,
            is_required,
            scheme: Scheme::Default,
            path: None,
            anonymous: None,
            client_certificate: None,
        }
    }

    /// Parses the value of `--listen`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (scheme, rest) = match text.split_once("://") {
            None => (Scheme::Default, text),
            Some(("mqtt", rest)) => (Scheme::Mqtt, rest),
            Some(("mqtts", rest)) => (Scheme::Mqtts, rest),
            Some(("ws", rest)) => (Scheme::Ws, rest),
            Some(("wss", rest)) => (Scheme::Wss, rest),
            Some(_) => return Err(SHAPE.to_owned()),
        };
        let (rest, query) = if scheme == Scheme::Default {
            (rest, None)
        } else {
            rest.split_once('?').map_or((rest, None), |(rest, query)| (rest, Some(query)))
        };
        let (authority, path) = match scheme {
            Scheme::Ws | Scheme::Wss => rest.split_at(rest.find('/').unwrap_or(rest.len())),
            Scheme::Default => (rest, ""),
            Scheme::Mqtt | Scheme::Mqtts => (rest.strip_suffix('/').unwrap_or(rest), ""),
        };
        if path.contains(|c: char| !c.is_ascii_graphic() || "#\"<>\\^`{|}".contains(c)) {
            return Err("the path of the WebSocket is invalid".to_owned());
        }
        // A bare port is an address of this machine alone, as the default is.
        let is_port = scheme == Scheme::Default
            && !authority.is_empty()
            && authority.bytes().all(|byte| byte.is_ascii_digit());
        let local = format!("127.0.0.1:{authority}");
        let (host, port) = host_and_port(if is_port { &local } else { authority })?;
        let path = (!path.is_empty()).then(|| path.to_owned());
        let mut address = Self { scheme, path, ..Self::at(host, port, true) };
        for option in query.into_iter().flat_map(|query| query.split('&')) {
            address.set(option)?;
        }
        Ok(address)
    }

    fn set(&mut self, option: &str) -> Result<(), String> {
        match option {
            "anonymous=yes" => self.anonymous = Some(true),
            "anonymous=no" => self.anonymous = Some(false),
            "client-cert=required" => self.client_certificate = Some(ClientCertificate::Required),
            "client-cert=optional" => self.client_certificate = Some(ClientCertificate::Optional),
            "client-cert=none" => self.client_certificate = Some(ClientCertificate::None),
            _ => {
                let known = "anonymous=yes|no and client-cert=required|optional|none, separated by &";
                return Err(format!("the options after the ? are {known}"));
            }
        }
        Ok(())
    }
}

/// Parses an origin as browsers send it.
pub fn parse_origin(text: &str) -> Result<String, String> {
    let is_authority = |authority: &str| {
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-._:[]".contains(c);
        !authority.is_empty() && authority.chars().all(is_allowed)
    };
    let is_origin = text
        .split_once("://")
        .is_some_and(|(scheme, authority)| !scheme.is_empty() && is_authority(authority));
    if is_origin || text == "*" || text == "null" {
        // Browsers omit the default port of the scheme.
        let defaults = [("http://", ":80"), ("https://", ":443")];
        let default = defaults.iter().find(|(scheme, _)| text.starts_with(scheme));
        return Ok(default.and_then(|(_, port)| text.strip_suffix(port)).unwrap_or(text).to_owned());
    }
    Err("an origin is SCHEME://HOST or SCHEME://HOST:PORT without a path, for example https://dash.example, or *".to_owned())
}

/// Splits `HOST:PORT` or `[ADDRESS]:PORT`.
pub fn host_and_port(text: &str) -> Result<(&str, u16), String> {
    let (host, port) = text.rsplit_once(':').ok_or(SHAPE)?;
    let plain = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let host = match plain {
        Some(host) => host,
        None if host.contains(':') => return Err(SHAPE.to_owned()),
        None => host,
    };
    if host.is_empty() || host.contains('/') || !port.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(SHAPE.to_owned());
    }
    Ok((host, port.parse().map_err(|_| SHAPE)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_host_and_port() {
        let parsed = |text| ListenAddress::parse(text).map(|address| (address.host, address.port));
        assert_eq!(parsed("127.0.0.1:0"), Ok(("127.0.0.1".to_owned(), 0)));
        assert_eq!(parsed("[::1]:1883"), Ok(("::1".to_owned(), 1883)));
        assert_eq!(parsed("1884"), Ok(("127.0.0.1".to_owned(), 1884)));
        assert_eq!(parsed("localhost:1884"), Ok(("localhost".to_owned(), 1884)));
        assert_eq!(parsed("mqtt://localhost:1884/"), Ok(("localhost".to_owned(), 1884)));
        assert_eq!(parsed("wss://[::1]:443/a/b?anonymous=no"), Ok(("::1".to_owned(), 443)));
        for text in [
            "",
            "65536",
            "localhost",
            ":1883",
            "::1:1883",
            "h:65536",
            "h:+1",
            "h:",
            "http://h:1",
            "mqtt://h",
            "mqtt://h:1/a",
            "ws:///a",
            "ws://h:1/a b",
            "mqtt://h:1?anonymous",
            "mqtt://h:1?anonymous=maybe",
            "h:1?anonymous=no",
            "ws://h:1/#a",
        ] {
            assert!(parsed(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_origin_is_as_browsers_send_it() {
        for text in ["https://dash.example", "http://127.0.0.1:3000", "http://[::1]:8080", "*", "null"] {
            assert_eq!(parse_origin(text).as_deref(), Ok(text));
        }
        assert_eq!(parse_origin("https://dash.example:443").as_deref(), Ok("https://dash.example"));
        assert_eq!(parse_origin("http://[::1]:80").as_deref(), Ok("http://[::1]"));
        assert_eq!(parse_origin("http://dash.example:443").as_deref(), Ok("http://dash.example:443"));
        for text in
            ["", "dash.example", "https://", "https://dash.example/", "https://dash.example/a", "https://*"]
        {
            assert!(parse_origin(text).is_err(), "{text}");
        }
    }
}

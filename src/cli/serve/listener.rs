//! What `--listen` says: where a server listens, what is spoken there, and who may come in.

use std::fmt;
use std::net::SocketAddr;

use super::ServeArgs;
use crate::cli::broker::{PLAIN_PORT, TLS_PORT};
use crate::commands::CommandError;

const SHAPE: &str = "an address is HOST:PORT, for example 127.0.0.1:1883 or [::1]:1883, or a URL with it: \
                     mqtt://, mqtts://, ws:// or wss://";

/// A place to listen at, as typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Door {
    /// Name or address, without brackets.
    pub host: String,
    /// Port; 0 stands for any free one.
    pub port: u16,
    /// Whether it is an error if nothing can listen here.
    pub is_required: bool,
    scheme: Scheme,
    path: Option<String>,
    anonymous: Option<bool>,
    client_certificate: Option<ClientCertificate>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scheme {
    /// As the other options say: TLS if there is a certificate.
    Unsaid,
    Mqtt,
    Mqtts,
    Ws,
    Wss,
}

/// Whether clients are asked for a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientCertificate {
    /// They are, and must have one.
    Required,
    /// They are, and need not have one.
    Optional,
    /// They are not.
    None,
}

/// A place to listen at, with everything that the options say of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settled {
    /// As typed.
    pub door: Door,
    /// Whether there is TLS.
    pub has_tls: bool,
    /// Whether clients are asked for a certificate.
    pub client_certificate: ClientCertificate,
    /// Whether there are WebSockets.
    pub has_web_sockets: bool,
    /// Whether everybody may come in.
    pub is_anonymous: bool,
}

impl Door {
    fn at(host: &str, port: u16, is_required: bool) -> Self {
        Self {
            host: host.to_owned(),
            port,
            is_required,
            scheme: Scheme::Unsaid,
            path: None,
            anonymous: None,
            client_certificate: None,
        }
    }

    /// Where its WebSockets are, if not at any path.
    pub fn path(&self) -> Option<&str> {
        self.path.as_deref()
    }

    /// Reads what was typed behind `--listen`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (scheme, rest) = match text.split_once("://") {
            None => (Scheme::Unsaid, text),
            Some(("mqtt", rest)) => (Scheme::Mqtt, rest),
            Some(("mqtts", rest)) => (Scheme::Mqtts, rest),
            Some(("ws", rest)) => (Scheme::Ws, rest),
            Some(("wss", rest)) => (Scheme::Wss, rest),
            Some(_) => return Err(SHAPE.to_owned()),
        };
        let (rest, query) = if scheme == Scheme::Unsaid {
            (rest, None)
        } else {
            rest.split_once('?').map_or((rest, None), |(rest, query)| (rest, Some(query)))
        };
        let (place, path) = match scheme {
            Scheme::Ws | Scheme::Wss => rest.split_at(rest.find('/').unwrap_or(rest.len())),
            Scheme::Unsaid => (rest, ""),
            Scheme::Mqtt | Scheme::Mqtts => (rest.strip_suffix('/').unwrap_or(rest), ""),
        };
        if path.contains(|c: char| !c.is_ascii_graphic() || "#\"<>\\^`{|}".contains(c)) {
            return Err("no WebSocket can be at this path".to_owned());
        }
        let (host, port) = place_of(place)?;
        let path = (!path.is_empty()).then(|| path.to_owned());
        let mut door = Self { scheme, path, ..Self::at(host, port, true) };
        for part in query.into_iter().flat_map(|query| query.split('&')) {
            door.take(part)?;
        }
        Ok(door)
    }

    fn take(&mut self, part: &str) -> Result<(), String> {
        match part {
            "anonymous=yes" => self.anonymous = Some(true),
            "anonymous=no" => self.anonymous = Some(false),
            "client-cert=required" => self.client_certificate = Some(ClientCertificate::Required),
            "client-cert=optional" => self.client_certificate = Some(ClientCertificate::Optional),
            "client-cert=none" => self.client_certificate = Some(ClientCertificate::None),
            _ => {
                let known = "anonymous=yes or no, and client-cert=required, optional or none, with & between";
                return Err(format!("behind the ? stand {known}"));
            }
        }
        Ok(())
    }

    /// Brings it together with the other options.
    fn settle(self, args: &ServeArgs) -> Result<Settled, CommandError> {
        let has_tls = match self.scheme {
            Scheme::Unsaid => args.tls_cert.is_some(),
            Scheme::Mqtt | Scheme::Ws => false,
            Scheme::Mqtts | Scheme::Wss => true,
        };
        let told = |message: String| CommandError::usage(format!("{}: {message}", self.url("")));
        if has_tls && args.tls_cert.is_none() {
            return Err(
                told("TLS needs a certificate and its key".to_owned()).hint("--tls-cert FILE --tls-key FILE")
            );
        }
        let client_certificate = match self.client_certificate {
            None if has_tls && args.client_ca.is_some() => ClientCertificate::Required,
            None | Some(ClientCertificate::None) => ClientCertificate::None,
            Some(_) if !has_tls => {
                return Err(told("client certificates are for TLS, and there is none".to_owned())
                    .hint("mqtts:// or wss://"));
            }
            Some(_) if args.client_ca.is_none() => {
                return Err(told("client certificates need a CA that stands for them".to_owned())
                    .hint("--client-ca FILE"));
            }
            Some(wanted) => wanted,
        };
        let has_lists = args.users.is_some() || args.sat_tokens.is_some();
        let is_anonymous = self.anonymous.unwrap_or(!has_lists);
        if !is_anonymous && !has_lists && client_certificate == ClientCertificate::None {
            return Err(told("nobody could come in here: nobody is known".to_owned())
                .hint("--users FILE, --sat-tokens FILE, or --client-ca FILE"));
        }
        let has_web_sockets = matches!(self.scheme, Scheme::Ws | Scheme::Wss);
        Ok(Settled { door: self, has_tls, client_certificate, has_web_sockets, is_anonymous })
    }

    fn url(&self, address: impl fmt::Display) -> String {
        let scheme = match self.scheme {
            Scheme::Unsaid | Scheme::Mqtt => "mqtt",
            Scheme::Mqtts => "mqtts",
            Scheme::Ws => "ws",
            Scheme::Wss => "wss",
        };
        format!("{scheme}://{address}")
    }
}

impl Settled {
    /// The URL that leads a client here.
    pub(super) fn broker(&self, address: SocketAddr) -> String {
        let url = self.url(address);
        url.split_once('?').map_or(url.as_str(), |(url, _)| url).to_owned()
    }

    /// As a URL, with the address that it came to.
    fn url(&self, address: SocketAddr) -> String {
        let scheme = match (self.has_web_sockets, self.has_tls) {
            (false, false) => "mqtt",
            (false, true) => "mqtts",
            (true, false) => "ws",
            (true, true) => "wss",
        };
        let anonymous = self.door.anonymous.map(|yes| if yes { "anonymous=yes" } else { "anonymous=no" });
        let certificate = self.door.client_certificate.map(|wanted| match wanted {
            ClientCertificate::Required => "client-cert=required",
            ClientCertificate::Optional => "client-cert=optional",
            ClientCertificate::None => "client-cert=none",
        });
        let query: Vec<&str> = anonymous.into_iter().chain(certificate).collect();
        let query = if query.is_empty() { String::new() } else { format!("?{}", query.join("&")) };
        format!("{scheme}://{address}{}{query}", self.door.path().unwrap_or_default())
    }
}

/// All places to listen at.
///
/// # Errors
/// A usage error: the options contradict each other.
pub fn settle(args: &ServeArgs) -> Result<Vec<Settled>, CommandError> {
    let doors = if args.listen.is_empty() && args.run.exec {
        vec![Door::at("127.0.0.1", 0, true)]
    } else if args.listen.is_empty() {
        let port = if args.tls_cert.is_some() { TLS_PORT } else { PLAIN_PORT };
        // Not every machine has IPv6.
        vec![Door::at("127.0.0.1", port, true), Door::at("::1", port, false)]
    } else {
        args.listen.clone()
    };
    let doors: Vec<Settled> =
        doors.into_iter().map(|door| door.settle(args)).collect::<Result<_, CommandError>>()?;
    if args.tls_cert.is_some() && !doors.iter().any(|door| door.has_tls) {
        let message = "--tls-cert has no use: there is no TLS where --listen says";
        return Err(CommandError::usage(message).hint("--listen mqtts://HOST:PORT"));
    }
    if !args.ws_origin.is_empty() && !doors.iter().any(|door| door.has_web_sockets) {
        let message = "--ws-origin has no use: there are no WebSockets where --listen says";
        return Err(CommandError::usage(message).hint("--listen ws://HOST:PORT"));
    }
    Ok(doors)
}

/// Reads an origin as browsers write it.
pub fn parse_origin(text: &str) -> Result<String, String> {
    let is_place = |place: &str| {
        let is_part = |c: char| c.is_ascii_alphanumeric() || "-._:[]".contains(c);
        !place.is_empty() && place.chars().all(is_part)
    };
    let is_origin =
        text.split_once("://").is_some_and(|(scheme, place)| !scheme.is_empty() && is_place(place));
    if is_origin || text == "*" || text == "null" {
        // Browsers leave out the port that goes without saying.
        let usual = [("http://", ":80"), ("https://", ":443")];
        let usual = usual.iter().find(|(scheme, _)| text.starts_with(scheme));
        return Ok(usual.and_then(|(_, port)| text.strip_suffix(port)).unwrap_or(text).to_owned());
    }
    Err("an origin is SCHEME://HOST or SCHEME://HOST:PORT without a path, for example https://dash.example, or *".to_owned())
}

/// Where a server listens, in words.
pub fn words(doors: &[(Settled, SocketAddr)]) -> String {
    let is_plain = |door: &Settled| {
        !door.has_web_sockets && door.door.anonymous.is_none() && door.door.client_certificate.is_none()
    };
    let has_tls = doors.first().is_some_and(|(door, _)| door.has_tls);
    if doors.iter().all(|(door, _)| is_plain(door) && door.has_tls == has_tls) {
        let has_certificates =
            doors.iter().any(|(door, _)| door.client_certificate == ClientCertificate::Required);
        let tls = match (has_tls, has_certificates) {
            (false, _) => "",
            (true, false) => " with TLS",
            (true, true) => " with TLS and client certificates",
        };
        let addresses: Vec<String> = doors.iter().map(|(_, address)| address.to_string()).collect();
        return format!("{}{tls}", addresses.join(" and "));
    }
    let urls: Vec<String> = doors.iter().map(|(door, address)| door.url(*address)).collect();
    urls.join(" and ")
}

pub(super) fn place_of(text: &str) -> Result<(&str, u16), String> {
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
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        serve: ServeArgs,
    }

    fn settled(line: &str) -> Result<Vec<Settled>, CommandError> {
        settle(&Line::try_parse_from(format!("serve {line}").split_whitespace()).unwrap().serve)
    }

    fn ready(line: &str) -> String {
        let address = |door: &Settled| format!("{}:{}", door.door.host, door.door.port).parse().unwrap();
        let doors = settled(line).unwrap();
        words(&doors.into_iter().map(|door| (door.clone(), address(&door))).collect::<Vec<_>>())
    }

    #[test]
    fn an_address_is_host_and_port() {
        let parsed = |text| Door::parse(text).map(|door| (door.host, door.port));
        assert_eq!(parsed("127.0.0.1:0"), Ok(("127.0.0.1".to_owned(), 0)));
        assert_eq!(parsed("[::1]:1883"), Ok(("::1".to_owned(), 1883)));
        assert_eq!(parsed("localhost:1884"), Ok(("localhost".to_owned(), 1884)));
        assert_eq!(parsed("mqtt://localhost:1884/"), Ok(("localhost".to_owned(), 1884)));
        assert_eq!(parsed("wss://[::1]:443/a/b?anonymous=no"), Ok(("::1".to_owned(), 443)));
        for text in [
            "",
            "1883",
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
    fn an_origin_is_as_browsers_write_it() {
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

    #[test]
    fn the_ready_line_shows_urls_where_doors_differ() {
        assert_eq!(ready("--listen 1.1.1.1:1 --listen mqtt://2.2.2.2:2"), "1.1.1.1:1 and 2.2.2.2:2");
        let tls = "--tls-cert c --tls-key k --client-ca a";
        assert_eq!(ready(&format!("{tls} --listen 1.1.1.1:1")), "1.1.1.1:1 with TLS and client certificates");
        assert_eq!(
            ready(&format!(
                "{tls} --listen mqtt://1.1.1.1:1 --listen 2.2.2.2:2 --listen wss://3.3.3.3:3/a?client-cert=none"
            )),
            "mqtt://1.1.1.1:1 and mqtts://2.2.2.2:2 and wss://3.3.3.3:3/a?client-cert=none"
        );
        assert_eq!(ready("--listen ws://1.1.1.1:1"), "ws://1.1.1.1:1");
    }

    #[test]
    fn a_door_is_open_to_everybody_until_somebody_is_known() {
        let open =
            |line: &str| settled(line).unwrap().iter().map(|door| door.is_anonymous).collect::<Vec<_>>();
        assert_eq!(open(""), [true, true]);
        assert_eq!(open("--users f"), [false, false]);
        assert_eq!(open("--sat-tokens f --listen h:1 --listen ws://h:2?anonymous=yes"), [false, true]);
    }

    #[test]
    fn what_contradicts_itself_is_told_with_what_to_do() {
        let tls = "--tls-cert c --tls-key k";
        for (line, hint) in [
            ("--listen mqtts://h:1", "--tls-cert FILE --tls-key FILE"),
            ("--listen wss://h:1", "--tls-cert FILE --tls-key FILE"),
            ("--listen mqtt://h:1?anonymous=no", "--users FILE, --sat-tokens FILE, or --client-ca FILE"),
            ("--listen ws://h:1?client-cert=required", "mqtts:// or wss://"),
            (&format!("{tls} --listen mqtts://h:1?client-cert=optional"), "--client-ca FILE"),
            (&format!("{tls} --listen mqtt://h:1"), "--listen mqtts://HOST:PORT"),
            ("--ws-origin https://h --listen h:1", "--listen ws://HOST:PORT"),
        ] {
            assert_eq!(settled(line).unwrap_err().hints, [hint], "{line}");
        }
    }
}

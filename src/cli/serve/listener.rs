//! Listeners of the server: each `--listen`, resolved with the other options.

use std::net::SocketAddr;

use super::args::ServeArgs;
use super::listen_address::{ClientCertificate, ListenAddress, Scheme};
use crate::cli::broker_url::{PLAIN_PORT, TLS_PORT};
use crate::commands::CommandError;

/// A listener with everything that the options specify for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    pub address: ListenAddress,
    pub has_tls: bool,
    pub client_certificate: ClientCertificate,
    pub has_web_sockets: bool,
    /// Whether clients without credentials are accepted.
    pub is_anonymous: bool,
}

impl Listener {
    fn of(address: ListenAddress, args: &ServeArgs) -> Result<Self, CommandError> {
        let has_tls = match address.scheme {
            Scheme::Default => args.tls_cert.is_some(),
            Scheme::Mqtt | Scheme::Ws => false,
            Scheme::Mqtts | Scheme::Wss => true,
        };
        let scheme = match address.scheme {
            Scheme::Default | Scheme::Mqtt => "mqtt",
            Scheme::Mqtts => "mqtts",
            Scheme::Ws => "ws",
            Scheme::Wss => "wss",
        };
        let error = |message: &str| CommandError::usage(format!("{scheme}://: {message}"));
        if has_tls && args.tls_cert.is_none() {
            return Err(
                error("TLS requires a certificate and its key").hint("--tls-cert FILE --tls-key FILE")
            );
        }
        let client_certificate = match address.client_certificate {
            None if has_tls && args.client_ca.is_some() => ClientCertificate::Required,
            None | Some(ClientCertificate::None) => ClientCertificate::None,
            Some(_) if !has_tls => {
                return Err(error("client certificates require TLS").hint("mqtts:// or wss://"));
            }
            Some(_) if args.client_ca.is_none() => {
                return Err(error("client certificates require a CA to verify them").hint("--client-ca FILE"));
            }
            Some(wanted) => wanted,
        };
        let has_credentials = args.users.is_some() || args.sat_tokens.is_some();
        let is_anonymous = address.anonymous.unwrap_or(!has_credentials);
        if !is_anonymous && !has_credentials && client_certificate == ClientCertificate::None {
            return Err(error("no client can authenticate: there are no users, tokens or certificates")
                .hint("--users FILE, --sat-tokens FILE, or --client-ca FILE"));
        }
        let has_web_sockets = matches!(address.scheme, Scheme::Ws | Scheme::Wss);
        Ok(Self { address, has_tls, client_certificate, has_web_sockets, is_anonymous })
    }

    /// Whether every client must authenticate.
    pub fn requires_authentication(&self) -> bool {
        !self.is_anonymous || self.client_certificate == ClientCertificate::Required
    }

    /// Returns the URL for clients; `address` is the one that was bound.
    pub fn broker(&self, address: SocketAddr) -> String {
        let scheme = match (self.has_web_sockets, self.has_tls) {
            (false, false) => "mqtt",
            (false, true) => "mqtts",
            (true, false) => "ws",
            (true, true) => "wss",
        };
        format!("{scheme}://{address}{}", self.address.path.as_deref().unwrap_or_default())
    }

    /// Returns the URL with the options after it, as in `--listen`.
    fn url(&self, address: SocketAddr) -> String {
        let anonymous = self.address.anonymous.map(|yes| if yes { "anonymous=yes" } else { "anonymous=no" });
        let certificate = self.address.client_certificate.map(|wanted| match wanted {
            ClientCertificate::Required => "client-cert=required",
            ClientCertificate::Optional => "client-cert=optional",
            ClientCertificate::None => "client-cert=none",
        });
        let query: Vec<&str> = anonymous.into_iter().chain(certificate).collect();
        let query = if query.is_empty() { String::new() } else { format!("?{}", query.join("&")) };
        format!("{}{query}", self.broker(address))
    }
}

pub fn resolve(args: &ServeArgs) -> Result<Vec<Listener>, CommandError> {
    let addresses = if args.listen.is_empty() && args.run.exec {
        vec![ListenAddress::at("127.0.0.1", 0, true)]
    } else if args.listen.is_empty() {
        let port = if args.tls_cert.is_some() { TLS_PORT } else { PLAIN_PORT };
        // Not every machine has IPv6.
        vec![ListenAddress::at("127.0.0.1", port, true), ListenAddress::at("::1", port, false)]
    } else {
        args.listen.clone()
    };
    let listeners: Vec<Listener> = addresses
        .into_iter()
        .map(|address| Listener::of(address, args))
        .collect::<Result<_, CommandError>>()?;
    if args.tls_cert.is_some() && !listeners.iter().any(|listener| listener.has_tls) {
        let message = "--tls-cert has no effect: no --listen uses TLS";
        return Err(CommandError::usage(message).hint("--listen mqtts://HOST:PORT"));
    }
    if !args.ws_origin.is_empty() && !listeners.iter().any(|listener| listener.has_web_sockets) {
        let message = "--ws-origin has no effect: no --listen uses WebSockets";
        return Err(CommandError::usage(message).hint("--listen ws://HOST:PORT"));
    }
    Ok(listeners)
}

/// Describes the listeners for the ready line: addresses if they are alike, URLs if they differ.
pub fn describe(listeners: &[(Listener, SocketAddr)]) -> String {
    let is_plain = |listener: &Listener| {
        !listener.has_web_sockets
            && listener.address.anonymous.is_none()
            && listener.address.client_certificate.is_none()
    };
    let has_tls = listeners.first().is_some_and(|(listener, _)| listener.has_tls);
    if listeners.iter().all(|(listener, _)| is_plain(listener) && listener.has_tls == has_tls) {
        let has_certificates =
            listeners.iter().any(|(listener, _)| listener.client_certificate == ClientCertificate::Required);
        let tls = match (has_tls, has_certificates) {
            (false, _) => "",
            (true, false) => " with TLS",
            (true, true) => " with TLS and client certificates",
        };
        let addresses: Vec<String> = listeners.iter().map(|(_, address)| address.to_string()).collect();
        return format!("{}{tls}", addresses.join(" and "));
    }
    let urls: Vec<String> = listeners.iter().map(|(listener, address)| listener.url(*address)).collect();
    urls.join(" and ")
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

    fn resolved(line: &str) -> Result<Vec<Listener>, CommandError> {
        resolve(&Line::try_parse_from(format!("serve {line}").split_whitespace()).unwrap().serve)
    }

    fn ready(line: &str) -> String {
        let address = |listener: &Listener| {
            format!("{}:{}", listener.address.host, listener.address.port).parse().unwrap()
        };
        let listeners = resolved(line).unwrap();
        describe(
            &listeners.into_iter().map(|listener| (listener.clone(), address(&listener))).collect::<Vec<_>>(),
        )
    }

    #[test]
    fn the_ready_line_contains_urls_if_listeners_differ() {
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
    fn a_listener_is_anonymous_unless_there_are_users_or_tokens() {
        let anonymous = |line: &str| {
            resolved(line).unwrap().iter().map(|listener| listener.is_anonymous).collect::<Vec<_>>()
        };
        assert_eq!(anonymous(""), [true, true]);
        assert_eq!(anonymous("--users f"), [false, false]);
        assert_eq!(anonymous("--sat-tokens f --listen h:1 --listen ws://h:2?anonymous=yes"), [false, true]);
    }

    #[test]
    fn contradictory_options_are_rejected_with_a_hint() {
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
            assert_eq!(resolved(line).unwrap_err().hints, [hint], "{line}");
        }
    }
}

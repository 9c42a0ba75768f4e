//! Checks of the `Host` and `Origin` headers against DNS rebinding and cross-site requests.

use std::net::{IpAddr, Ipv6Addr};

/// Returns whether `host`, a `Host` header or the authority of a URL, is an IP address, `localhost` or one of `names`.
///
/// Other names are refused because of DNS rebinding: a web page can make a name of its own resolve to this server, but it
/// cannot do so with an address or with `localhost`.
#[must_use]
pub fn is_own_host(host: &str, names: &[String]) -> bool {
    let is_own = |name: &str| {
        name.parse::<IpAddr>().is_ok()
            || name.eq_ignore_ascii_case("localhost")
            || names.iter().any(|own| own.eq_ignore_ascii_case(name))
    };
    without_port(host).is_some_and(is_own)
}

/// Returns whether a page of this `Origin` may use a server that it addressed as `host`.
///
/// Allowed are pages of this machine, pages of the server's own address or name, and the origins in `allowed`, where `*`
/// allows every origin.
#[must_use]
pub fn is_allowed_origin(origin: &str, host: Option<&str>, names: &[String], allowed: &[String]) -> bool {
    if allowed.iter().any(|allowed| allowed == "*" || allowed.eq_ignore_ascii_case(origin)) {
        return true;
    }
    let authority = origin.split_once("://").filter(|(scheme, _)| ["http", "https"].contains(scheme));
    let Some(name) = authority.and_then(|(_, authority)| without_port(authority)) else { return false };
    let is_local = name.eq_ignore_ascii_case("localhost")
        || name.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback());
    let is_same = |host: &str| {
        is_own_host(host, names) && without_port(host).is_some_and(|host| host.eq_ignore_ascii_case(name))
    };
    is_local || host.is_some_and(is_same)
}

/// Returns the host of `HOST` or `HOST:PORT`, without the brackets of an IPv6 address; `None` if the text has another form.
///
/// A text that only begins like this must not pass: what follows can be the host that a browser has connected to, as in
/// `localhost:x@evil.example`.
fn without_port(authority: &str) -> Option<&str> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => rest.split_once(']').filter(|(address, _)| address.parse::<Ipv6Addr>().is_ok())?,
        None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
    };
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok();
    (port.is_empty() || port.strip_prefix(':').is_some_and(is_port)).then_some(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> [String; 1] {
        ["store.example".to_owned()]
    }

    #[test]
    fn a_foreign_name_that_resolves_to_this_server_is_refused() {
        for host in
            ["localhost", "LOCALHOST:1", "127.0.0.1:9090", "[::1]:9090", "10.0.0.1", "store.example:80"]
        {
            assert!(is_own_host(host, &names()), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "evil.example:9090",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "[evil]",
        ] {
            assert!(!is_own_host(host, &names()), "{host}");
        }
    }

    #[test]
    fn an_authority_that_only_begins_or_ends_like_an_own_host_is_refused() {
        for authority in [
            "[::1]evil.example",
            "[::1].evil.example:80",
            "[::1]@evil.example",
            "[::1",
            "[[::1]]",
            "[127.0.0.1]",
            "[::1%25lo]",
            "[localhost]",
            "[]",
            "::1",
            "user@localhost",
            "user:secret@localhost",
            "localhost:x@evil.example",
            "localhost:80@evil.example",
            "localhost:80:80",
            "localhost:",
            "localhost:+80",
            "localhost:65536",
            "localhost:80/",
            "localhost/",
            "localhost#",
            "localhost?",
            "localhost.",
            "localhost\\evil.example",
            " localhost",
            "localhost ",
            "localhost,evil.example",
            "127.0.0.1evil.example",
            "127.1",
            "0x7f000001",
            "store.example@evil.example",
            "store.example:x@evil.example",
        ] {
            assert!(!is_own_host(authority, &names()), "{authority}");
            for scheme in ["http", "https"] {
                let origin = format!("{scheme}://{authority}");
                for host in ["localhost", authority] {
                    assert!(!is_allowed_origin(&origin, Some(host), &names(), &[]), "{origin} {host}");
                }
            }
        }
        for origin in
            ["file://localhost", "ws://localhost", "x-http://localhost", "http:///localhost", "//localhost"]
        {
            assert!(!is_allowed_origin(origin, Some("localhost"), &names(), &[]), "{origin}");
        }
    }

    #[test]
    fn only_origins_of_this_machine_or_of_the_server_itself_are_allowed_by_default() {
        for (origin, host) in [
            ("http://localhost:3000", "127.0.0.1:8080"),
            ("https://127.0.0.1", "10.0.0.1"),
            ("http://[::1]:3000", "localhost"),
            ("http://10.0.0.1:3000", "10.0.0.1:8080"),
            ("https://store.example", "STORE.example:443"),
        ] {
            assert!(is_allowed_origin(origin, Some(host), &names(), &[]), "{origin} {host}");
        }
        for (origin, host) in [
            ("https://evil.example", "127.0.0.1:8080"),
            // DNS rebinding: the page's own name resolves to this server.
            ("http://evil.example:8080", "evil.example:8080"),
            ("http://localhost.evil.example", "localhost"),
            ("http://127.0.0.1.evil.example", "127.0.0.1"),
            ("http://10.0.0.2", "10.0.0.1"),
            ("http://[evil]", "[evil]"),
            ("null", "localhost"),
            ("", ""),
            ("localhost", "localhost"),
        ] {
            assert!(!is_allowed_origin(origin, Some(host), &names(), &[]), "{origin} {host}");
        }
        assert!(!is_allowed_origin("http://10.0.0.1", None, &names(), &[]));
    }

    #[test]
    fn a_configured_origin_is_allowed_for_any_host_name() {
        let is_allowed = |origin: &str, allowed: &str| {
            is_allowed_origin(origin, Some("store.example"), &[], &[allowed.to_owned()])
        };
        assert!(is_allowed("https://dash.example", "https://DASH.example") && is_allowed("null", "null"));
        assert!(is_allowed("https://evil.example", "*"));
        assert!(!is_allowed("https://dash.example:444", "https://dash.example"));
        assert!(!is_allowed("http://dash.example", "https://dash.example"));
    }
}

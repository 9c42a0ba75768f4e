//! Checks of the `Host` and `Origin` headers against DNS rebinding and cross-site requests.

use std::net::IpAddr;

/// Returns whether `host`, a `Host` header or the authority of a URL, is an IP address, `localhost` or one of `names`.
///
/// Other names are refused because of DNS rebinding: a web page can make a name of its own resolve to this server, but it
/// cannot do so with an address or with `localhost`.
#[must_use]
pub fn is_own_host(host: &str, names: &[String]) -> bool {
    let name = without_port(host);
    name.parse::<IpAddr>().is_ok()
        || name.eq_ignore_ascii_case("localhost")
        || names.iter().any(|own| own.eq_ignore_ascii_case(name))
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
    let Some((_, authority)) = origin.split_once("://") else { return false };
    let name = without_port(authority);
    let is_local = name.eq_ignore_ascii_case("localhost")
        || name.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback());
    let is_same = |host: &str| without_port(host).eq_ignore_ascii_case(name) && is_own_host(host, names);
    is_local || host.is_some_and(is_same)
}

fn without_port(authority: &str) -> &str {
    match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => authority.split(':').next().unwrap_or(authority),
    }
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

//! What a browser says of the page behind a request: whether it means this server, and may.

use std::net::IpAddr;

/// Whether a `Host`, or the rest of a URL behind its scheme, is an address, `localhost`, or one of these names.
///
/// No name leads to an address that is asked for as such, so each may be; any other name may be one of the web that was
/// made to lead here.
#[must_use]
pub fn is_own(host: &str, names: &[String]) -> bool {
    let name = without_port(host);
    name.parse::<IpAddr>().is_ok()
        || name.eq_ignore_ascii_case("localhost")
        || names.iter().any(|own| own.eq_ignore_ascii_case(name))
}

/// Whether a page of this `Origin` may use a server that it calls `host`: one of this machine, one from the server's own
/// address or name, and those that are allowed, of which `*` is every one.
#[must_use]
pub fn may_come_from(origin: &str, host: Option<&str>, names: &[String], allowed: &[String]) -> bool {
    if allowed.iter().any(|allowed| allowed == "*" || allowed.eq_ignore_ascii_case(origin)) {
        return true;
    }
    let Some((_, place)) = origin.split_once("://") else { return false };
    let name = without_port(place);
    let is_here = name.eq_ignore_ascii_case("localhost")
        || name.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback());
    let is_same = |host: &str| without_port(host).eq_ignore_ascii_case(name) && is_own(host, names);
    is_here || host.is_some_and(is_same)
}

fn without_port(place: &str) -> &str {
    match place.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => place.split(':').next().unwrap_or(place),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> [String; 1] {
        ["store.example".to_owned()]
    }

    #[test]
    fn a_name_that_was_made_to_lead_here_is_refused() {
        for host in
            ["localhost", "LOCALHOST:1", "127.0.0.1:9090", "[::1]:9090", "10.0.0.1", "store.example:80"]
        {
            assert!(is_own(host, &names()), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "evil.example:9090",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "[evil]",
        ] {
            assert!(!is_own(host, &names()), "{host}");
        }
    }

    #[test]
    fn a_page_of_this_machine_or_of_the_server_itself_may_come_and_no_other() {
        for (origin, host) in [
            ("http://localhost:3000", "127.0.0.1:8080"),
            ("https://127.0.0.1", "10.0.0.1"),
            ("http://[::1]:3000", "localhost"),
            ("http://10.0.0.1:3000", "10.0.0.1:8080"),
            ("https://store.example", "STORE.example:443"),
        ] {
            assert!(may_come_from(origin, Some(host), &names(), &[]), "{origin} {host}");
        }
        for (origin, host) in [
            ("https://evil.example", "127.0.0.1:8080"),
            // Its name was made to lead here.
            ("http://evil.example:8080", "evil.example:8080"),
            ("http://localhost.evil.example", "localhost"),
            ("http://127.0.0.1.evil.example", "127.0.0.1"),
            ("http://10.0.0.2", "10.0.0.1"),
            ("http://[evil]", "[evil]"),
            ("null", "localhost"),
            ("", ""),
            ("localhost", "localhost"),
        ] {
            assert!(!may_come_from(origin, Some(host), &names(), &[]), "{origin} {host}");
        }
        assert!(!may_come_from("http://10.0.0.1", None, &names(), &[]));
    }

    #[test]
    fn a_page_that_is_allowed_may_come_by_any_name() {
        let may = |origin: &str, allowed: &str| {
            may_come_from(origin, Some("store.example"), &[], &[allowed.to_owned()])
        };
        assert!(may("https://dash.example", "https://DASH.example") && may("null", "null"));
        assert!(may("https://evil.example", "*"));
        assert!(!may("https://dash.example:444", "https://dash.example"));
        assert!(!may("http://dash.example", "https://dash.example"));
    }
}

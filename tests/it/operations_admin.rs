//! `serve --admin`: health, metrics and the HTML page.

use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpListener;
use std::process::Stdio;

use super::common::{Place, StreamedProcess, http};

/// Starts a server with an admin listener and returns its process, the broker's URL and the admin port.
pub fn serve(place: &Place, options: &[&str]) -> (StreamedProcess, String, u16) {
    let words = [&["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"], options].concat();
    let server = StreamedProcess::start(place.command(&words).stdout(Stdio::piped()).stderr(Stdio::piped()));
    let ready = server.error_line();
    let port = |before: &str| -> u16 {
        let rest = ready.split(before).nth(1).unwrap();
        rest.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
    };
    let url = format!("mqtt://127.0.0.1:{}", port("listening on 127.0.0.1:"));
    (server, url, port("http://127.0.0.1:"))
}

#[test]
fn a_ready_server_is_healthy() {
    let place = Place::new();
    let (_server, _, port) = serve(&place, &[]);
    let (head, body) = http::get(port, "/healthz");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert_eq!(body, "ok\n");
    let (head, _) = http::ask(port, b"HEAD /healthz HTTP/1.1\r\nHost: [::1]\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
}

#[test]
fn the_page_shows_keys_and_clients_escaped() {
    let place = Place::new();
    let (_server, url, port) = serve(&place, &[]);
    let evil = "<script>document.title='x'</script>";
    assert_eq!(place.run_at(&url, &["set", evil, "\"'><img src=x onerror=alert(1)>"]), "--- exit 0\n");
    assert_eq!(place.run_at(&url, &["set", "long", &"v".repeat(5_000)]), "--- exit 0\n");
    let client_id = "<b>client</b>";
    let watch = ["watch", "long", "-b", &url, "-i", client_id];
    let watch = StreamedProcess::start(place.command(&watch).stdout(Stdio::piped()).stderr(Stdio::piped()));
    assert!(watch.line().contains("CURRENT"));
    let (head, body) = http::get(port, "/");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains("content-security-policy: default-src 'none'; style-src 'self'; "), "{head}");
    assert!(body.contains("&lt;script&gt;document.title=&#39;x&#39;&lt;/script&gt;"), "{body}");
    assert!(body.contains("&quot;&#39;&gt;&lt;img src=x onerror=alert(1)&gt;"), "{body}");
    assert!(body.contains("&lt;b&gt;client&lt;/b&gt;") && body.contains("connected"), "{body}");
    assert!(body.contains(&format!("{}…", "v".repeat(120))) && !body.contains(&"v".repeat(121)), "{body}");
    for harm in ["<script", "<img", "<b>", "http://", "https://", "javascript:", "style=", "<form"] {
        assert!(!body.contains(harm), "{harm}: {body}");
    }
    let (head, style) = http::get(port, "/style.css");
    assert!(
        head.contains("content-type: text/css") && style.contains("prefers-color-scheme: dark"),
        "{head}"
    );
}

#[test]
fn many_keys_are_on_many_pages() {
    let place = Place::new();
    let lines: String =
        (0..250).map(|number| format!("{{\"key\":\"key-{number}\",\"value\":\"v\"}}\n")).collect();
    place.write("seed", lines);
    let (_server, _, port) = serve(&place, &["--seed", "seed"]);
    let (mut path, mut keys, mut pages) = ("/".to_owned(), BTreeSet::new(), 0);
    loop {
        let (_, body) = http::get(port, &path);
        let found = body.split("<code>key-").skip(1).map(|rest| rest.split('<').next().unwrap().to_owned());
        keys.extend(found);
        pages += 1;
        let Some(next) = body.split("<a href=\"/?from=").nth(1) else { break };
        path = format!("/?from={}", next.split('"').next().unwrap());
    }
    assert_eq!((keys.len(), pages), (250, 3));
}

#[test]
fn the_admin_listener_is_read_only_and_checks_the_host_name() {
    let place = Place::new();
    let (_server, _, port) = serve(&place, &[]);
    let status = |request: &str| {
        let (head, _) = http::ask(port, request.as_bytes());
        head.split(' ').nth(1).unwrap().to_owned()
    };
    for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"] {
        let request = format!("{method} / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n");
        assert_eq!(status(&request), "405", "{method}");
    }
    assert_eq!(status("GET /../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n"), "404");
    for host in ["Host: evil.example\r\n", "Host: localhost\r\nHost: evil.example\r\n", ""] {
        assert_eq!(status(&format!("GET / HTTP/1.1\r\n{host}\r\n")), "421", "{host}");
    }
    let endless = format!("GET / HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", "x".repeat(20_000));
    assert_eq!(status(&endless), "431");
    let many = format!("GET / HTTP/1.1\r\nHost: localhost\r\n{}\r\n", "X: x\r\n".repeat(200));
    assert_eq!(status(&many), "431");
}

#[test]
fn an_address_in_use_is_reported_with_a_hint() {
    let place = Place::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let shown = place.run(&["serve", "--listen", "127.0.0.1:0", "--port-file", "port", "--admin", &address]);
    assert!(shown.starts_with(&format!("--- stderr\nerror: cannot listen on {address}: ")), "{shown}");
    assert!(
        shown.ends_with(
            "hint: --admin 127.0.0.1:0 for any free port, or stop the process that listens there\n--- exit 69\n"
        ),
        "{shown}"
    );
    assert!(!place.path("port").exists());
    let shown = place.run_bounded(&["serve", "--admin", "here"]);
    assert!(shown.ends_with("--- exit 2\n"), "{shown}");
}

#[test]
fn a_public_address_causes_a_warning_and_an_unknown_host_name_is_rejected() {
    let place = Place::new();
    let words = ["serve", "--listen", "127.0.0.1:0", "--admin", "0.0.0.0:0"];
    let server = StreamedProcess::start(place.command(&words).stdout(Stdio::piped()).stderr(Stdio::piped()));
    let warning = server.log_line();
    assert!(
        warning.starts_with("warning: every client that can reach 0.0.0.0:0 can read keys and values"),
        "{warning}"
    );
    let (_server, _, port) = serve(&place, &[]);
    let asked = |host: &str| http::ask(port, format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes()).0;
    assert!(asked("10.1.2.3").starts_with("HTTP/1.1 200 "));
    assert!(asked("ip6-localhost").starts_with("HTTP/1.1 421 "));
}

/// A metric family of the text format.
#[derive(Default)]
struct Family {
    kind: String,
    samples: BTreeMap<String, f64>,
}

/// Parses Prometheus's text format 0.0.4 and panics at every deviation.
fn families(text: &str) -> BTreeMap<String, Family> {
    let is_name = |name: &str| {
        let is_first = |c: char| c.is_ascii_alphabetic() || c == '_' || c == ':';
        name.starts_with(is_first) && name.chars().all(|c| is_first(c) || c.is_ascii_digit())
    };
    assert!(text.ends_with('\n') && !text.contains('\r'));
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let mut current = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, words) = help.split_once(' ').unwrap();
            assert!(is_name(name) && !words.is_empty(), "{line}");
            assert!(!families.contains_key(name), "{name} comes twice");
            let kind = lines.next().unwrap().strip_prefix(&format!("# TYPE {name} ")).unwrap();
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{kind}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{name}");
            families.insert(name.to_owned(), Family { kind: kind.to_owned(), ..Family::default() });
            current = name.to_owned();
            continue;
        }
        let (series, value) = line.rsplit_once(' ').unwrap();
        let name = series.split('{').next().unwrap();
        let family = families.get_mut(&current).unwrap();
        let base = match family.kind.as_str() {
            "histogram" => {
                ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end)).unwrap()
            }
            _ => name,
        };
        assert_eq!(base, current, "{line}");
        if let Some(labels) = series.strip_prefix(name).and_then(|rest| rest.strip_prefix('{')) {
            for label in labels.strip_suffix('}').unwrap().split(',') {
                let (label, value) = label.split_once('=').unwrap();
                assert!(is_name(label) && !label.contains(':'), "{line}");
                let value = value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap();
                assert!(!value.contains(['"', '\\', '\n']), "{line}");
            }
        }
        let value = value.parse().unwrap();
        assert!(family.samples.insert(series.to_owned(), value).is_none(), "{series} comes twice");
    }
    families
}

#[test]
fn metrics_are_in_prometheus_format_and_count_the_requests() {
    let place = Place::new();
    let (_server, url, port) = serve(&place, &["--data", "data"]);
    for words in [&["set", "k", "value"][..], &["set", "k", "v", "--nx"], &["get", "k"], &["get", "none"]] {
        place.run_at(&url, words);
    }
    assert!(place.run_at(&url, &["raw", "NONSENSE"]).ends_with("--- exit 76\n"));
    let (head, body) = http::get(port, "/metrics");
    assert!(head.contains("content-type: text/plain; version=0.0.4; charset=utf-8\r\n"), "{head}");
    let families = families(&body);
    let value = |series: &str| families[series.split('{').next().unwrap()].samples[series];
    for (series, expected) in [
        ("mqkv_requests_total{verb=\"set\",outcome=\"ok\"}", 1.0),
        ("mqkv_requests_total{verb=\"set\",outcome=\"no\"}", 1.0),
        ("mqkv_requests_total{verb=\"get\",outcome=\"ok\"}", 1.0),
        ("mqkv_requests_total{verb=\"get\",outcome=\"no\"}", 1.0),
        ("mqkv_requests_total{verb=\"unknown\",outcome=\"refused\"}", 1.0),
        ("mqkv_keys", 1.0),
        ("mqkv_stored_bytes", 6.0),
        ("mqkv_watches", 0.0),
        ("mqkv_disk_failed", 0.0),
        ("mqkv_connections_accepted_total", 5.0),
    ] {
        assert!((value(series) - expected).abs() < 1e-9, "{series}: {}", value(series));
    }
    assert!(families["mqkv_commit_duration_seconds"].samples["mqkv_commit_duration_seconds_count"] >= 1.0);
    for (name, family) in families.iter().filter(|(_, family)| family.kind == "histogram") {
        check_histogram(name, family);
    }
}

fn check_histogram(name: &str, family: &Family) {
    let mut of: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
    for (series, count) in &family.samples {
        if let Some(labels) = series.strip_prefix(&format!("{name}_bucket{{")) {
            let (labels, bound) = labels.rsplit_once("le=\"").unwrap();
            let bound = match bound.trim_end_matches("\"}") {
                "+Inf" => f64::INFINITY,
                bound => bound.parse().unwrap(),
            };
            of.entry(labels.trim_end_matches(',').to_owned()).or_default().push((bound, *count));
        }
    }
    assert!(!of.is_empty(), "{name}");
    for (labels, mut buckets) in of {
        buckets.sort_by(|(one, _), (other, _)| one.total_cmp(other));
        assert!(buckets.is_sorted_by(|(_, one), (_, other)| one <= other), "{name}: {buckets:?}");
        let labels = if labels.is_empty() { labels } else { format!("{{{labels}}}") };
        let count = family.samples[&format!("{name}_count{labels}")];
        assert_eq!(buckets.last(), Some(&(f64::INFINITY, count)), "{name}");
        assert!(family.samples.contains_key(&format!("{name}_sum{labels}")), "{name}");
    }
}

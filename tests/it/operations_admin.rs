//! `serve --admin`: health, metrics and the HTML page.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::process::Stdio;

use super::common::{Place, RawClient, StreamedProcess, http, wait_until, wire};

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

/// Returns the cells of the rows of a list, without markup.
pub fn rows(page: &str, list: &str) -> Vec<Vec<String>> {
    let table = page.split(&format!("<div id=\"{list}-list\"")).nth(1).unwrap();
    let body = table.split("<tbody>").nth(1).unwrap().split("</tbody>").next().unwrap();
    let text = |cell: &str| {
        let mut text = String::new();
        let mut is_markup = true;
        for c in cell.chars() {
            match c {
                '<' => is_markup = true,
                '>' => is_markup = false,
                _ if !is_markup => text.push(c),
                _ => {}
            }
        }
        text
    };
    body.lines()
        .filter(|line| line.starts_with("<tr"))
        .map(|line| {
            line.replace("</time>", "")
                .split("</t")
                .take_while(|cell| !cell.starts_with("r>"))
                .map(|cell| text(&cell[2..]))
                .collect()
        })
        .collect()
}

/// Returns the first cell of each row of the list of keys.
fn keys(page: &str) -> Vec<String> {
    rows(page, "keys").into_iter().map(|row| row[0].clone()).collect()
}

#[test]
fn the_page_shows_keys_and_clients_escaped_and_values_on_request() {
    let place = Place::new();
    let (_server, url, port) = serve(&place, &[]);
    let evil = "<script>document.title='x'</script>";
    assert_eq!(place.run_at(&url, &["set", evil, "\"'><img src=x onerror=alert(1)>"]), "--- exit 0\n");
    assert_eq!(place.run_at(&url, &["set", "long", &"v".repeat(50_000)]), "--- exit 0\n");
    let client_id = "<i>client</i>";
    let watch = ["watch", "long", "-b", &url, "-i", client_id];
    let watch = StreamedProcess::start(place.command(&watch).stdout(Stdio::piped()).stderr(Stdio::piped()));
    assert!(watch.line().contains("CURRENT"));
    let (head, body) = http::get(port, "/");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    let policy = "content-security-policy: default-src 'none'; style-src 'self'; script-src 'self'; \
                  connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'\r\n";
    assert!(head.contains(policy), "{head}");
    assert_eq!(keys(&body), ["&lt;script&gt;document.title=&#39;x&#39;&lt;/script&gt;", "long"]);
    assert_eq!(rows(&body, "keys")[1][1..4], ["48.8 KiB", "never", "1"]);
    assert!(!body.contains("onerror") && !body.contains("vvv"), "values are shown on request only: {body}");
    let links: Vec<_> =
        body.split("href=\"/key?").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    let (head, value) = http::get(port, &format!("/key?{}", links[0]));
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(value.contains("<pre tabindex"), "{value}");
    assert!(value.contains("&quot;&#39;&gt;&lt;img src=x onerror=alert(1)&gt;"), "{value}");
    let (_, long) = http::get(port, "/key?key=long");
    assert!(long.contains(&"v".repeat(16_384)) && !long.contains(&"v".repeat(16_385)));
    assert!(long.contains("The first 16 KiB of 48.8 KiB"), "{long}");
    for absent in ["/key?key=none", "/key?key=", "/key"] {
        let (head, absent) = http::get(port, absent);
        assert!(head.starts_with("HTTP/1.1 404 ") && absent.contains("no such key"), "{head}{absent}");
    }
    for page in [&body, &value] {
        assert_eq!(
            page.matches("<script").count(),
            page.matches("<script src=\"/script.js\" defer>").count()
        );
        for harm in ["<img", "<i>", "http://", "https://", "javascript:", " style=", " onclick=", "<style"] {
            assert!(!page.contains(harm), "{harm}: {page}");
        }
    }
    let (head, style) = http::get(port, "/style.css");
    assert!(
        head.contains("content-type: text/css") && style.contains("prefers-color-scheme: dark"),
        "{head}"
    );
    assert!(!style.contains("url(") && !style.contains("@import"), "nothing is loaded from elsewhere");
    let (head, script) = http::get(port, "/script.js");
    assert!(head.contains("content-type: text/javascript") && !script.contains("://"), "{head}");
}

#[test]
fn clients_are_listed_with_what_an_operator_looks_for() {
    let place = Place::new();
    let (_server, url, port) = serve(&place, &[]);
    let client_id = "<i>client</i>";
    let watch = ["watch", "a", "b", "-b", &url, "-i", client_id];
    let watch = StreamedProcess::start(place.command(&watch).stdout(Stdio::piped()).stderr(Stdio::piped()));
    assert!(watch.line().contains("CURRENT") && watch.line().contains("CURRENT"));
    // The watch may have received the keys before the broker has its acknowledgements.
    let body = wait_until("the queue is empty", || {
        let (_, body) = http::get(port, "/?clients=client&clients-sort=-since");
        rows(&body, "clients").first().is_some_and(|row| row[6] == "0").then_some(body)
    });
    assert!(body.find("id=\"clients\"") < body.find("id=\"keys\""), "clients are before keys");
    let rows_found = rows(&body, "clients");
    assert_eq!(rows_found.len(), 1, "{body}");
    let row = &rows_found[0];
    assert_eq!((row[0].as_str(), row[2].as_str()), ("&lt;i&gt;client&lt;/i&gt;", "anonymous"));
    assert!(row[1].starts_with("127.0.0.1:") && row[3].ends_with(" s"), "{row:?}");
    assert_eq!(row[5..8], ["2", "0", "0 B"], "watches and queue");
    let count = |query: &str| rows(&http::get(port, query).1, "clients").len();
    assert_eq!((count("/?clients=127.0.0.1"), count("/?clients=nowhere")), (1, 0));
}

#[test]
fn many_clients_are_on_many_pages_and_their_ids_are_cut() {
    let place = Place::new();
    let (_server, url, port) = serve(&place, &[]);
    let broker_port = url.rsplit(':').next().unwrap().parse().unwrap();
    let clients: Vec<_> = (0..60)
        .map(|number| {
            let mut client = RawClient::connect(broker_port);
            client.send(&wire::connect(&format!("client-{number:02}-{}", "<".repeat(5_000))));
            assert_eq!(client.receive().unwrap().name(), "CONNACK");
            client
        })
        .collect();
    let (_, first) = http::get(port, "/?clients-sort=-id");
    let (_, second) = http::get(port, "/?clients-sort=-id&clients-skip=50");
    let ids = |page: &str| rows(page, "clients").into_iter().map(|row| row[0].clone()).collect::<Vec<_>>();
    assert_eq!((ids(&first).len(), ids(&second).len()), (50, 10));
    assert!(ids(&first)[0].starts_with("client-59-&lt;") && ids(&first)[0].ends_with("…"), "{first}");
    assert!(first.contains("1–50 of 60 clients") && first.len() < 100_000, "{} bytes", first.len());
    drop(clients);
}

#[test]
fn many_keys_are_on_many_pages_filtered_and_sorted() {
    let place = Place::new();
    let lines: String = (0..250)
        .map(|number| format!("{{\"key\":\"key-{number:03}\",\"value\":\"{}\"}}\n", "v".repeat(number)))
        .collect();
    place.write("seed", lines);
    let (_server, _, port) = serve(&place, &["--seed", "seed"]);
    let (mut path, mut found, mut pages) = ("/?keys-sort=-size".to_owned(), Vec::new(), 0);
    loop {
        let (_, body) = http::get(port, &path);
        found.extend(keys(&body));
        pages += 1;
        let Some(before) = body.split("\">Next</a>").next().filter(|before| before.len() < body.len()) else {
            break;
        };
        path = before.rsplit("href=\"").next().unwrap().split('#').next().unwrap().replace("&amp;", "&");
    }
    let expected: Vec<_> = (0..250).rev().map(|number| format!("key-{number:03}")).collect();
    assert_eq!((pages, found), (5, expected));
    assert_eq!(keys(&http::get(port, "/?keys=y-00").1).len(), 10);
    assert_eq!(keys(&http::get(port, "/?keys=key-%3F%3F7&keys-sort=-key").1)[0], "key-247");
    let (_, invalid) = http::get(port, "/?keys=%5B");
    assert!(invalid.contains("The filter is not a valid pattern"), "{invalid}");
}

#[test]
fn the_page_is_bounded_whatever_clients_have_stored() {
    let place = Place::new();
    let key = "\u{202e}<\"'&\u{1}".repeat(92);
    let lines: String = (0..300)
        .map(|number| {
            format!("{}\n", serde_json::json!({"key": format!("{number}{key}"), "value": key.repeat(50)}))
        })
        .collect();
    place.write("seed", lines);
    let (_server, _, port) = serve(&place, &["--seed", "seed"]);
    let (_, body) = http::get(port, "/");
    assert_eq!(keys(&body).len(), 50);
    assert!(body.len() < 400_000, "{} bytes", body.len());
    let link = body.split("href=\"/key?").nth(1).unwrap().split('"').next().unwrap();
    let (_, body) = http::get(port, &format!("/key?{link}"));
    assert!(body.contains("Value size") && body.len() < 300_000, "{} bytes", body.len());
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
pub struct Family {
    kind: String,
    pub samples: BTreeMap<String, f64>,
}

/// Parses Prometheus's text format 0.0.4 and panics at every deviation.
pub fn families(text: &str) -> BTreeMap<String, Family> {
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
        ("mqkv_keys_max", 1e7),
        ("mqkv_connections_max", 10_000.0),
        ("mqkv_sessions_max", 20_000.0),
        ("mqkv_watches", 0.0),
        ("mqkv_recorded_reply_max_bytes", 64.0 * 1024.0 * 1024.0),
        ("mqkv_recorded_replies_forgotten_total", 0.0),
        ("mqkv_disk_short_of_room", 0.0),
        ("mqkv_disk_reserve_max_bytes", 4.0 * 1024.0 * 1024.0),
        ("mqkv_snapshots_failed_total", 0.0),
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

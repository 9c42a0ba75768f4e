//! The status page: HTML without scripts or external resources.

use std::fmt::Write;
use std::time::Duration;

use super::metrics::{Histogram, Outcome, Verb};
use super::monitor::{Rates, ServerMonitor};
use crate::broker::ClientStatistics;
use crate::store::{KeySummary, Page};

/// The most keys on one page.
const KEYS_MAX: usize = 100;
/// The most clients in the list.
const CLIENTS_MAX: usize = 100;
/// The most bytes of a key or value that are shown.
const SHOWN_BYTES_MAX: usize = 120;
/// Reload interval of the page, in seconds.
const REFRESH_S: u32 = 5;

/// The style sheet.
pub const STYLE: &str = "\
:root { color-scheme: light dark; --line: #8884; --dim: #777; --bad: #c33; --good: #2a7; }
@media (prefers-color-scheme: dark) { :root { --dim: #999; --bad: #f77; --good: #5c9; } }
* { box-sizing: border-box; }
body { font: 15px/1.45 system-ui, sans-serif; margin: 0 auto; max-width: 72rem; padding: 1rem; }
h1 { font-size: 1.3rem; margin: 0 0 .2rem; } h2 { font-size: 1.05rem; margin: 1.6rem 0 .4rem; }
p { margin: .2rem 0; color: var(--dim); } .bad { color: var(--bad); } .good { color: var(--good); }
dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(9rem, 1fr)); gap: .5rem; margin: 1rem 0; }
dl div { border: 1px solid var(--line); border-radius: .4rem; padding: .4rem .6rem; }
dt { color: var(--dim); font-size: .85rem; } dd { margin: 0; font-size: 1.15rem; font-variant-numeric: tabular-nums; }
.wide { overflow-x: auto; } table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .25rem .6rem .25rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
th { color: var(--dim); font-weight: 500; font-size: .85rem; white-space: nowrap; }
td + td, th + th { padding-left: .6rem; } td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
code { font: 13px/1.4 ui-monospace, monospace; overflow-wrap: anywhere; unicode-bidi: isolate; }
";

/// Returns the page. `from` is the index of the first key.
pub fn html(monitor: &ServerMonitor, from: u32) -> String {
    let page = monitor.service.page(from, KEYS_MAX);
    let clients = monitor.broker.clients(CLIENTS_MAX);
    let mut html = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>mqkv</title>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"refresh\" content=\"{REFRESH_S}\">\n\
         <link rel=\"stylesheet\" href=\"/style.css\">\n</head>\n<body>\n"
    );
    head(&mut html, monitor);
    numbers(&mut html, monitor);
    requests(&mut html, monitor);
    keys(&mut html, &page, from);
    list_clients(&mut html, &clients, monitor.broker.statistics().sessions);
    html.push_str("</body>\n</html>\n");
    html
}

fn head(html: &mut String, monitor: &ServerMonitor) {
    let (class, state) = monitor.unavailable_reason().map_or(("good", "serving"), |reason| ("bad", reason));
    let uptime = duration_text(Duration::from_secs(monitor.uptime().as_secs()));
    put(
        html,
        &format!(
            "<h1>mqkv</h1>\n<p><span class=\"{class}\">{state}</span>, version {}, up for {uptime}; \
             <a href=\"/metrics\">metrics</a>, <a href=\"/healthz\">health</a></p>\n",
            env!("CARGO_PKG_VERSION")
        ),
    );
}

fn numbers(html: &mut String, monitor: &ServerMonitor) {
    let (service, statistics, rates) =
        (monitor.service.statistics(), monitor.broker.statistics(), monitor.rates());
    let memory = monitor.broker.memory();
    let Rates { requests, packets_received, packets_sent, bytes_received, bytes_sent } = rates;
    let numbers = [
        ("keys", service.store.keys.to_string()),
        ("bytes", service.store.bytes.to_string()),
        ("watches", service.store.watches.to_string()),
        ("clients connected", statistics.connected.to_string()),
        ("sessions", statistics.sessions.to_string()),
        ("subscriptions", statistics.subscriptions.to_string()),
        ("messages waiting", statistics.queued.to_string()),
        ("logins waiting", monitor.identities.login_queue().waiting().to_string()),
        ("failed logins per address", format!("≤ {} / min", monitor.identities.login_queue().failures_max())),
        (
            "bytes with overhead",
            format!("{} of {}", service.store.memory_bytes, service.store.memory_bytes_max),
        ),
        ("bytes of the broker", format!("{} of {}", memory.used(), memory.bytes_max())),
        ("waiting for the disk", service.waiting_for_commit.to_string()),
        ("bytes of recorded replies", service.recorded_bytes.to_string()),
        ("requests a second", format!("{requests:.1}")),
        ("packets in a second", format!("{packets_received:.1}")),
        ("packets out a second", format!("{packets_sent:.1}")),
        ("bytes in a second", format!("{bytes_received:.0}")),
        ("bytes out a second", format!("{bytes_sent:.0}")),
    ];
    html.push_str("<dl>\n");
    for (name, number) in numbers {
        put(html, &format!("<div><dt>{name}</dt><dd>{number}</dd></div>\n"));
    }
    html.push_str("</dl>\n");
}

fn requests(html: &mut String, monitor: &ServerMonitor) {
    let metrics = monitor.metrics();
    html.push_str(
        "<h2>Requests</h2>\n<div class=\"wide\"><table>\n<tr><th>verb</th><th class=\"n\">ok</th><th class=\"n\">no</th>\
         <th class=\"n\">refused</th><th class=\"n\">mean</th></tr>\n",
    );
    for verb in Verb::ALL {
        let count = |outcome| metrics.requests(verb, outcome);
        let mean = metrics.latency(verb).and_then(mean).map_or_else(String::new, |us| format!("{us:.0} µs"));
        put(
            html,
            &format!(
                "<tr><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>\
                 <td class=\"n\">{mean}</td></tr>\n",
                verb.name(),
                count(Outcome::Ok),
                count(Outcome::No),
                count(Outcome::Refused),
            ),
        );
    }
    html.push_str("</table></div>\n");
}

/// Returns the mean in microseconds.
#[expect(clippy::cast_precision_loss, reason = "a mean need not be exact")]
fn mean(histogram: &Histogram) -> Option<f64> {
    let count = histogram.count();
    (count > 0).then(|| histogram.sum_s() * 1e6 / count as f64)
}

fn keys(html: &mut String, page: &Page, from: u32) {
    html.push_str("<h2>Keys</h2>\n");
    if page.keys.is_empty() {
        html.push_str("<p>none here</p>\n");
    } else {
        html.push_str(
            "<div class=\"wide\"><table>\n<tr><th>key</th><th>value</th><th class=\"n\">bytes</th>\
             <th class=\"n\">expires in</th><th class=\"n\">watchers</th><th>version</th></tr>\n",
        );
        for row in &page.keys {
            put(html, &key(row));
        }
        html.push_str("</table></div>\n");
    }
    let first = if from > 0 { "<a href=\"/\">first</a> " } else { "" };
    let next = page.next.map_or_else(String::new, |next| format!("<a href=\"/?from={next}\">more</a>"));
    put(html, &format!("<p>{first}{next}</p>\n"));
}

fn key(row: &KeySummary) -> String {
    let expires =
        row.ttl_ms.map_or_else(String::new, |ms| duration_text(Duration::from_secs(ms.div_ceil(1_000))));
    let fence = if row.is_fenced { ", fenced" } else { "" };
    format!(
        "<tr><td><code>{}</code></td><td><code>{}</code></td><td class=\"n\">{}</td><td class=\"n\">{expires}</td>\
         <td class=\"n\">{}</td><td><code>{}:{}{fence}</code></td></tr>\n",
        shown(&row.key, row.key_len),
        shown(&row.value, row.value_len),
        row.value_len,
        row.watchers,
        row.version.ms,
        row.version.counter,
    )
}

fn list_clients(html: &mut String, clients: &[ClientStatistics], all: usize) {
    html.push_str("<h2>Clients</h2>\n");
    if clients.is_empty() {
        html.push_str("<p>none here</p>\n");
        return;
    }
    html.push_str(
        "<div class=\"wide\"><table>\n<tr><th>client id</th><th>state</th><th class=\"n\">subscriptions</th>\
         <th class=\"n\">messages waiting</th></tr>\n",
    );
    for client in clients {
        let state = if client.is_connected { "connected" } else { "away" };
        let id = client.client_id.as_bytes();
        put(
            html,
            &format!(
                "<tr><td><code>{}</code></td><td>{state}</td><td class=\"n\">{}</td><td class=\"n\">{}</td></tr>\n",
                shown(id, id.len()),
                client.subscriptions,
                client.queued,
            ),
        );
    }
    html.push_str("</table></div>\n");
    if all > clients.len() {
        put(html, &format!("<p>{} of {all} sessions</p>\n", clients.len()));
    }
}

/// Returns the beginning of untrusted bytes as HTML text: markup, control characters and bidirectional marks are escaped.
/// `len` is the number of all bytes; the text ends with an ellipsis if it is cut.
fn shown(bytes: &[u8], len: usize) -> String {
    let mut bytes = bytes.get(..SHOWN_BYTES_MAX).unwrap_or(bytes);
    let is_cut = bytes.len() < len;
    if is_cut
        && let Err(error) = std::str::from_utf8(bytes)
        && error.error_len().is_none()
    {
        // An incomplete last character is left out.
        bytes = bytes.get(..error.valid_up_to()).unwrap_or(bytes);
    }
    let mut text = String::new();
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '&' => text.push_str("&amp;"),
                '<' => text.push_str("&lt;"),
                '>' => text.push_str("&gt;"),
                '"' => text.push_str("&quot;"),
                '\'' => text.push_str("&#39;"),
                // Escapes control characters and bidirectional marks, among others.
                _ => text.extend(c.escape_debug()),
            }
        }
        for byte in chunk.invalid() {
            put(&mut text, &format!("\\x{byte:02x}"));
        }
    }
    if is_cut {
        text.push('…');
    }
    text
}

fn duration_text(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{} h {} min", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds % 86_400 / 3_600),
    }
}

fn put(html: &mut String, text: &str) {
    // Writing to a String does not fail.
    let _ = html.write_str(text);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn untrusted_bytes_are_escaped() {
        let of = |bytes: &[u8]| shown(bytes, bytes.len());
        assert_eq!(
            of(b"<script>alert('1')</script>&\""),
            "&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;&amp;&quot;"
        );
        assert_eq!(of(b"a\xff\x00\x1b[31m"), "a\\xff\\0\\u{1b}[31m");
        assert_eq!(of("\u{202e}ä".as_bytes()), "\\u{202e}ä");
        assert_eq!(of(b"\\"), "\\\\");
    }

    #[test]
    fn long_values_are_cut_with_an_ellipsis() {
        let long = "ä".repeat(100);
        let text = shown(long.as_bytes().get(..SHOWN_BYTES_MAX + 1).unwrap(), long.len());
        assert_eq!(text, format!("{}…", "ä".repeat(60)));
        assert_eq!(shown(b"abc", 4), "abc…");
        let odd = ["a", &"ä".repeat(100)].concat();
        assert!(shown(odd.as_bytes(), odd.len()).ends_with("ä…"));
    }

    #[test]
    fn durations_have_at_most_two_units() {
        let of = |seconds| duration_text(Duration::from_secs(seconds));
        assert_eq!(
            (of(59), of(61), of(3_661), of(90_000)),
            ("59 s".into(), "1 min 1 s".into(), "1 h 1 min".into(), "1 d 1 h".into())
        );
    }
}

//! The status page: HTML that needs no script, and a script that updates it.

mod chart;
mod clients;
mod cluster;
mod exchange;
mod keys;
mod parts;
mod query;
mod selection;
mod table;
mod text;

use std::time::Duration;

use self::chart::{Chart, Line, Scale};
use self::parts::{cards, live, number_of, section, share};
use self::query::Query;
use super::monitor::{Quantiles, Rates, ServerMonitor, TRENDS_SPAN, Trend};
use crate::broker::Statistics;
use crate::clock;
use crate::ledger::RESERVE_BYTES;
use crate::protocol::Key;
use crate::protocol::reply::Outcome;
use crate::server::metrics::{Histogram, Verb};
use crate::server::service::ServiceStatistics;

/// The style sheet.
pub const STYLE: &str = include_str!("page/style.css");
/// The script.
pub const SCRIPT: &str = include_str!("page/script.js");

/// Returns the page for a query.
pub async fn html(monitor: &ServerMonitor, query: &str) -> String {
    let query = Query::parse(query);
    let _turn = monitor.page_turn.lock().await;
    let (clients, statistics) = clients::html(monitor, &query).await;
    let service = monitor.service.statistics();
    let keys = keys::html(monitor, &query, service.store.keys).await;
    let exchange = exchange::html(monitor, &query).await;
    let exchange = exchange.map(|exchange| section("exchange", "Exchange", &exchange)).unwrap_or_default();
    let contents = [
        section("trends", "Last ten minutes", &live("trends-now", &trends(monitor))),
        section("numbers", "Now", &live("numbers-now", &numbers(monitor, &statistics, &service))),
        exchange,
        section("clients", "Clients", &clients),
        section("requests", "Requests since the start", &live("requests-now", &requests(monitor))),
        section("keys", "Keys", &keys),
    ];
    document("mqkv", monitor, &contents.concat())
}

/// Returns the page of one key with its value; false if it is absent.
pub fn key_html(monitor: &ServerMonitor, query: &str) -> (bool, String) {
    let bytes = query::key(query).unwrap_or_default();
    let shown = text::escape(&bytes);
    let key = Key::new(bytes).ok();
    let detail = key.and_then(|key| keys::detail(monitor, &key));
    let is_found = detail.is_some();
    let detail = detail.unwrap_or_else(|| "<p class=\"bad\">There is no such key.</p>\n".to_owned());
    let contents = format!(
        "<p><a href=\"/#keys\"><span aria-hidden=\"true\">←</span> All keys</a></p>\n<h2 class=\"key\"><code>{shown}</code></h2>\n{}",
        live("key-now", &detail)
    );
    (is_found, document("Key – mqkv", monitor, &contents))
}

fn document(title: &str, monitor: &ServerMonitor, contents: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>{title}</title>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <link rel=\"stylesheet\" href=\"/style.css\">\n<script src=\"/script.js\" defer></script>\n</head>\n<body>\n\
         {}<main>\n{contents}</main>\n</body>\n</html>\n",
        header(monitor)
    )
}

fn header(monitor: &ServerMonitor) -> String {
    let (class, state) = monitor.unavailable_reason().map_or(("good", "serving"), |reason| ("bad", reason));
    let uptime = text::time(monitor.started_ms, &text::duration(monitor.uptime()));
    let state = live("state", &format!("<span class=\"{class}\">{state}</span>")).replacen(
        "<div",
        "<div role=\"status\"",
        1,
    );
    let uptime = live("uptime", &format!("version {}, up for {uptime}", env!("CARGO_PKG_VERSION")));
    let exchange = if monitor.service.takes_part() { "<a href=\"/#exchange\">Exchange</a> " } else { "" };
    format!(
        "<header>\n<h1><a href=\"/\">mqkv</a></h1>\n{state}{uptime}\
         <div class=\"updates\"><span id=\"updates\" role=\"status\"></span>\
         <button type=\"button\" id=\"pause\" hidden>Pause updates</button>\
         <noscript><a href=\"\">Reload</a></noscript></div>\n\
         <nav aria-label=\"Sections\"><a href=\"/#trends\">Trends</a> {exchange}<a href=\"/#clients\">Clients</a> \
         <a href=\"/#requests\">Requests</a> <a href=\"/#keys\">Keys</a> <a href=\"/metrics\">Metrics</a> \
         <a href=\"/healthz\">Health</a></nav>\n</header>\n"
    )
}

fn trends(monitor: &ServerMonitor) -> String {
    let trends = monitor.trends(clock::monotonic());
    let points = |value: fn(&Trend) -> Option<f64>| -> Vec<(Duration, Option<f64>)> {
        trends.iter().map(|trend| (trend.age, value(trend))).collect()
    };
    let greatest = |points: &[(Duration, Option<f64>)]| {
        points.iter().filter_map(|(_, value)| *value).fold(0.0, f64::max)
    };
    let last =
        |points: &[(Duration, Option<f64>)]| points.last().and_then(|(_, value)| *value).unwrap_or(0.0);
    let latency = |us: Option<f64>| us.map_or_else(|| "–".to_owned(), text::latency);
    let Rates { requests: requests_now, latency_us, .. } = monitor.rates();

    let requests = points(|trend| Some(trend.requests));
    let most = greatest(&requests);
    let requests = Chart {
        id: "chart-requests",
        title: "Requests a second",
        description: format!(
            "Requests a second in the last ten minutes: now {}, at most {}.",
            text::rate(requests_now),
            text::rate(most)
        ),
        scale: Scale::linear(most),
        format: text::rate,
        span: TRENDS_SPAN,
        lines: vec![Line { name: "", now: text::rate(requests_now), points: requests }],
    };

    let p50 = points(|trend| trend.latency_us.map(|us| us.p50));
    let p99 = points(|trend| trend.latency_us.map(|us| us.p99));
    let (p50_now, p99_now) = (latency(latency_us.map(|us| us.p50)), latency(latency_us.map(|us| us.p99)));
    let latencies = Chart {
        id: "chart-latency",
        title: "Latency",
        description: format!(
            "Latency of requests in the last ten minutes: median now {p50_now}, 99th percentile now {p99_now}, \
             at most {}.",
            latency(Some(greatest(&p99)).filter(|us| *us > 0.0)),
        ),
        scale: Scale::decades(p50.iter().chain(&p99).filter_map(|(_, value)| *value)),
        format: text::latency,
        span: TRENDS_SPAN,
        lines: vec![
            Line { name: "p99", now: p99_now, points: p99 },
            Line { name: "p50", now: p50_now, points: p50 },
        ],
    };

    #[expect(clippy::cast_precision_loss, reason = "a drawing need not be exact")]
    let (store, broker) =
        (points(|trend| Some(trend.memory.store as f64)), points(|trend| Some(trend.memory.broker as f64)));
    let (store_now, broker_now) = (bytes_of(last(&store)), bytes_of(last(&broker)));
    let memory = Chart {
        id: "chart-memory",
        title: "Memory",
        description: format!(
            "Memory in the last ten minutes: keys and values now {store_now}, broker now {broker_now}."
        ),
        scale: Scale::bytes(greatest(&store).max(greatest(&broker))),
        format: bytes_of,
        span: TRENDS_SPAN,
        lines: vec![
            Line { name: "store", now: store_now, points: store },
            Line { name: "broker", now: broker_now, points: broker },
        ],
    };
    format!("<div class=\"charts\">{}{}{}</div>\n", requests.html(), latencies.html(), memory.html())
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a whole number that was converted"
)]
fn bytes_of(number: f64) -> String {
    text::bytes(number as u64)
}

fn numbers(monitor: &ServerMonitor, statistics: &Statistics, service: &ServiceStatistics) -> String {
    let (memory, rates) = (monitor.broker.memory(), monitor.rates());
    let logins = monitor.identities.login_limit();
    let count = |number: usize| text::count(number_of(number));
    let of = |number: usize, max: usize| format!("{} of {}", count(number), count(max));
    let with_bytes =
        |number: usize, bytes: usize| format!("{}, {}", count(number), text::bytes(number_of(bytes)));
    let bytes_per_s = |rate: f64| format!("{}/s", bytes_of(rate));
    let store = &service.store;
    let mut shown = vec![
        (
            "Store",
            vec![
                ("Keys", of(store.keys, store.keys_max)),
                ("Keys and values", text::bytes(store.bytes)),
                ("Memory", share(store.memory_bytes, store.memory_bytes_max)),
                (
                    "Recorded replies",
                    share(number_of(service.recorded_bytes), number_of(service.recorded_bytes_max)),
                ),
                ("Watches", of(store.watches, store.watches_max)),
            ],
        ),
        (
            "Broker",
            vec![
                ("Connections", of(statistics.connected, statistics.connections_max)),
                ("Sessions", of(statistics.sessions, statistics.sessions_max)),
                ("Subscriptions", count(statistics.subscriptions)),
                ("Waiting messages", with_bytes(statistics.queued, statistics.queued_bytes)),
                ("Retained", with_bytes(statistics.retained, statistics.retained_bytes)),
                ("Memory", share(number_of(memory.used()), number_of(memory.bytes_max()))),
            ],
        ),
        (
            "Traffic",
            vec![
                ("Requests", format!("{}/s", text::rate(rates.requests))),
                ("Packets in", format!("{}/s", text::rate(rates.packets_received))),
                ("Packets out", format!("{}/s", text::rate(rates.packets_sent))),
                ("Bytes in", bytes_per_s(rates.bytes_received)),
                ("Bytes out", bytes_per_s(rates.bytes_sent)),
            ],
        ),
        (
            "Logins",
            vec![
                ("Waiting", count(logins.waiting())),
                ("Failures allowed", format!("{}/min", logins.failures_max())),
                ("Refused above that", text::count(logins.limited())),
                ("Connections refused", text::count(monitor.metrics().refused.get())),
                ("Not authorized", text::count(monitor.metrics().not_authorized.get())),
            ],
        ),
    ];
    if let Some(disk) = service.disk {
        let (p50, p99) = quantiles(&monitor.metrics().commits);
        let reserve = match disk.is_short_of_room {
            true => format!("<span class=\"bad\">no room for {}</span>", text::bytes(RESERVE_BYTES)),
            false => format!("up to {}", text::bytes(RESERVE_BYTES)),
        };
        shown.push((
            "Disk",
            vec![
                ("Waiting replies", count(service.waiting_for_commit)),
                ("Commits", text::count(monitor.metrics().commits.count())),
                ("Commit, p50", p50),
                ("Commit, p99", p99),
                ("Reserve", reserve),
            ],
        ));
    }
    shown.extend(cluster::rows(monitor.metrics()).map(|rows| ("Cluster", rows)));
    cards(shown)
}

/// Returns the median and the 99th percentile.
fn quantiles(histogram: &Histogram) -> (String, String) {
    let quantiles = Quantiles::of(&histogram.counts());
    let none = || ("–".to_owned(), "–".to_owned());
    quantiles.map_or_else(none, |of| (text::latency(of.p50), text::latency(of.p99)))
}

fn requests(monitor: &ServerMonitor) -> String {
    let metrics = monitor.metrics();
    let row = |verb: Verb| {
        let outcomes: String = Outcome::ALL
            .into_iter()
            .map(|outcome| format!("<td class=\"n\">{}</td>", text::count(metrics.requests(verb, outcome))))
            .collect();
        let (p50, p99) = metrics.latency(verb).map(quantiles).unwrap_or_default();
        format!(
            "<tr><th scope=\"row\">{}</th>{outcomes}<td class=\"n\">{p50}</td><td class=\"n\">{p99}</td></tr>\n",
            verb.name()
        )
    };
    let headings: String = ["ok", "no", "refused", "p50", "p99"]
        .into_iter()
        .map(|title| format!("<th scope=\"col\" class=\"n\">{title}</th>"))
        .collect();
    format!(
        "<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"Table of requests\"><table>\n\
         <caption class=\"hidden\">Requests</caption>\n\
         <thead><tr><th scope=\"col\">Command</th>{headings}</tr></thead>\n<tbody>\n{}</tbody>\n</table></div>\n",
        Verb::ALL.into_iter().map(row).collect::<String>(),
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::broker::{Broker, Hooks, Settings};
    use crate::server::service::{Service, StoreSettings, recorded_bytes_max};
    use crate::store::Limits;

    fn monitor() -> ServerMonitor {
        let service = Service::open(StoreSettings::default(), Arc::new(|_| {}), Arc::default()).unwrap();
        let hooks = Hooks::new(Arc::<Service>::clone(&service));
        ServerMonitor::new(Broker::new(Settings::default(), hooks), service)
    }

    #[tokio::test]
    async fn the_trends_show_rates_latencies_and_memory_with_units() {
        let monitor = monitor();
        let now = clock::monotonic();
        for age_s in [4, 2, 0] {
            monitor.take_sample(now.checked_sub(Duration::from_secs(age_s)).unwrap());
            for _ in 0..100 {
                monitor.metrics().count_request(Verb::Get, Outcome::Ok, Duration::from_micros(8));
            }
            monitor.metrics().count_request(Verb::Set, Outcome::Ok, Duration::from_millis(4));
        }
        let html = html(&monitor, "").await;
        assert!(html.contains("Requests a second in the last ten minutes: now 51, at most 51."), "{html}");
        // 101 requests in each interval: the 99th percentile is among the fast ones.
        assert!(html.contains("median now 7.5 µs, 99th percentile now 10 µs, at most 10 µs."), "{html}");
        assert!(html.contains("keys and values now 0 B, broker now 0 B."), "{html}");
        assert_eq!(
            html.matches("<path class=\"line l1\" d=\"M59").count(),
            3,
            "a line in each chart: {html}"
        );
        let limits = Limits::default();
        for limit in [limits.memory_bytes_max, recorded_bytes_max(&limits)] {
            assert!(html.contains(&format!("0 B of {}", text::bytes(limit))), "{limit}: {html}");
        }
        assert!(html.contains("0 of 10,000,000"), "keys: {html}");
    }

    #[tokio::test]
    async fn a_part_of_the_page_is_replaced_by_the_same_part_of_the_next_page() {
        let html = html(&monitor(), "").await;
        for id in
            ["state", "uptime", "trends-now", "numbers-now", "clients-list", "requests-now", "keys-list"]
        {
            assert_eq!(html.matches(&format!("id=\"{id}\" data-live>")).count(), 1, "{id}: {html}");
        }
        let forms = html.split("<form").skip(1).map(|rest| rest.split("</form>").next().unwrap());
        assert!(forms.clone().all(|form| !form.contains("data-live")) && forms.count() == 2, "{html}");
    }
}

//! The result of `bench` as text (pure).

use std::time::Duration;

use super::report::{BenchEnd, BenchReport, BenchSettings, Failure, FailureCount, Latency, Workload};
use crate::commands::duration;
use crate::render::escape::escape;
use crate::render::style::{Paint, paint};
use crate::render::{Rendered, Style, counted, negative, warning};

/// The width of the longest bar of the distribution.
const BAR_COLUMNS: u64 = 36;

/// Formats the result: a table, the distribution, and what a user must know besides on standard error.
pub fn text(report: &BenchReport, style: &Style) -> Rendered {
    let mut lines = head(report, style);
    let latencies = &report.measured.latencies;
    if !latencies.is_empty() {
        lines.push(String::new());
        lines.push(row(
            "latency, ms",
            ["count", "mean", "p50", "p90", "p99", "p99.9", "max"].map(str::to_owned),
        ));
        lines.extend(latencies.iter().map(latency));
    }
    if let Some(whole) = report.measured.whole() {
        lines.push(String::new());
        lines.extend(distribution(whole));
    }
    let text = lines.iter().map(|line| format!("{}\n", line.trim_end())).collect::<String>();
    Rendered { stderr: messages(report, style), ..Rendered::stdout(text) }
}

fn head(report: &BenchReport, style: &Style) -> Vec<String> {
    let BenchReport { broker, settings, measured, .. } = report;
    let labeled = |label: &str, text: String| format!("{label:<12}{text}");
    let mut lines = vec![
        labeled("workload", workload(settings)),
        labeled("load", load(settings)),
        labeled("broker", escape(broker.as_bytes())),
        labeled("measured", format!("{}{}", seconds(measured.elapsed), ended(&measured.end, settings))),
        labeled("operations", format!("{}, {} per second", measured.answered, measured.per_second())),
    ];
    if settings.rate.is_some() && !measured.is_rate_met() {
        lines.push(labeled("not sent", format!("{}, {} sent too late", measured.unsent, measured.late)));
    }
    if measured.unanswered > 0 {
        lines.push(labeled("in flight", format!("{} at the end", measured.unanswered)));
    }
    let failed = measured.failed();
    let paint_failed = |text: &str| paint(text, Paint::Error, style.color_stdout && failed > 0);
    lines.push(labeled("failed", paint_failed(&failed.to_string())));
    for FailureCount { failure, count } in &measured.failures {
        lines.push(format!("  {count:>8}  {}: {}", failure.kind(), escape(failure.message().as_bytes())));
    }
    lines
}

fn workload(settings: &BenchSettings) -> String {
    let BenchSettings { workload, keys, size, .. } = settings;
    let keys = counted(keys, "key");
    let what = match workload {
        Workload::Set => format!("set, {keys}"),
        Workload::Get => format!("get, {keys}"),
        Workload::Mix => format!("mix: half get, half set, {keys}"),
        Workload::Lock => "lock: acquire and release".to_owned(),
        Workload::Watch if settings.clients == 1 => {
            "watch: set to notification of the same client".to_owned()
        }
        Workload::Watch => "watch: set to notification".to_owned(),
    };
    match size {
        None => what,
        Some(size) => format!("{what}, {} each", counted(size, "byte")),
    }
}

fn load(settings: &BenchSettings) -> String {
    let BenchSettings { clients, inflight, rate, .. } = settings;
    let clients = counted(clients, "client");
    match rate {
        None => format!("{clients}, {inflight} in flight each"),
        Some(rate) => format!("{rate} per second, {clients}, at most {inflight} in flight each"),
    }
}

fn ended(end: &BenchEnd, settings: &BenchSettings) -> String {
    let warmup = match settings.warmup {
        Duration::ZERO => String::new(),
        warmup => format!(" after {} of warm-up", duration::text(warmup)),
    };
    let cause = match end {
        BenchEnd::Done => "",
        BenchEnd::Interrupted => "; interrupted",
        BenchEnd::Unanswered => "; ended early: no answer",
        BenchEnd::Failed(_) => "; ended early: see the error",
    };
    format!("{warmup}{cause}")
}

fn latency(latency: &Latency) -> String {
    let Latency { name, count, mean, p50, p90, p99, p99_9, max, .. } = latency;
    let [mean, p50, p90, p99, p99_9, max] = [mean, p50, p90, p99, p99_9, max].map(|value| ms(*value));
    row(name, [count.to_string(), mean, p50, p90, p99, p99_9, max])
}

fn row(name: &str, columns: [String; 7]) -> String {
    let columns: String = columns.iter().map(|column| format!("{column:>9}")).collect();
    format!("{name:<12}{columns}")
}

/// Formats the distribution: the number up to each limit, its part of all, and a bar.
fn distribution(latency: &Latency) -> Vec<String> {
    let longest = latency.bands.iter().map(|band| band.count).max().unwrap_or(0);
    let title = format!("{}, ms", latency.name);
    let mut lines = vec![format!("{title:<12}{:>9}{:>9}", "count", "part")];
    for band in &latency.bands {
        let scaled = u128::from(band.count).saturating_mul(BAR_COLUMNS.into());
        // A few are seen, too.
        let columns = scaled.div_ceil(u128::from(longest.max(1)));
        let bar = "#".repeat(usize::try_from(columns).unwrap_or(0));
        let limit = format!("up to {}", limit(band.to));
        lines.push(format!("{limit:<12}{:>9}{:>9}  {bar}", band.count, part(band.count, latency.count)));
    }
    lines
}

fn part(count: u64, of: u64) -> String {
    let tenths = u128::from(count).saturating_mul(1000).checked_div(of.into()).unwrap_or(0);
    format!("{}.{} %", tenths / 10, tenths % 10)
}

/// Formats a latency: at most seven characters below a quarter of an hour.
fn ms(duration: Duration) -> String {
    let ms = duration.as_secs_f64() * 1000.0;
    if ms < 100.0 { format!("{ms:.3}") } else { format!("{ms:.1}") }
}

/// Formats the limit of a band, which has few digits.
fn limit(duration: Duration) -> String {
    (duration.as_secs_f64() * 1000.0).to_string()
}

fn seconds(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    if seconds < 10.0 { format!("{seconds:.3} s") } else { format!("{seconds:.1} s") }
}

/// Formats the messages: which conditions are not met, and what is left.
fn messages(report: &BenchReport, style: &Style) -> String {
    let BenchReport { settings, receive_max, measured, keys_left, .. } = report;
    let mut text = String::new();
    let mut no = |message: String| text.push_str(&negative(&message, style).stderr);
    for failed in &measured.failures {
        if let Failure::No(message) = failed.failure {
            let operations = counted(failed.count, "operation");
            no(format!("negative answer to {operations}: {message}"));
        }
    }
    if let (Some(false), Some(max)) = (report.is_p99_met(), settings.max_p99) {
        let p99 = measured.whole().map(|latency| ms(latency.p99));
        no(match p99 {
            Some(p99) => format!("the 99th percentile is {p99} ms, above {}", duration::text(max)),
            None => "no operation was measured, so that the 99th percentile is unknown".to_owned(),
        });
    }
    let mut warn = |message: String| text.push_str(&warning(&message, style).stderr);
    if !report.is_inflight_met() {
        let inflight = settings.inflight;
        warn(format!(
            "--inflight {inflight} is above the broker's Receive Maximum of {receive_max}: the other operations waited in \
             the client, and latencies include that"
        ));
    }
    if let Some(rate) = settings.rate.filter(|_| !measured.is_rate_met()) {
        warn(format!("the rate of {rate} per second was not met: {} per second", measured.per_second()));
    }
    if let Some(cause) = keys_left {
        warn(escape(settings.keys_left_message(cause).as_bytes()));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::bench::report::{Band, Limit, Measured};
    use crate::commands::{CommandError, Kind};
    use crate::render::shown;

    const MS: Duration = Duration::from_millis(1);

    fn report() -> BenchReport {
        let latency = |name, bands| Latency {
            name,
            count: 1000,
            mean: 3 * MS,
            min: MS / 2,
            p50: 2 * MS,
            p90: 5 * MS,
            p99: 20 * MS,
            p99_9: 123 * MS,
            max: 10_000 * MS,
            bands,
        };
        let band = |to, count| Band { to, count };
        let bands = vec![band(MS, 2), band(1600 * MS / 1000, 0), band(10_000 * MS, 998)];
        let timeout = CommandError::new(Kind::Timeout, "no answer from lab:1883 within 10s");
        BenchReport {
            broker: "lab:1883".to_owned(),
            settings: BenchSettings {
                workload: Workload::Lock,
                limit: Limit::Time(30_000 * MS),
                warmup: 1000 * MS,
                clients: 1,
                inflight: 64,
                adapts_inflight: false,
                rate: Some(500),
                size: None,
                keys: 64,
                max_p99: Some(10 * MS),
                prefix: b"p/1/".to_vec(),
                ttl: 600_000 * MS,
            },
            receive_max: 20,
            measured: Measured {
                elapsed: 30_000 * MS,
                answered: 900,
                failures: vec![
                    FailureCount { failure: Failure::Error(timeout), count: 90 },
                    FailureCount { failure: Failure::No("held"), count: 10 },
                ],
                unsent: 14_000,
                late: 3,
                unanswered: 7,
                due: 15_000,
                latencies: vec![latency("lock", bands), latency("acquire", Vec::new())],
                end: BenchEnd::Interrupted,
            },
            keys_left: Some("interrupted".to_owned()),
        }
    }

    #[test]
    fn a_report_has_all_that_went_wrong() {
        let rendered = text(&report(), &Style::PLAIN);
        let expected = "\
workload    lock: acquire and release
load        500 per second, 1 client, at most 64 in flight each
broker      lab:1883
measured    30.0 s after 1s of warm-up; interrupted
operations  900, 30 per second
not sent    14000, 3 sent too late
in flight   7 at the end
failed      100
        90  timeout: no answer from lab:1883 within 10s
        10  no: held

latency, ms     count     mean      p50      p90      p99    p99.9      max
lock             1000    3.000    2.000    5.000   20.000    123.0  10000.0
acquire          1000    3.000    2.000    5.000   20.000    123.0  10000.0

lock, ms        count     part
up to 1             2    0.2 %  #
up to 1.6           0    0.0 %
up to 10000       998   99.8 %  ####################################
";
        assert_eq!(String::from_utf8_lossy(&rendered.stdout), expected);
        assert_eq!(
            rendered.stderr,
            "error: negative answer to 10 operations: held\n\
             error: the 99th percentile is 20.000 ms, above 10ms\n\
             warning: --inflight 64 is above the broker's Receive Maximum of 20: the other operations waited in the client, \
             and latencies include that\n\
             warning: the rate of 500 per second was not met: 30 per second\n\
             warning: keys p/1/* may be left: interrupted; they expire within 10m\n"
        );
        assert_eq!(text(&report(), &Style::QUIET).stderr, "");
    }

    #[test]
    fn a_record_has_the_same_figures() {
        let line = shown(&report(), &Style::JSON).0;
        for member in [
            r#"{"v":1,"op":"bench","workload":"lock","broker":"lab:1883","clients":1,"inflight":64,"rate":500,"#,
            r#""duration_ms":30000.0,"warmup_ms":1000.0,"keys":64,"prefix":"p/1/","end":"interrupted","#,
            r#""answered":900,"per_second":30,"failed":100,"unanswered":7,"due":15000,"unsent":14000,"late":3,"#,
            r#""rate_met":false,"failures":[{"kind":"timeout","message":"no answer from lab:1883 within 10s","count":90},"#,
            r#""latency":{"lock":{"count":1000,"mean_ms":3.0,"min_ms":0.5,"p50_ms":2.0,"p90_ms":5.0,"p99_ms":20.0,"#,
            r#""p99_9_ms":123.0,"max_ms":10000.0,"bands":[{"to_ms":1.0,"count":2},"#,
            r#""receive_max":20,"inflight_met":false,"max_p99_ms":10.0,"p99_met":false,"keys_deleted":false,"keys_left_because":"interrupted"}"#,
        ] {
            assert!(line.contains(member), "{member}\nnot in {line}");
        }
        assert_eq!(line.lines().count(), 1);
    }
}

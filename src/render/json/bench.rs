//! The result of `bench` as JSON.

use super::object::{Object, ms, op, put, put_bytes, put_some};
use crate::commands::output::{BenchEnd, BenchReport, Latency, Limit};

pub(super) fn object(report: &BenchReport) -> Object {
    let BenchReport { broker, settings, receive_max, measured, keys_left } = report;
    let mut object = op("bench");
    put(&mut object, "workload", settings.workload.name());
    put(&mut object, "broker", broker.as_str());
    put(&mut object, "clients", settings.clients);
    put(&mut object, "inflight", settings.inflight);
    put_some(&mut object, "rate", settings.rate);
    match settings.limit {
        Limit::Time(time) => put(&mut object, "duration_ms", ms(time)),
        Limit::Count(count) => put(&mut object, "count", count),
    }
    put(&mut object, "warmup_ms", ms(settings.warmup));
    put(&mut object, "keys", settings.keys);
    put_some(&mut object, "size", settings.size);
    put_bytes(&mut object, "prefix", "prefix_encoding", &settings.prefix);
    let end = match &measured.end {
        BenchEnd::Done => "done",
        BenchEnd::Interrupted => "interrupted",
        BenchEnd::Unanswered => "unanswered",
        BenchEnd::Failed(_) => "failed",
    };
    put(&mut object, "end", end);
    put(&mut object, "elapsed_ms", ms(measured.elapsed));
    put(&mut object, "answered", measured.answered);
    put(&mut object, "per_second", report.measured.per_second());
    put(&mut object, "failed", measured.failed());
    put(&mut object, "unanswered", measured.unanswered);
    if settings.rate.is_some() {
        put(&mut object, "due", measured.due);
        put(&mut object, "unsent", measured.unsent);
        put(&mut object, "late", measured.late);
        put(&mut object, "rate_met", measured.is_rate_met());
    }
    let failures = measured.failures.iter().map(|counted| {
        let mut object = Object::new();
        put(&mut object, "kind", counted.failure.kind());
        put(&mut object, "message", counted.failure.message());
        put(&mut object, "count", counted.count);
        object
    });
    put(&mut object, "failures", failures.collect::<Vec<_>>());
    let mut latencies = Object::new();
    for latency in &measured.latencies {
        put(&mut latencies, latency.name, self::latency(latency));
    }
    put(&mut object, "latency", latencies);
    put(&mut object, "receive_max", *receive_max);
    put(&mut object, "inflight_met", report.is_inflight_met());
    put_some(&mut object, "max_p99_ms", settings.max_p99.map(ms));
    put_some(&mut object, "p99_met", report.is_p99_met());
    put(&mut object, "keys_deleted", keys_left.is_none());
    put_some(&mut object, "keys_left_because", keys_left.as_deref());
    object
}

fn latency(latency: &Latency) -> Object {
    let mut object = Object::new();
    put(&mut object, "count", latency.count);
    let values = [
        ("mean_ms", latency.mean),
        ("min_ms", latency.min),
        ("p50_ms", latency.p50),
        ("p90_ms", latency.p90),
        ("p99_ms", latency.p99),
        ("p99_9_ms", latency.p99_9),
        ("max_ms", latency.max),
    ];
    values.into_iter().for_each(|(name, value)| put(&mut object, name, ms(value)));
    let bands = latency.bands.iter().map(|band| {
        let mut object = Object::new();
        put(&mut object, "to_ms", ms(band.to));
        put(&mut object, "count", band.count);
        object
    });
    put(&mut object, "bands", bands.collect::<Vec<_>>());
    object
}

//! The metrics in the text format of Prometheus, version 0.0.4.

mod cluster;
mod exchange;
mod exposition;

use self::exposition::Text;
use super::monitor::ServerMonitor;
use crate::broker::MemoryKind;
use crate::ledger::RESERVE_BYTES;
use crate::server::metrics::Verb;

pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Returns all metrics.
pub async fn text(monitor: &ServerMonitor) -> String {
    let metrics = monitor.metrics();
    let statistics = monitor.broker.statistics().await;
    let service = monitor.service.statistics();
    let mut text = Text::default();
    let version = [("version", env!("CARGO_PKG_VERSION"))];
    text.family("mqkv_build_info", "gauge", "Version of the server; always 1.", [(&version[..], 1)]);
    let started_s = monitor.started_ms / 1_000;
    text.one("mqkv_start_time_seconds", "gauge", "When the server started, in Unix time.", started_s);
    let requests: Vec<_> = metrics.each_request().collect();
    let labels: Vec<_> = requests
        .iter()
        .map(|(verb, outcome, count)| ([("verb", verb.name()), ("outcome", outcome.name())], count))
        .collect();
    text.family(
        "mqkv_requests_total",
        "counter",
        "Answered requests to the state store.",
        labels.iter().map(|(labels, count)| (&labels[..], count)),
    );
    text.head(
        "mqkv_request_duration_seconds",
        "histogram",
        "Time from decoding a request to queueing its reply, including the wait for the disk.",
    );
    for verb in Verb::ALL {
        if let Some(histogram) = metrics.latency(verb) {
            text.histogram("mqkv_request_duration_seconds", &[("verb", verb.name())], histogram);
        }
    }
    text.head(
        "mqkv_commit_duration_seconds",
        "histogram",
        "Duration of a commit to the disk, including the flush, or to etcd.",
    );
    text.histogram("mqkv_commit_duration_seconds", &[], &metrics.commits);
    text.one("mqkv_keys", "gauge", "Keys in the store.", service.store.keys);
    text.one("mqkv_keys_max", "gauge", "Limit of the number of keys.", service.store.keys_max);
    text.one(
        "mqkv_stored_bytes",
        "gauge",
        "Length of all keys and values in the store.",
        service.store.bytes,
    );
    text.one(
        "mqkv_store_memory_bytes",
        "gauge",
        "Memory of keys and values, with the overhead.",
        service.store.memory_bytes,
    );
    text.one(
        "mqkv_store_memory_max_bytes",
        "gauge",
        "Limit of the memory of keys and values.",
        service.store.memory_bytes_max,
    );
    text.one("mqkv_watches", "gauge", "Watched keys and prefixes of all clients.", service.store.watches);
    text.one("mqkv_watches_max", "gauge", "Limit of the number of watched keys.", service.store.watches_max);
    text.one(
        "mqkv_disk_queue_length",
        "gauge",
        "Replies and notifications that wait for a commit to the disk.",
        service.waiting_for_commit,
    );
    text.one(
        "mqkv_recorded_reply_bytes",
        "gauge",
        "Memory of replies to writes that may be delivered again.",
        service.recorded_bytes,
    );
    text.one(
        "mqkv_recorded_reply_max_bytes",
        "gauge",
        "Limit of the memory of replies to writes that may be delivered again.",
        service.recorded_bytes_max,
    );
    text.one(
        "mqkv_recorded_replies_forgotten_total",
        "counter",
        "Replies that were forgotten for lack of memory although their writes may be delivered again.",
        service.recorded_forgotten,
    );
    let has_failed = u8::from(metrics.has_disk_failed());
    text.one("mqkv_disk_failed", "gauge", "1 if changes cannot be persisted, otherwise 0.", has_failed);
    if let Some(disk) = service.disk {
        text.one(
            "mqkv_disk_short_of_room",
            "gauge",
            "1 if persistent writes are refused for lack of disk space, all but deletions or long ones, otherwise 0.",
            u8::from(disk.lacks_room),
        );
        text.one(
            "mqkv_disk_reserve_max_bytes",
            "gauge",
            "Disk space that is reserved for deletions once the store has that size.",
            RESERVE_BYTES,
        );
        text.one(
            "mqkv_snapshots_failed_total",
            "counter",
            "Snapshots that failed for another reason than lack of room; the log grows until one succeeds.",
            metrics.snapshots_failed.get(),
        );
    }
    text.one("mqkv_connections", "gauge", "Connected clients.", statistics.connected);
    text.one(
        "mqkv_connections_max",
        "gauge",
        "Limit of the number of connections.",
        statistics.connections_max,
    );
    text.one(
        "mqkv_sessions",
        "gauge",
        "MQTT sessions, including those of disconnected clients.",
        statistics.sessions,
    );
    text.one("mqkv_sessions_max", "gauge", "Limit of the number of sessions.", statistics.sessions_max);
    text.one("mqkv_subscriptions", "gauge", "MQTT subscriptions.", statistics.subscriptions);
    text.one("mqkv_retained_messages", "gauge", "Retained messages.", statistics.retained);
    text.one(
        "mqkv_session_queue_messages",
        "gauge",
        "Messages that wait for delivery or acknowledgement.",
        statistics.queued,
    );
    text.one(
        "mqkv_session_queue_bytes",
        "gauge",
        "Memory of messages that wait for delivery or acknowledgement.",
        statistics.queued_bytes,
    );
    let memory = monitor.broker.memory();
    let kinds = MemoryKind::ALL.map(|kind| ([("kind", kind.name())], memory.used_by(kind)));
    text.family(
        "mqkv_broker_memory_bytes",
        "gauge",
        "Memory that clients make the broker hold, by kind.",
        kinds.iter().map(|(labels, bytes)| (&labels[..], bytes)),
    );
    text.one(
        "mqkv_broker_memory_max_bytes",
        "gauge",
        "Limit of the memory of the broker.",
        memory.bytes_max(),
    );
    text.one(
        "mqkv_connections_accepted_total",
        "counter",
        "Accepted connections.",
        metrics.broker.connections.get(),
    );
    let logins = monitor.identities.login_limit();
    text.one(
        "mqkv_logins_waiting",
        "gauge",
        "Logins that wait for the check of a password.",
        logins.waiting(),
    );
    text.one(
        "mqkv_login_failures_max",
        "gauge",
        "Limit of failed logins from one address in a minute.",
        logins.failures_max(),
    );
    text.one(
        "mqkv_logins_limited_total",
        "counter",
        "Logins that were refused because of earlier failures from the same address.",
        logins.limited(),
    );
    text.one("mqkv_connections_refused_total", "counter", "Rejected connections.", metrics.refused.get());
    text.one(
        "mqkv_messages_dropped_total",
        "counter",
        "Messages that were dropped, as far as they were logged.",
        metrics.dropped.get(),
    );
    text.one(
        "mqkv_requests_unanswerable_total",
        "counter",
        "Requests without a valid response topic or correlation data.",
        metrics.unanswerable.get(),
    );
    text.one(
        "mqkv_not_authorized_total",
        "counter",
        "Actions of clients that the rules did not allow.",
        metrics.not_authorized.get(),
    );
    let (received, sent) = (&metrics.broker.received, &metrics.broker.sent);
    for (name, help, counts) in [
        ("mqkv_mqtt_packets_total", "MQTT packets, by direction.", [&received.packets, &sent.packets]),
        (
            "mqkv_mqtt_publish_packets_total",
            "MQTT PUBLISH packets, by direction.",
            [&received.publishes, &sent.publishes],
        ),
        ("mqkv_mqtt_bytes_total", "Bytes of MQTT packets, by direction.", [&received.bytes, &sent.bytes]),
    ] {
        let directions = [[("direction", "received")], [("direction", "sent")]];
        let samples = directions.iter().zip(counts).map(|(labels, count)| (&labels[..], count.get()));
        text.family(name, "counter", help, samples);
    }
    cluster::write(&mut text, metrics);
    if let Some(node) = monitor.service.exchange_report().await {
        exchange::write(&mut text, &node, metrics);
    }
    text.into_string()
}

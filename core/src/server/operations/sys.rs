//! The topics under `$SYS/broker`, with the names of Mosquitto.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::{MissedTickBehavior, interval};

use super::monitor::ServerMonitor;
use crate::clock;
use crate::protocol::Message;
use crate::protocol::message::Qos;

/// The counters with load averages.
const LOADS: [&str; 7] = [
    "messages/received",
    "messages/sent",
    "publish/received",
    "publish/sent",
    "bytes/received",
    "bytes/sent",
    "connections",
];
/// The time constants of the averages, in seconds, and their names.
const TIME_CONSTANTS: [(f64, &str); 3] = [(60.0, "1min"), (300.0, "5min"), (900.0, "15min")];

/// Publishes the topics at intervals. Values that have not changed are not published again. Never returns.
pub async fn publish(monitor: Arc<ServerMonitor>, period: Duration) {
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut loads = Loads::new(clock::monotonic());
    let mut last = HashMap::new();
    loop {
        ticks.tick().await;
        for (topic, value) in topics(&monitor, &mut loads).await {
            if last.get(&topic) != Some(&value) {
                monitor.broker.publish(None, message(&topic, &value));
                last.insert(topic, value);
            }
        }
    }
}

fn message(topic: &str, value: &str) -> Message {
    let payload = value.to_owned().into();
    // QoS 0: nothing is queued for disconnected clients.
    let (topic, qos) = (format!("$SYS/broker/{topic}").into(), Qos::AtMostOnce);
    Message { topic, payload, qos, retain: true, ..Message::default() }
}

async fn topics(monitor: &ServerMonitor, loads: &mut Loads) -> Vec<(String, String)> {
    let (metrics, statistics) = (monitor.metrics(), monitor.broker.statistics().await);
    let counters = &metrics.broker;
    let (received, sent) = (&counters.received, &counters.sent);
    let sums = [
        received.packets.get(),
        sent.packets.get(),
        received.publishes.get(),
        sent.publishes.get(),
        received.bytes.get(),
        sent.bytes.get(),
        counters.connections.get(),
    ];
    let disconnected = statistics.sessions.saturating_sub(statistics.connected);
    let uptime_s = monitor.uptime().as_secs();
    let numbers = [
        ("clients/connected", count(statistics.connected)),
        ("clients/active", count(statistics.connected)),
        ("clients/disconnected", count(disconnected)),
        ("clients/inactive", count(disconnected)),
        ("clients/total", count(statistics.sessions)),
        ("clients/maximum", counters.connections_max.get()),
        ("messages/received", received.packets.get()),
        ("messages/sent", sent.packets.get()),
        ("publish/messages/received", received.publishes.get()),
        ("publish/messages/sent", sent.publishes.get()),
        ("publish/messages/dropped", metrics.dropped.get()),
        ("bytes/received", received.bytes.get()),
        ("bytes/sent", sent.bytes.get()),
        ("subscriptions/count", count(statistics.subscriptions)),
        ("retained messages/count", count(statistics.retained)),
        ("store/messages/count", count(statistics.retained.saturating_add(statistics.queued))),
        ("store/messages/bytes", count(statistics.retained_bytes.saturating_add(statistics.queued_bytes))),
        ("messages/stored", count(statistics.retained.saturating_add(statistics.queued))),
    ];
    let mut topics = vec![
        ("version".to_owned(), concat!("mqkv version ", env!("CARGO_PKG_VERSION")).to_owned()),
        ("uptime".to_owned(), format!("{uptime_s} seconds")),
    ];
    topics.extend(numbers.map(|(topic, number)| (topic.to_owned(), number.to_string())));
    topics.extend(loads.update(sums, clock::monotonic()));
    topics
}

fn count(count: usize) -> u64 {
    // A usize fits a u64 on every platform that Rust supports.
    count as u64
}

/// Exponentially weighted averages per minute, as Mosquitto computes them.
struct Loads {
    at: Instant,
    sums: [u64; LOADS.len()],
    averages: [[f64; TIME_CONSTANTS.len()]; LOADS.len()],
}

impl Loads {
    fn new(at: Instant) -> Self {
        Self { at, sums: [0; LOADS.len()], averages: [[0.0; TIME_CONSTANTS.len()]; LOADS.len()] }
    }

    #[expect(clippy::cast_precision_loss, reason = "an average need not be exact")]
    fn update(&mut self, sums: [u64; LOADS.len()], now: Instant) -> Vec<(String, String)> {
        let seconds = now.saturating_duration_since(self.at).as_secs_f64();
        let mut topics = Vec::new();
        for (((name, sum), last), averages) in LOADS.iter().zip(sums).zip(self.sums).zip(&mut self.averages) {
            for ((time_constant, name_of_span), average) in TIME_CONSTANTS.iter().zip(averages) {
                if seconds > 0.0 {
                    let per_minute = sum.saturating_sub(last) as f64 * 60.0 / seconds;
                    *average = per_minute + (*average - per_minute) * (-seconds / time_constant).exp();
                }
                topics.push((format!("load/{name}/{name_of_span}"), format!("{average:.2}")));
            }
        }
        (self.at, self.sums) = (now, sums);
        topics
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_average_decays_exponentially_with_its_time_constant() {
        for minutes in [0.001, 0.2, 1.0, 3.0, 10.0, 100.0, 1e6] {
            let start = clock::monotonic();
            let mut loads = Loads::new(start);
            loads.averages = [[1.0; TIME_CONSTANTS.len()]; LOADS.len()];
            loads.update([0; LOADS.len()], start + Duration::from_secs_f64(minutes * 60.0));
            let [one_minute, five_minutes, _] = loads.averages[0];
            assert!((one_minute - (-minutes).exp()).abs() < 0.0001, "{minutes}");
            assert!((five_minutes - (-minutes / 5.0).exp()).abs() < 0.0001, "{minutes}");
        }
    }

    #[test]
    fn an_average_approaches_the_rate_per_minute_and_fades() {
        let mut now = clock::monotonic();
        let mut loads = Loads::new(now);
        let mut topics = Vec::new();
        for second in 1..=600 {
            now += Duration::from_secs(1);
            topics = loads.update([second * 2; LOADS.len()], now);
        }
        let (name, value) = &topics[0];
        assert_eq!((name.as_str(), value.as_str()), ("load/messages/received/1min", "119.99"));
        now += Duration::from_secs(60);
        let topics = loads.update([1_200; LOADS.len()], now);
        assert_eq!(topics[0].1, "44.14");
        assert_eq!(topics.len(), 21);
    }
}

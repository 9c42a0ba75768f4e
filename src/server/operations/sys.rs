//! The topics below `$SYS/broker`, by the names that MQTT tools know from Mosquitto.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::{MissedTickBehavior, interval};

use super::Operations;
use crate::clock;
use crate::protocol::Message;
use crate::protocol::message::Qos;

/// What the loads are averages of.
const LOADS: [&str; 7] = [
    "messages/received",
    "messages/sent",
    "publish/received",
    "publish/sent",
    "bytes/received",
    "bytes/sent",
    "connections",
];
/// Over how many seconds, and how that is called.
const SPANS: [(f64, &str); 3] = [(60.0, "1min"), (300.0, "5min"), (900.0, "15min")];

/// Brings the topics up to date at intervals, for ever. A value that has not changed is not sent again.
pub async fn publish(operations: Arc<Operations>, every: Duration) {
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut loads = Loads::new(clock::monotonic());
    let mut last = HashMap::new();
    loop {
        ticks.tick().await;
        for (topic, value) in topics(&operations, &mut loads) {
            if last.get(&topic) != Some(&value) {
                operations.broker.publish(None, message(&topic, &value));
                last.insert(topic, value);
            }
        }
    }
}

fn message(topic: &str, value: &str) -> Message {
    let payload = value.to_owned().into();
    // Of QoS 0, so that nothing piles up for a client that is away.
    let (topic, qos) = (format!("$SYS/broker/{topic}"), Qos::AtMostOnce);
    Message { topic, payload, qos, retain: true, ..Message::default() }
}

fn topics(operations: &Operations, loads: &mut Loads) -> Vec<(String, String)> {
    let (metrics, statistics) = (operations.metrics(), operations.broker.statistics());
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
    let away = statistics.sessions.saturating_sub(statistics.connected);
    let uptime_s = operations.uptime().as_secs();
    let numbers = [
        ("clients/connected", count(statistics.connected)),
        ("clients/active", count(statistics.connected)),
        ("clients/disconnected", count(away)),
        ("clients/inactive", count(away)),
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
    u64::try_from(count).unwrap_or(u64::MAX)
}

/// How much comes to pass a minute: averages in which what was long ago counts for less, as Mosquitto has them.
struct Loads {
    at: Instant,
    sums: [u64; LOADS.len()],
    averages: [[f64; SPANS.len()]; LOADS.len()],
}

impl Loads {
    fn new(at: Instant) -> Self {
        Self { at, sums: [0; LOADS.len()], averages: [[0.0; SPANS.len()]; LOADS.len()] }
    }

    #[expect(clippy::cast_precision_loss, reason = "an average need not be exact")]
    fn update(&mut self, sums: [u64; LOADS.len()], now: Instant) -> Vec<(String, String)> {
        let seconds = now.saturating_duration_since(self.at).as_secs_f64();
        let mut topics = Vec::new();
        for (((name, sum), last), averages) in LOADS.iter().zip(sums).zip(self.sums).zip(&mut self.averages) {
            for ((span, span_name), average) in SPANS.iter().zip(averages) {
                if seconds > 0.0 {
                    let a_minute = sum.saturating_sub(last) as f64 * 60.0 / seconds;
                    *average = a_minute + (*average - a_minute) * kept(seconds / span);
                }
                topics.push((format!("load/{name}/{span_name}"), format!("{average:.2}")));
            }
        }
        (self.at, self.sums) = (now, sums);
        topics
    }
}

/// How much of an average is left after so many spans: what `exp` says of it, near enough, without loading libm for it.
fn kept(spans: f64) -> f64 {
    // In 64 small steps, each exact but for the third power of its length.
    let half = spans / 128.0;
    ((1.0 - half) / (1.0 + half)).max(0.0).powi(64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_of_an_average_is_what_the_exponential_function_says() {
        for spans in [0.0, 0.001, 0.2, 1.0, 3.0, 10.0, 100.0, 1e9] {
            assert!((kept(spans) - (-spans).exp()).abs() < 0.0001, "{spans}");
        }
    }

    #[test]
    fn a_load_comes_near_what_comes_to_pass_a_minute_and_fades() {
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

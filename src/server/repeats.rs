//! The answers to writes that may be delivered again: QoS 1 is at least once, a write must not be (protocol §1).

use std::collections::VecDeque;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};

use hashbrown::HashMap;

use super::delivery::{Answer, Asker};
use crate::protocol::Message;
use crate::protocol::message::TIMESTAMP;

/// The most answers remembered, for all clients together: about 3 MB.
const ANSWERS_MAX: usize = 28_672;
/// How long an answer is remembered whose request does not expire, in milliseconds.
const DEFAULT_EXPIRY_MS: u64 = 60_000;
/// How long after its request has expired an answer is remembered: a client that has lost its line delivers the request
/// again all the same once it is back, and by then somebody else may have written. The SDKs' responders take as long.
const LATE_MS: u64 = 60_000;
/// How much of a payload tells it from another: reading more would cost more than it tells.
const PAYLOAD_BYTES_MAX: usize = 1024;

/// What tells a request from all others. Two that differ share one with a probability of 2⁻⁶⁴, which nobody can
/// raise: the hash is keyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint(u64);

/// Remembers the latest answers, each for as long as its request lives and a while longer; the oldest go first.
#[derive(Debug, Default)]
pub struct Repeats {
    hasher: RandomState,
    answers: HashMap<Fingerprint, Remembered>,
    order: VecDeque<Fingerprint>,
}

#[derive(Debug)]
struct Remembered {
    answer: Answer,
    until_ms: u64,
    ticket: u64,
}

impl Repeats {
    /// Client, response topic and correlation data make a request what it is. Payload and timestamp are looked at too:
    /// a script that always sends the same correlation data does not repeat itself if it asks for something else.
    pub fn fingerprint(&self, client_id: &str, asker: &Asker, message: &Message) -> Fingerprint {
        let Asker { response_topic, correlation, .. } = asker;
        let payload = &message.payload[..];
        let start = payload.get(..PAYLOAD_BYTES_MAX).unwrap_or(payload);
        let timestamp = message.user_property(TIMESTAMP);
        // All lengths first: they say where each part ends, and the hasher takes few long pieces quicker than many short.
        let lengths = [client_id.len(), response_topic.len(), correlation.len(), payload.len()];
        let mut hasher = self.hasher.build_hasher();
        (lengths, timestamp.map(str::len)).hash(&mut hasher);
        for part in [client_id.as_bytes(), response_topic.as_bytes(), correlation, start] {
            hasher.write(part);
        }
        hasher.write(timestamp.unwrap_or_default().as_bytes());
        Fingerprint(hasher.finish())
    }

    /// The answer that such a request has had, if that is still known.
    pub fn recall(&self, fingerprint: Fingerprint, monotonic_ms: u64) -> Option<Answer> {
        let known = self.answers.get(&fingerprint)?;
        (monotonic_ms < known.until_ms).then(|| known.answer.clone())
    }

    /// Remembers an answer. The ticket says which commit it depends on.
    pub fn remember(
        &mut self,
        fingerprint: Fingerprint,
        answer: Answer,
        expiry_s: Option<u32>,
        monotonic_ms: u64,
        ticket: u64,
    ) {
        while let Some(oldest) = self.order.front()
            && (self.order.len() >= ANSWERS_MAX || self.is_over(*oldest, monotonic_ms))
        {
            self.answers.remove(oldest);
            self.order.pop_front();
        }
        let lifetime_ms = expiry_s.map_or(DEFAULT_EXPIRY_MS, |expiry_s| {
            u64::from(expiry_s).saturating_mul(1_000).saturating_add(LATE_MS)
        });
        let until_ms = monotonic_ms.saturating_add(lifetime_ms);
        self.order.push_back(fingerprint);
        self.answers.insert(fingerprint, Remembered { answer, until_ms, ticket });
    }

    /// Forgets the answers that depend on a commit after this one.
    pub fn forget_after(&mut self, ticket: u64) {
        self.answers.retain(|_, known| known.ticket <= ticket);
    }

    fn is_over(&self, fingerprint: Fingerprint, monotonic_ms: u64) -> bool {
        self.answers.get(&fingerprint).is_none_or(|known| known.until_ms <= monotonic_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Reply;

    fn asker(correlation: &'static str) -> Asker {
        let (verb, since) = (Default::default(), crate::clock::monotonic());
        Asker { response_topic: "r".to_owned(), correlation: correlation.into(), verb, since }
    }

    fn answer() -> Answer {
        Answer::new(&Reply::Done, None)
    }

    fn message(payload: &'static str, timestamp: &str) -> Message {
        let user_properties = vec![(TIMESTAMP.into(), timestamp.to_owned().into())];
        Message { payload: payload.into(), user_properties, ..Message::default() }
    }

    #[test]
    fn a_request_is_known_by_its_client_its_correlation_its_timestamp_and_its_payload() {
        let repeats = Repeats::default();
        let print = repeats.fingerprint("client", &asker("1"), &message("p", "t"));
        assert_eq!(print, repeats.fingerprint("client", &asker("1"), &message("p", "t")));
        for (client_id, correlation, payload, timestamp) in [
            ("other", "1", "p", "t"),
            ("client", "2", "p", "t"),
            ("client", "1", "q", "t"),
            ("client", "1", "p", "u"),
        ] {
            let other = repeats.fingerprint(client_id, &asker(correlation), &message(payload, timestamp));
            assert_ne!(print, other);
        }
    }

    #[test]
    fn an_answer_is_remembered_as_long_as_its_request_may_be_delivered_again() {
        let mut repeats = Repeats::default();
        let [expiring, lasting, expired] = ["1", "2", "3"]
            .map(|correlation| repeats.fingerprint("c", &asker(correlation), &Message::default()));
        repeats.remember(expiring, answer(), Some(2), 100, 0);
        repeats.remember(lasting, answer(), None, 100, 0);
        // An SDK that counts in whole seconds makes this of half a second.
        repeats.remember(expired, answer(), Some(0), 100, 0);
        assert_eq!(repeats.recall(expired, 101), Some(answer()));
        assert_eq!(repeats.recall(expiring, 62_099), Some(answer()));
        assert_eq!(repeats.recall(expiring, 62_100), None);
        assert_eq!(repeats.recall(lasting, 60_099), Some(answer()));
        assert_eq!(repeats.recall(lasting, 60_100), None);
        repeats.remember(Fingerprint(1), answer(), None, 62_100, 0);
        assert_eq!((repeats.answers.len(), repeats.order.len()), (1, 1));
    }

    #[test]
    fn the_oldest_answer_makes_room() {
        let mut repeats = Repeats::default();
        for number in 0..=ANSWERS_MAX as u64 {
            repeats.remember(Fingerprint(number), answer(), None, 0, 0);
        }
        assert_eq!(repeats.answers.len(), ANSWERS_MAX);
        assert_eq!(repeats.recall(Fingerprint(0), 1), None);
        assert_eq!(repeats.recall(Fingerprint(1), 1), Some(answer()));
    }

    #[test]
    fn an_answer_that_depends_on_a_failed_commit_is_forgotten() {
        let mut repeats = Repeats::default();
        repeats.remember(Fingerprint(1), answer(), None, 0, 5);
        repeats.remember(Fingerprint(2), answer(), None, 0, 6);
        repeats.forget_after(5);
        let known = [1, 2].map(|number| repeats.recall(Fingerprint(number), 1).is_some());
        assert_eq!(known, [true, false]);
    }
}

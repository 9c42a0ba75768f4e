//! The answers to writes that may be delivered again: QoS 1 is at least once, a write must not be (protocol §1).

use std::collections::VecDeque;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

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
///
/// They lie in the order in which they came, so that the one that goes and the one that comes have their neighbours in
/// the processor's cache; the index of them is small enough to stay there.
#[derive(Debug, Default)]
pub struct DuplicateDetection {
    hasher: RandomState,
    answers: VecDeque<Remembered>,
    /// The number of the first answer; they are counted on from there, and begin again at 0 some day.
    first: u32,
    /// The numbers of the answers, by fingerprint.
    index: HashTable<u32>,
}

#[derive(Debug)]
struct Remembered {
    fingerprint: Fingerprint,
    answer: Answer,
    until_ms: u64,
    ticket: u64,
}

impl DuplicateDetection {
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
        let find = |number: u32| numbered(&self.answers, self.first, number);
        let is_it = |number: &u32| find(*number).is_some_and(|known| known.fingerprint == fingerprint);
        let known = self.index.find(fingerprint.0, is_it).and_then(|number| find(*number))?;
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
        while let Some(oldest) = self.answers.front()
            && (self.answers.len() >= ANSWERS_MAX || oldest.until_ms <= monotonic_ms)
        {
            self.forget_oldest();
        }
        let lifetime_ms = expiry_s.map_or(DEFAULT_EXPIRY_MS, |expiry_s| {
            u64::from(expiry_s).saturating_mul(1_000).saturating_add(LATE_MS)
        });
        let until_ms = monotonic_ms.saturating_add(lifetime_ms);
        self.push(Remembered { fingerprint, answer, until_ms, ticket });
    }

    /// Forgets the answers that depend on a commit after this one.
    pub fn forget_after(&mut self, ticket: u64) {
        self.index.clear();
        for known in std::mem::take(&mut self.answers) {
            if known.ticket <= ticket {
                self.push(known);
            }
        }
    }

    /// Adds an answer; an older one to such a request, whose time is over, is not found any more.
    fn push(&mut self, known: Remembered) {
        let fingerprint = known.fingerprint;
        let count = u32::try_from(self.answers.len()).unwrap_or(u32::MAX);
        let number = self.first.wrapping_add(count);
        let print = |of: &u32| numbered(&self.answers, self.first, *of).map(|known| known.fingerprint);
        let is_it = |of: &u32| print(of) == Some(fingerprint);
        let hash = |of: &u32| print(of).map_or(0, |print| print.0);
        match self.index.entry(fingerprint.0, is_it, hash) {
            Entry::Occupied(mut older) => *older.get_mut() = number,
            Entry::Vacant(place) => _ = place.insert(number),
        }
        self.answers.push_back(known);
    }

    fn forget_oldest(&mut self) {
        let Some(oldest) = self.answers.pop_front() else { return };
        let number = self.first;
        self.first = number.wrapping_add(1);
        if let Ok(place) = self.index.find_entry(oldest.fingerprint.0, |of| *of == number) {
            place.remove();
        }
    }
}

/// The answer of this number, where the first one has that number.
fn numbered(answers: &VecDeque<Remembered>, first: u32, number: u32) -> Option<&Remembered> {
    answers.get(usize::try_from(number.wrapping_sub(first)).ok()?)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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
        let repeats = DuplicateDetection::default();
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
        let mut repeats = DuplicateDetection::default();
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
        assert_eq!((repeats.answers.len(), repeats.index.len()), (1, 1));
    }

    #[test]
    fn the_oldest_answer_makes_room() {
        let mut repeats = DuplicateDetection::default();
        for number in 0..=ANSWERS_MAX as u64 {
            repeats.remember(Fingerprint(number), answer(), None, 0, 0);
        }
        assert_eq!(repeats.answers.len(), ANSWERS_MAX);
        assert_eq!(repeats.recall(Fingerprint(0), 1), None);
        assert_eq!(repeats.recall(Fingerprint(1), 1), Some(answer()));
    }

    #[test]
    fn an_answer_that_depends_on_a_failed_commit_is_forgotten() {
        let mut repeats = DuplicateDetection::default();
        repeats.remember(Fingerprint(1), answer(), None, 0, 5);
        repeats.remember(Fingerprint(2), answer(), None, 0, 6);
        repeats.forget_after(5);
        let known = [1, 2].map(|number| repeats.recall(Fingerprint(number), 1).is_some());
        assert_eq!(known, [true, false]);
    }

    #[derive(Clone, Debug)]
    enum Step {
        /// A request of this fingerprint comes so many milliseconds later, and is answered if it is new.
        Request { fingerprint: u64, later_ms: u64, expiry_s: Option<u32> },
        /// So many of the latest commits fail.
        Failure { commits: u64 },
    }

    fn step() -> impl Strategy<Value = Step> {
        let request = (0..5_u64, 0..90_000_u64, prop::option::of(0..3_u32));
        let request = request.prop_map(|(fingerprint, later_ms, expiry_s)| Step::Request {
            fingerprint,
            later_ms,
            expiry_s,
        });
        prop_oneof![9 => request, 1 => (0..4_u64).prop_map(|commits| Step::Failure { commits })]
    }

    proptest! {
        #[test]
        fn a_request_has_the_latest_answer_that_it_had_or_none(
            steps in prop::collection::vec(step(), 0..60),
            first in prop_oneof![Just(0_u32), u32::MAX - 20..=u32::MAX],
        ) {
            let mut repeats = DuplicateDetection { first, ..DuplicateDetection::default() };
            // Fingerprint, until when, ticket and answer.
            let mut model: Vec<(u64, u64, u64, Answer)> = Vec::new();
            let (mut now_ms, mut ticket) = (0, 0);
            for step in steps {
                match step {
                    Step::Request { fingerprint, later_ms, expiry_s } => {
                        now_ms += later_ms;
                        let latest = model.iter().rev().find(|(known, ..)| *known == fingerprint);
                        let expected =
                            latest.filter(|(_, until_ms, ..)| now_ms < *until_ms).map(|(.., answer)| answer.clone());
                        prop_assert_eq!(&repeats.recall(Fingerprint(fingerprint), now_ms), &expected);
                        if expected.is_none() {
                            ticket += 1;
                            let answer = Answer::new(&Reply::Count(ticket), None);
                            repeats.remember(Fingerprint(fingerprint), answer.clone(), expiry_s, now_ms, ticket);
                            let lifetime_s = expiry_s.map_or(60, |expiry_s| u64::from(expiry_s) + 60);
                            model.push((fingerprint, now_ms + lifetime_s * 1000, ticket, answer));
                        }
                    }
                    Step::Failure { commits } => {
                        let saved = ticket.saturating_sub(commits);
                        repeats.forget_after(saved);
                        model.retain(|(_, _, ticket, _)| *ticket <= saved);
                    }
                }
                prop_assert!(repeats.index.len() <= repeats.answers.len());
            }
        }
    }
}

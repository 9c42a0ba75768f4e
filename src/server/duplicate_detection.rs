//! Duplicate detection: QoS 1 may deliver a write twice, and it must be applied once (protocol §1).

use std::collections::VecDeque;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use super::delivery::{ReplyTo, Response};
use crate::protocol::Message;
use crate::protocol::message::TIMESTAMP;

/// The most recorded responses of all clients together: about 3 MB.
const RESPONSES_MAX: usize = 28_672;
/// How long the response to a request without a message expiry is recorded, in milliseconds.
const DEFAULT_EXPIRY_MS: u64 = 60_000;
/// How long after the expiry of its request a response is recorded, in milliseconds. A client that has lost its
/// connection delivers the request again once it is back, even if it has expired, and another client may have written
/// the key meanwhile (protocol §12). The SDKs use the same time.
const GRACE_MS: u64 = 60_000;
/// The most bytes of a payload that are hashed. More would cost time and hardly tell more requests apart.
const HASHED_BYTES_MAX: usize = 1024;

/// Identifies a request. Two different requests have the same fingerprint with a probability of 2⁻⁶⁴; a client cannot
/// raise it, because the hash is keyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint(u64);

/// The latest responses to writes, each until its request can no longer be delivered again. The oldest are discarded
/// first.
///
/// The responses are stored in the order in which they came, so that the one that is added and the one that is discarded
/// have their neighbours in the processor's cache. The index is small enough to stay there.
#[derive(Debug, Default)]
pub struct DuplicateDetection {
    hasher: RandomState,
    responses: VecDeque<RecordedResponse>,
    /// Number of the first response; the others count on from it and wrap around.
    first: u32,
    /// Maps fingerprints to the numbers of responses.
    index: HashTable<u32>,
}

#[derive(Debug)]
struct RecordedResponse {
    fingerprint: Fingerprint,
    response: Response,
    until_ms: u64,
    sequence: u64,
}

impl DuplicateDetection {
    /// Returns the fingerprint of a request.
    ///
    /// Client id, response topic and correlation data identify a request. Payload and timestamp are hashed too, for
    /// scripts that send the same correlation data with every request.
    pub fn fingerprint(&self, client_id: &str, reply_to: &ReplyTo, message: &Message) -> Fingerprint {
        let ReplyTo { response_topic, correlation, .. } = reply_to;
        let payload = &message.payload[..];
        let start = payload.get(..HASHED_BYTES_MAX).unwrap_or(payload);
        let timestamp = message.user_property(TIMESTAMP);
        // The lengths separate the parts, so that no two requests hash the same bytes. They come first and together:
        // the hasher is faster with few long pieces than with many short ones.
        let lengths = [client_id.len(), response_topic.len(), correlation.len(), payload.len()];
        let mut hasher = self.hasher.build_hasher();
        (lengths, timestamp.map(str::len)).hash(&mut hasher);
        for part in [client_id.as_bytes(), response_topic.as_bytes(), correlation, start] {
            hasher.write(part);
        }
        hasher.write(timestamp.unwrap_or_default().as_bytes());
        Fingerprint(hasher.finish())
    }

    /// Returns the response to an earlier delivery of the same request, if it is still recorded.
    pub fn find(&self, fingerprint: Fingerprint, monotonic_ms: u64) -> Option<Response> {
        let get = |number: u32| numbered(&self.responses, self.first, number);
        let is_same = |number: &u32| get(*number).is_some_and(|known| known.fingerprint == fingerprint);
        let known = self.index.find(fingerprint.0, is_same).and_then(|number| get(*number))?;
        (monotonic_ms < known.until_ms).then(|| known.response.clone())
    }

    /// Records a response. `sequence` is the change whose commit it depends on, 0 if none.
    pub fn record(
        &mut self,
        fingerprint: Fingerprint,
        response: Response,
        expiry_s: Option<u32>,
        monotonic_ms: u64,
        sequence: u64,
    ) {
        while let Some(oldest) = self.responses.front()
            && (self.responses.len() >= RESPONSES_MAX || oldest.until_ms <= monotonic_ms)
        {
            self.discard_oldest();
        }
        let lifetime_ms = expiry_s.map_or(DEFAULT_EXPIRY_MS, |expiry_s| {
            u64::from(expiry_s).saturating_mul(1_000).saturating_add(GRACE_MS)
        });
        let until_ms = monotonic_ms.saturating_add(lifetime_ms);
        self.push(RecordedResponse { fingerprint, response, until_ms, sequence });
    }

    /// Discards the responses that depend on changes after `sequence`, because these were rolled back.
    pub fn discard_after(&mut self, sequence: u64) {
        self.index.clear();
        for known in std::mem::take(&mut self.responses) {
            if known.sequence <= sequence {
                self.push(known);
            }
        }
    }

    /// Adds a response. An expired one with the same fingerprint is no longer found.
    fn push(&mut self, known: RecordedResponse) {
        let fingerprint = known.fingerprint;
        // The conversion cannot fail: there are at most `RESPONSES_MAX` responses.
        let count = u32::try_from(self.responses.len()).unwrap_or(u32::MAX);
        let number = self.first.wrapping_add(count);
        let print = |of: &u32| numbered(&self.responses, self.first, *of).map(|known| known.fingerprint);
        let is_same = |of: &u32| print(of) == Some(fingerprint);
        let hash = |of: &u32| print(of).map_or(0, |print| print.0);
        match self.index.entry(fingerprint.0, is_same, hash) {
            Entry::Occupied(mut older) => *older.get_mut() = number,
            Entry::Vacant(place) => _ = place.insert(number),
        }
        self.responses.push_back(known);
    }

    fn discard_oldest(&mut self) {
        let Some(oldest) = self.responses.pop_front() else { return };
        let number = self.first;
        self.first = number.wrapping_add(1);
        if let Ok(place) = self.index.find_entry(oldest.fingerprint.0, |of| *of == number) {
            place.remove();
        }
    }
}

/// Returns the response with this number, where `first` is the number of the first one.
fn numbered(responses: &VecDeque<RecordedResponse>, first: u32, number: u32) -> Option<&RecordedResponse> {
    responses.get(usize::try_from(number.wrapping_sub(first)).ok()?)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::protocol::Reply;

    fn reply_to(correlation: &'static str) -> ReplyTo {
        let (verb, received) = (Default::default(), crate::clock::monotonic());
        ReplyTo { response_topic: "r".to_owned(), correlation: correlation.into(), verb, received }
    }

    fn response() -> Response {
        Response::new(&Reply::Done, None)
    }

    fn message(payload: &'static str, timestamp: &str) -> Message {
        let user_properties = vec![(TIMESTAMP.into(), timestamp.to_owned().into())];
        Message { payload: payload.into(), user_properties, ..Message::default() }
    }

    #[test]
    fn a_request_is_identified_by_client_correlation_timestamp_and_payload() {
        let duplicates = DuplicateDetection::default();
        let print = duplicates.fingerprint("client", &reply_to("1"), &message("p", "t"));
        assert_eq!(print, duplicates.fingerprint("client", &reply_to("1"), &message("p", "t")));
        for (client_id, correlation, payload, timestamp) in [
            ("other", "1", "p", "t"),
            ("client", "2", "p", "t"),
            ("client", "1", "q", "t"),
            ("client", "1", "p", "u"),
        ] {
            let other =
                duplicates.fingerprint(client_id, &reply_to(correlation), &message(payload, timestamp));
            assert_ne!(print, other);
        }
    }

    #[test]
    fn a_response_is_recorded_as_long_as_its_request_may_be_delivered_again() {
        let mut duplicates = DuplicateDetection::default();
        let [expiring, lasting, expired] = ["1", "2", "3"]
            .map(|correlation| duplicates.fingerprint("c", &reply_to(correlation), &Message::default()));
        duplicates.record(expiring, response(), Some(2), 100, 0);
        duplicates.record(lasting, response(), None, 100, 0);
        // The Go SDK makes 0 seconds of a timeout below one second.
        duplicates.record(expired, response(), Some(0), 100, 0);
        assert_eq!(duplicates.find(expired, 101), Some(response()));
        assert_eq!(duplicates.find(expiring, 62_099), Some(response()));
        assert_eq!(duplicates.find(expiring, 62_100), None);
        assert_eq!(duplicates.find(lasting, 60_099), Some(response()));
        assert_eq!(duplicates.find(lasting, 60_100), None);
        duplicates.record(Fingerprint(1), response(), None, 62_100, 0);
        assert_eq!((duplicates.responses.len(), duplicates.index.len()), (1, 1));
    }

    #[test]
    fn the_oldest_response_is_discarded() {
        let mut duplicates = DuplicateDetection::default();
        for number in 0..=RESPONSES_MAX as u64 {
            duplicates.record(Fingerprint(number), response(), None, 0, 0);
        }
        assert_eq!(duplicates.responses.len(), RESPONSES_MAX);
        assert_eq!(duplicates.find(Fingerprint(0), 1), None);
        assert_eq!(duplicates.find(Fingerprint(1), 1), Some(response()));
    }

    #[test]
    fn a_response_that_depends_on_a_failed_commit_is_discarded() {
        let mut duplicates = DuplicateDetection::default();
        duplicates.record(Fingerprint(1), response(), None, 0, 5);
        duplicates.record(Fingerprint(2), response(), None, 0, 6);
        duplicates.discard_after(5);
        let known = [1, 2].map(|number| duplicates.find(Fingerprint(number), 1).is_some());
        assert_eq!(known, [true, false]);
    }

    #[derive(Clone, Debug)]
    enum Step {
        /// A request with this fingerprint arrives some milliseconds later, and is answered if it is new.
        Request { fingerprint: u64, later_ms: u64, expiry_s: Option<u32> },
        /// The latest commits fail.
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
        fn a_request_has_its_latest_response_or_none(
            steps in prop::collection::vec(step(), 0..60),
            first in prop_oneof![Just(0_u32), u32::MAX - 20..=u32::MAX],
        ) {
            let mut duplicates = DuplicateDetection { first, ..DuplicateDetection::default() };
            // Fingerprint, expiry, sequence number and response.
            let mut model: Vec<(u64, u64, u64, Response)> = Vec::new();
            let (mut now_ms, mut sequence) = (0, 0);
            for step in steps {
                match step {
                    Step::Request { fingerprint, later_ms, expiry_s } => {
                        now_ms += later_ms;
                        let latest = model.iter().rev().find(|(known, ..)| *known == fingerprint);
                        let expected =
                            latest.filter(|(_, until_ms, ..)| now_ms < *until_ms).map(|(.., response)| response.clone());
                        prop_assert_eq!(&duplicates.find(Fingerprint(fingerprint), now_ms), &expected);
                        if expected.is_none() {
                            sequence += 1;
                            let response = Response::new(&Reply::Count(sequence), None);
                            duplicates.record(Fingerprint(fingerprint), response.clone(), expiry_s, now_ms, sequence);
                            let lifetime_s = expiry_s.map_or(60, |expiry_s| u64::from(expiry_s) + 60);
                            model.push((fingerprint, now_ms + lifetime_s * 1000, sequence, response));
                        }
                    }
                    Step::Failure { commits } => {
                        let committed = sequence.saturating_sub(commits);
                        duplicates.discard_after(committed);
                        model.retain(|(_, _, sequence, _)| *sequence <= committed);
                    }
                }
                prop_assert!(duplicates.index.len() <= duplicates.responses.len());
            }
        }
    }
}

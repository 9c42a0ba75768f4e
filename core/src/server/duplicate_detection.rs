//! Duplicate detection: QoS 1 may deliver a write twice, and it must be applied once (protocol §1).

mod client;
mod owners;
mod turns;

use std::collections::VecDeque;
use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::Arc;

use hashbrown::DefaultHashBuilder;

pub use self::client::{Client, Fingerprint};
use self::client::{ClientKey, Clients, RESTORED, RecordedResponse};
use self::owners::Owners;
use self::turns::Turns;
use super::cluster_key::ClusterKey;
use super::delivery::Response;
use crate::broker::{Peer, SessionPhase};
use crate::protocol::Message;
use crate::protocol::message::TIMESTAMP;

/// The longest time for which a response is recorded, in milliseconds; also if its request has no message expiry. The
/// sessions of the SDKs last as long.
const LIFETIME_MS_MAX: u64 = 3_600_000;
/// How long after the expiry of its request a response is recorded, in milliseconds. A client that has lost its
/// connection delivers the request again once it is back, even if it has expired, and another client may have written
/// the key meanwhile (protocol §12). The SDKs use the same time.
const GRACE_MS: u64 = 60_000;
/// The most responses of a client that are discarded with each new one, because other requests wait meanwhile.
const DISCARDED_MAX: usize = 8;
/// The most clients whose expired responses one [`DuplicateDetection::discard_expired`] discards, and how many of each.
const CLIENTS_PER_SWEEP_MAX: usize = 256;
const EXPIRED_PER_CLIENT_MAX: usize = 64;
/// The most clients of an owner that are passed over for one that has not written lately.
const ACTIVE_SKIPPED_MAX: usize = 16;
/// The most bytes of a payload that are hashed. More would cost time and hardly distinguish more requests.
const HASHED_BYTES_MAX: usize = 1024;

/// A response that another instance of a cluster has recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoredResponse {
    pub client_id: Arc<str>,
    pub fingerprint: Fingerprint,
    pub response: Response,
    /// When the request can no longer be delivered again, in monotonic milliseconds.
    pub until_ms: u64,
}

/// The responses to writes, each until its request can no longer be delivered again.
///
/// No write is refused for lack of room. Above the limit responses are forgotten: first settled ones, which MQTT does not
/// let a client deliver again (see [`Client`]), then the oldest of the owner that holds the most. So the writes of one owner
/// make no response of another one be forgotten that holds less.
///
/// Clients with the same id and another identity are other clients.
#[derive(Debug)]
pub struct DuplicateDetection {
    hasher: DefaultHashBuilder,
    /// The key of fingerprints that are the same in all instances of a cluster.
    cluster_key: Option<ClusterKey>,
    clients: Clients,
    owners: Owners,
    /// The turns of clients that may have settled responses to lose one.
    with_settled: Turns,
    /// The place of the next client whose expired responses are discarded.
    next_swept: usize,
    bytes_max: usize,
    /// Number of responses that were forgotten although their requests may be delivered again.
    forgotten: u64,
    /// Changes that were rolled back, in their order: each after the first number, up to the second one.
    rolled_back: VecDeque<RolledBack>,
}

/// Changes that were rolled back by one failure.
#[derive(Debug)]
struct RolledBack {
    /// The last change that was committed.
    committed: u64,
    /// The last change.
    last: u64,
    /// When no response that depends on them is recorded any more.
    until_ms: u64,
}

impl DuplicateDetection {
    /// Returns an empty memory of at most `bytes_max` bytes.
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        Self {
            hasher: DefaultHashBuilder::default(),
            cluster_key: None,
            clients: Clients::default(),
            owners: Owners::default(),
            with_settled: Turns::default(),
            next_swept: 0,
            bytes_max,
            forgotten: 0,
            rolled_back: VecDeque::new(),
        }
    }

    /// Returns an empty memory in the place of this one.
    #[must_use]
    pub fn emptied(&self) -> Self {
        Self { cluster_key: self.cluster_key, forgotten: self.forgotten, ..Self::new(self.bytes_max) }
    }

    /// Makes fingerprints the same in all instances of a cluster.
    pub fn set_cluster_key(&mut self, cluster_key: ClusterKey) {
        self.cluster_key = Some(cluster_key);
    }

    /// Returns the memory of all recorded responses, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.owners.bytes()
    }

    #[must_use]
    pub fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Returns the number of responses that were forgotten for lack of room although their requests may be delivered again.
    #[must_use]
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// Returns the owner that holds the most.
    #[must_use]
    pub fn largest_owner(&self) -> Option<&Arc<str>> {
        self.owners.largest()
    }

    /// Returns the fingerprint of a request.
    ///
    /// Response topic and correlation data identify a request. Payload and timestamp are hashed too, for scripts that send
    /// the same correlation data with every request.
    pub fn fingerprint(&self, response_topic: &str, correlation: &[u8], message: &Message) -> Fingerprint {
        let payload = &message.payload[..];
        let start = payload.get(..HASHED_BYTES_MAX).unwrap_or(payload);
        let timestamp = message.user_property(TIMESTAMP);
        // The lengths separate the parts, so that no two requests hash the same bytes. They come first and together:
        // the hasher is faster with few long pieces than with many short ones.
        let lengths = [response_topic.len(), correlation.len(), payload.len()];
        if let Some(key) = &self.cluster_key {
            let lengths = lengths.map(|length| length as u64);
            let stamp = timestamp.unwrap_or_default().as_bytes();
            let parts = [response_topic.as_bytes(), correlation, start, stamp];
            return Fingerprint(key.hash(&lengths, parts));
        }
        let mut hasher = self.hasher.build_hasher();
        (lengths, timestamp.map(str::len)).hash(&mut hasher);
        for part in [response_topic.as_bytes(), correlation, start] {
            hasher.write(part);
        }
        hasher.write(timestamp.unwrap_or_default().as_bytes());
        Fingerprint(hasher.finish())
    }

    /// Returns the response to a request of `from` that was handled before.
    #[must_use]
    pub fn recognize(
        &mut self,
        from: &Peer,
        fingerprint: Fingerprint,
        monotonic_ms: u64,
    ) -> Option<Response> {
        if let Some(place) = self.clients.place_of(from) {
            self.handle_delivery(place, from);
            if let Some(known) = self.find(place, fingerprint, monotonic_ms) {
                known.handle_redelivery(from);
                return Some(known.response.clone());
            }
        }
        if from.identity.is_empty() {
            return None;
        }
        // Other instances do not record the identity.
        self.cluster_key?;
        let place = self.clients.place(&[], &from.client_id)?;
        let known = self.find(place, fingerprint, monotonic_ms)?;
        (known.connection == RESTORED).then(|| known.response.clone())
    }

    /// Records the response to a request that [`DuplicateDetection::recognize`] does not know. `sequence` is the change whose commit it depends on,
    /// 0 if none.
    pub fn record(
        &mut self,
        from: &Peer,
        fingerprint: Fingerprint,
        response: Response,
        expiry_s: Option<u32>,
        monotonic_ms: u64,
        sequence: u64,
    ) {
        let until_ms = monotonic_ms.saturating_add(lifetime_ms(expiry_s));
        let Peer { identity, client_id, owner, connection, message_number: number, .. } = from;
        let (connection, number) = (*connection, *number);
        let known = RecordedResponse { fingerprint, response, until_ms, sequence, connection, number };
        let place = match self.clients.place_of(from) {
            Some(place) => place,
            None => {
                let key = ClientKey { identity: Arc::clone(identity), client_id: Arc::clone(client_id) };
                let place = self.add_client(key, owner);
                self.handle_delivery(place, from);
                place
            }
        };
        self.push(place, known, monotonic_ms);
    }

    /// Records a response of another instance.
    ///
    /// Here it is not known which acknowledgements the client has received from its broker. Restored responses count as
    /// settled: they are kept for their whole time while there is room, and otherwise the oldest are discarded.
    pub fn restore(&mut self, restored: RestoredResponse, monotonic_ms: u64) {
        let RestoredResponse { client_id, fingerprint, response, until_ms } = restored;
        // No later than a response of this instance, so that clocks that differ keep nothing for ever.
        let until_ms = until_ms.min(monotonic_ms.saturating_add(LIFETIME_MS_MAX));
        if until_ms <= monotonic_ms {
            return;
        }
        let (sequence, connection, number) = (0, RESTORED, 0);
        let known = RecordedResponse { fingerprint, response, until_ms, sequence, connection, number };
        let place = self.clients.place(&[], &client_id).unwrap_or_else(|| {
            let key = ClientKey { identity: [].into(), client_id: Arc::clone(&client_id) };
            self.add_client(key, &client_id)
        });
        self.push(place, known, monotonic_ms);
    }

    /// Notes what a client has received on a connection that has ended. If it has ended its session with it, it delivers
    /// nothing again: then its responses are forgotten, and returned to be dropped without the lock of the service.
    pub fn handle_disconnect(&mut self, from: &Peer) -> Option<Box<Client>> {
        let place = self.clients.place(&from.identity, &from.client_id)?;
        if !self.clients.get(place).is_some_and(|client| client.is_latest(from.connection)) {
            return None;
        }
        if from.session == SessionPhase::Ended {
            return self.remove_client(place);
        }
        self.handle_delivery(place, from);
        None
    }

    /// Discards expired responses, of a bounded number of clients. Must be called about once a second.
    pub fn discard_expired(&mut self, monotonic_ms: u64) {
        for _ in 0..self.clients.places().min(CLIENTS_PER_SWEEP_MAX) {
            let place = self.next_swept;
            self.next_swept = place.saturating_add(1).checked_rem(self.clients.places()).unwrap_or(0);
            let Some(client) = self.clients.get_mut(place) else { continue };
            let freed = client.discard(monotonic_ms, EXPIRED_PER_CLIENT_MAX);
            self.owners.change(&client.owner, 0, freed);
            if client.is_empty() {
                self.remove_client(place);
            }
        }
        while self.rolled_back.pop_front_if(|failure| failure.until_ms <= monotonic_ms).is_some() {}
    }

    /// Forgets the responses that depend on the changes after `committed` up to `last`, because these were rolled back.
    ///
    /// Their memory is freed when they expire: a walk over all responses would block other requests.
    pub fn handle_rollback(&mut self, committed: u64, last: u64, monotonic_ms: u64) {
        let until_ms = monotonic_ms.saturating_add(LIFETIME_MS_MAX);
        match self.rolled_back.back_mut() {
            // Nothing was committed between the two failures.
            Some(earlier) if earlier.committed == committed => {
                (earlier.last, earlier.until_ms) = (last, until_ms)
            }
            _ => self.rolled_back.push_back(RolledBack { committed, last, until_ms }),
        }
    }

    /// Returns the response to an earlier delivery of the same request, if it is still recorded.
    fn find(
        &mut self,
        place: usize,
        fingerprint: Fingerprint,
        monotonic_ms: u64,
    ) -> Option<&mut RecordedResponse> {
        let known = self.clients.get_mut(place)?.find(fingerprint, monotonic_ms)?;
        (!is_rolled_back(&self.rolled_back, known.sequence)).then_some(known)
    }

    /// Notes what a client has received. One that connects from another address takes its responses with it.
    fn handle_delivery(&mut self, place: usize, from: &Peer) {
        let Some(client) = self.clients.get_mut(place) else { return };
        if client.handle_delivery(from) && client.owner != from.owner {
            self.owners.remove(&client.owner, client.turn, client.bytes());
            client.owner = Arc::clone(&from.owner);
            client.turn = self.owners.add(&client.owner, place, client.bytes());
        }
        client.note_settled(place, &mut self.with_settled);
    }

    fn push(&mut self, place: usize, known: RecordedResponse, monotonic_ms: u64) {
        let Some(client) = self.clients.get_mut(place) else { return };
        let is_restored = known.connection == RESTORED;
        let bytes = client.push(known);
        if is_restored {
            client.settle();
            client.note_settled(place, &mut self.with_settled);
        }
        let freed = client.discard(monotonic_ms, DISCARDED_MAX);
        self.owners.change(&client.owner, bytes, freed);
        while self.bytes() > self.bytes_max
            && let Some(place) = self.next_with_settled().or_else(|| self.next_of_largest_owner())
        {
            self.forget_oldest(place, monotonic_ms);
        }
    }

    fn add_client(&mut self, key: ClientKey, owner: &Arc<str>) -> usize {
        let client = Client::new(key, owner);
        let bytes = client.bytes();
        let place = self.clients.insert(client);
        let turn = self.owners.add(owner, place, bytes);
        if let Some(client) = self.clients.get_mut(place) {
            client.turn = turn;
        }
        place
    }

    fn remove_client(&mut self, place: usize) -> Option<Box<Client>> {
        let client = self.clients.remove(place)?;
        self.owners.remove(&client.owner, client.turn, client.bytes());
        client.settled_turn.into_iter().for_each(|turn| _ = self.with_settled.remove(turn));
        Some(client)
    }

    /// Forgets the oldest response of a client, and the client if it has no more.
    fn forget_oldest(&mut self, place: usize, monotonic_ms: u64) {
        let Some(client) = self.clients.get_mut(place) else { return };
        let is_settled = client.has_settled();
        if let Some((oldest, is_found)) = client.pop_oldest() {
            let is_needed = is_found && !is_settled && monotonic_ms < oldest.until_ms;
            if is_needed && !is_rolled_back(&self.rolled_back, oldest.sequence) {
                self.forgotten = self.forgotten.saturating_add(1);
            }
            self.owners.change(&client.owner, 0, oldest.cost());
        }
        if client.is_empty() {
            self.remove_client(place);
        }
    }

    /// Returns the place of a client that has settled responses: the one that has had some for longest.
    fn next_with_settled(&mut self) -> Option<usize> {
        loop {
            let place = self.with_settled.first()?;
            match self.clients.get_mut(place) {
                Some(client) if client.has_settled() => return Some(place),
                client => client.and_then(|client| self.with_settled.remove(client.settled_turn.take()?))?,
            };
        }
    }

    /// Returns the place of a client of the owner that holds the most: the one that has not written for longest.
    fn next_of_largest_owner(&mut self) -> Option<usize> {
        let owner = Arc::clone(self.owners.largest()?);
        for _ in 0..ACTIVE_SKIPPED_MAX {
            let client = self.clients.get_mut(self.owners.first_of(&owner)?)?;
            if !std::mem::take(&mut client.is_active) {
                break;
            }
            client.turn = self.owners.put_last(&owner, client.turn);
        }
        self.owners.first_of(&owner)
    }
}

/// Whether a change was rolled back. A response that depends on no change has the number 0, which is committed.
fn is_rolled_back(rolled_back: &VecDeque<RolledBack>, sequence: u64) -> bool {
    let at = rolled_back.partition_point(|failure| failure.last < sequence);
    rolled_back.get(at).is_some_and(|failure| failure.committed < sequence)
}

/// Returns for how long a response is recorded, given the message expiry of its request, in milliseconds.
#[must_use]
pub fn lifetime_ms(expiry_s: Option<u32>) -> u64 {
    expiry_s.map_or(LIFETIME_MS_MAX, |expiry_s| {
        u64::from(expiry_s).saturating_mul(1_000).saturating_add(GRACE_MS).min(LIFETIME_MS_MAX)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::broker::Principal;
    use crate::protocol::{ConnectionId, Reply, UserProperties};

    const TOPIC: &str = "r";

    fn response() -> Response {
        Response::new(&Reply::Done, None)
    }

    fn message(payload: &'static str, timestamp: &str) -> Message {
        let user_properties = UserProperties::from_iter([(TIMESTAMP, timestamp)]);
        Message { payload: payload.into(), user_properties, ..Message::default() }
    }

    const UNLIMITED: usize = usize::MAX;

    /// A request of a client, which is an owner by itself, with its number on its connection, and how many
    /// acknowledgements have been received.
    fn delivery(client_id: &str, connection: u64, number: u64, confirmed: u64) -> Peer {
        Peer {
            connection: ConnectionId(connection),
            client_id: client_id.into(),
            principal: Principal::default(),
            identity: [].into(),
            owner: client_id.into(),
            permissions: None,
            session: SessionPhase::Resumed,
            message_number: number,
            confirmed,
            handle: None,
        }
    }

    /// The only request of a connection of an owner.
    fn one_shot(owner: &str, connection: u64) -> Peer {
        let session = SessionPhase::New;
        Peer { owner: owner.into(), session, ..delivery(&format!("{owner} {connection}"), connection, 1, 0) }
    }

    /// Handles a request as the service does. Returns whether it is recognized; otherwise a response is recorded.
    fn handle(
        duplicates: &mut DuplicateDetection,
        from: &Peer,
        fingerprint: u64,
        expiry_s: Option<u32>,
        now_ms: u64,
    ) -> bool {
        let fingerprint = Fingerprint(fingerprint);
        let is_known = duplicates.recognize(from, fingerprint, now_ms).is_some();
        if !is_known {
            duplicates.record(from, fingerprint, response(), expiry_s, now_ms, 0);
        }
        is_known
    }

    /// Whether a request would be recognized.
    fn is_known(duplicates: &mut DuplicateDetection, client_id: &str, fingerprint: u64, now_ms: u64) -> bool {
        let place = duplicates.clients.place(&[], client_id);
        place.is_some_and(|place| duplicates.find(place, Fingerprint(fingerprint), now_ms).is_some())
    }

    /// Returns the number of responses of a client, and how many of them are settled.
    fn counts(duplicates: &DuplicateDetection, client_id: &str) -> (usize, usize) {
        let place = duplicates.clients.place(&[], client_id);
        let client = place.and_then(|place| duplicates.clients.get(place));
        client.map_or((0, 0), |client| (client.len(), client.checked_settled()))
    }

    /// Checks that all tables agree. Returns the number of owners.
    fn check(duplicates: &DuplicateDetection) -> usize {
        let owners = duplicates.owners.checked_len();
        let bytes = duplicates.clients.iter().map(|client| {
            assert!(!client.is_empty() && (client.checked_settled() == 0 || client.settled_turn.is_some()));
            client.bytes()
        });
        assert_eq!(bytes.sum::<usize>(), duplicates.bytes());
        assert!(duplicates.bytes() <= duplicates.bytes_max);
        owners
    }

    #[test]
    fn a_request_is_identified_by_correlation_timestamp_and_payload() {
        let duplicates = DuplicateDetection::new(UNLIMITED);
        let print = duplicates.fingerprint(TOPIC, "1".as_bytes(), &message("p", "t"));
        assert_eq!(print, duplicates.fingerprint(TOPIC, "1".as_bytes(), &message("p", "t")));
        for (correlation, payload, timestamp) in [("2", "p", "t"), ("1", "q", "t"), ("1", "p", "u")] {
            assert_ne!(
                print,
                duplicates.fingerprint(TOPIC, correlation.as_bytes(), &message(payload, timestamp))
            );
        }
    }

    #[test]
    fn the_first_kib_of_the_payload_and_its_length_distinguish_requests() {
        let duplicates = DuplicateDetection::new(UNLIMITED);
        let print = |payload: Vec<u8>| {
            let message = Message { payload: payload.into(), ..Message::default() };
            duplicates.fingerprint(TOPIC, "1".as_bytes(), &message)
        };
        let whole = vec![b'x'; 2_000];
        for at in [0, 15, 16, 17, 500, 1_023] {
            let mut other = whole.clone();
            other[at] = b'y';
            assert_ne!(print(other), print(whole.clone()), "byte {at}");
        }
        assert_ne!(print(whole[1..].to_vec()), print(whole));
    }

    #[test]
    fn a_response_is_recorded_as_long_as_its_request_may_be_delivered_again() {
        let mut duplicates = DuplicateDetection::new(UNLIMITED);
        // The Go SDK makes 0 seconds of a timeout below one second.
        for (number, expiry_s) in [(1, Some(0)), (2, Some(2)), (3, None), (4, Some(u32::MAX))] {
            assert!(!handle(&mut duplicates, &delivery("c", 1, number, 0), number, expiry_s, 100));
        }
        for (number, end_ms) in [(1, 60_100), (2, 62_100), (3, 3_600_100), (4, 3_600_100)] {
            let known = [end_ms - 1, end_ms].map(|now_ms| is_known(&mut duplicates, "c", number, now_ms));
            assert_eq!(known, [true, false], "{number}");
        }
        duplicates.discard_expired(3_600_099);
        assert!(duplicates.bytes() > 0);
        duplicates.discard_expired(3_600_100);
        assert_eq!((duplicates.bytes(), check(&duplicates)), (0, 0));
    }

    #[test]
    fn any_number_of_expired_responses_is_discarded_in_time() {
        let mut duplicates = DuplicateDetection::new(UNLIMITED);
        (1..=1_000).for_each(|number| _ = handle(&mut duplicates, &one_shot("c", number), 1, None, 0));
        for _ in 0..4 {
            duplicates.discard_expired(LIFETIME_MS_MAX);
        }
        assert_eq!((duplicates.bytes(), check(&duplicates), duplicates.with_settled.first()), (0, 0, None));
        assert!(!handle(&mut duplicates, &one_shot("c", 2_000), 1, None, 0));
        assert_eq!(duplicates.clients.places(), 1_000, "places are used again");
    }

    #[test]
    fn with_many_clients_no_request_hashes_more_than_some_thousands_again() {
        let mut duplicates = DuplicateDetection::new(UNLIMITED);
        let client = |number| one_shot("c", number);
        for number in 1..=60_000 {
            assert!(!handle(&mut duplicates, &client(number), 1, None, 0));
        }
        assert!(duplicates.clients.largest_part() <= 3_584, "{}", duplicates.clients.largest_part());
        for number in 1..=60_000 {
            let known = duplicates.recognize(&client(number), Fingerprint(1), 0).is_some();
            assert!(known && duplicates.recognize(&client(number), Fingerprint(2), 0).is_none());
        }
    }

    #[test]
    fn the_writes_of_other_clients_make_no_response_be_forgotten() {
        let mut duplicates = DuplicateDetection::new(1_000_000);
        handle(&mut duplicates, &delivery("c", 1, 1, 0), 7, Some(10), 0);
        for number in 1..=30_000 {
            let from = delivery("other", 2, number, number.saturating_sub(10));
            assert!(!handle(&mut duplicates, &from, 100 + number, Some(10), 1));
        }
        check(&duplicates);
        assert!(handle(&mut duplicates, &delivery("c", 3, 1, 0), 7, Some(10), 69_999));
        assert_eq!(duplicates.forgotten(), 0);
    }

    #[test]
    fn a_client_with_many_unacknowledged_writes_loses_its_oldest_responses_only() {
        let mut duplicates = DuplicateDetection::new(UNLIMITED);
        assert!(!handle(&mut duplicates, &delivery("other", 99, 1, 0), 1, None, 0));
        // It connects again and again, resumes its session, and receives no acknowledgement.
        for number in 0..10_000 {
            let from = delivery("c", 100 + number / 1_000, number % 1_000 + 1, 0);
            assert!(!handle(&mut duplicates, &from, number, None, 0));
        }
        // With the last one, which is counted with the next write.
        assert_eq!(counts(&duplicates, "c"), (4_096 + 2_048 + 1, 2_048));
        let known = |from| (from..10_000).all(|number| is_known(&mut duplicates, "c", number, 1));
        assert_eq!([3_854, 3_855].map(known), [false, true]);
        assert!(is_known(&mut duplicates, "other", 1, 1));
        check(&duplicates);
    }

    #[test]
    fn without_room_settled_responses_are_forgotten_first_also_those_of_clients_that_are_gone() {
        let mut duplicates = DuplicateDetection::new(100_000);
        // Of a client that is gone, all responses are confirmed but for the last.
        let last = 400;
        for number in 1..=last {
            handle(&mut duplicates, &delivery("gone", 2, number, number - 1), number, None, 0);
        }
        for number in 1..=400 {
            let from = Peer { owner: "gone".into(), ..delivery("c", 3, number, 0) };
            assert!(!handle(&mut duplicates, &from, number, None, 1));
            check(&duplicates);
        }
        assert!((1..=400).all(|number| is_known(&mut duplicates, "c", number, 1)));
        assert!(is_known(&mut duplicates, "gone", last, 1) && !is_known(&mut duplicates, "gone", 1, 1));
        assert_eq!(duplicates.forgotten(), 0);
    }

    #[test]
    fn clients_that_have_received_all_acknowledgements_leave_all_room_to_others() {
        let mut duplicates = DuplicateDetection::new(300_000);
        for connection in 1..=1_000 {
            let from = one_shot("address", connection);
            handle(&mut duplicates, &from, connection, None, 0);
            // Half of them are connected still, and idle. Their last acknowledgement came with another message.
            let received = Peer { confirmed: 1, message_number: 2, ..from };
            match connection % 2 {
                0 => assert!(duplicates.handle_disconnect(&received).is_none()),
                _ => assert!(duplicates.recognize(&received, Fingerprint(0), 0).is_none()),
            }
        }
        for number in 1..=1_000 {
            let from = Peer { owner: "address".into(), ..delivery("new", 2_000, number, 0) };
            assert!(!handle(&mut duplicates, &from, number, None, 1));
        }
        assert!((1..=1_000).all(|number| is_known(&mut duplicates, "new", number, 1)));
        assert_eq!((duplicates.forgotten(), check(&duplicates)), (0, 1));
    }

    #[test]
    fn without_room_and_without_a_settled_response_the_oldest_of_the_owner_are_forgotten_and_counted() {
        let mut duplicates = DuplicateDetection::new(100_000);
        for connection in 1..=60_000 {
            assert!(!handle(&mut duplicates, &one_shot("address", connection), connection, Some(10), 0));
        }
        let known: Vec<_> = (1..=60_000)
            .filter(|connection| is_known(&mut duplicates, &format!("address {connection}"), *connection, 1))
            .collect();
        let forgotten = 60_000 - known.len() as u64;
        assert_eq!(known, (forgotten + 1..=60_000).collect::<Vec<_>>());
        assert!(known.len() > 70, "{}", known.len());
        assert_eq!((duplicates.forgotten(), check(&duplicates)), (forgotten, 1));
        // A client that writes now and then is not the next one.
        let busy = one_shot("address", 59_990);
        for connection in 60_001..=70_000 {
            if connection % 10 == 0 {
                let from = Peer { message_number: connection, confirmed: connection - 20, ..busy.clone() };
                handle(&mut duplicates, &from, connection, Some(10), 0);
            }
            handle(&mut duplicates, &one_shot("address", connection), connection, Some(10), 0);
        }
        assert!(is_known(&mut duplicates, &busy.client_id, 70_000, 1));
        assert!(is_known(&mut duplicates, &busy.client_id, 69_990, 1));
    }

    #[test]
    fn an_owner_with_many_responses_makes_no_other_owner_lose_one() {
        let mut duplicates = DuplicateDetection::new(1_000_000);
        let modest: Vec<_> = (0..20).map(|owner| one_shot(&format!("modest{owner}"), 1 + owner)).collect();
        modest.iter().for_each(|from| _ = handle(&mut duplicates, from, 1, None, 0));
        // One with many client ids, one with many writes of one client.
        for number in 1..=20_000 {
            handle(&mut duplicates, &one_shot("ids", 100 + number), number, None, 0);
            handle(&mut duplicates, &delivery("writes", 50, number, 0), number, None, 0);
        }
        check(&duplicates);
        assert!(modest.iter().all(|from| handle(&mut duplicates, from, 1, None, 1)));
        let held = |owner| duplicates.owners.bytes_of(owner).unwrap();
        assert!(held("ids").abs_diff(held("writes")) < 200_000, "{} {}", held("ids"), held("writes"));
    }

    #[test]
    fn fifteen_addresses_that_fill_the_memory_take_nothing_from_a_modest_client_of_another() {
        let mut duplicates = DuplicateDetection::new(1_000_000);
        for number in 1..=20_000 {
            let owner = format!("10.0.0.{}", number % 15);
            handle(&mut duplicates, &one_shot(&owner, number), number, None, 0);
        }
        assert!(duplicates.bytes() > 990_000);
        for number in 1..=30 {
            assert!(!handle(&mut duplicates, &delivery("modest", 30_000, number, 0), number, None, 0));
        }
        for number in 40_001..=60_000 {
            let owner = format!("10.0.0.{}", number % 15);
            handle(&mut duplicates, &one_shot(&owner, number), number, None, 0);
        }
        assert!((1..=30).all(|number| is_known(&mut duplicates, "modest", number, 1)));
        check(&duplicates);
    }

    #[test]
    fn an_owner_loses_responses_only_while_it_holds_the_most() {
        let mut duplicates = DuplicateDetection::new(1_000_000);
        for number in 1..=4_000 {
            handle(&mut duplicates, &delivery("first", 1, number, 0), number, None, 0);
        }
        assert!(is_known(&mut duplicates, "first", 1, 1), "it is alone");
        for number in 1..=2_000 {
            handle(&mut duplicates, &delivery("second", 2, number, 0), number, None, 0);
        }
        assert!((1..=2_000).all(|number| is_known(&mut duplicates, "second", number, 1)));
        for number in 4_001..=20_000 {
            handle(&mut duplicates, &delivery("first", 1, number, 0), number, None, 0);
        }
        assert!((1..=2_000).all(|number| is_known(&mut duplicates, "second", number, 1)));
        check(&duplicates);
    }

    #[test]
    fn a_session_that_its_client_ends_leaves_nothing() {
        let mut duplicates = DuplicateDetection::new(UNLIMITED);
        handle(&mut duplicates, &delivery("other", 1, 1, 0), 1, None, 0);
        let bytes = duplicates.bytes();
        for connection in 2..5_000 {
            // With a connection before it that was lost.
            let client_id = if connection % 2 == 0 { "c".to_owned() } else { connection.to_string() };
            handle(&mut duplicates, &delivery(&client_id, connection, 1, 0), 1, None, 0);
            let ended = Peer { session: SessionPhase::Ended, ..delivery(&client_id, connection + 1, 0, 0) };
            assert!(duplicates.handle_disconnect(&ended).is_some());
            assert_eq!(duplicates.bytes(), bytes);
        }
        assert_eq!((check(&duplicates), duplicates.clients.places()), (1, 2));
        // The end of an earlier connection than the last one, after a takeover.
        handle(&mut duplicates, &delivery("c", 9_000, 1, 0), 1, None, 0);
        let ended = Peer { session: SessionPhase::Ended, ..delivery("c", 8_999, 1, 0) };
        assert!(duplicates.handle_disconnect(&ended).is_none());
        assert!(is_known(&mut duplicates, "c", 1, 0));
    }

    #[test]
    fn a_client_that_begins_a_new_session_needs_none_of_the_earlier_responses() {
        let mut duplicates = DuplicateDetection::new(UNLIMITED);
        let new =
            |connection, number| Peer { session: SessionPhase::New, ..delivery("c", connection, number, 0) };
        for connection in 1..=20_000 {
            // Another client delivers the last write again on its next connection, as paho does.
            let again = new(connection, 1);
            assert_eq!(handle(&mut duplicates, &again, connection - 1, None, 0), connection > 1);
            assert!(!handle(&mut duplicates, &new(connection, 2), connection, None, 0));
        }
        assert_eq!(counts(&duplicates, "c"), (2_048 + 1, 2_048));
        let resumed = delivery("c", 30_000, 1, 0);
        assert!(handle(&mut duplicates, &resumed, 20_000, None, 0), "and the last session may be resumed");
    }

    #[test]
    fn a_redelivered_write_is_settled_by_the_acknowledgement_of_the_second_delivery() {
        let mut duplicates = DuplicateDetection::new(UNLIMITED);
        (1..=10)
            .for_each(|number| _ = handle(&mut duplicates, &delivery("c", 1, number, 4), number, None, 0));
        assert_eq!(counts(&duplicates, "c"), (10, 4));
        // The client had received one more.
        for number in 1..=5 {
            assert!(handle(&mut duplicates, &delivery("c", 2, number, 0), 5 + number, None, 0));
        }
        assert_eq!(counts(&duplicates, "c"), (10, 4));
        handle(&mut duplicates, &delivery("c", 2, 6, 5), 11, None, 0);
        assert_eq!(counts(&duplicates, "c"), (11, 4), "the fifth may come, as far as is known here");
        handle(&mut duplicates, &delivery("c", 3, 1, 0), 5, None, 0);
        duplicates.handle_disconnect(&delivery("c", 3, 1, 1));
        assert_eq!(counts(&duplicates, "c"), (11, 5));
    }

    #[test]
    fn a_message_of_a_connection_that_was_taken_over_is_recorded_and_settles_nothing() {
        let mut duplicates = DuplicateDetection::new(UNLIMITED);
        handle(&mut duplicates, &delivery("c", 2, 1, 0), 1, None, 0);
        let late = Peer { session: SessionPhase::New, ..delivery("c", 1, 7, 6) };
        assert!(!handle(&mut duplicates, &late, 2, None, 0));
        assert_eq!(counts(&duplicates, "c"), (2, 0));
        assert!(handle(&mut duplicates, &delivery("c", 2, 2, 1), 2, None, 0));
        duplicates.handle_disconnect(&delivery("c", 2, 2, 2));
        assert_eq!(counts(&duplicates, "c"), (2, 2));
    }

    #[test]
    fn another_identity_with_the_same_client_id_finds_nothing_and_takes_nothing() {
        let mut duplicates = DuplicateDetection::new(UNLIMITED);
        let as_user = |user: &str, connection, number| {
            let principal = Principal { user: Some(user.into()), ..Principal::default() };
            let (identity, owner) = (principal.identity().into(), principal.owner(""));
            Peer { principal, identity, owner, ..delivery("c", connection, number, 0) }
        };
        assert!(!handle(&mut duplicates, &as_user("ann", 1, 1), 1, None, 0));
        for number in 1..=10_000 {
            assert!(!handle(&mut duplicates, &as_user("bob", 2, number), number, None, 0), "{number}");
        }
        let ended = Peer { session: SessionPhase::Ended, ..as_user("bob", 2, 10_000) };
        assert!(duplicates.handle_disconnect(&ended).is_some());
        assert!(!handle(&mut duplicates, &delivery("c", 3, 1, 0), 1, None, 0), "an anonymous client");
        assert!(handle(&mut duplicates, &as_user("ann", 4, 1), 1, None, 0));
        assert_eq!(check(&duplicates), 2);
        // Other instances do not record identities, and responses of this one are not theirs.
        duplicates.set_cluster_key(ClusterKey::new(&[1; 32]));
        duplicates.restore(restored("c", 70, 3_600_000), 0);
        assert!(!handle(&mut duplicates, &delivery("c", 3, 2, 0), 71, None, 0));
        assert!(handle(&mut duplicates, &as_user("ann", 4, 2), 70, None, 0));
        assert!(!handle(&mut duplicates, &as_user("ann", 4, 2), 71, None, 0));
    }

    #[test]
    fn the_places_of_forgotten_responses_are_released() {
        let mut duplicates = DuplicateDetection::new(2_000_000);
        for number in 1..=4_000 {
            handle(&mut duplicates, &delivery("first", 1, number, 0), number, None, 0);
        }
        for number in 1..=20_000 {
            let owner = format!("other{}", number % 1_000);
            handle(&mut duplicates, &delivery(&owner, 2, number, 0), number, None, 0);
        }
        let first = duplicates.clients.iter().find(|client| *client.owner == *"first").unwrap();
        assert!(first.len() < 200 && first.places() < 800, "{} {}", first.len(), first.places());
    }

    fn restored(client_id: &str, number: u64, until_ms: u64) -> RestoredResponse {
        let response = Response::new(&Reply::Count(number), None);
        RestoredResponse { client_id: client_id.into(), fingerprint: Fingerprint(number), response, until_ms }
    }

    #[test]
    fn fingerprints_of_a_cluster_are_the_same_in_all_instances_and_depend_on_its_key() {
        let fingerprint =
            |key: Option<u8>, correlation: &str, payload: &'static str, timestamp: Option<&str>| {
                let mut duplicates = DuplicateDetection::new(UNLIMITED);
                key.into_iter().for_each(|byte| duplicates.set_cluster_key(ClusterKey::new(&[byte; 32])));
                let user_properties = timestamp.map(|text| (TIMESTAMP, text)).into_iter().collect();
                let message = Message { payload: payload.into(), user_properties, ..Message::default() };
                duplicates.fingerprint(TOPIC, correlation.as_bytes(), &message).0
            };
        let first = fingerprint(Some(1), "c", "p", Some("1:0:a"));
        assert_eq!(fingerprint(Some(1), "c", "p", Some("1:0:a")), first);
        let others = [
            fingerprint(Some(2), "c", "p", Some("1:0:a")),
            fingerprint(Some(1), "d", "p", Some("1:0:a")),
            fingerprint(Some(1), "cp", "", Some("1:0:a")),
            fingerprint(Some(1), "c", "p1", Some(":0:a")),
            fingerprint(None, "c", "p", Some("1:0:a")),
        ];
        assert!(others.iter().all(|other| *other != first), "{others:?}");
    }

    /// Other versions of this program must recognize the same requests.
    #[test]
    fn fingerprints_of_a_cluster_do_not_change() {
        let mut duplicates = DuplicateDetection::new(UNLIMITED);
        duplicates.set_cluster_key(ClusterKey::new(&std::array::from_fn(|at| at as u8)));
        let user_properties = UserProperties::from_iter([(TIMESTAMP, "1:0:a")]);
        let message = Message { payload: "payload".into(), user_properties, ..Message::default() };
        assert_eq!(duplicates.fingerprint(TOPIC, "c".as_bytes(), &message).0, 0x9cf2_82f1_cf17_74d7);
    }

    #[test]
    fn a_restored_response_is_found_until_it_expires_and_no_longer_than_any_other() {
        let mut duplicates = DuplicateDetection::new(UNLIMITED);
        for (number, until_ms) in [(1, 1_000), (2, u64::MAX), (3, 500)] {
            duplicates.restore(restored("a", number, until_ms), 500);
        }
        let mut found = |number, now_ms| {
            duplicates.recognize(&delivery("a", 7, number, 0), Fingerprint(number), now_ms).is_some()
        };
        assert!(found(1, 999) && !found(1, 1_000) && !found(3, 500));
        assert!(found(2, LIFETIME_MS_MAX + 499) && !found(2, LIFETIME_MS_MAX + 500));
        duplicates.discard_expired(LIFETIME_MS_MAX + 500);
        assert_eq!((duplicates.bytes(), check(&duplicates)), (0, 0));
    }

    #[test]
    fn the_memory_of_restored_responses_is_bounded_and_the_oldest_make_room() {
        let mut duplicates = DuplicateDetection::new(100_000);
        let name = |number: u64| if number.is_multiple_of(2) { "even" } else { "odd" };
        for number in 1..=5_000 {
            duplicates.restore(restored(name(number), number, 3_600_000), 0);
            check(&duplicates);
        }
        let known: Vec<_> =
            (1..=5_000_u64).filter(|number| is_known(&mut duplicates, name(*number), *number, 0)).collect();
        assert!(known.len() > 300 && known[0] > 4_000 && known.last() == Some(&5_000), "{}", known.len());
        // Many clients, each with one.
        for number in 1..=5_000 {
            duplicates.restore(restored(&format!("c{number}"), number, 3_600_000), 0);
            assert!(is_known(&mut duplicates, &format!("c{number}"), number, 0));
        }
        assert_eq!((check(&duplicates) > 50, duplicates.forgotten()), (true, 0));
        let mut duplicates = DuplicateDetection::new(UNLIMITED);
        (1..=40_000).for_each(|number| duplicates.restore(restored("a", number, 3_600_000), 0));
        assert_eq!(counts(&duplicates, "a"), (2_048, 2_048));
        assert_eq!(duplicates.emptied().bytes(), 0);
    }

    #[test]
    fn a_client_with_restored_responses_goes_on_as_any_other() {
        let mut duplicates = DuplicateDetection::new(UNLIMITED);
        (1..=10).for_each(|number| duplicates.restore(restored("a", number, 3_600_000), 0));
        for number in 1..=10_000 {
            let from = Peer { owner: "b".into(), ..delivery("a", 3, number, number.saturating_sub(100)) };
            assert!(!handle(&mut duplicates, &from, 100 + number, None, 0));
        }
        assert_eq!((duplicates.owners.bytes_of("b"), check(&duplicates)), (Some(duplicates.bytes()), 1));
        assert_eq!(counts(&duplicates, "a"), (2_048 + 100, 2_048));
    }

    #[test]
    fn a_response_is_found_although_an_earlier_one_to_the_same_request_was_rolled_back() {
        // Room for two responses.
        let mut duplicates = DuplicateDetection::new(1_600);
        let at = |number| delivery("a", 1, number, 0);
        duplicates.record(&at(1), Fingerprint(4), response(), None, 0, 1);
        duplicates.handle_rollback(0, 1, 0);
        assert_eq!(duplicates.recognize(&at(2), Fingerprint(4), 0), None);
        duplicates.record(&at(2), Fingerprint(4), response(), None, 0, 2);
        // There is no room for this one, so the first one is forgotten.
        assert_eq!(duplicates.recognize(&at(3), Fingerprint(5), 0), None);
        duplicates.record(&at(3), Fingerprint(5), response(), None, 0, 2);
        assert_eq!((counts(&duplicates, "a"), duplicates.forgotten()), ((2, 0), 0));
        assert_eq!(duplicates.recognize(&at(4), Fingerprint(4), 0), Some(response()));
    }

    #[test]
    fn a_client_that_receives_its_acknowledgements_has_a_bounded_number_of_responses() {
        let mut duplicates = DuplicateDetection::new(UNLIMITED);
        for number in 1..=40_000 {
            let from = delivery("a", 1, number, number.saturating_sub(100));
            assert!(!handle(&mut duplicates, &from, number, None, 0));
        }
        assert_eq!(counts(&duplicates, "a"), (2_048 + 100, 2_048));
        let known = [40_000, 40_001 - 2_048, 1].map(|number| is_known(&mut duplicates, "a", number, 0));
        assert_eq!(known, [true, true, false]);
    }

    #[test]
    fn responses_of_lost_connections_are_known_for_four_times_as_many_writes_as_may_be_in_flight() {
        let mut duplicates = DuplicateDetection::new(UNLIMITED);
        for lost in 0..1_000 {
            assert!(!handle(&mut duplicates, &delivery("a", 1, 1 + lost, 0), lost, None, 0));
        }
        for number in 1..=20_000 {
            assert!(!handle(&mut duplicates, &delivery("a", 4, number, number - 1), 1_000 + number, None, 0));
            if number <= 3_096 {
                assert!((0..1_000).step_by(99).all(|lost| is_known(&mut duplicates, "a", lost, 0)));
            }
        }
        assert_eq!(counts(&duplicates, "a"), (2_048 + 1, 2_048));
        assert_eq!(duplicates.forgotten(), 0, "the client has to deliver them again first of all");
    }

    #[test]
    fn a_client_that_connects_from_another_address_takes_its_responses_with_it() {
        let mut duplicates = DuplicateDetection::new(100_000);
        let from = |owner: &str, connection| Peer { owner: owner.into(), ..delivery("c", connection, 1, 0) };
        assert!(!handle(&mut duplicates, &from("one", 1), 1, None, 0));
        assert!(handle(&mut duplicates, &from("two", 2), 1, None, 0));
        assert!(!handle(&mut duplicates, &from("two", 2), 2, None, 0));
        let held = ["one", "two"].map(|owner| duplicates.owners.bytes_of(owner));
        assert_eq!((held, check(&duplicates)), ([None, Some(duplicates.bytes())], 1));
    }

    #[test]
    fn a_response_that_depends_on_a_failed_commit_is_no_longer_known() {
        let mut duplicates = DuplicateDetection::new(UNLIMITED);
        let record = |duplicates: &mut DuplicateDetection, numbers: std::ops::RangeInclusive<u64>| {
            for number in numbers {
                let from = delivery("c", 1, number, 0);
                duplicates.record(&from, Fingerprint(number), response(), None, 0, number);
            }
        };
        // Two failures without a commit between them, a third one after the commit of the ninth change.
        record(&mut duplicates, 1..=6);
        duplicates.handle_rollback(4, 6, 0);
        record(&mut duplicates, 7..=8);
        duplicates.handle_rollback(4, 8, 0);
        record(&mut duplicates, 9..=10);
        duplicates.handle_rollback(9, 10, 0);
        record(&mut duplicates, 11..=11);
        let known = (1..=11).filter(|number| is_known(&mut duplicates, "c", *number, 1));
        assert_eq!(known.collect::<Vec<_>>(), [1, 2, 3, 4, 9, 11]);
        assert_eq!(duplicates.rolled_back.len(), 2);
        // The same requests again, with the same fingerprints.
        duplicates.record(&delivery("c", 2, 1, 0), Fingerprint(5), response(), None, 1, 12);
        assert!(is_known(&mut duplicates, "c", 5, 1));
        duplicates.discard_expired(LIFETIME_MS_MAX);
        assert!(duplicates.rolled_back.is_empty());
    }

    #[derive(Clone, Debug)]
    enum Step {
        /// A request with this fingerprint arrives some milliseconds later, and is answered if it is new.
        Request { client: u8, fingerprint: u64, later_ms: u64, expiry_s: Option<u32>, confirmed: u64 },
        /// The client connects again, and resumes its session or begins a new one.
        Connect { client: u8, session: SessionPhase },
        /// The client ends its session.
        Disconnect { client: u8 },
        /// The latest commits fail.
        Failure { commits: u64 },
    }

    fn step() -> impl Strategy<Value = Step> {
        let request = (0..3_u8, 0..5_u64, 0..90_000_u64, prop::option::of(0..3_u32), 0..5_u64);
        let request = request.prop_map(|(client, fingerprint, later_ms, expiry_s, confirmed)| {
            Step::Request { client, fingerprint, later_ms, expiry_s, confirmed }
        });
        let session = prop_oneof![Just(SessionPhase::New), Just(SessionPhase::Resumed)];
        prop_oneof![
            9 => request,
            1 => (0..3_u8, session).prop_map(|(client, session)| Step::Connect { client, session }),
            1 => (0..3_u8).prop_map(|client| Step::Disconnect { client }),
            1 => (0..4_u64).prop_map(|commits| Step::Failure { commits }),
        ]
    }

    /// A response that was recorded, with the connection and the number of the last delivery.
    struct Known {
        client: usize,
        fingerprint: u64,
        until_ms: u64,
        sequence: u64,
        response: Response,
        connection: u64,
        number: u64,
        is_settled: bool,
    }

    proptest! {
        #[test]
        fn a_request_that_may_be_delivered_again_has_its_response_and_others_have_it_or_none(
            steps in prop::collection::vec(step(), 0..80),
            bytes_max in prop_oneof![Just(UNLIMITED), 3_000..8_000_usize],
        ) {
            let mut duplicates = DuplicateDetection::new(bytes_max);
            // The first two have the same id and different identities.
            let identities: [Arc<[u8]>; 3] = [[].into(), [1].into(), [].into()];
            let mut peers = [("a", 0), ("a", 1), ("c", 2)].map(|(id, connection)| delivery(id, 1 + connection, 0, 0));
            for (peer, identity) in peers.iter_mut().zip(identities) {
                peer.owner = format!("{} {identity:?}", peer.client_id).into();
                peer.identity = identity;
            }
            let mut model: Vec<Known> = Vec::new();
            let (mut now_ms, mut sequence, mut committed, mut connections) = (0, 0_u64, 0, 3);
            for step in steps {
                match step {
                    Step::Connect { client, session } => {
                        let client = usize::from(client);
                        duplicates.handle_disconnect(&peers[client]);
                        connections += 1;
                        let (connection, message_number, confirmed) = (ConnectionId(connections), 0, 0);
                        peers[client] = Peer { connection, session, message_number, confirmed, ..peers[client].clone() };
                        if session == SessionPhase::New {
                            model.iter_mut().for_each(|known| known.is_settled |= known.client == client);
                        }
                    }
                    Step::Disconnect { client } => {
                        let client = usize::from(client);
                        duplicates.handle_disconnect(&Peer { session: SessionPhase::Ended, ..peers[client].clone() });
                        connections += 1;
                        let (connection, message_number, confirmed) = (ConnectionId(connections), 0, 0);
                        peers[client] = Peer { connection, message_number, confirmed, ..peers[client].clone() };
                        model.retain(|known| known.client != client);
                    }
                    Step::Request { client, fingerprint, later_ms, expiry_s, confirmed } => {
                        now_ms += later_ms;
                        let client = usize::from(client);
                        let from = &mut peers[client];
                        from.confirmed = from.message_number.saturating_sub(confirmed).max(from.confirmed);
                        from.message_number += 1;
                        let from = &*from;
                        for known in model.iter_mut().filter(|known| known.client == client) {
                            known.is_settled |= known.number <= from.confirmed
                                && known.connection == from.connection.0;
                        }
                        let known = model.iter_mut().rev().find(|known| {
                            (known.client, known.fingerprint) == (client, fingerprint) && now_ms < known.until_ms
                        });
                        let found = duplicates.recognize(from, Fingerprint(fingerprint), now_ms);
                        match (&found, known) {
                            (Some(found), known) => {
                                prop_assert_eq!(Some(found), known.as_ref().map(|known| &known.response));
                                if let Some(known) = known {
                                    (known.connection, known.number) = (from.connection.0, from.message_number);
                                }
                            }
                            (None, None) => {}
                            (None, Some(known)) => {
                                prop_assert!(bytes_max < UNLIMITED && (known.is_settled || duplicates.forgotten() > 0));
                            }
                        }
                        if found.is_none() {
                            sequence += 1;
                            let response = Response::new(&Reply::Count(sequence), None);
                            duplicates.record(from, Fingerprint(fingerprint), response.clone(), expiry_s, now_ms, sequence);
                            let lifetime_s = expiry_s.map_or(3_600, |expiry_s| u64::from(expiry_s) + 60);
                            let until_ms = now_ms + lifetime_s * 1000;
                            let (connection, number, is_settled) = (from.connection.0, from.message_number, false);
                            model.push(Known { client, fingerprint, until_ms, sequence, response, connection, number, is_settled });
                        }
                    }
                    Step::Failure { commits } => {
                        committed = sequence.saturating_sub(commits).max(committed);
                        duplicates.handle_rollback(committed, sequence, now_ms);
                        model.retain(|known| known.sequence <= committed);
                    }
                }
                check(&duplicates);
            }
        }
    }
}

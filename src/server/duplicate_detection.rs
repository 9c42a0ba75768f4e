//! Duplicate detection: QoS 1 may deliver a write twice, and it must be applied once (protocol §1).

use std::collections::VecDeque;
use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hashbrown::hash_table::Entry;
use hashbrown::{DefaultHashBuilder, HashMap, HashTable};

use super::cluster_key::ClusterKey;
use super::delivery::Response;
use crate::protocol::message::TIMESTAMP;
use crate::protocol::{ConnectionId, Message};

/// The longest time for which a response is recorded, in milliseconds; also if its request has no message expiry. The
/// sessions of the SDKs last as long.
const LIFETIME_MS_MAX: u64 = 3_600_000;
/// How long after the expiry of its request a response is recorded, in milliseconds. A client that has lost its
/// connection delivers the request again once it is back, even if it has expired, and another client may have written
/// the key meanwhile (protocol §12). The SDKs use the same time.
const GRACE_MS: u64 = 60_000;
/// The most responses of one client to requests whose acknowledgement it may not have received. A connection of a client
/// that observes the Receive Maximum leaves at most a quarter of these.
const UNCONFIRMED_MAX: u32 = 4_096;
/// The confirmed responses of one client above which the oldest are discarded, so that its memory stays in the cache of its
/// processor core.
const CONFIRMED_ENOUGH: usize = 2_048;
/// Memory per response besides its payload, in bytes: the record, its place in the index, the allocation of the payload.
const RESPONSE_COST_BYTES: usize = 192;
/// Memory per client besides its id and its responses, in bytes.
const CLIENT_COST_BYTES: usize = 512;
/// The most responses that are looked at for one that can be discarded, because other requests wait meanwhile.
const EXAMINED_MAX: usize = 8;
/// The most clients whose responses are looked at when all together take too much memory.
const CLIENTS_EXAMINED_MAX: usize = 8;
/// The most clients whose expired responses one [`DuplicateDetection::discard_expired`] discards, and how many of each.
const CLIENTS_PER_SWEEP_MAX: usize = 256;
const EXPIRED_PER_CLIENT_MAX: usize = 64;
/// The most earlier connections of a client of which it is known what it has received. Of others, nothing counts as
/// received.
const EARLIER_MAX: usize = 16;
/// The most bytes of a payload that are hashed. More would cost time and hardly tell more requests apart.
const HASHED_BYTES_MAX: usize = 1024;

/// Identifies a request of a client. Two different requests have the same fingerprint with a probability of about 2⁻⁶⁴. A
/// client that could find two would harm its own writes only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint(pub u64);

/// The connection of responses that another instance of a cluster has recorded. Connections count from 1.
const RESTORED: ConnectionId = ConnectionId(0);

/// A response that another instance of a cluster has recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoredResponse {
    pub client_id: Arc<str>,
    pub fingerprint: Fingerprint,
    pub response: Response,
    /// When the request can no longer be delivered again, in monotonic milliseconds.
    pub until_ms: u64,
}

/// A request as duplicate detection needs it.
#[derive(Clone, Copy, Debug)]
pub struct Delivery<'a> {
    pub client_id: &'a Arc<str>,
    /// Whose memory the response is: see [`crate::broker::Peer::owner`].
    pub owner: &'a Arc<str>,
    pub connection: ConnectionId,
    /// How many requests of the connection the client is known to have received the acknowledgement of: it does not deliver
    /// these again.
    pub confirmed: u64,
    /// Number of the request among those of the connection, from 1 on.
    pub number: u64,
}

/// What a request is to duplicate detection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recognition {
    /// It was handled before, with this response.
    Duplicate(Response),
    /// It was not handled before, and there is room for its response.
    New,
    /// There is no room for its response: it must be refused, because it could be applied twice.
    Refused,
}

/// The responses to writes, each until its request can no longer be delivered again.
///
/// Every client has its own, so that no client makes another one's be forgotten. While there is room, a response is
/// recorded for its whole time. Without room, responses are discarded whose acknowledgement the client has received; if
/// there are none, further writes are refused.
///
/// The clients of one owner may take as much as they leave free, as the holders of a `MemoryBudget`: one owner with any
/// number of client ids takes at most half, and there is always room for another one.
#[derive(Debug)]
pub struct DuplicateDetection {
    hasher: DefaultHashBuilder,
    /// The key of fingerprints that are the same in all instances of a cluster.
    cluster_key: Option<ClusterKey>,
    clients: HashMap<Arc<str>, Client>,
    /// The clients in the order in which they are looked at for responses that can be discarded.
    rotation: VecDeque<Arc<str>>,
    /// The owners that have clients.
    owners: HashMap<Arc<str>, Arc<Owner>>,
    /// Memory of all clients.
    bytes: usize,
    bytes_max: usize,
    /// Changes that were rolled back, in their order: each after the first number, up to the second one.
    rolled_back: VecDeque<RolledBack>,
}

#[derive(Debug)]
struct Owner {
    name: Arc<str>,
    /// Memory of its clients. Only changed under the lock of the service.
    bytes: AtomicUsize,
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

/// The responses to one client's writes.
///
/// They are stored in the order in which they came, so that the one that is added and the one that is discarded have their
/// neighbours in the processor's cache.
#[derive(Debug)]
struct Client {
    /// The owner of the last connection.
    owner: Arc<Owner>,
    /// Memory of the client.
    bytes: usize,
    /// Its last connection.
    connection: ConnectionId,
    confirmed: u64,
    /// Number of the last request on that connection.
    last: u64,
    /// Its earlier connections, and how many acknowledgements it has received on each.
    earlier: VecDeque<(ConnectionId, u64)>,
    /// Number of unconfirmed responses of earlier connections.
    orphans: u32,
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
    connection: ConnectionId,
    number: u64,
}

impl DuplicateDetection {
    /// Returns an empty memory of at most `bytes_max` bytes.
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        Self {
            hasher: DefaultHashBuilder::default(),
            cluster_key: None,
            clients: HashMap::new(),
            rotation: VecDeque::new(),
            owners: HashMap::new(),
            bytes: 0,
            bytes_max,
            rolled_back: VecDeque::new(),
        }
    }

    /// Makes fingerprints the same in all instances of a cluster.
    pub fn set_cluster_key(&mut self, cluster_key: ClusterKey) {
        self.cluster_key = Some(cluster_key);
    }

    #[must_use]
    pub fn bytes_max(&self) -> usize {
        self.bytes_max
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

    /// Recognizes a request that was handled before, or makes room for the response to a new one.
    pub fn recognize(
        &mut self,
        delivery: Delivery<'_>,
        fingerprint: Fingerprint,
        monotonic_ms: u64,
    ) -> Recognition {
        let Delivery { client_id, owner, connection, confirmed, .. } = delivery;
        let mut free = self.bytes_max.saturating_sub(self.bytes);
        let mut held = 0;
        if let Some(client) = self.clients.get_mut(&**client_id) {
            let known = client.find(fingerprint, monotonic_ms);
            if let Some(known) = known.filter(|known| !is_rolled_back(&self.rolled_back, known.sequence)) {
                return Recognition::Duplicate(known.response.clone());
            }
            if client.connection != connection && client.owner.name != *owner {
                // A client that connects from another address takes its responses with it.
                let earlier = std::mem::replace(&mut client.owner, owner_named(&mut self.owners, owner));
                client.owner.charge(client.bytes);
                release(&mut self.owners, &earlier, client.bytes);
            }
            client.handle_delivery(connection, confirmed);
            // With the one that is recorded next, which will be confirmed later.
            let surplus = client.confirmed().saturating_add(1).saturating_sub(CONFIRMED_ENOUGH);
            let wanted = surplus.max(usize::from(client.owner.bytes() >= free));
            let freed = client.discard(monotonic_ms, EXAMINED_MAX, wanted);
            client.owner.release(freed);
            self.bytes = self.bytes.saturating_sub(freed);
            if client.unconfirmed() >= UNCONFIRMED_MAX {
                return Recognition::Refused;
            }
            (held, free) = (client.owner.bytes(), free.saturating_add(freed));
        } else if let Some(owner) = self.owners.get(owner) {
            held = owner.bytes();
        }
        if held < free || self.make_room(owner, monotonic_ms) {
            Recognition::New
        } else {
            Recognition::Refused
        }
    }

    /// Discards what any clients can be without. Returns whether an owner may take more now.
    fn make_room(&mut self, owner: &str, monotonic_ms: u64) -> bool {
        for _ in 0..CLIENTS_EXAMINED_MAX {
            self.sweep_next(monotonic_ms, EXAMINED_MAX, 1);
            let held = self.owners.get(owner).map_or(0, |owner| owner.bytes());
            if held < self.bytes_max.saturating_sub(self.bytes) {
                return true;
            }
        }
        false
    }

    /// Records the response to a request that is new to [`DuplicateDetection::recognize`]. `sequence` is the change whose commit it depends on,
    /// 0 if none.
    pub fn record(
        &mut self,
        delivery: Delivery<'_>,
        fingerprint: Fingerprint,
        response: Response,
        expiry_s: Option<u32>,
        monotonic_ms: u64,
        sequence: u64,
    ) {
        let Delivery { client_id, connection, number, .. } = delivery;
        let until_ms = monotonic_ms.saturating_add(lifetime_ms(expiry_s));
        let known = RecordedResponse { fingerprint, response, until_ms, sequence, connection, number };
        let bytes = known.cost();
        if let Some(client) = self.clients.get_mut(&**client_id) {
            client.last = number;
            client.bytes = client.bytes.saturating_add(bytes);
            client.owner.charge(bytes);
            client.push(known);
            self.bytes = self.bytes.saturating_add(bytes);
            return;
        }
        self.add_client(delivery, known);
    }

    /// Adds a client with its first response.
    fn add_client(&mut self, delivery: Delivery<'_>, known: RecordedResponse) {
        let Delivery { client_id, owner, connection, confirmed, number } = delivery;
        let bytes = known.cost().saturating_add(client_cost(client_id));
        let owner = owner_named(&mut self.owners, owner);
        owner.charge(bytes);
        self.bytes = self.bytes.saturating_add(bytes);
        self.rotation.push_back(Arc::clone(client_id));
        let mut client = Client {
            owner,
            bytes,
            connection,
            confirmed,
            last: number,
            earlier: VecDeque::new(),
            orphans: 0,
            responses: VecDeque::new(),
            first: 0,
            index: HashTable::new(),
        };
        client.push(known);
        self.clients.insert(Arc::clone(client_id), client);
    }

    /// Records a response of another instance.
    ///
    /// Here it is not known which acknowledgements the client has received from its broker. Restored responses count as
    /// confirmed: they are kept for their whole time while there is room, and otherwise the oldest are discarded.
    pub fn restore(&mut self, restored: RestoredResponse, monotonic_ms: u64) {
        let RestoredResponse { client_id, fingerprint, response, until_ms } = restored;
        // No later than a response of this instance, so that clocks that differ keep nothing for ever.
        let until_ms = until_ms.min(monotonic_ms.saturating_add(LIFETIME_MS_MAX));
        if until_ms <= monotonic_ms {
            return;
        }
        let (sequence, connection, number) = (0, RESTORED, 0);
        let known = RecordedResponse { fingerprint, response, until_ms, sequence, connection, number };
        let bytes = known.cost().saturating_add(client_cost(&client_id));
        let is_full = |duplicates: &Self| duplicates.bytes.saturating_add(bytes) > duplicates.bytes_max;
        for _ in 0..CLIENTS_EXAMINED_MAX {
            if !is_full(self) {
                break;
            }
            self.sweep_next(monotonic_ms, EXAMINED_MAX, 1);
        }
        if is_full(self) {
            return;
        }
        let Some(client) = self.clients.get_mut(&client_id) else {
            let (owner, confirmed) = (&client_id, 0);
            return self
                .add_client(Delivery { client_id: &client_id, owner, connection, confirmed, number }, known);
        };
        let surplus = client.confirmed().saturating_add(1).saturating_sub(CONFIRMED_ENOUGH);
        let freed = client.discard(monotonic_ms, EXAMINED_MAX, surplus);
        let bytes = known.cost();
        client.bytes = client.bytes.saturating_add(bytes);
        client.owner.charge(bytes);
        client.owner.release(freed);
        client.push(known);
        self.bytes = self.bytes.saturating_add(bytes).saturating_sub(freed);
    }

    /// Notes how many acknowledgements a client has received on a connection that has ended.
    pub fn handle_disconnect(&mut self, client_id: &str, connection: ConnectionId, confirmed: u64) {
        let Some(client) = self.clients.get_mut(client_id) else { return };
        if client.connection == connection {
            client.confirmed = client.confirmed.max(confirmed);
        }
    }

    /// Discards expired responses, of a bounded number of clients. Must be called about once a second.
    pub fn discard_expired(&mut self, monotonic_ms: u64) {
        for _ in 0..self.rotation.len().min(CLIENTS_PER_SWEEP_MAX) {
            self.sweep_next(monotonic_ms, EXPIRED_PER_CLIENT_MAX, 0);
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

    /// Returns the memory of all recorded responses, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Discards responses of the client whose turn it is, and the client if it has no more.
    fn sweep_next(&mut self, monotonic_ms: u64, examined_max: usize, wanted: usize) {
        let Some(client_id) = self.rotation.pop_front() else { return };
        let Some(client) = self.clients.get_mut(&client_id) else { return };
        let mut freed = client.discard(monotonic_ms, examined_max, wanted);
        let owner = Arc::clone(&client.owner);
        if client.responses.is_empty() {
            self.clients.remove(&client_id);
            freed = freed.saturating_add(client_cost(&client_id));
        } else {
            self.rotation.push_back(client_id);
        }
        self.bytes = self.bytes.saturating_sub(freed);
        release(&mut self.owners, &owner, freed);
    }

    /// Returns the response to an earlier delivery of the same request, if it is still recorded.
    #[cfg(test)]
    fn find(&self, client_id: &str, fingerprint: Fingerprint, monotonic_ms: u64) -> Option<Response> {
        let known = self.clients.get(client_id)?.find(fingerprint, monotonic_ms)?;
        (!is_rolled_back(&self.rolled_back, known.sequence)).then(|| known.response.clone())
    }
}

impl Owner {
    fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    fn charge(&self, bytes: usize) {
        self.bytes.store(self.bytes().saturating_add(bytes), Ordering::Relaxed);
    }

    fn release(&self, bytes: usize) {
        self.bytes.store(self.bytes().saturating_sub(bytes), Ordering::Relaxed);
    }
}

fn owner_named(owners: &mut HashMap<Arc<str>, Arc<Owner>>, name: &Arc<str>) -> Arc<Owner> {
    if let Some(owner) = owners.get(name) {
        return Arc::clone(owner);
    }
    let owner = Arc::new(Owner { name: Arc::clone(name), bytes: AtomicUsize::new(0) });
    owners.insert(Arc::clone(name), Arc::clone(&owner));
    owner
}

/// Releases memory of an owner, and the owner if it has no more.
fn release(owners: &mut HashMap<Arc<str>, Arc<Owner>>, owner: &Owner, bytes: usize) {
    owner.release(bytes);
    if owner.bytes() == 0 {
        owners.remove(&owner.name);
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

fn client_cost(client_id: &str) -> usize {
    // Twice: a client that is read again from another connection brings its own copy of the id.
    CLIENT_COST_BYTES.saturating_add(client_id.len().saturating_mul(2))
}

impl RecordedResponse {
    fn cost(&self) -> usize {
        RESPONSE_COST_BYTES.saturating_add(self.response.payload_len())
    }
}

impl Client {
    /// Notes how many acknowledgements of a connection have been received. On another connection, the client may deliver
    /// all requests again whose acknowledgement it has not received.
    fn handle_delivery(&mut self, connection: ConnectionId, confirmed: u64) {
        if self.connection == connection {
            self.confirmed = self.confirmed.max(confirmed);
            return;
        }
        self.orphans = self.unconfirmed();
        self.earlier.truncate(EARLIER_MAX.saturating_sub(1));
        self.earlier.push_front((self.connection, self.confirmed));
        (self.connection, self.confirmed, self.last) = (connection, confirmed, 0);
    }

    /// Returns the number of responses to requests whose acknowledgement the client may not have received.
    fn unconfirmed(&self) -> u32 {
        let current = self.last.saturating_sub(self.confirmed);
        u32::try_from(current).unwrap_or(u32::MAX).saturating_add(self.orphans)
    }

    /// Returns about how many responses are confirmed: at most as many as there are.
    fn confirmed(&self) -> usize {
        let unconfirmed = usize::try_from(self.unconfirmed()).unwrap_or(usize::MAX);
        self.responses.len().saturating_sub(unconfirmed)
    }

    fn is_confirmed(&self, known: &RecordedResponse) -> bool {
        let current = (self.connection, self.confirmed);
        let mut connections = std::iter::once(&current).chain(&self.earlier);
        connections
            .any(|(connection, confirmed)| known.connection == *connection && known.number <= *confirmed)
    }

    /// Returns a response that has not expired.
    fn find(&self, fingerprint: Fingerprint, monotonic_ms: u64) -> Option<&RecordedResponse> {
        let known = self.number(fingerprint).and_then(|number| numbered(&self.responses, self.first, number));
        known.filter(|known| monotonic_ms < known.until_ms)
    }

    /// Returns the number of the last response to a request.
    fn number(&self, fingerprint: Fingerprint) -> Option<u32> {
        let get = |number: u32| numbered(&self.responses, self.first, number);
        let is_same = |number: &u32| get(*number).is_some_and(|known| known.fingerprint == fingerprint);
        self.index.find(fingerprint.0, is_same).copied()
    }

    /// Discards expired responses from the oldest on and, if these are fewer than `wanted`, confirmed ones. Returns the
    /// memory that they took.
    fn discard(&mut self, monotonic_ms: u64, examined_max: usize, wanted: usize) -> usize {
        let (mut freed, mut count) = (0_usize, 0_usize);
        for _ in 0..examined_max.min(self.responses.len()) {
            let Some(oldest) = self.responses.front() else { break };
            let is_expired = oldest.until_ms <= monotonic_ms;
            if !is_expired && count >= wanted {
                break;
            }
            let is_confirmed = self.is_confirmed(oldest);
            let Some(oldest) = self.pop_oldest() else { break };
            // After a rollback the request may have been handled once more: then the later response counts.
            let is_superseded = self.number(oldest.fingerprint).is_some();
            if is_expired || is_confirmed || is_superseded {
                (freed, count) = (freed.saturating_add(oldest.cost()), count.saturating_add(1));
                self.note_discarded(&oldest);
            } else {
                // Those behind it can still be discarded.
                self.push(oldest);
            }
        }
        self.bytes = self.bytes.saturating_sub(freed);
        freed
    }

    fn note_discarded(&mut self, known: &RecordedResponse) {
        if known.connection != self.connection && !self.is_confirmed(known) {
            self.orphans = self.orphans.saturating_sub(1);
        }
    }

    /// Adds a response. An expired one with the same fingerprint is no longer found.
    fn push(&mut self, known: RecordedResponse) {
        let fingerprint = known.fingerprint;
        // The conversion cannot fail: the memory of all responses is bounded.
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

    fn pop_oldest(&mut self) -> Option<RecordedResponse> {
        let oldest = self.responses.pop_front()?;
        let number = self.first;
        self.first = number.wrapping_add(1);
        if let Ok(place) = self.index.find_entry(oldest.fingerprint.0, |of| *of == number) {
            place.remove();
        }
        Some(oldest)
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
    use crate::protocol::{Reply, UserProperties};

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
    fn delivery(client_id: &Arc<str>, connection: u64, number: u64, confirmed: u64) -> Delivery<'_> {
        Delivery { client_id, owner: client_id, connection: ConnectionId(connection), confirmed, number }
    }

    /// Handles a request as the service does: returns the response to its first delivery, if that is known, or records
    /// one, if there is room.
    fn handle(
        duplicates: &mut DuplicateDetection,
        delivery: Delivery<'_>,
        fingerprint: u64,
        expiry_s: Option<u32>,
        now_ms: u64,
    ) -> Outcome {
        let fingerprint = Fingerprint(fingerprint);
        match duplicates.recognize(delivery, fingerprint, now_ms) {
            Recognition::Duplicate(_) => Outcome::Duplicate,
            Recognition::Refused => Outcome::Refused,
            Recognition::New => {
                duplicates.record(delivery, fingerprint, response(), expiry_s, now_ms, 0);
                Outcome::Recorded
            }
        }
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Outcome {
        Duplicate,
        Refused,
        Recorded,
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
        let client = "c".into();
        let mut duplicates = DuplicateDetection::new(UNLIMITED);
        // The Go SDK makes 0 seconds of a timeout below one second.
        for (number, expiry_s) in [(1, Some(0)), (2, Some(2)), (3, None), (4, Some(u32::MAX))] {
            let recorded = handle(&mut duplicates, delivery(&client, 1, number, 0), number, expiry_s, 100);
            assert_eq!(recorded, Outcome::Recorded);
        }
        for (number, end_ms) in [(1, 60_100), (2, 62_100), (3, 3_600_100), (4, 3_600_100)] {
            let is_known = |now_ms| duplicates.find(&client, Fingerprint(number), now_ms).is_some();
            assert_eq!((is_known(end_ms - 1), is_known(end_ms)), (true, false), "{number}");
        }
        duplicates.discard_expired(3_600_099);
        assert!(duplicates.bytes() > 0);
        duplicates.discard_expired(3_600_100);
        assert_eq!((duplicates.bytes(), duplicates.clients.len(), duplicates.rotation.len()), (0, 0, 0));
        assert!(duplicates.owners.is_empty());
    }

    #[test]
    fn the_writes_of_other_clients_make_no_response_be_forgotten() {
        let (client, other) = ("c".into(), "other".into());
        let mut duplicates = DuplicateDetection::new(1_000_000);
        handle(&mut duplicates, delivery(&client, 1, 1, 0), 7, Some(10), 0);
        for number in 1..=30_000 {
            // A client that receives its acknowledgements may always write.
            let delivery = delivery(&other, 2, number, number.saturating_sub(10));
            assert_eq!(handle(&mut duplicates, delivery, 100 + number, Some(10), 1), Outcome::Recorded);
        }
        assert!(duplicates.bytes() < 1_001_000, "{}", duplicates.bytes());
        assert_eq!(
            handle(&mut duplicates, delivery(&client, 3, 1, 0), 7, Some(10), 69_999),
            Outcome::Duplicate
        );
    }

    #[test]
    fn a_client_with_too_many_unacknowledged_writes_is_refused_and_others_are_not() {
        let (client, other) = ("c".into(), "other".into());
        let mut duplicates = DuplicateDetection::new(UNLIMITED);
        // It connects again and again, and reads no acknowledgement.
        let mut write = |number: u64, confirmed, now_ms| {
            handle(
                &mut duplicates,
                delivery(&client, number / 1_000, number % 1_000 + 1, confirmed),
                number,
                Some(10),
                now_ms,
            )
        };
        let accepted = (0..10_000).take_while(|number| write(*number, 0, 0) == Outcome::Recorded).count();
        assert_eq!(accepted, 4_096);
        assert_eq!(write(0, 0, 69_999), Outcome::Duplicate, "the first is still known");
        assert_eq!(write(10_000, 0, 70_000), Outcome::Recorded, "they have expired");
        assert_eq!(handle(&mut duplicates, delivery(&other, 99, 1, 0), 1, None, 0), Outcome::Recorded);
    }

    #[test]
    fn without_room_confirmed_responses_are_discarded_also_those_of_clients_that_are_gone() {
        let mut duplicates = DuplicateDetection::new(200_000);
        let gone: Arc<str> = "gone".into();
        // The first is unconfirmed, from an earlier connection; the rest are confirmed but for the last.
        handle(&mut duplicates, delivery(&gone, 1, 1, 0), 1, None, 0);
        let mut number = 1;
        while duplicates.bytes() < 100_000 {
            number += 1;
            handle(&mut duplicates, delivery(&gone, 2, number, number - 1), number, None, 0);
        }
        let client: Arc<str> = "c".into();
        for other in 1..=400 {
            let delivery = Delivery { owner: &gone, ..delivery(&client, 3, other, 0) };
            assert_eq!(handle(&mut duplicates, delivery, other, None, 1), Outcome::Recorded);
        }
        assert!(duplicates.bytes() < 101_000, "{}", duplicates.bytes());
        let is_known = |duplicates: &DuplicateDetection, number| {
            duplicates.find(&gone, Fingerprint(number), 1).is_some()
        };
        assert_eq!([1, 2, 3, number].map(|number| is_known(&duplicates, number)), [true, false, false, true]);
    }

    #[test]
    fn without_room_and_without_a_confirmed_response_writes_are_refused_until_some_expire() {
        let mut duplicates = DuplicateDetection::new(100_000);
        let clients: Vec<Arc<str>> = (0..50).map(|index: u32| index.to_string().into()).collect();
        let mut write = |at: usize, number: u64, now_ms| {
            let delivery = Delivery { owner: &clients[0], ..delivery(&clients[at], at as u64, number, 0) };
            handle(&mut duplicates, delivery, number, Some(10), now_ms)
        };
        let accepted =
            (1..).take_while(|number| write((number % 40) as usize, *number, 0) == Outcome::Recorded).count();
        assert!((50..250).contains(&accepted), "{accepted}");
        assert_eq!(write(49, 1, 69_999), Outcome::Refused);
        assert_eq!(write(1, 1, 69_999), Outcome::Duplicate);
        assert_eq!(write(49, 1, 70_000), Outcome::Recorded);
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
        let (mut duplicates, client) = (DuplicateDetection::new(UNLIMITED), Arc::from("a"));
        for (number, until_ms) in [(1, 1_000), (2, u64::MAX), (3, 500)] {
            duplicates.restore(restored("a", number, until_ms), 500);
        }
        let at = |number| delivery(&client, 7, number, 0);
        let mut found = |number, now_ms| {
            duplicates.recognize(at(number), Fingerprint(number), now_ms) != Recognition::New
        };
        assert!(found(1, 999) && !found(1, 1_000) && !found(3, 500));
        assert!(found(2, LIFETIME_MS_MAX + 499) && !found(2, LIFETIME_MS_MAX + 500));
        duplicates.discard_expired(LIFETIME_MS_MAX + 500);
        assert_eq!((duplicates.bytes(), duplicates.owners.len()), (0, 0));
    }

    #[test]
    fn the_memory_of_restored_responses_is_bounded_and_the_oldest_make_room() {
        let mut duplicates = DuplicateDetection::new(100_000);
        for number in 1..=5_000 {
            duplicates.restore(restored(if number % 2 == 0 { "even" } else { "odd" }, number, 3_600_000), 0);
            assert!(duplicates.bytes() <= 100_000);
        }
        let known: Vec<_> = (1..=5_000_u64)
            .filter(|number| {
                let client = if number % 2 == 0 { "even" } else { "odd" };
                duplicates.find(client, Fingerprint(*number), 0).is_some()
            })
            .collect();
        assert!(known.len() > 300 && known[0] > 4_000 && known.last() == Some(&5_000), "{}", known.len());
        // Many clients, each with one.
        for number in 1..=5_000 {
            duplicates.restore(restored(&format!("c{number}"), number, 3_600_000), 0);
            assert!(duplicates.bytes() <= 100_000);
            assert!(duplicates.find(&format!("c{number}"), Fingerprint(number), 0).is_some());
        }
        let mut duplicates = DuplicateDetection::new(UNLIMITED);
        (1..=40_000).for_each(|number| duplicates.restore(restored("a", number, 3_600_000), 0));
        assert_eq!(duplicates.clients["a"].responses.len(), CONFIRMED_ENOUGH);
    }

    #[test]
    fn a_client_with_restored_responses_goes_on_as_any_other() {
        let (mut duplicates, client) = (DuplicateDetection::new(UNLIMITED), Arc::from("a"));
        (1..=10).for_each(|number| duplicates.restore(restored("a", number, 3_600_000), 0));
        for number in 1..=10_000 {
            let delivery = delivery(&client, 3, number, number.saturating_sub(100));
            assert_eq!(handle(&mut duplicates, delivery, 100 + number, None, 0), Outcome::Recorded);
        }
        let held = duplicates.owners.values().map(|owner| owner.bytes()).sum::<usize>();
        assert_eq!((held, duplicates.owners.len()), (duplicates.bytes(), 1));
        assert_eq!(duplicates.clients["a"].responses.len(), CONFIRMED_ENOUGH + 99);
    }

    #[test]
    fn a_response_is_found_although_an_earlier_one_to_the_same_request_was_rolled_back() {
        // Room for two responses.
        let (mut duplicates, client) = (DuplicateDetection::new(1_600), Arc::from("a"));
        let at = |number| delivery(&client, 1, number, 0);
        duplicates.record(at(1), Fingerprint(4), response(), None, 0, 1);
        duplicates.handle_rollback(0, 1, 0);
        assert_eq!(duplicates.recognize(at(2), Fingerprint(4), 0), Recognition::New);
        duplicates.record(at(2), Fingerprint(4), response(), None, 0, 2);
        // There is no room, so responses are examined whether they can be discarded.
        assert_eq!(duplicates.recognize(at(3), Fingerprint(5), 0), Recognition::New);
        assert_eq!(duplicates.recognize(at(4), Fingerprint(4), 0), Recognition::Duplicate(response()));
    }

    #[test]
    fn a_client_that_receives_its_acknowledgements_has_a_bounded_number_of_responses() {
        let (mut duplicates, client) = (DuplicateDetection::new(UNLIMITED), Arc::from("a"));
        for number in 1..=40_000 {
            let delivery = delivery(&client, 1, number, number.saturating_sub(100));
            assert_eq!(handle(&mut duplicates, delivery, number, None, 0), Outcome::Recorded);
        }
        assert_eq!(duplicates.clients[&client].responses.len(), CONFIRMED_ENOUGH + 99);
        let is_known = |number| duplicates.find(&client, Fingerprint(number), 0).is_some();
        assert!(is_known(40_000) && is_known(40_001 - CONFIRMED_ENOUGH as u64) && !is_known(1));
    }

    #[test]
    fn unconfirmed_responses_of_lost_connections_leave_room_for_confirmed_ones() {
        let (mut duplicates, client) = (DuplicateDetection::new(UNLIMITED), Arc::from("a"));
        for lost in 0..3_000 {
            let delivery = delivery(&client, 1 + lost / 1_000, 1 + lost % 1_000, 0);
            assert_eq!(handle(&mut duplicates, delivery, lost, None, 0), Outcome::Recorded);
        }
        for number in 1..=20_000 {
            let delivery = delivery(&client, 4, number, number - 1);
            assert_eq!(handle(&mut duplicates, delivery, 10_000 + number, None, 0), Outcome::Recorded);
            let confirmed = duplicates.clients[&client].confirmed();
            // While the others pass, eight at a time.
            assert!(confirmed <= CONFIRMED_ENOUGH + 3_000 / EXAMINED_MAX + 1, "{confirmed}");
            assert!(number < 3_000 || confirmed >= CONFIRMED_ENOUGH - 10, "{confirmed}");
        }
        assert!((0..3_000).all(|lost| duplicates.find(&client, Fingerprint(lost), 0).is_some()));
    }

    #[test]
    fn any_number_of_clients_that_write_once_and_receive_the_acknowledgement_are_accepted() {
        let mut duplicates = DuplicateDetection::new(50_000);
        for number in 0..1_000_u64 {
            let client_id = number.to_string().into();
            let recorded = handle(&mut duplicates, delivery(&client_id, number, 1, 0), number, None, 0);
            assert_eq!(recorded, Outcome::Recorded, "{number}");
            duplicates.handle_disconnect(&client_id, ConnectionId(number), 1);
        }
        assert!(duplicates.bytes() < 51_000, "{}", duplicates.bytes());
    }

    #[test]
    fn an_owner_with_any_number_of_client_ids_leaves_room_for_others() {
        const BYTES_MAX: usize = 100_000;
        let mut duplicates = DuplicateDetection::new(BYTES_MAX);
        let write = |duplicates: &mut DuplicateDetection, owner: &Arc<str>, client: u64, now_ms| {
            let client_id = format!("{owner}{client}").into();
            let delivery = Delivery { owner, ..delivery(&client_id, client, 1, 0) };
            handle(duplicates, delivery, client, None, now_ms) == Outcome::Recorded
        };
        let owners = ["flood", "second", "third"].map(Arc::<str>::from);
        let mut last = 0;
        for (owner, share) in owners.iter().zip([2, 4, 8]) {
            (0..1_000).for_each(|client| _ = write(&mut duplicates, owner, client, 0));
            assert!(!write(&mut duplicates, owner, 1_000, 0), "{owner}");
            let taken = duplicates.bytes() - last;
            assert!(taken.abs_diff(BYTES_MAX / share) < 1_000, "{owner}: {taken}");
            last = duplicates.bytes();
        }
        for client in 0..5 {
            assert!(write(&mut duplicates, &format!("small{client}").into(), client, 0), "{client}");
        }
        duplicates.discard_expired(LIFETIME_MS_MAX);
        assert!(write(&mut duplicates, &owners[0], 2_000, LIFETIME_MS_MAX), "its responses have expired");
    }

    #[test]
    fn a_client_that_connects_from_another_address_takes_its_responses_with_it() {
        let (client, first, second): (Arc<str>, Arc<str>, Arc<str>) =
            ("c".into(), "one".into(), "two".into());
        let mut duplicates = DuplicateDetection::new(100_000);
        let from = |owner, connection| Delivery { owner, ..delivery(&client, connection, 1, 0) };
        assert_eq!(handle(&mut duplicates, from(&first, 1), 1, None, 0), Outcome::Recorded);
        assert_eq!(handle(&mut duplicates, from(&second, 2), 1, None, 0), Outcome::Duplicate);
        assert_eq!(handle(&mut duplicates, from(&second, 2), 2, None, 0), Outcome::Recorded);
        let held = |owner: &Arc<str>| duplicates.owners.get(owner).map(|owner| owner.bytes());
        assert_eq!((held(&first), held(&second)), (None, Some(duplicates.bytes())));
    }

    #[test]
    fn a_response_that_depends_on_a_failed_commit_is_no_longer_known() {
        let client = "c".into();
        let mut duplicates = DuplicateDetection::new(UNLIMITED);
        let record = |duplicates: &mut DuplicateDetection, numbers: std::ops::RangeInclusive<u64>| {
            for number in numbers {
                let delivery = delivery(&client, 1, number, 0);
                duplicates.record(delivery, Fingerprint(number), response(), None, 0, number);
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
        let known = (1..=11).filter(|number| duplicates.find(&client, Fingerprint(*number), 1).is_some());
        assert_eq!(known.collect::<Vec<_>>(), [1, 2, 3, 4, 9, 11]);
        assert_eq!(duplicates.rolled_back.len(), 2);
        // The same requests again, with the same fingerprints.
        duplicates.record(delivery(&client, 2, 1, 0), Fingerprint(5), response(), None, 1, 12);
        assert!(duplicates.find(&client, Fingerprint(5), 1).is_some());
        duplicates.discard_expired(LIFETIME_MS_MAX);
        assert!(duplicates.rolled_back.is_empty());
    }

    #[derive(Clone, Debug)]
    enum Step {
        /// A request with this fingerprint arrives some milliseconds later, and is answered if it is new.
        Request { client: u8, fingerprint: u64, later_ms: u64, expiry_s: Option<u32>, confirmed: u64 },
        /// The client connects again.
        Connect { client: u8 },
        /// The latest commits fail.
        Failure { commits: u64 },
    }

    fn step() -> impl Strategy<Value = Step> {
        let request = (0..3_u8, 0..5_u64, 0..90_000_u64, prop::option::of(0..3_u32), 0..5_u64);
        let request = request.prop_map(|(client, fingerprint, later_ms, expiry_s, confirmed)| {
            Step::Request { client, fingerprint, later_ms, expiry_s, confirmed }
        });
        prop_oneof![
            9 => request,
            1 => (0..3_u8).prop_map(|client| Step::Connect { client }),
            1 => (0..4_u64).prop_map(|commits| Step::Failure { commits }),
        ]
    }

    struct Known {
        client: u8,
        fingerprint: u64,
        until_ms: u64,
        sequence: u64,
        response: Response,
        connection: u64,
        number: u64,
    }

    proptest! {
        #[test]
        fn a_request_that_may_be_delivered_again_has_its_response_and_others_have_it_or_none(
            steps in prop::collection::vec(step(), 0..80),
            bytes_max in prop_oneof![Just(UNLIMITED), 2_000..6_000_usize],
        ) {
            let mut duplicates = DuplicateDetection::new(bytes_max);
            let names: [Arc<str>; 3] = ["a", "b", "c"].map(Arc::from);
            // Of each client: the connection, the last number on it, the acknowledgements received on it.
            let mut clients = [(0_u64, 0_u64, 0_u64), (1, 0, 0), (2, 0, 0)];
            let mut received: HashMap<u64, u64> = HashMap::new();
            let mut model: Vec<Known> = Vec::new();
            let (mut now_ms, mut sequence, mut committed, mut connections) = (0, 0_u64, 0, 3);
            for step in steps {
                match step {
                    Step::Connect { client } => {
                        clients[usize::from(client)] = (connections, 0, 0);
                        connections += 1;
                    }
                    Step::Request { client, fingerprint, later_ms, expiry_s, confirmed } => {
                        now_ms += later_ms;
                        let (connection, number, acknowledged) = &mut clients[usize::from(client)];
                        *acknowledged = (*number).saturating_sub(confirmed).max(*acknowledged);
                        *number += 1;
                        let delivery = Delivery {
                            client_id: &names[usize::from(client)],
                            owner: &names[usize::from(client)],
                            connection: ConnectionId(*connection),
                            confirmed: *acknowledged,
                            number: *number,
                        };
                        let known = model.iter().rev().find(|known| (known.client, known.fingerprint) == (client, fingerprint));
                        let known = known.filter(|known| now_ms < known.until_ms);
                        let is_confirmed = known.is_some_and(|known| {
                            received.get(&known.connection).is_some_and(|count| known.number <= *count)
                        });
                        received.insert(*connection, *acknowledged);
                        let recognized = duplicates.recognize(delivery, Fingerprint(fingerprint), now_ms);
                        let found = match &recognized {
                            Recognition::Duplicate(response) => Some(response),
                            Recognition::New | Recognition::Refused => None,
                        };
                        match (found, known) {
                            (Some(found), known) => prop_assert_eq!(Some(found), known.map(|known| &known.response)),
                            (None, None) => {}
                            (None, Some(_)) => prop_assert!(bytes_max < UNLIMITED && is_confirmed),
                        }
                        if recognized == Recognition::New {
                            sequence += 1;
                            let response = Response::new(&Reply::Count(sequence), None);
                            duplicates.record(delivery, Fingerprint(fingerprint), response.clone(), expiry_s, now_ms, sequence);
                            let lifetime_s = expiry_s.map_or(3_600, |expiry_s| u64::from(expiry_s) + 60);
                            let (until_ms, connection, number) = (now_ms + lifetime_s * 1000, *connection, *number);
                            model.push(Known { client, fingerprint, until_ms, sequence, response, connection, number });
                        } else if recognized == Recognition::Refused {
                            prop_assert!(bytes_max < UNLIMITED);
                        }
                    }
                    Step::Failure { commits } => {
                        committed = sequence.saturating_sub(commits).max(committed);
                        duplicates.handle_rollback(committed, sequence, now_ms);
                        model.retain(|known| known.sequence <= committed);
                    }
                }
                let bytes = duplicates.clients.iter().map(|(client_id, client)| {
                    prop_assert!(client.index.len() <= client.responses.len());
                    Ok(client_cost(client_id) + client.responses.iter().map(RecordedResponse::cost).sum::<usize>())
                });
                prop_assert_eq!(bytes.sum::<Result<usize, TestCaseError>>()?, duplicates.bytes());
                prop_assert_eq!(duplicates.owners.values().map(|owner| owner.bytes()).sum::<usize>(), duplicates.bytes());
                prop_assert!(duplicates.bytes() < bytes_max.saturating_add(1_000));
            }
        }
    }
}

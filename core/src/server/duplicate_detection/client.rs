//! The recorded responses to the writes of one client.

use std::collections::VecDeque;
use std::hash::BuildHasher;
use std::sync::Arc;

use hashbrown::hash_table::Entry;
use hashbrown::{DefaultHashBuilder, HashTable};

use super::turns::Turns;
use crate::broker::{Peer, SessionPhase};
use crate::protocol::ConnectionId;
use crate::server::delivery::Response;

/// The most responses of a client that count as needed. A client has at most as many messages in flight as the Receive
/// Maximum (1,024) permits, over all connections of its session, and they are acknowledged in their order. So it delivers
/// none again that is older than its last 1,024 writes. A client that exceeds the Receive Maximum fourfold loses responses
/// that it needs, of its own only.
const NEEDED_MAX: usize = 4_096;
/// The most settled responses of one client, so that its memory stays in the cache of its processor core.
const SETTLED_MAX: usize = 2_048;
/// Memory per response besides its payload, in bytes: the record, its place in the index, the allocation of the payload.
const RESPONSE_COST_BYTES: usize = 192;
/// Memory per client besides its key and its responses, in bytes: the places that are allocated for the first responses,
/// its entries in the tables, and those of an owner without other clients.
const CLIENT_COST_BYTES: usize = 1_024;
/// Number of parts of the table of clients, which grow one by one. As a whole, a table of 50,000 clients would be hashed again
/// at once, while all requests wait. It is no power of two, so that not all parts grow at nearly the same number of clients.
const PARTS: u64 = 61;
/// So many places for responses are kept, however few there are.
const PLACES_KEPT: usize = 16;

/// The connection of responses that another instance of a cluster has recorded. Connections count from 1.
pub(super) const RESTORED: ConnectionId = ConnectionId(0);

/// Identifies a request of a client. Two different requests have the same fingerprint with a probability of about 2⁻⁶⁴. A
/// client that could find two would harm its own writes only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint(pub u64);

/// The identity and the client id of a client. Another identity with the same client id is another client.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ClientKey {
    /// See [`Principal::identity`](crate::broker::Principal::identity).
    pub(super) identity: Arc<[u8]>,
    pub(super) client_id: Arc<str>,
}

/// A [`ClientKey`] that is borrowed. It hashes the same.
#[derive(Hash)]
struct KeyRef<'a> {
    identity: &'a [u8],
    client_id: &'a str,
}

impl KeyRef<'_> {
    fn is_of(&self, client: &Client) -> bool {
        *client.key.client_id == *self.client_id && *client.key.identity == *self.identity
    }
}

/// The clients, each at a place that it keeps.
#[derive(Debug)]
pub(super) struct Clients {
    /// The places, by the hash of the key.
    parts: Box<[HashTable<usize>]>,
    hasher: DefaultHashBuilder,
    clients: Vec<Option<Box<Client>>>,
    vacant: Vec<usize>,
    /// The place that was found last: each new request has its client looked up twice.
    last: usize,
}

impl Default for Clients {
    fn default() -> Self {
        let parts = (0..PARTS).map(|_| HashTable::new()).collect();
        let hasher = DefaultHashBuilder::default();
        Self { parts, hasher, clients: Vec::new(), vacant: Vec::new(), last: 0 }
    }
}

/// Selects the part by bits of the hash that the table in it hardly uses.
fn part(hash: u64) -> usize {
    usize::try_from((hash >> 40) % PARTS).unwrap_or(0)
}

impl Clients {
    pub(super) fn place(&self, identity: &[u8], client_id: &str) -> Option<usize> {
        let key = KeyRef { identity, client_id };
        let hash = self.hasher.hash_one(&key);
        let is_same = |place: &usize| self.get(*place).is_some_and(|client| key.is_of(client));
        self.parts.get(part(hash))?.find(hash, is_same).copied()
    }

    /// Returns the place of the client of a connection.
    pub(super) fn place_of(&mut self, from: &Peer) -> Option<usize> {
        let Peer { identity, client_id, connection, .. } = from;
        let is_same = |client: &Client| {
            client.connection == *connection && KeyRef { identity, client_id }.is_of(client)
        };
        if !self.get(self.last).is_some_and(is_same) {
            self.last = self.place(identity, client_id)?;
        }
        Some(self.last)
    }

    /// Returns the number of places, of clients and vacant ones.
    pub(super) fn places(&self) -> usize {
        self.clients.len()
    }

    pub(super) fn get(&self, place: usize) -> Option<&Client> {
        self.clients.get(place)?.as_deref()
    }

    pub(super) fn get_mut(&mut self, place: usize) -> Option<&mut Client> {
        self.clients.get_mut(place)?.as_deref_mut()
    }

    pub(super) fn insert(&mut self, client: Client) -> usize {
        let place = self.vacant.pop().unwrap_or(self.clients.len());
        let hash = self.hasher.hash_one(&client.key);
        match self.clients.get_mut(place) {
            Some(vacant) => *vacant = Some(Box::new(client)),
            None => self.clients.push(Some(Box::new(client))),
        }
        let Self { parts, hasher, clients, .. } = self;
        let hash_of = |place: &usize| {
            let client = clients.get(*place).and_then(Option::as_ref);
            client.map_or(0, |client| hasher.hash_one(&client.key))
        };
        if let Some(part) = parts.get_mut(part(hash)) {
            part.insert_unique(hash, place, hash_of);
        }
        place
    }

    pub(super) fn remove(&mut self, place: usize) -> Option<Box<Client>> {
        let client = self.clients.get_mut(place)?.take()?;
        let hash = self.hasher.hash_one(&client.key);
        if let Some(part) = self.parts.get_mut(part(hash))
            && let Ok(entry) = part.find_entry(hash, |of| *of == place)
        {
            entry.remove();
        }
        self.vacant.push(place);
        Some(client)
    }

    /// Returns the number of clients that are hashed again at once when the largest part grows.
    #[cfg(test)]
    pub(super) fn largest_part(&self) -> usize {
        self.parts.iter().map(HashTable::capacity).max().unwrap()
    }

    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = &Client> {
        self.clients.iter().flatten().map(Box::as_ref)
    }
}

/// The responses to one client's writes.
///
/// They are stored in the order in which they came, so that the one that is added and the one that is discarded have their
/// neighbors in the processor's cache. The first ones are *settled*: MQTT does not let the client deliver their requests
/// again, because it has received the acknowledgement, or its session has ended. They are kept while there is room, because
/// some clients deliver these all the same: one that restarts with an old record of its writes in flight, and some MQTT
/// libraries after a lost connection whose session has ended with it.
#[derive(Debug)]
pub struct Client {
    key: ClientKey,
    /// The owner of the last connection.
    pub(super) owner: Arc<str>,
    /// Its turn among the clients of the owner to lose a response.
    pub(super) turn: u64,
    /// Whether it has written since that turn was given.
    pub(super) is_active: bool,
    /// Its turn among the clients with settled responses to lose one.
    pub(super) settled_turn: Option<u64>,
    bytes: usize,
    /// Its last connection.
    connection: ConnectionId,
    /// How many messages of this connection it has received the acknowledgement of.
    confirmed: u64,
    responses: VecDeque<RecordedResponse>,
    /// How many of the first responses are settled.
    settled: usize,
    /// Number of the first response; the others count on from it and wrap around.
    first: u32,
    /// Maps fingerprints to the numbers of responses.
    index: HashTable<u32>,
}

#[derive(Debug)]
pub(super) struct RecordedResponse {
    pub(super) fingerprint: Fingerprint,
    pub(super) response: Response,
    pub(super) until_ms: u64,
    pub(super) sequence: u64,
    /// The connection of the last delivery, and its number on it.
    pub(super) connection: ConnectionId,
    pub(super) number: u64,
}

impl RecordedResponse {
    pub(super) fn cost(&self) -> usize {
        RESPONSE_COST_BYTES.saturating_add(self.response.payload_len())
    }

    /// Notes that the request has been delivered again: the client needs the response until it has received the
    /// acknowledgement of this delivery. A settled response stays settled.
    pub(super) fn handle_redelivery(&mut self, from: &Peer) {
        if self.connection <= from.connection {
            (self.connection, self.number) = (from.connection, from.message_number);
        }
    }
}

impl Client {
    pub(super) fn new(key: ClientKey, owner: &Arc<str>) -> Self {
        // The id twice: a client that is read again from another connection brings its own copy.
        let key_bytes = key.client_id.len().saturating_mul(2).saturating_add(key.identity.len());
        Self {
            key,
            owner: Arc::clone(owner),
            turn: 0,
            is_active: false,
            settled_turn: None,
            bytes: CLIENT_COST_BYTES.saturating_add(key_bytes),
            connection: RESTORED,
            confirmed: 0,
            responses: VecDeque::new(),
            settled: 0,
            first: 0,
            index: HashTable::new(),
        }
    }

    /// Returns the memory of the client, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.responses.is_empty()
    }

    pub(super) fn has_settled(&self) -> bool {
        self.settled > 0
    }

    /// Gives the client a turn among those with settled responses, if it has some.
    pub(super) fn note_settled(&mut self, place: usize, turns: &mut Turns) {
        if self.has_settled() && self.settled_turn.is_none() {
            self.settled_turn = Some(turns.add(place));
        }
    }

    /// Whether the client has had no later connection than this one.
    pub(super) fn is_latest(&self, connection: ConnectionId) -> bool {
        self.connection <= connection
    }

    /// Notes a delivery, and what the client has received before it. Returns whether it is the first one on a connection.
    ///
    /// On another connection of its session, the client may deliver all requests again whose acknowledgement it has not
    /// received. A message of an earlier connection may still come when the session has been taken over.
    pub(super) fn handle_delivery(&mut self, from: &Peer) -> bool {
        let is_first = self.connection < from.connection;
        if is_first {
            if from.session == SessionPhase::New {
                self.settled = self.responses.len();
            }
            (self.connection, self.confirmed) = (from.connection, 0);
        }
        if self.connection == from.connection && self.confirmed < from.confirmed {
            self.confirmed = from.confirmed;
        }
        self.settle();
        is_first
    }

    /// Counts the responses that have become settled.
    pub(super) fn settle(&mut self) {
        while let Some(next) = self.responses.get(self.settled) {
            let is_confirmed = next.connection == self.connection && next.number <= self.confirmed;
            let needed = self.responses.len().saturating_sub(self.settled);
            if !is_confirmed && next.connection != RESTORED && needed <= NEEDED_MAX {
                break;
            }
            self.settled = self.settled.saturating_add(1);
        }
    }

    /// Returns a response that has not expired.
    pub(super) fn find(
        &mut self,
        fingerprint: Fingerprint,
        monotonic_ms: u64,
    ) -> Option<&mut RecordedResponse> {
        let number = self.number(fingerprint)?;
        let known = self.responses.get_mut(position(self.first, number)?)?;
        (monotonic_ms < known.until_ms).then_some(known)
    }

    /// Returns the number of the last response to a request.
    fn number(&self, fingerprint: Fingerprint) -> Option<u32> {
        let get = |number: u32| numbered(&self.responses, self.first, number);
        let is_same = |number: &u32| get(*number).is_some_and(|known| known.fingerprint == fingerprint);
        self.index.find(fingerprint.0, is_same).copied()
    }

    /// Discards expired responses from the oldest on, and settled ones above their limit. Returns the memory that they took.
    pub(super) fn discard(&mut self, monotonic_ms: u64, discarded_max: usize) -> usize {
        let before = self.bytes;
        for _ in 0..discarded_max {
            let is_expired = self.responses.front().is_some_and(|oldest| oldest.until_ms <= monotonic_ms);
            if !is_expired && self.settled <= SETTLED_MAX {
                break;
            }
            self.pop_oldest();
        }
        before.saturating_sub(self.bytes)
    }

    /// Adds a response, and returns its memory. An earlier one with the same fingerprint is no longer found.
    pub(super) fn push(&mut self, known: RecordedResponse) -> usize {
        let (fingerprint, bytes) = (known.fingerprint, known.cost());
        // The conversion cannot fail: the number of responses is bounded.
        let count = u32::try_from(self.responses.len()).unwrap_or(u32::MAX);
        let number = self.first.wrapping_add(count);
        let print = |of: &u32| numbered(&self.responses, self.first, *of).map(|known| known.fingerprint);
        let is_same = |of: &u32| print(of) == Some(fingerprint);
        let hash = |of: &u32| print(of).map_or(0, |print| print.0);
        match self.index.entry(fingerprint.0, is_same, hash) {
            Entry::Occupied(mut older) => *older.get_mut() = number,
            Entry::Vacant(place) => _ = place.insert(number),
        }
        self.is_active = !self.responses.is_empty();
        self.bytes = self.bytes.saturating_add(bytes);
        self.responses.push_back(known);
        bytes
    }

    /// Removes the oldest response. Returns it, and whether it would have been found.
    pub(super) fn pop_oldest(&mut self) -> Option<(RecordedResponse, bool)> {
        let oldest = self.responses.pop_front()?;
        let number = self.first;
        self.first = number.wrapping_add(1);
        self.settled = self.settled.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(oldest.cost());
        // After a rollback the request may have been handled once more: then the later response is found.
        let place = self.index.find_entry(oldest.fingerprint.0, |of| *of == number);
        let is_found = place.map(|place| place.remove()).is_ok();
        self.release_places();
        Some((oldest, is_found))
    }

    /// Releases the places of responses, if three quarters of them are empty.
    fn release_places(&mut self) {
        let (len, places) = (self.responses.len(), self.responses.capacity());
        if places > PLACES_KEPT && len < places / 4 {
            self.responses.shrink_to(len.saturating_mul(2));
            let print = |of: &u32| numbered(&self.responses, self.first, *of).map(|known| known.fingerprint);
            self.index.shrink_to(len.saturating_mul(2), |of| print(of).map_or(0, |print| print.0));
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.responses.len()
    }

    #[cfg(test)]
    pub(super) fn places(&self) -> usize {
        self.responses.capacity()
    }

    /// Returns the number of settled responses, after a check that everything agrees.
    #[cfg(test)]
    pub(super) fn checked_settled(&self) -> usize {
        let fixed = Self::new(self.key.clone(), &self.owner).bytes;
        assert_eq!(self.bytes, fixed + self.responses.iter().map(RecordedResponse::cost).sum::<usize>());
        assert!(self.settled <= self.responses.len() && self.index.len() <= self.responses.len());
        self.settled
    }
}

/// Returns the position of the response with this number, where `first` is the number of the first one.
fn position(first: u32, number: u32) -> Option<usize> {
    usize::try_from(number.wrapping_sub(first)).ok()
}

fn numbered(responses: &VecDeque<RecordedResponse>, first: u32, number: u32) -> Option<&RecordedResponse> {
    responses.get(position(first, number)?)
}

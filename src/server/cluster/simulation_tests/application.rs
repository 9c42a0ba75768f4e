//! A small application: the real store, the responses to writes, registrations.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Mistake;
use super::requests::{Ledger, Operation, Reply, RequestId};
use crate::ledger::{Group, KeyRecord, Record, RegistrationRecord, ResponseRecord};
use crate::protocol::reply::Outcome;
use crate::protocol::{Condition, ConnectionId, Key, Request, Timestamp};
use crate::server::cluster::Effect;
use crate::store::{Limits, Now, Store, StoreRequest, StoredValue, Version};

/// How long responses are kept.
pub const KEPT_MS: u64 = 90_000;

pub struct Application {
    pub store: Store,
    pub responses: BTreeMap<RequestId, ResponseRecord>,
    pub registrations: BTreeSet<(Key, Arc<str>)>,
    pub is_serving: bool,
    wall_ms: u64,
    is_short: bool,
    records: Vec<(u64, Record)>,
    sequence: u64,
    /// The sequence number of the last group.
    grouped: u64,
    waiting: Vec<Waiting>,
    undo: Vec<(u64, Undo)>,
    /// Keys whose expiry is not committed.
    expired: Vec<(u64, Key)>,
    /// The last versions of keys that were removed while the instance followed.
    removed: BTreeMap<Key, Version>,
    mistake: Option<Mistake>,
}

struct Waiting {
    sequence: u64,
    id: RequestId,
    reply: Reply,
}

enum Undo {
    Row(Key, Option<(Version, StoredValue)>),
    Response(RequestId),
    Registration(Key, Arc<str>, bool),
}

impl Application {
    pub fn new(mistake: Option<Mistake>) -> Self {
        Self {
            store: Store::new(Limits::default()),
            responses: BTreeMap::new(),
            registrations: BTreeSet::new(),
            is_serving: false,
            wall_ms: 0,
            is_short: false,
            records: Vec::new(),
            sequence: 0,
            grouped: 0,
            waiting: Vec::new(),
            undo: Vec::new(),
            expired: Vec::new(),
            removed: BTreeMap::new(),
            mistake,
        }
    }

    /// Handles an effect; returns what can be answered.
    pub fn handle_effect(&mut self, effect: Effect, ledger: &Ledger, now: Now) -> Vec<(RequestId, Reply)> {
        match effect {
            Effect::Reset => *self = Self { sequence: self.sequence, ..Self::new(self.mistake) },
            Effect::Apply(Record::Key(record)) => {
                if let Some(last) = self.store.last_version(&record.key).filter(|_| record.content.is_none())
                {
                    self.removed.insert(record.key.clone(), last);
                }
                self.store.restore(&record.key.clone(), record.into_versioned());
            }
            Effect::Apply(Record::Response(response)) => {
                if self.mistake != Some(Mistake::ForgetsResponses) {
                    let id = RequestId {
                        client: response.client_id.parse().unwrap(),
                        number: response.fingerprint,
                    };
                    self.responses.insert(id, response);
                }
            }
            Effect::Apply(Record::Registration(record)) => {
                let RegistrationRecord { key, client_id, is_registered } = record;
                if is_registered {
                    self.registrations.insert((key, client_id));
                } else {
                    self.registrations.remove(&(key, client_id));
                }
            }
            Effect::Serve { floor, greatest, wall_ms, .. } => {
                self.is_serving = true;
                self.grouped = self.sequence;
                if self.mistake != Some(Mistake::NoFloor) {
                    self.store.raise_floor(floor);
                    self.store.raise_clock(wall_ms);
                    self.wall_ms = wall_ms;
                }
                if self.mistake != Some(Mistake::ForgetsRemoved) {
                    for (key, last) in std::mem::take(&mut self.removed) {
                        self.store.restore_removed(&key, last.min(greatest));
                    }
                }
            }
            Effect::Committed { sequence } => {
                self.undo.retain(|(at, _)| *at > sequence);
                self.expired.retain(|(at, _)| *at > sequence);
                let rest = self.waiting.partition_point(|waiting| waiting.sequence <= sequence);
                return self.waiting.drain(..rest).map(|waiting| (waiting.id, waiting.reply)).collect();
            }
            Effect::Refused { uncertain, .. } => return self.roll_back(uncertain, ledger, now),
            Effect::ShortOfSpace(is_short) => self.is_short = is_short,
            Effect::Stop => {
                self.is_serving = false;
                self.waiting.clear();
                self.records.clear();
                self.undo.clear();
                self.expired.clear();
            }
            Effect::Apply(Record::Exchange(..)) | Effect::Joined { .. } | Effect::Report(_) => {}
        }
        Vec::new()
    }

    /// Undoes all that is not committed: writes are refused, reads are handled again. Writes up to `uncertain` get no answer.
    fn roll_back(&mut self, uncertain: u64, ledger: &Ledger, now: Now) -> Vec<(RequestId, Reply)> {
        for (_, undo) in self.undo.drain(..).rev() {
            match undo {
                Undo::Row(key, before) => self.store.restore(&key, before),
                Undo::Response(id) => _ = self.responses.remove(&id),
                Undo::Registration(key, client_id, true) => {
                    _ = self.registrations.remove(&(key, client_id));
                }
                Undo::Registration(key, client_id, false) => {
                    _ = self.registrations.insert((key, client_id));
                }
            }
        }
        self.records.clear();
        self.grouped = self.sequence;
        // An expiry is not rolled back: it can be committed without space.
        for (at, key) in &mut self.expired {
            if self.store.read(key).is_none() {
                self.sequence += 1;
                *at = self.sequence;
                self.records.push((*at, Record::Key(KeyRecord::new(key.clone(), None))));
            }
        }
        let mut answers = Vec::new();
        for Waiting { id, sequence, .. } in std::mem::take(&mut self.waiting) {
            if matches!(ledger.requests[&id].operation, Operation::Get) {
                answers.extend(self.handle_request(id, ledger, now));
            } else if sequence > uncertain {
                answers.push((id, Reply::NoSpace));
            }
        }
        answers
    }

    fn now(&self, now: Now) -> Now {
        Now { wall_ms: now.wall_ms.max(self.wall_ms), ..now }
    }

    /// Handles a request if this instance serves; returns what can be answered at once.
    pub fn handle_request(&mut self, id: RequestId, ledger: &Ledger, now: Now) -> Option<(RequestId, Reply)> {
        if !self.is_serving {
            return None;
        }
        let (now, request) = (self.now(now), &ledger.requests[&id]);
        self.sequence += 1;
        let sequence = self.sequence;
        let reply = match &request.operation {
            Operation::Register { is_registered } => {
                if self.is_short && *is_registered {
                    return Some((id, Reply::NoSpace));
                }
                self.register(id, request.key.clone(), *is_registered);
                Reply::Registered
            }
            Operation::Get => {
                self.expire_all(now);
                let current = self.store.read(&request.key);
                let version = current.as_ref().map(|(version, _)| *version);
                let value = current.map(|(_, stored)| String::from_utf8(stored.value.to_vec()).unwrap());
                Reply::Read { version, value }
            }
            write => {
                let known = self.responses.get(&id).filter(|known| now.monotonic_ms < known.until_ms);
                if let Some(known) = known {
                    Reply::Written {
                        payload: known.payload.clone(),
                        version: known.version,
                        is_duplicate: true,
                    }
                } else if self.is_short && matches!(write, Operation::Set { .. }) {
                    return Some((id, Reply::NoSpace));
                } else {
                    self.write(id, &request.key, write, request.timestamp_ms, now)
                }
            }
        };
        if self.mistake == Some(Mistake::NoConfirmation) && matches!(reply, Reply::Read { .. }) {
            return Some((id, reply));
        }
        self.waiting.push(Waiting { sequence, id, reply });
        None
    }

    fn register(&mut self, id: RequestId, key: Key, is_registered: bool) {
        let client_id: Arc<str> = id.client.to_string().into();
        let entry = (key.clone(), Arc::clone(&client_id));
        let has_changed =
            if is_registered { self.registrations.insert(entry) } else { self.registrations.remove(&entry) };
        if has_changed {
            self.undo.push((
                self.sequence,
                Undo::Registration(key.clone(), Arc::clone(&client_id), is_registered),
            ));
            let record = RegistrationRecord { key, client_id, is_registered };
            self.records.push((self.sequence, Record::Registration(record)));
        }
    }

    fn write(
        &mut self,
        id: RequestId,
        key: &Key,
        operation: &Operation,
        timestamp_ms: u64,
        now: Now,
    ) -> Reply {
        let before = self.store.read(key);
        let stamp = |ms| Some(Ok(Timestamp::of_store(ms, 0)));
        let (request, fence) = match operation {
            Operation::Set { value, ttl_ms, is_nx, fence } => {
                let condition = is_nx.then_some(Condition::Absent);
                let ttl_ms = ttl_ms.and_then(std::num::NonZeroU64::new);
                let value = value.clone().into_bytes().into();
                (Request::Set { key: key.clone(), value, condition, ttl_ms }, *fence)
            }
            Operation::Del { fence } => (Request::Del { key: key.clone() }, *fence),
            Operation::VDel { value } => {
                (Request::VDel { key: key.clone(), value: value.clone().into_bytes().into() }, None)
            }
            Operation::Get | Operation::Register { .. } => panic!("no write"),
        };
        let request = StoreRequest {
            connection: ConnectionId(id.client),
            client_id: id.client.to_string().into(),
            owner: id.client.to_string().into(),
            permissions: None,
            request,
            timestamp: stamp(timestamp_ms),
            fence: fence.and_then(stamp),
            persist: true,
            encoded: None,
            refusal: None,
        };
        let response = self.store.handle_request(request, now);
        let sequence = self.sequence;
        for change in response.expired.iter().chain(&response.change) {
            self.records.push((sequence, change.into()));
        }
        if response.expired.is_some() || response.change.is_some() {
            self.undo.push((sequence, Undo::Row(key.clone(), before)));
        }
        let record = ResponseRecord {
            client_id: id.client.to_string().into(),
            fingerprint: id.number,
            payload: response.reply.encode(),
            version: response.version,
            outcome: Outcome::Ok,
            until_ms: now.monotonic_ms + KEPT_MS,
        };
        let reply =
            Reply::Written { payload: record.payload.clone(), version: record.version, is_duplicate: false };
        self.responses.insert(id, record.clone());
        self.undo.push((sequence, Undo::Response(id)));
        self.records.push((sequence, Record::Response(record)));
        reply
    }

    /// Removes expired keys.
    pub fn expire_all(&mut self, now: Now) {
        if !self.is_serving {
            return;
        }
        let now = self.now(now);
        for change in self.store.poll_expired(now) {
            self.sequence += 1;
            self.expired.push((self.sequence, change.key.clone()));
            self.records.push((self.sequence, (&change).into()));
        }
    }

    pub fn next_expiry(&self) -> Option<u64> {
        self.store.next_expiry().filter(|_| self.is_serving)
    }

    /// Returns what has come since the last group.
    pub fn take_group(&mut self) -> Option<Group> {
        if self.sequence == self.grouped {
            return None;
        }
        self.grouped = self.sequence;
        Some(Group {
            records: std::mem::take(&mut self.records),
            sequence: self.sequence,
            ..Group::default()
        })
    }
}

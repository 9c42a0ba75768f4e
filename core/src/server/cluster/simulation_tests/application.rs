//! A small application: the real store and the real commit queue, the responses to writes, registrations.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Mistake;
use super::requests::{Ledger, Operation, Reply, RequestId};
use crate::ledger::{CommitQueue, Group, KeyRecord, LedgerKind, Record, RegistrationRecord, ResponseRecord};
use crate::protocol::reply::Outcome;
use crate::protocol::{Condition, ConnectionId, Key, Request, Timestamp};
use crate::server::cluster::Effect;
use crate::store::{Limits, Now, Store, StoreRequest, Version, WatchOptions};

/// How long responses are kept.
pub const KEPT_MS: u64 = 90_000;

pub struct Application {
    pub store: Store,
    responses: BTreeMap<RequestId, ResponseRecord>,
    pub registrations: BTreeSet<(Key, Arc<str>)>,
    is_serving: bool,
    wall_ms: u64,
    is_short: bool,
    queue: CommitQueue<(RequestId, Reply)>,
    /// The last versions of keys that were removed while the instance followed.
    removed: BTreeMap<Key, Version>,
    mistake: Option<Mistake>,
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
            queue: CommitQueue::new(LedgerKind::Etcd),
            removed: BTreeMap::new(),
            mistake,
        }
    }

    /// Handles an effect; returns what can be answered.
    pub fn handle_effect(&mut self, effect: Effect) -> Vec<(RequestId, Reply)> {
        match effect {
            Effect::Reset => {
                let queue = std::mem::replace(&mut self.queue, CommitQueue::new(LedgerKind::Etcd));
                *self = Self { queue, ..Self::new(self.mistake) };
                self.queue.clear();
            }
            Effect::Apply(record) => {
                if let Record::Key(KeyRecord { key, content: None, .. }) = &record
                    && let Some(last) = self.store.last_version(key)
                {
                    self.removed.insert(key.clone(), last);
                }
                self.restore(record);
            }
            Effect::Serve { floor, greatest, wall_ms, .. } => {
                self.is_serving = true;
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
                let mut answers = Vec::new();
                while self.queue.handle_commit(sequence, Version::default(), |answer| answers.push(answer)) {}
                return answers;
            }
            Effect::ShortOfSpace(is_short) => self.is_short = is_short,
            Effect::Stop | Effect::Pause => {
                self.is_serving = false;
                self.queue.clear();
            }
            Effect::Joined { .. } | Effect::Report(_) => {}
        }
        Vec::new()
    }

    fn restore(&mut self, record: Record) {
        match record {
            Record::Key(record) => self.store.restore(&record.key.clone(), record.into_versioned()),
            Record::Registration(RegistrationRecord { key, client_id, is_registered: true }) => {
                self.registrations.insert((key, client_id));
            }
            Record::Registration(RegistrationRecord { key, client_id, is_registered: false }) => {
                self.registrations.remove(&(key, client_id));
            }
            Record::Response(_) if self.mistake == Some(Mistake::ForgetsResponses) => {}
            Record::Response(response) => {
                let (client, number) = (response.client_id.parse().unwrap(), response.fingerprint);
                self.responses.insert(RequestId { client, number }, response);
            }
            Record::Exchange(..) => panic!("{record:?}"),
        }
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
        self.queue.begin_step();
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
                self.queue.begin_step();
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
        self.queue.add_answer((id, reply), 1)
    }

    fn register(&mut self, id: RequestId, key: Key, is_registered: bool) {
        let client_id: Arc<str> = id.client.to_string().into();
        let entry = (key, client_id);
        let was_registered = self.registrations.contains(&entry);
        if was_registered != is_registered {
            let record = |is_registered| {
                let (key, client_id) = entry.clone();
                Record::Registration(RegistrationRecord { key, client_id, is_registered })
            };
            self.queue.add_record(None, record(is_registered));
            self.restore(record(is_registered));
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
            watch: WatchOptions::default(),
        };
        let response = self.store.handle_request(request, now);
        if let Some(expired) = &response.expired {
            self.queue.add_record(None, expired.into());
            self.queue.begin_step();
        }
        if let Some(change) = &response.change {
            self.queue.add_record(None, change.into());
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
        self.queue.add_record(None, Record::Response(record.clone()));
        self.responses.insert(id, record);
        reply
    }

    /// Removes expired keys.
    pub fn expire_all(&mut self, now: Now) {
        if !self.is_serving {
            return;
        }
        let now = self.now(now);
        for change in self.store.poll_expired(now) {
            self.queue.begin_step();
            self.queue.add_record(None, (&change).into());
        }
    }

    pub fn next_expiry(&self) -> Option<u64> {
        self.store.next_expiry().filter(|_| self.is_serving)
    }

    /// Returns what has come since the last group.
    pub fn take_group(&mut self) -> Option<Group> {
        self.queue.take_group()
    }
}

//! What etcd has held, revision by revision, and the promises about it.

use std::collections::{BTreeMap, BTreeSet};

use super::application::KEPT_MS;
use super::etcd::Etcd;
use super::requests::{Ledger, Operation, Reply, RequestId};
use crate::ledger::etcd::codec::{EncodedResponses, Head, Reception, decode_row};
use crate::ledger::etcd::layout::{Layout, Place};
use crate::protocol::{Key, Reply as Protocol, Timestamp};
use crate::store::{Now, StoredValue, Version};

#[derive(Default)]
pub struct Archive {
    revision: u64,
    pub head: Head,
    rows: BTreeMap<Key, Vec<RowState>>,
    recorded: BTreeMap<RequestId, Recorded>,
    /// The writes of each key that were recorded, with their revisions.
    writes: BTreeMap<Key, Vec<(u64, RequestId)>>,
    /// The number of keys that have expired.
    pub expired: u64,
}

struct RowState {
    revision: u64,
    content: Option<(Version, StoredValue)>,
}

struct Recorded {
    payload: bytes::Bytes,
    version: Option<Version>,
}

/// What of the promises a seed does not keep.
#[derive(Clone, Copy, Debug, Default)]
pub struct Allowance {
    /// etcd has lacked space: deletions were answered without a record.
    pub no_space: bool,
}

impl Archive {
    /// Takes over what etcd has committed.
    pub fn advance(
        &mut self,
        etcd: &Etcd,
        layout: &Layout,
        ledger: &Ledger,
        now_ms: u64,
    ) -> Result<(), String> {
        while self.revision < etcd.revision {
            self.revision += 1;
            let events = &etcd.history[usize::try_from(self.revision - 1).unwrap()];
            let mut rows = Vec::new();
            let mut deleting = BTreeSet::new();
            let mut has_head = false;
            for event in events {
                match (layout.place(&event.key), &event.value) {
                    (Some(Place::Head), Some(value)) => {
                        has_head = true;
                        self.check_head(Head::decode(value).unwrap())?;
                    }
                    (Some(Place::Responses { .. }), Some(value)) => {
                        deleting = self.record(value, ledger)?;
                    }
                    (Some(Place::Row(key)), value) => rows.push((key, value.clone())),
                    _ => {}
                }
            }
            for (key, value) in rows {
                let now = Now { wall_ms: 0, monotonic_ms: 0 };
                let content = value.map(|value| decode_row(&key, &value, Reception::Watched, now).unwrap());
                let is_deleting = deleting.contains(&key);
                self.check_row(&key, content.as_ref(), is_deleting || !has_head, now_ms, ledger)?;
                self.rows.entry(key).or_default().push(RowState { revision: self.revision, content });
            }
        }
        Ok(())
    }

    fn check_head(&mut self, next: Head) -> Result<(), String> {
        let head = &self.head;
        let is_takeover = next.owner != head.owner && next.owner.is_some();
        let epoch = head.epoch + u64::from(is_takeover || (next.epoch > head.epoch));
        if next.seq != head.seq + 1 || next.epoch != epoch {
            return Err(format!("the chain of commits is broken: {head:?}, {next:?}"));
        }
        if next.greatest < head.greatest || next.wall_ms < head.wall_ms {
            return Err(format!("the head goes back: {head:?}, {next:?}"));
        }
        self.head = next;
        Ok(())
    }

    /// Records the responses of a commit; returns the keys that it has deleted.
    fn record(&mut self, value: &bytes::Bytes, ledger: &Ledger) -> Result<BTreeSet<Key>, String> {
        let now = Now { wall_ms: 0, monotonic_ms: 0 };
        let decoded = EncodedResponses::decode(value, Reception::Watched, now).unwrap();
        let mut deleting = BTreeSet::new();
        for response in decoded.responses {
            let id = RequestId { client: response.client_id.parse().unwrap(), number: response.fingerprint };
            let request = &ledger.requests[&id];
            assert!(response.until_ms <= KEPT_MS);
            let recorded = Recorded { payload: response.payload, version: response.version };
            if matches!(request.operation, Operation::Del { .. } | Operation::VDel { .. })
                && recorded.payload == Protocol::Count(1).encode()
            {
                deleting.insert(request.key.clone());
            }
            self.writes.entry(request.key.clone()).or_default().push((self.revision, id));
            if self.recorded.insert(id, recorded).is_some() {
                return Err(format!("{id:?} was applied twice"));
            }
        }
        Ok(deleting)
    }

    fn check_row(
        &mut self,
        key: &Key,
        content: Option<&(Version, StoredValue)>,
        is_deleting: bool,
        now_ms: u64,
        ledger: &Ledger,
    ) -> Result<(), String> {
        let states = self.rows.get(key).map(Vec::as_slice).unwrap_or_default();
        let current = states.last().and_then(|state| state.content.as_ref());
        if let Some((version, stored)) = content {
            let greatest = states.iter().filter_map(|state| state.content.as_ref().map(|(it, _)| *it)).max();
            if greatest.is_some_and(|greatest| greatest >= *version) {
                return Err(format!("the versions of {key:?} do not rise: {greatest:?}, {version:?}"));
            }
            if self.head.greatest < *version {
                return Err(format!("the head does not cover the version of {key:?}"));
            }
            let may_fall = is_deleting
                || self.has_set_with_ttl(key, ledger)
                || current.is_none_or(|(_, current)| current.deadline_ms.is_some());
            let fence = |stored: &StoredValue| stored.fence.as_ref().map(|fence: &Timestamp| fence.ms);
            if !may_fall && current.is_some_and(|(_, current)| fence(current) > fence(stored)) {
                return Err(format!("the fencing token of {key:?} falls"));
            }
        } else if !is_deleting && !self.has_set_with_ttl(key, ledger) {
            let (_, expired) = current.ok_or("an absent key was deleted")?;
            let value = std::str::from_utf8(&expired.value).unwrap();
            let id = parse_value(value);
            let request = &ledger.requests[&id];
            let Operation::Set { ttl_ms: Some(ttl_ms), .. } = request.operation else {
                return Err(format!("{key:?} has gone: {value}"));
            };
            if now_ms < request.sent_ms + ttl_ms {
                return Err(format!("{key:?} has expired early"));
            }
            self.expired += 1;
        }
        Ok(())
    }

    /// Whether this commit sets a key that may have expired before the commit.
    fn has_set_with_ttl(&self, key: &Key, ledger: &Ledger) -> bool {
        let writes = self.writes.get(key).into_iter().flatten();
        writes.rev().take_while(|(at, _)| *at == self.revision).any(|(_, id)| has_ttl(id, ledger))
    }

    /// Checks an answer when it is given.
    pub fn check_answer(
        &self,
        id: RequestId,
        reply: &Reply,
        ledger: &Ledger,
        allowance: Allowance,
    ) -> Result<(), String> {
        let request = &ledger.requests[&id];
        match reply {
            Reply::Written { payload, version, .. } => {
                let is_set =
                    matches!(request.operation, Operation::Set { .. }) && *payload == Protocol::Done.encode();
                let excused = !is_set && allowance.no_space;
                let recorded = self.recorded.get(&id);
                if recorded.is_none_or(|it| it.payload != *payload || it.version != *version) && !excused {
                    return Err(format!("{id:?} was answered without being committed"));
                }
                if let Some(Reply::Written { payload: first, version: first_version, .. }) =
                    ledger.answers.get(&id)
                    && (first != payload || first_version != version)
                    // Without space, a write that was not applied is answered without a record.
                    && !(allowance.no_space && *first != Protocol::Done.encode())
                    && !excused
                {
                    return Err(format!("{id:?} was answered differently: {first:?}, {payload:?}"));
                }
                Ok(())
            }
            Reply::Read { version, value } => {
                if self.has_shown(&request.key, *version, value.as_deref(), request.revision, ledger) {
                    return Ok(());
                }
                Err(format!("{id:?} is a stale read of {:?}: {version:?}", request.key))
            }
            Reply::Registered | Reply::NoSpace => Ok(()),
        }
    }

    /// Whether a key has held this at any time since a revision.
    fn has_shown(
        &self,
        key: &Key,
        version: Option<Version>,
        value: Option<&str>,
        since: u64,
        ledger: &Ledger,
    ) -> bool {
        let states = self.rows.get(key).map(Vec::as_slice).unwrap_or_default();
        let first = states.partition_point(|state| state.revision <= since);
        let window = &states[first.saturating_sub(1)..];
        let absent_at_first = first == 0;
        let writes = self.writes.get(key).map(Vec::as_slice).unwrap_or_default();
        let mut recorded =
            writes.iter().filter(|(at, _)| *at > since).map(|(_, id)| (id, &self.recorded[id]));
        let Some(version) = version else {
            let may_expire = |state: &RowState| {
                state.content.as_ref().is_some_and(|(_, stored)| stored.deadline_ms.is_some())
            };
            return absent_at_first
                || window.iter().any(|state| state.content.is_none())
                || recorded.any(|(_, it)| it.payload == Protocol::Count(1).encode())
                // It has expired and was set again in one commit.
                || (window.iter().any(may_expire) && window.len() > 1)
                // It was set with a time to live, has expired and was set again in one commit.
                || writes.windows(2).any(|pair| {
                    let [(at, first), (next, _)] = pair else { return false };
                    *at > since && at == next && has_ttl(first, ledger)
                });
        };
        window.iter().any(|state| {
            let content = state.content.as_ref();
            content.is_some_and(|(it, stored)| *it == version && stored.value == value.unwrap().as_bytes())
        }) || recorded.any(|(id, it)| it.version == Some(version) && parse_value(value.unwrap()) == *id)
    }
}

fn has_ttl(id: &RequestId, ledger: &Ledger) -> bool {
    matches!(ledger.requests[id].operation, Operation::Set { ttl_ms: Some(_), .. })
}

/// Returns the request that has written a value.
fn parse_value(value: &str) -> RequestId {
    let (client, number) = value.split_once('.').unwrap();
    RequestId { client: client.parse().unwrap(), number: number.parse().unwrap() }
}

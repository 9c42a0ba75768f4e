//! The root's side of a link: HELLO, the window, and the walk through the records.

use std::collections::VecDeque;
use std::ops::Bound;

use super::super::frame::{
    Ack, Changes, FRAME_BYTES_MAX, FRAMES_IN_FLIGHT_MAX, Hello, IDLE_MS, ITEMS_MAX, Item, OLDEST_VERSION,
    RecordItem, Records, Start, VERSION, Welcome,
};
use super::super::row::{DecisionKind, EARLIER_STREAMS_MAX, RecordKind};
use super::window::{DIGEST_MS, Link, WelcomeStart};
use super::{
    Cause, ChangeId, Effects, Event, Key, LEAVES_MAX, LEAVES_PER_IDENTITY_MAX, Leaf, LeafRow, LinkFrame,
    Name, REFUSALS_MAX, Refused, Root, Row, RowId, Values,
};

/// The most records that one step looks at, because requests wait meanwhile.
const RECORDS_PER_STEP_MAX: usize = 1_024;
/// The most versions that do not concern a leaf until a RECORDS reports them, unless the link is idle. It is no more than
/// the records of a step, so that a step without any item sends a frame or finds no more records.
const UNREPORTED_MAX: u64 = 1_024;

impl Root {
    /// Handles a frame from the topic of a leaf. `principal` is the identity that the listener authenticated.
    pub fn handle_frame(
        &mut self,
        name: &Name,
        principal: &bytes::Bytes,
        frame: LinkFrame,
        now_ms: u64,
        values: &dyn Values,
    ) -> Effects {
        let mut effects = Effects::default();
        self.adopt_if_due(&mut effects);
        let link = frame.link();
        let result = match frame {
            LinkFrame::Hello(hello) => {
                if let Err(cause) = self.hello(name, principal, &hello, now_ms, &mut effects) {
                    self.refuse(name, &hello, cause, &mut effects);
                }
                Ok(())
            }
            LinkFrame::Changes(changes) => self.changes(name, changes, now_ms, values, &mut effects),
            LinkFrame::Ack(ack) => self.ack(name, ack, now_ms, &mut effects),
            LinkFrame::Welcome(_) | LinkFrame::Records(_) | LinkFrame::Refused(_) => Err(Cause::Unexpected),
        };
        if self.links.get(name).is_some_and(|known| known.id == link)
            && let Some(leaf) = self.leaves.get_mut(name)
        {
            leaf.heard_ms = Some(now_ms);
        }
        if let Err(cause) = result {
            self.end(name, cause, &mut effects);
        }
        self.finish_of(name, effects)
    }

    /// Handles a frame while commits fail: HELLO is refused, the rest is ignored.
    pub fn handle_frame_unsaved(
        &mut self,
        name: &Name,
        principal: &bytes::Bytes,
        frame: &LinkFrame,
    ) -> Effects {
        let mut effects = Effects::default();
        if let LinkFrame::Hello(hello) = frame {
            let cause = self.check_hello(name, principal, hello).err().unwrap_or(Cause::NotCommitted);
            self.refuse(name, hello, cause, &mut effects);
        }
        effects
    }

    fn refuse(&mut self, name: &Name, hello: &Hello, cause: Cause, effects: &mut Effects) {
        let (leaf, link) = (name.clone(), hello.link);
        effects.events.push(Event::Refused { leaf, link, cause });
        if self.refusals.len() < REFUSALS_MAX {
            let text = self.refusal(name, hello, cause);
            self.refusals.push_back((name.clone(), refused(link, cause, text)));
        }
        if let Some(link) = self.links.get_mut(name).filter(|_| cause == Cause::SecondRun) {
            // The connection of the first process may be dead, as after a power loss: a frame that is not acknowledged ends
            // the link long before the keep-alive of the connection does.
            link.is_frame_due = true;
            self.ready.insert(name.clone());
        }
    }

    /// Ends a link because its frame cannot be decoded, unless another identity has sent it.
    pub fn handle_malformed(&mut self, name: &Name, principal: &bytes::Bytes) -> Effects {
        let mut effects = Effects::default();
        if self.leaves.get(name).is_some_and(|leaf| leaf.row.principal == *principal) {
            self.end(name, Cause::Malformed, &mut effects);
        }
        effects
    }

    /// Reports that the connection of a link is lost.
    pub fn handle_lost(&mut self, name: &Name, link: u64) {
        if self.links.get(name).is_some_and(|known| known.id == link) {
            self.links.remove(name);
        }
    }

    /// Ends links without progress, purges tombstones, and goes on with the work after a change of the rules.
    pub fn handle_timeout(&mut self, now_ms: u64) -> Effects {
        let mut effects = Effects::default();
        self.adopt_if_due(&mut effects);
        self.sweep(&mut effects);
        let stalled = self.links.iter().filter(|(_, link)| link.is_stalled(now_ms));
        for name in stalled.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
            self.end(&name, Cause::Stalled, &mut effects);
        }
        for (name, link) in &mut self.links {
            if link.timeout().is_some_and(|due_ms| due_ms <= now_ms) {
                link.is_frame_due = true;
                self.ready.insert(name.clone());
            }
        }
        self.purge(&mut effects);
        self.finish(effects)
    }

    /// Returns the time at which `handle_timeout` is due; 0: at once.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<u64> {
        if self.sweep.is_some() || self.is_adoption_due() || self.is_purge_due {
            return Some(0);
        }
        self.links.values().filter_map(Link::timeout).min()
    }

    /// Returns the next frame, and the leaf that it is for. Everything that it depends on is committed.
    pub fn poll_outgoing(&mut self, now_ms: u64, values: &dyn Values) -> Option<(Name, LinkFrame)> {
        if let Some((name, refused)) = self.ended.pop_first().or_else(|| self.refusals.pop_front()) {
            return Some((name, LinkFrame::Refused(refused)));
        }
        loop {
            let after = self.served.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
            let next = self.ready.range::<Name, _>((after, Bound::Unbounded)).next();
            let Some(name) = next.or_else(|| self.ready.first()).cloned() else {
                self.served = None;
                return None;
            };
            self.served = Some(name.clone());
            if let Some(frame) = self.poll_link(&name, now_ms, values) {
                return Some((name, frame));
            }
            self.ready.remove(&name);
        }
    }

    pub(super) fn end_all(&mut self, cause: Cause) -> Effects {
        let mut effects = Effects::default();
        let names: Vec<_> = self.links.keys().cloned().collect();
        for name in names {
            self.end(&name, cause, &mut effects);
        }
        effects
    }

    pub(super) fn end(&mut self, name: &Name, cause: Cause, effects: &mut Effects) {
        let Some(link) = self.links.remove(name) else { return };
        effects.events.push(Event::Ended { leaf: name.clone(), link: link.id, cause });
        if let Some(leaf) = self.leaves.get_mut(name).filter(|_| cause == Cause::Blocked) {
            leaf.is_blocked = true;
        }
        // The notice of an earlier link is of no use: its connection has a newer link, or is lost.
        self.ended.insert(name.clone(), refused(link.id, cause, cause.text().to_owned()));
    }

    /// Returns the text of a refused HELLO, for an operator of the leaf.
    fn refusal(&self, name: &Name, hello: &Hello, cause: Cause) -> String {
        match cause {
            Cause::Version => format!(
                "{}: the root has {OLDEST_VERSION} to {VERSION}, the leaf has {} to {}",
                cause.text(),
                hello.oldest_version,
                hello.version
            ),
            Cause::OtherExchange => format!(
                "the root is of the exchange '{}', the leaf of '{}'",
                self.row.identity.exchange, hello.exchange
            ),
            Cause::OtherLeaf => format!("the topic is of the leaf '{name}', the frame of '{}'", hello.leaf),
            Cause::UnknownLeaf => format!("{}; at the root: mqkv exchange add-leaf {name}", cause.text()),
            Cause::TooManyOfIdentity => format!(
                "this client identity has {LEAVES_PER_IDENTITY_MAX} leaves, the most that may join unasked; \
                 at the root: mqkv exchange add-leaf {name}"
            ),
            Cause::NotCommitted => "a commit of the root failed".to_owned(),
            Cause::OtherStore | Cause::OtherPrincipal => {
                format!(
                    "{}; to replace it, at the root: mqkv exchange add-leaf {name} --replace",
                    cause.text()
                )
            }
            Cause::TooManyLeaves => format!("the root has {LEAVES_MAX} leaves, the most that it can have"),
            _ => cause.text().to_owned(),
        }
    }

    fn hello(
        &mut self,
        name: &Name,
        principal: &bytes::Bytes,
        hello: &Hello,
        now_ms: u64,
        effects: &mut Effects,
    ) -> Result<(), Cause> {
        let version = self.check_hello(name, principal, hello)?;
        let known = self.leaves.get(name).map(|leaf| leaf.row.clone());
        let is_known = known.as_ref().is_some_and(|row| row.store.is_some());
        if !is_known {
            effects.events.push(Event::Joined { leaf: name.clone() });
        }
        // Only a WELCOME names the rules.
        let is_forgotten = hello.rules != 0 && !is_known;
        let mut row = known.unwrap_or_default();
        (row.store, row.principal) = (Some(hello.store), principal.clone());
        let is_restored = row.earlier_streams.contains(&hello.stream);
        if row.stream != hello.stream {
            if is_known {
                let excess = row.earlier_streams.len().saturating_add(1).saturating_sub(EARLIER_STREAMS_MAX);
                row.earlier_streams.drain(..excess);
                row.earlier_streams.push(row.stream);
            }
            (row.stream, row.applied, row.pruned, row.change_id) = (hello.stream, 0, 0, ChangeId::NIL);
        }
        if is_forgotten || is_restored {
            // Its changes may have been decided: with a change id that it has not made, it begins another stream.
            row.change_id = ChangeId::of_no_change(self.source.run());
        }
        // A leaf that is ahead begins another stream after WELCOME.
        if hello.acked <= row.applied {
            row.pruned = row.pruned.max(hello.acked);
        }
        let start = self.start(hello, row.is_resync_due);
        let from = if start == Start::Resume { hello.cursor } else { 0 };
        row.cursor = from;
        let (applied, pruned) = (row.applied, row.pruned);
        self.put_leaf(name, row, effects);
        if let Some(leaf) = self.leaves.get_mut(name) {
            // A backup of the leaf may not have the change for which there was no room.
            leaf.is_blocked &= hello.last_seq > applied;
        }
        self.drop_decisions(name, if applied == 0 { u64::MAX } else { pruned }, effects);
        self.end(name, Cause::Replaced, effects);
        let has_rules = hello.rules == self.rules_digest;
        let step = self.steps.number(effects);
        let rules = self.rules.iter().enumerate().filter(|(_, rule)| rule.concerns(name));
        let link = Link {
            id: hello.link,
            run: hello.run,
            is_resync: start != Start::Resume,
            welcome: Some((step, WelcomeStart { start, from, has_rules, version })),
            received_n: 0,
            sent_n: 0,
            in_flight: VecDeque::new(),
            sent: from,
            reported_ver: from,
            last_ver: from,
            rules: rules.map(|(at, _)| at).collect(),
            sent_seq: pruned,
            complete_at: if start == Start::Resume { hello.horizon } else { 0 },
            sent_ms: now_ms,
            digest_ms: now_ms,
            is_frame_due: false,
            last_seq: hello.last_seq,
            is_busy: hello.is_busy || start != Start::Resume,
            progress_ms: now_ms,
        };
        self.links.insert(name.clone(), link);
        self.ready.insert(name.clone());
        effects.events.push(Event::Linked { leaf: name.clone(), link: hello.link });
        Ok(())
    }

    /// Returns the version that both sides speak.
    fn check_hello(&self, name: &Name, principal: &bytes::Bytes, hello: &Hello) -> Result<u64, Cause> {
        let version = VERSION.min(hello.version);
        if version < OLDEST_VERSION.max(hello.oldest_version) {
            return Err(Cause::Version);
        }
        if hello.exchange != self.row.identity.exchange {
            return Err(Cause::OtherExchange);
        }
        if hello.leaf != *name {
            return Err(Cause::OtherLeaf);
        }
        let Some(leaf) = self.leaves.get(name) else {
            let is_own = |leaf: &&Leaf| leaf.row.store.is_some() && leaf.row.principal == *principal;
            return if self.leaves.len() >= LEAVES_MAX {
                Err(Cause::TooManyLeaves)
            } else if !self.admits(name) {
                Err(Cause::UnknownLeaf)
            } else if self.leaves.values().filter(is_own).count() >= LEAVES_PER_IDENTITY_MAX {
                Err(Cause::TooManyOfIdentity)
            } else {
                Ok(version)
            };
        };
        if leaf.row.store.is_some_and(|store| store != hello.store) {
            return Err(Cause::OtherStore);
        }
        if leaf.row.store.is_some() && leaf.row.principal != *principal {
            return Err(Cause::OtherPrincipal);
        }
        // Of a cloned disk, the process that has the link keeps it until its connection is lost.
        let is_second = |link: &Link| link.run != hello.run;
        if self.links.get(name).is_some_and(is_second) { Err(Cause::SecondRun) } else { Ok(version) }
    }

    fn start(&self, hello: &Hello, is_resync_due: bool) -> Start {
        // In a resync, the leaf misses nothing that was gone when the resync began.
        let complete_at = hello.cursor.max(hello.horizon);
        let is_of_this_history = complete_at.max(hello.last_ver) <= self.row.ver
            && (hello.last_ver == 0 || self.term(hello.last_ver) == hello.term);
        // A resync without any record yet may have been begun by a root that was restored since.
        let is_empty = hello.cursor == 0 && hello.horizon > 0;
        let is_incomplete = is_empty || complete_at < self.row.purged.max(self.row.rules_ver);
        if !is_of_this_history {
            Start::Restored
        } else if is_incomplete || is_resync_due || hello.is_resync || hello.rules != self.rules_digest {
            Start::Resync
        } else {
            Start::Resume
        }
    }

    /// Drops the decisions up to a change.
    fn drop_decisions(&mut self, name: &Name, seq: u64, effects: &mut Effects) {
        let Some(leaf) = self.leaves.get_mut(name) else { return };
        while let Some(entry) = leaf.decisions.first_entry()
            && *entry.key() <= seq
        {
            let (seq, decision) = entry.remove_entry();
            effects.row(RowId::Decision(name.clone(), seq), Some(Row::Decision(decision)), None);
        }
    }

    fn changes(
        &mut self,
        name: &Name,
        changes: Changes,
        now_ms: u64,
        values: &dyn Values,
        effects: &mut Effects,
    ) -> Result<(), Cause> {
        let Some(link) = self.links.get_mut(name).filter(|link| link.id == changes.link) else {
            return Ok(());
        };
        if changes.n <= link.received_n {
            return Ok(());
        }
        if link.welcome.is_some() {
            return Err(Cause::Unexpected);
        }
        if changes.n != link.received_n.saturating_add(1) {
            return Err(Cause::Gap);
        }
        link.received_n = changes.n;
        for proposal in changes.items {
            self.propose(name, proposal, now_ms, values, effects)?;
        }
        if let Some(leaf) = self.leaves.get_mut(name) {
            leaf.is_blocked = false;
        }
        Ok(())
    }

    fn ack(&mut self, name: &Name, ack: Ack, now_ms: u64, effects: &mut Effects) -> Result<(), Cause> {
        let Some(link) = self.links.get_mut(name).filter(|link| link.id == ack.link) else { return Ok(()) };
        link.progress_ms = now_ms;
        if ack.n > link.sent_n || ack.cursor > link.reported_ver || ack.acked > link.sent_seq {
            return Err(Cause::Unexpected);
        }
        (link.last_seq, link.is_busy) = (ack.last_seq, ack.is_busy);
        while link.in_flight.pop_front_if(|n| *n <= ack.n).is_some() {}
        // The leaf acknowledges nothing of a link before it has begun the resync of its WELCOME.
        let is_resync = link.is_resync;
        self.ready.insert(name.clone());
        let Some(leaf) = self.leaves.get(name) else { return Ok(()) };
        // An older acknowledgement may come late.
        let row = LeafRow {
            cursor: leaf.row.cursor.max(ack.cursor),
            pruned: leaf.row.pruned.max(ack.acked),
            is_resync_due: leaf.row.is_resync_due && !is_resync,
            ..leaf.row.clone()
        };
        let pruned = row.pruned;
        self.put_leaf(name, row, effects);
        self.drop_decisions(name, pruned, effects);
        Ok(())
    }

    fn poll_link(&mut self, name: &Name, now_ms: u64, values: &dyn Values) -> Option<LinkFrame> {
        let (link, leaf) = (self.links.get(name)?, self.leaves.get(name)?);
        if let Some((step, welcome)) = link.welcome {
            if !self.steps.is_saved(step) {
                self.waiting.insert((step, name.clone()));
                return None;
            }
            let frame = LinkFrame::Welcome(Welcome {
                link: link.id,
                root: self.row.identity.store,
                applied: leaf.row.applied,
                change_id: leaf.row.change_id,
                pruned: leaf.row.pruned,
                start: welcome.start,
                from: welcome.from,
                horizon: self.saved_ver,
                rules: (!welcome.has_rules).then(|| self.rules.clone()),
                version: welcome.version,
            });
            let horizon = self.saved_ver;
            let link = self.links.get_mut(name)?;
            if link.is_resync {
                link.complete_at = horizon;
            }
            (link.welcome, link.progress_ms, link.sent_ms, link.last_ver) = (None, now_ms, now_ms, horizon);
            return Some(frame);
        }
        if link.in_flight.len() >= FRAMES_IN_FLIGHT_MAX {
            return None;
        }
        let (items, to, seq) = self.collect(name, values)?;
        let (last_ver, is_committed) = (self.saved_ver, self.saved_ver == self.row.ver);
        let link = self.links.get_mut(name)?;
        link.sent = to;
        // What does not concern the leaf only moves its cursor, for the purge: that can wait.
        let unreported = to.saturating_sub(link.reported_ver);
        let is_news = unreported > 0 && (link.reported_ver < link.last_ver || unreported >= UNREPORTED_MAX);
        let is_due = link.is_frame_due && link.in_flight.is_empty();
        if items.is_empty() && !is_news && !is_due {
            return None;
        }
        if link.in_flight.is_empty() {
            link.progress_ms = now_ms;
        }
        link.sent_n = link.sent_n.saturating_add(1);
        link.in_flight.push_back(link.sent_n);
        (link.reported_ver, link.sent_seq, link.last_ver, link.sent_ms) = (to, seq, last_ver, now_ms);
        let is_digest_due = now_ms.saturating_sub(link.digest_ms) >= DIGEST_MS;
        let mut has_digest = false;
        if is_due && items.is_empty() {
            link.is_frame_due = false;
            has_digest = is_digest_due && is_committed && to == last_ver;
        }
        if is_digest_due && is_due {
            // Without a digest, the next one is tried with the next frame of an idle link.
            let wait_ms = if has_digest { DIGEST_MS } else { IDLE_MS };
            link.digest_ms = now_ms.saturating_add(wait_ms).saturating_sub(DIGEST_MS);
        }
        let (link, n) = (link.id, link.sent_n);
        let (term, purged) = (self.term(last_ver), self.row.purged);
        let digest = if has_digest { self.digest(name) } else { None };
        Some(LinkFrame::Records(Records { link, n, to, term, digest, items, purged, last_ver }))
    }

    /// Whether there may be records above those that are sent to a link.
    pub(super) fn has_news(&self, link: &Link) -> bool {
        let is_above = |rule: &usize| self.rule_vers.get(*rule).is_some_and(|ver| *ver > link.sent);
        link.rules.iter().any(is_above)
    }

    /// Merges the records above what is sent with the decisions, in the order of versions. Returns the items, and the
    /// version and the change up to which everything is sent then.
    fn collect(&self, name: &Name, values: &dyn Values) -> Option<(Vec<Item>, u64, u64)> {
        let (link, leaf) = (self.links.get(name)?, self.leaves.get(name)?);
        let (mut items, mut to, mut seq) = (Vec::new(), link.sent, link.sent_seq);
        let (mut bytes, has_news) = (0_usize, self.has_news(link));
        // A frame that passed a replaced version would leave a leaf without the record if that came back.
        let replaced = self.replaced.next(to.saturating_add(1));
        let end = replaced.map_or(self.saved_ver, |ver| ver.saturating_sub(1).min(self.saved_ver));
        for _ in 0..RECORDS_PER_STEP_MAX {
            if items.len() >= ITEMS_MAX || bytes >= FRAME_BYTES_MAX {
                break;
            }
            let record = self.index.range(to.saturating_add(1)..).next();
            let record = record.filter(|(ver, _)| has_news && **ver <= end);
            let next = record.map_or(u64::MAX, |(ver, _)| *ver);
            let decision = leaf.decisions.range(seq.saturating_add(1)..).next();
            let decision = decision.filter(|(made, decision)| **made <= leaf.saved && decision.at <= end);
            let (item, size) = match decision {
                // The own change comes back as its decision, without the value. A resync names each record.
                Some((made, decision))
                    if decision.kind == (DecisionKind::Accepted { ver: next }) && next > link.complete_at =>
                {
                    (seq, to) = (*made, next);
                    (Item::Accepted { seq, ver: next }, 0)
                }
                Some((made, decision)) if decision.at < next => {
                    let item = match decision.kind {
                        DecisionKind::Accepted { ver } => Item::Accepted { seq: *made, ver },
                        DecisionKind::Refused(reason) => {
                            let record = self.record_item(name, &decision.key, values);
                            // It must not be sent before it is committed.
                            if record.as_ref().is_some_and(|record| record.ver > self.saved_ver) {
                                break;
                            }
                            Item::Refused { seq: *made, reason, record }
                        }
                    };
                    seq = *made;
                    let size = size(&item);
                    (item, size)
                }
                _ => {
                    let Some((ver, key)) = record else {
                        to = end.max(to);
                        break;
                    };
                    to = *ver;
                    let Some(record) = self.record_item(name, key, values) else { continue };
                    let item = Item::Record(record);
                    let size = size(&item);
                    (item, size)
                }
            };
            bytes = bytes.saturating_add(size);
            items.push(item);
        }
        Some((items, to, seq))
    }

    /// Returns the record of a key, if it concerns the leaf.
    fn record_item(&self, name: &Name, key: &Key, values: &dyn Values) -> Option<RecordItem> {
        let record = self.records.get(key).filter(|_| self.rules.concerns(key, name))?;
        let content = if record.kind == RecordKind::Tombstone { None } else { values.content(key) };
        let (ver, change_id, owner) = (record.ver, record.change_id, record.owner.clone());
        Some(RecordItem { key: key.clone(), ver, change_id, owner, content })
    }
}

fn refused(link: u64, cause: Cause, text: String) -> Refused {
    Refused { link, code: cause.as_str().to_owned(), text }
}

fn size(item: &Item) -> usize {
    let record = match item {
        Item::Record(record) => Some(record),
        Item::Refused { record, .. } => record.as_ref(),
        Item::Accepted { .. } => None,
    };
    let size = |record: &RecordItem| {
        let value = record.content.as_ref().map_or(0, |content| content.value.len());
        value.saturating_add(record.key.as_bytes().len())
    };
    record.map_or(0, size)
}

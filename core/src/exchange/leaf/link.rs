//! The leaf's side of a link: HELLO, the check of both histories, the window.

use super::super::fingerprint::ValueHash;
use super::super::frame::ValueKind;
use super::super::frame::{
    Ack, Changes, DECISIONS_MAX, FRAME_BYTES_MAX, FRAMES_IN_FLIGHT_MAX, Flags, Hello, ITEMS_MAX, Item,
    OLDEST_VERSION, Proposal, Proposed, Records, Start, VERSION, Welcome,
};
use super::window::{Link, Phase};
use super::{
    Bytes, Cause, ChangeId, Effects, Entry, EntryState, Event, FOREVER, Leaf, LinkEnd, LinkFrame, Progress,
    ResyncKind, Row, RowId, Values, frame_bytes,
};

impl Leaf {
    /// Begins a link: the connection with the root is established. `link` is random.
    pub fn handle_connected(&mut self, link: u64, now_ms: u64) {
        self.link = Some(Link::new(link, now_ms));
        // What HELLO does not report as applied comes again, possibly in a resync, where it has to be applied again.
        self.hello_after = self.hello_after.max(self.steps.last());
    }

    /// Sets the most bytes of a frame that the root accepts.
    pub fn set_frame_bytes_max(&mut self, bytes: usize) {
        self.frame_bytes_max = bytes;
    }

    /// Reports that the connection with the root is lost.
    pub fn handle_lost(&mut self) {
        self.link = None;
    }

    /// Reports that the connection with the root was lost or cannot be established, for the operator.
    pub fn handle_unreachable(&mut self, reason: String) {
        self.unreachable = Some(reason);
    }

    /// Ends the link because its frame cannot be decoded.
    pub fn handle_malformed(&mut self) -> Effects {
        let mut effects = Effects::default();
        self.end(Cause::Malformed, &mut effects);
        effects
    }

    /// Handles a frame of the root.
    pub fn handle_frame(&mut self, frame: LinkFrame, now_ms: u64, values: &dyn Values) -> Effects {
        let mut effects = Effects::default();
        self.unreachable = None;
        let result = match frame {
            LinkFrame::Welcome(welcome) => self.welcome(welcome, now_ms, values, &mut effects),
            LinkFrame::Records(records) => self.receive(records, now_ms, values, &mut effects),
            LinkFrame::Refused(refused) => {
                if self.link.take_if(|link| link.id == refused.link).is_some() {
                    let end = LinkEnd { code: refused.code, text: refused.text };
                    if self.ended.as_ref() != Some(&end) {
                        let leaf = self.row.identity.node.clone();
                        effects.events.push(Event::EndedByRoot { leaf, end: end.clone() });
                    }
                    self.ended = Some(end);
                }
                Ok(())
            }
            LinkFrame::Hello(_) | LinkFrame::Changes(_) | LinkFrame::Ack(_) => Err(Cause::Unexpected),
        };
        if let Err(cause) = result {
            self.end(cause, &mut effects);
        }
        self.finish(effects)
    }

    /// Ends a link without progress, goes on with the sweep at the end of a resync, and reports a change that cannot be sent.
    pub fn handle_timeout(&mut self, now_ms: u64, values: &dyn Values) -> Effects {
        let mut effects = Effects::default();
        if let Some((key, bytes, bytes_max)) = self.too_large() {
            let (leaf, key) = (self.row.identity.node.clone(), key.clone());
            let seq = self.link.as_ref().and_then(|link| link.too_large);
            if self.too_large_reported != seq {
                self.too_large_reported = seq;
                effects.events.push(Event::TooLarge { leaf, key, bytes, bytes_max });
            }
        }
        if self.link.as_ref().and_then(Link::timeout).is_some_and(|due_ms| due_ms <= now_ms) {
            self.end(Cause::Stalled, &mut effects);
        }
        self.sweep(now_ms, values, &mut effects);
        self.finish(effects)
    }

    /// Returns the time at which `handle_timeout` is due; 0: at once.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<u64> {
        if self.sweep.is_some() {
            return Some(0);
        }
        self.link.as_ref().and_then(Link::timeout)
    }

    /// Returns the next frame for the root. Everything that it depends on is committed.
    pub fn poll_outgoing(&mut self, software: &str, now_ms: u64) -> Option<LinkFrame> {
        match self.link.as_ref()?.phase {
            Phase::Hello => self.poll_hello(software, now_ms),
            Phase::Waiting => None,
            Phase::Welcome => self.poll_ack().or_else(|| self.poll_changes(now_ms)),
        }
    }

    pub(super) fn end(&mut self, cause: Cause, effects: &mut Effects) {
        if let Some(link) = self.link.take() {
            let leaf = self.row.identity.node.clone();
            effects.events.push(Event::Ended { leaf, link: link.id, cause });
            self.ended = Some(LinkEnd { code: cause.as_str().to_owned(), text: cause.text().to_owned() });
        }
    }

    fn poll_hello(&mut self, software: &str, now_ms: u64) -> Option<LinkFrame> {
        if !self.steps.is_saved(self.hello_after) {
            return None;
        }
        let (last_seq, is_busy) = (self.last_seq(), self.is_busy());
        let link = self.link.as_mut()?;
        (link.phase, link.progress_ms, link.reported_busy) = (Phase::Waiting, now_ms, is_busy);
        Some(LinkFrame::Hello(Hello {
            version: VERSION,
            exchange: self.row.identity.exchange.clone(),
            leaf: self.row.identity.node.clone(),
            store: self.row.identity.store,
            run: self.source.run(),
            link: link.id,
            stream: self.row.stream,
            acked: self.saved.acked,
            cursor: self.saved.cursor,
            last_ver: self.saved.last_ver,
            term: self.saved.term,
            // A root that the leaf has not joined does not know the leaf's changes, whatever rules the leaf has of another one.
            rules: self.rules.as_ref().filter(|_| self.row.root.is_some()).map_or(0, super::Rules::digest),
            software: software.to_owned(),
            oldest_version: OLDEST_VERSION,
            is_resync: self.row.due.is_some(),
            horizon: self.row.resync.map_or(0, |resync| resync.horizon),
            last_seq,
            is_busy,
        }))
    }

    /// Returns the last change without a decision, or the last one that has one.
    fn last_seq(&self) -> u64 {
        self.outbox.last_key_value().map_or(self.row.acked, |(seq, _)| *seq)
    }

    /// Whether keys of the store are still to be offered, or a resync is to be completed.
    pub(in super::super) fn is_busy(&self) -> bool {
        self.row.is_walk_due || self.row.resync.is_some()
    }

    /// Whether the root's last RECORDS named a greater version than the leaf has.
    pub(in super::super) fn is_behind(&self) -> bool {
        self.link.as_ref().is_none_or(|link| link.last_ver > self.row.cursor)
    }

    fn welcome(
        &mut self,
        welcome: Welcome,
        now_ms: u64,
        values: &dyn Values,
        effects: &mut Effects,
    ) -> Result<(), Cause> {
        let Some(link) = self.link.as_mut().filter(|link| link.id == welcome.link) else { return Ok(()) };
        if link.phase != Phase::Waiting {
            return Err(Cause::Unexpected);
        }
        if self.row.root.is_some_and(|root| root != welcome.root) {
            return Err(Cause::OtherRoot);
        }
        if !(OLDEST_VERSION..=VERSION).contains(&welcome.version) {
            return Err(Cause::Version);
        }
        let before = self.node();
        if !self.continues(welcome.applied, welcome.change_id, welcome.pruned) {
            self.begin_stream(now_ms);
            self.put_node(before, effects);
            return Ok(());
        }
        let link = self.link.as_mut().ok_or(Cause::Unexpected)?;
        (link.phase, link.progress_ms, link.sent_seq) = (Phase::Welcome, now_ms, welcome.applied);
        (link.heard_ms, link.last_ver) = (now_ms, welcome.horizon);
        // The root assumes so.
        link.reported_busy |= welcome.start != Start::Resume;
        let id = link.id;
        self.row.root = Some(welcome.root);
        if let Some(rules) = welcome.rules {
            let known = self.rules.replace(rules.clone()).map(Row::Rules);
            effects.row(RowId::Rules, known, Some(Row::Rules(rules)));
        }
        let kind = match welcome.start {
            Start::Resume => self.row.due,
            Start::Resync => Some(ResyncKind::Missed),
            Start::Restored => Some(ResyncKind::Restored),
        };
        if let Some(kind) = kind {
            self.begin_resync(kind, welcome.horizon);
        }
        self.ended = self.ended.take().filter(LinkEnd::is_blocked);
        self.put_node(before, effects);
        effects.events.push(Event::Linked { leaf: self.row.identity.node.clone(), link: id });
        self.begin_sweep();
        self.sweep(now_ms, values, effects);
        Ok(())
    }

    /// Whether the root has decided the stream of this very store: neither was restored or cloned since.
    fn continues(&self, applied: u64, change_id: ChangeId, pruned: u64) -> bool {
        let own = if applied == self.row.acked {
            Some(self.row.acked_change_id)
        } else {
            self.outbox.get(&applied).map(|entry| entry.change_id)
        };
        pruned <= self.row.acked
            && self.row.acked <= applied
            && applied <= self.row.last_seq
            && own == Some(change_id)
    }

    /// Begins another stream: all entries are offered anew, those that were offered before with the flag `again`.
    fn begin_stream(&mut self, now_ms: u64) {
        let Some(link) = self.link.take() else { return };
        // The id of a link is random; so is the one after it, and frames of the old one are ignored.
        let id = link.id.wrapping_add(1);
        (self.row.stream, self.row.acked, self.row.acked_change_id) = (id, 0, ChangeId::NIL);
        self.row.again_to = self.offered;
        self.link = Some(Link::new(id, now_ms));
        self.hello_after = self.steps.next();
    }

    fn poll_ack(&mut self) -> Option<LinkFrame> {
        let (saved, last_seq, is_busy) = (self.saved, self.last_seq(), self.is_busy());
        let link = self.link.as_mut().filter(|link| link.id == saved.link)?;
        if saved.n <= link.acked_n && is_busy == link.reported_busy {
            return None;
        }
        (link.acked_n, link.reported_busy) = (saved.n, is_busy);
        let Progress { n, cursor, acked, .. } = saved;
        Some(LinkFrame::Ack(Ack { link: link.id, n, cursor, acked, last_seq, is_busy }))
    }

    fn poll_changes(&mut self, now_ms: u64) -> Option<LinkFrame> {
        let link = self.link.as_ref()?;
        let merged = self.merged.next(0).map_or(u64::MAX, |seq| seq.saturating_sub(1));
        let last = self.saved.last_seq.min(merged);
        if link.in_flight.len() >= FRAMES_IN_FLIGHT_MAX || link.sent_seq >= last {
            return None;
        }
        // The root keeps no more decisions than this, each until an ACK: a change that has left the outbox counts until that
        // is committed.
        let unacknowledged = usize::try_from(link.sent_seq.saturating_sub(self.saved.acked));
        let room = DECISIONS_MAX.saturating_sub(unacknowledged.unwrap_or(usize::MAX)).min(ITEMS_MAX);
        let next = link.sent_seq.saturating_add(1);
        let (mut items, mut bytes, mut size, mut too_large) = (Vec::new(), 0_usize, 0_usize, None);
        for (seq, entry) in self.outbox.range(next..).take_while(|(seq, _)| **seq <= last).take(room) {
            let value = self.sent_bytes(entry, now_ms);
            let entry_size = frame_bytes(&entry.key, value);
            if entry_size > self.frame_bytes_max {
                too_large = Some(*seq);
                break;
            }
            size = size.saturating_add(entry_size);
            if bytes >= FRAME_BYTES_MAX || size > self.frame_bytes_max {
                break;
            }
            bytes = bytes.saturating_add(value).saturating_add(entry.key.as_bytes().len());
            items.push(self.proposal(*seq, entry, now_ms));
        }
        self.link.as_mut()?.too_large = too_large;
        let last = items.last()?.seq;
        self.offered = self.offered.max(last);
        let link = self.link.as_mut()?;
        if !link.is_waiting() {
            link.progress_ms = now_ms;
        }
        link.sent_n = link.sent_n.saturating_add(1);
        link.sent_seq = last;
        link.in_flight.push_back(last);
        Some(LinkFrame::Changes(Changes { link: link.id, n: link.sent_n, items }))
    }

    fn proposal(&self, seq: u64, entry: &Entry, now_ms: u64) -> Proposal {
        // Decided when it is sent: the base may have been accepted, deleted and purged since the change was made.
        let note = self.notes.get(&entry.key).filter(|note| note.change_id == entry.base);
        let is_live = |seq: &u64| self.outbox.get(seq).is_some_and(|base| base.state == EntryState::Live);
        let is_known = seq > self.row.rejoin_to
            || note.is_some_and(|note| note.epoch == self.row.epoch)
            || self.by_change_id.get(&entry.base).is_some_and(is_live);
        let base = if is_known { entry.base } else { ChangeId::NIL };
        let flags = Flags {
            is_lost: matches!(entry.state, EntryState::Lost | EntryState::Restored),
            is_restored: entry.state == EntryState::Restored,
            is_again: seq <= self.row.again_to,
            is_base_absent: base == ChangeId::NIL || note.is_some_and(|note| note.until <= now_ms),
        };
        let (key, serial) = (entry.key.clone(), entry.serial);
        Proposal { seq, key, serial, base, flags, content: self.proposed(entry, now_ms) }
    }

    /// Returns the bytes of the value that travels with a change.
    fn sent_bytes(&self, entry: &Entry, now_ms: u64) -> usize {
        let bytes = entry.value.as_ref().map_or(0, Bytes::len);
        let is_sent = entry.until > now_ms && !self.is_unsent(entry, bytes);
        if is_sent { bytes } else { 0 }
    }

    /// Whether a change has lost, and would hold up the others with its value: only the conflict at this leaf has it.
    fn is_unsent(&self, entry: &Entry, bytes: usize) -> bool {
        let is_lost = matches!(entry.state, EntryState::Lost | EntryState::Restored);
        is_lost && frame_bytes(&entry.key, bytes) > self.frame_bytes_max
    }

    /// Returns what a change proposes at this time.
    fn proposed(&self, entry: &Entry, now_ms: u64) -> Proposed {
        let Some(value) = &entry.value else { return Proposed::Deletion };
        match entry.content(now_ms) {
            None => Proposed::Expired(ValueHash::of(value)),
            Some(_) if self.is_unsent(entry, value.len()) => {
                let kind = if entry.until == FOREVER { ValueKind::Lasting } else { ValueKind::Expiring };
                Proposed::Unsent(ValueHash::of(value), kind)
            }
            Some(content) => Proposed::Value(content),
        }
    }

    fn receive(
        &mut self,
        records: Records,
        now_ms: u64,
        values: &dyn Values,
        effects: &mut Effects,
    ) -> Result<(), Cause> {
        let Some(link) = self.link.as_mut().filter(|link| link.id == records.link) else { return Ok(()) };
        if link.phase != Phase::Welcome {
            return Err(Cause::Unexpected);
        }
        link.heard_ms = now_ms;
        if records.n <= link.received_n {
            return Ok(());
        }
        if records.n != link.received_n.saturating_add(1) {
            return Err(Cause::Gap);
        }
        if records.items.iter().any(|item| !has_room(item, values)) {
            return Err(Cause::Blocked);
        }
        (link.received_n, link.progress_ms, link.last_ver) = (records.n, now_ms, records.last_ver);
        let before = self.node();
        let mut result = self.take_items(records.items, now_ms, values, effects);
        (self.row.cursor, self.row.last_ver, self.row.term) = (records.to, records.last_ver, records.term);
        if result.is_ok() {
            let acked = self.row.acked;
            if let Some(link) = self.link.as_mut() {
                while link.in_flight.pop_front_if(|last| *last <= acked).is_some() {}
            }
            self.ended = None;
            self.drop_tombstones(records.purged, effects);
            let is_complete = self.outbox.is_empty() && self.row.resync.is_none();
            if is_complete && records.digest.is_some_and(|digest| digest != self.digest()) {
                self.row.due = self.row.due.max(Some(ResyncKind::Missed));
                effects.events.push(Event::Diverged { leaf: self.row.identity.node.clone() });
                result = Err(Cause::Diverged);
            }
        }
        self.put_node(before, effects);
        self.begin_sweep();
        self.sweep(now_ms, values, effects);
        result
    }
}

/// Whether the store lets the value of an item in.
fn has_room(item: &Item, values: &dyn Values) -> bool {
    let record = match item {
        Item::Record(record) | Item::Refused { record: Some(record), .. } => record,
        Item::Accepted { .. } | Item::Refused { record: None, .. } => return true,
    };
    record.content.as_ref().is_none_or(|content| values.has_room(&record.key, content))
}

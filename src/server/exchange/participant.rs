//! A node of an exchange in a service: its uncommitted rows, and the connections of its links.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;

use super::event::ExchangeEvent;
use super::settings::{ExchangeSettings, Role};
use crate::exchange::effects::{Effects, Event, ValueChange, Values};
use crate::exchange::frame::LinkFrame;
use crate::exchange::leaf::Leaf;
use crate::exchange::names::Name;
use crate::exchange::root::Root;
use crate::exchange::row::{Conflict, Entry, Identity, Row, RowChange, RowId};
use crate::exchange::{Exchange, LinkPeer, Outgoing};
use crate::protocol::{ConnectionId, Key};
use crate::server::storage::EncodedRows;

/// The number of uncommitted steps, or of rows for the next commit group, at which nothing more is taken from other nodes
/// and from a walk.
const UNCOMMITTED_MAX: usize = 16_384;
/// The same for the bytes of uncommitted rows.
const UNCOMMITTED_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Rows for a commit group: the last one of each address.
pub type Rows = BTreeMap<RowId, Option<Row>>;

/// Random numbers of a start.
#[derive(Clone, Copy, Debug)]
pub struct Seeds {
    /// The identity of a new folder.
    pub store: u64,
    pub run: u64,
    pub stream: u64,
}

/// The exchange of a service, protected by its lock.
///
/// Like the commit queue for values, it keeps what is not on disk yet: the rows for the next commit group, and the rows
/// before each step for the rollback.
#[derive(Debug)]
pub struct Participant {
    pub exchange: Exchange,
    /// The time of the exchange at the zero of the service's monotonic clock. It goes on over restarts.
    origin_ms: u64,
    /// Rows that no commit group has taken.
    next_rows: Rows,
    uncommitted: VecDeque<UncommittedStep>,
    /// Bytes of the rows in `uncommitted`, before and after.
    uncommitted_bytes: usize,
    /// Set by a failed commit, until the disk works again.
    stale: Option<StaleRows>,
    /// The last step.
    step: u64,
    /// At the root: the connection of each link, and of the last one that was refused.
    routes: HashMap<u64, Route>,
    /// The link of each connection in `routes`.
    links: HashMap<ConnectionId, u64>,
    /// Events that have not been reported.
    events: Vec<ExchangeEvent>,
    /// The position in the store at which a walk through its keys goes on.
    walk: u32,
}

/// The connection of a link.
#[derive(Clone, Debug)]
pub struct Route {
    pub connection: ConnectionId,
    pub client_id: Arc<str>,
    pub leaf: Name,
    /// Whether the link is established; a refused one never was.
    is_linked: bool,
}

/// Rows of which the disk may hold another state.
#[derive(Debug, Default)]
struct StaleRows {
    /// Those whose changes were rolled back, and all that depend on others: they are one group.
    rolled_back: BTreeSet<RowId>,
    /// Those of keys that have expired since: any number.
    expired: BTreeSet<RowId>,
}

#[derive(Debug)]
struct UncommittedStep {
    number: u64,
    bytes: usize,
    /// Rows in the order of their changes, as they were before.
    before: Vec<(RowId, Option<Row>)>,
    events: Vec<Event>,
}

/// The rows on disk do not fit to the settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowsError {
    /// A row cannot be decoded.
    Malformed,
    /// The folder belongs to another node.
    OtherNode(String),
}

impl Participant {
    /// Returns a node, with the rows that its folder begins with if it is new. `first_row` is the row of the node itself
    /// in its folder. `origin_ms`: the time of the exchange at the zero of the monotonic clock.
    ///
    /// # Errors
    /// [`RowsError`]: the folder belongs to another node.
    pub fn new(
        settings: &ExchangeSettings,
        first_row: Option<&Bytes>,
        origin_ms: u64,
        seeds: Seeds,
    ) -> Result<(Self, EncodedRows), RowsError> {
        let ExchangeSettings { exchange, node, role } = settings;
        let row = first_row.map(|row| Row::decode(row).ok_or(RowsError::Malformed)).transpose()?;
        let known = match (&row, role) {
            (Some(Row::Root(row)), Role::Root { .. }) => Some(&row.identity),
            (Some(Row::LeafNode(row)), Role::Leaf { .. }) => Some(&row.identity),
            _ => None,
        };
        let is_same = |known: &Identity| known.exchange == *exchange && known.node == *node;
        if let Some(row) = row.as_ref().filter(|_| !known.is_some_and(is_same)) {
            return Err(describe(row).map_or(RowsError::Malformed, RowsError::OtherNode));
        }
        let store = known.map_or(seeds.store, |known| known.store);
        let identity = Identity { exchange: exchange.clone(), node: node.clone(), store };
        let is_new = known.is_none();
        let exchange = match role {
            Role::Root { rules, admit } => {
                Exchange::Root(Box::new(Root::new(identity, rules.clone(), admit.clone(), seeds.run)))
            }
            Role::Leaf { join, .. } => {
                Exchange::Leaf(Box::new(Leaf::new(identity, *join, seeds.run, seeds.stream)))
            }
        };
        let first_rows = if is_new { exchange.first_rows() } else { Vec::new() };
        let encode = |(id, row): (RowId, Row)| (id.encode(), Some(row.encode()));
        let first_rows = first_rows.into_iter().map(encode).collect();
        let participant = Self {
            exchange,
            origin_ms,
            next_rows: Rows::new(),
            uncommitted: VecDeque::new(),
            uncommitted_bytes: 0,
            stale: None,
            step: 0,
            routes: HashMap::new(),
            links: HashMap::new(),
            events: Vec::new(),
            walk: 0,
        };
        Ok((participant, first_rows))
    }

    /// Takes a row from the disk.
    ///
    /// # Errors
    /// [`RowsError::Malformed`]: no version of this program has written it.
    pub fn load(&mut self, id: &Bytes, row: &Bytes) -> Result<(), RowsError> {
        let id = RowId::decode(id).ok_or(RowsError::Malformed)?;
        let row = Row::decode(row).ok_or(RowsError::Malformed)?;
        self.exchange.restore(id, Some(row));
        Ok(())
    }

    /// Returns the time of the exchange.
    #[must_use]
    pub fn now_ms(&self, monotonic_ms: u64) -> u64 {
        self.origin_ms.saturating_add(monotonic_ms)
    }

    /// Returns when the exchange is to be called, in monotonic milliseconds of the service.
    #[must_use]
    pub fn due_ms(&self) -> Option<u64> {
        self.exchange.poll_timeout().map(|at_ms| at_ms.saturating_sub(self.origin_ms))
    }

    /// Records the rows and events of a step; returns the values to write in the same commit group.
    pub fn note(&mut self, effects: Effects) -> Vec<ValueChange> {
        let Effects { step, rows, values, events } = effects;
        self.note_ended(&events);
        if rows.iter().any(restarts_walk) {
            self.walk = 0;
        }
        if step == 0 {
            self.events.extend(events.into_iter().map(ExchangeEvent::from));
            return values;
        }
        self.step = step;
        if let Some(stale) = &mut self.stale {
            for RowChange { id, .. } in rows {
                let is_of_key = matches!(id, RowId::Key(_));
                if is_of_key {
                    stale.expired.insert(id)
                } else {
                    stale.rolled_back.insert(id)
                };
            }
            self.events.extend(events.into_iter().map(ExchangeEvent::from));
            return values;
        }
        let mut before = Vec::with_capacity(rows.len());
        let mut bytes = 0_usize;
        for row in rows {
            bytes = bytes.saturating_add(size(row.before.as_ref())).saturating_add(size(row.after.as_ref()));
            self.next_rows.insert(row.id.clone(), row.after);
            before.push((row.id, row.before));
        }
        self.uncommitted_bytes = self.uncommitted_bytes.saturating_add(bytes);
        self.uncommitted.push_back(UncommittedStep { number: step, bytes, before, events });
        values
    }

    /// Takes the rows for a commit group, and the last step that is in it.
    pub fn take_rows(&mut self) -> (Rows, u64) {
        (std::mem::take(&mut self.next_rows), self.step)
    }

    /// Whether so much waits for commits that frames and walks must wait.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.next_rows.len() >= UNCOMMITTED_MAX
            || self.uncommitted.len() >= UNCOMMITTED_MAX
            || self.uncommitted_bytes >= UNCOMMITTED_BYTES_MAX
    }

    /// Handles the commit of all steps up to this one.
    pub fn handle_saved(&mut self, step: u64) {
        while let Some(saved) = self.uncommitted.pop_front_if(|saved| saved.number <= step) {
            self.uncommitted_bytes = self.uncommitted_bytes.saturating_sub(saved.bytes);
            self.events.extend(saved.events.into_iter().map(ExchangeEvent::from));
        }
        self.exchange.handle_saved(step);
    }

    /// Handles a failed commit: puts all uncommitted rows back, from the last to the first. The values are rolled back by
    /// the commit queue.
    pub fn handle_commit_failure(&mut self) {
        let mut stale = self.stale.take().unwrap_or_default();
        for step in std::mem::take(&mut self.uncommitted).into_iter().rev() {
            for (id, before) in step.before.into_iter().rev() {
                stale.rolled_back.insert(id.clone());
                self.exchange.restore(id, before);
            }
        }
        self.next_rows.clear();
        self.uncommitted_bytes = 0;
        // The walk has to find the keys again whose rows are put back.
        self.walk = 0;
        let are_rules_back = stale.rolled_back.contains(&RowId::Rules);
        self.stale = Some(stale);
        let effects = self.exchange.handle_commit_failed(are_rules_back);
        let values = self.note(effects);
        debug_assert!(values.is_empty(), "the end of links changes no values");
    }

    /// Whether a commit has failed and the disk does not work yet: then no frame can be handled.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        self.stale.is_some()
    }

    /// Returns the keys whose rows were rolled back.
    pub fn rolled_back_keys(&self) -> impl Iterator<Item = &Key> {
        let ids = self.stale.iter().flat_map(|stale| &stale.rolled_back);
        ids.filter_map(|id| if let RowId::Key(key) = id { Some(key) } else { None })
    }

    /// Returns rows of which the disk may hold another state, as they are now: those of these keys, and all that were rolled
    /// back or, without keys, others up to a number of rows.
    #[must_use]
    pub fn stale_rows(&self, keys: &[Key], max: usize) -> Rows {
        let Some(stale) = &self.stale else { return Rows::new() };
        let of_keys = keys.iter().map(|key| RowId::Key(key.clone())).filter(|id| stale.expired.contains(id));
        let mut ids: BTreeSet<_> = of_keys.chain(stale.rolled_back.iter().cloned()).collect();
        if keys.is_empty() {
            ids.extend(stale.expired.iter().take(max).cloned());
        }
        let row = |id: RowId| {
            let row = self.exchange.row(&id);
            (id, row)
        };
        ids.into_iter().map(row).collect()
    }

    /// Handles the commit of [`Participant::stale_rows`]. Returns whether no row is stale any more.
    pub fn handle_rows_recovered(&mut self, rows: &Rows) -> bool {
        let Some(StaleRows { rolled_back, expired }) = &mut self.stale else { return true };
        for (id, row) in rows {
            // A row may have changed while the others were committed.
            if *row == self.exchange.row(id) {
                rolled_back.remove(id);
                expired.remove(id);
            }
        }
        rolled_back.is_empty() && expired.is_empty()
    }

    /// Handles the end of a failure of the disk.
    pub fn handle_recovery(&mut self) {
        self.stale = None;
        self.handle_saved(self.step);
    }

    /// At the root: whether a frame from a connection counts. HELLO does from any, because the exchange checks who sends it;
    /// the other frames do from the connection of the leaf's link only.
    #[must_use]
    pub fn accepts(&self, connection: ConnectionId, leaf: &Name, payload: &Bytes) -> bool {
        let route = self.links.get(&connection).and_then(|link| self.routes.get(link));
        route.is_some_and(|route| route.is_linked && route.leaf == *leaf)
            || matches!(LinkFrame::decode(payload), Ok(LinkFrame::Hello(_)))
    }

    /// Keeps the connection of the link that a frame has established or had refused. A connection has one link at a time.
    pub fn note_routes(&mut self, effects: &Effects, connection: ConnectionId, client_id: &Arc<str>) {
        self.note_ended(&effects.events);
        for event in &effects.events {
            let (leaf, link, is_linked) = match event {
                Event::Linked { leaf, link } => (leaf, *link, true),
                Event::Refused { leaf, link, .. } => (leaf, *link, false),
                _ => continue,
            };
            if let Some(earlier) = self.links.insert(connection, link) {
                self.lose(earlier);
            }
            let (client_id, leaf) = (Arc::clone(client_id), leaf.clone());
            self.routes.insert(link, Route { connection, client_id, leaf, is_linked });
        }
    }

    /// Returns the next frame to send, and the link's connection at the root.
    pub fn poll_outgoing(
        &mut self,
        monotonic_ms: u64,
        values: &dyn Values,
    ) -> Option<(Outgoing, Option<Route>)> {
        let now_ms = self.now_ms(monotonic_ms);
        let outgoing = self.exchange.poll_outgoing(now_ms, values)?;
        let route = self.routes.get(&outgoing.link).cloned();
        Some((outgoing, route))
    }

    /// Returns the number of links of which a connection is kept.
    #[cfg(test)]
    pub fn route_count(&self) -> usize {
        self.routes.len().max(self.links.len())
    }

    /// Handles the end of a connection: its link is lost.
    pub fn handle_disconnect(&mut self, connection: ConnectionId) {
        if let Some(link) = self.links.remove(&connection) {
            self.lose(link);
        }
    }

    fn note_ended(&mut self, events: &[Event]) {
        for event in events {
            if let Event::Ended { link, .. } = event
                && let Some(route) = self.routes.get_mut(link)
            {
                route.is_linked = false;
            }
        }
    }

    /// Handles the loss of a link's route.
    fn lose(&mut self, link: u64) {
        let Some(Route { leaf, is_linked, .. }) = self.routes.remove(&link) else { return };
        self.exchange.handle_lost(LinkPeer::Leaf(&leaf, &Bytes::new()), link);
        if is_linked {
            self.events.push(ExchangeEvent::Lost { leaf });
        }
    }

    /// At a leaf: handles a new connection with the root. `link` is random.
    pub fn handle_connected(&mut self, link: u64, monotonic_ms: u64) {
        let now_ms = self.now_ms(monotonic_ms);
        if let Exchange::Leaf(leaf) = &mut self.exchange {
            leaf.handle_connected(link, now_ms);
        }
    }

    /// At a leaf: sets the most bytes of a frame that the root accepts.
    pub fn set_frame_bytes_max(&mut self, bytes: usize) {
        if let Exchange::Leaf(leaf) = &mut self.exchange {
            leaf.set_frame_bytes_max(bytes);
        }
    }

    /// At a leaf: handles the loss of the connection with the root.
    pub fn handle_uplink_lost(&mut self) {
        self.exchange.handle_lost(LinkPeer::Root, 0);
    }

    /// At a leaf: notes why there is no connection with the root.
    pub fn handle_unreachable(&mut self, reason: String) {
        if let Exchange::Leaf(leaf) = &mut self.exchange {
            leaf.handle_unreachable(reason);
        }
    }

    /// At a leaf: whether it has a link, which may not be established yet.
    #[must_use]
    pub fn has_link(&self) -> bool {
        matches!(&self.exchange, Exchange::Leaf(leaf) if leaf.has_link())
    }

    /// Takes the events that are to be reported: those whose causes are on disk.
    pub fn take_events(&mut self) -> Vec<ExchangeEvent> {
        std::mem::take(&mut self.events)
    }

    /// Returns the position at which a walk through the keys of the store goes on; `None` if none is due.
    #[must_use]
    pub fn walk(&self) -> Option<u32> {
        self.exchange.is_walk_due().then_some(self.walk)
    }

    /// Sets the position at which the walk goes on; `None`: it is complete.
    pub fn set_walk(&mut self, next: Option<u32>) -> Effects {
        self.walk = next.unwrap_or_default();
        if next.is_some() { Effects::default() } else { self.exchange.handle_walked() }
    }
}

/// Whether a walk must begin anew: other keys take part, or a resync has ended.
fn restarts_walk(change: &RowChange) -> bool {
    let is_in_resync = |row: &Option<Row>| matches!(row, Some(Row::LeafNode(node)) if node.resync.is_some());
    change.id == RowId::Rules || (is_in_resync(&change.before) && !is_in_resync(&change.after))
}

/// Returns about how many bytes a row has that is kept in memory.
fn size(row: Option<&Row>) -> usize {
    const OVERHEAD_BYTES: usize = 128;
    let value = match row {
        Some(Row::Entry(Entry { value, .. })) => value.as_ref(),
        Some(Row::Conflict(Conflict { lost, .. })) => lost.value(),
        Some(_) => None,
        None => return 0,
    };
    value.map_or(0, Bytes::len).saturating_add(OVERHEAD_BYTES)
}

/// Returns the name of the node that a folder belongs to; `None` if the row is not the one of a node.
#[must_use]
pub fn describe(row: &Row) -> Option<String> {
    let (role, identity) = match row {
        Row::Root(row) => ("root", &row.identity),
        Row::LeafNode(row) => ("leaf", &row.identity),
        _ => return None,
    };
    // An exchange has one root, which is often called so.
    let name = if identity.node.as_str() == role { String::new() } else { format!(" {}", identity.node) };
    Some(format!("the {role}{name} of the exchange {}", identity.exchange))
}

/// Encodes rows for the disk.
#[must_use]
pub fn encode(rows: &Rows) -> EncodedRows {
    rows.iter().map(|(id, row)| (id.encode(), row.as_ref().map(Row::encode))).collect()
}

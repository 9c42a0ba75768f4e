//! A node of an exchange in a service: its walk, its events, and the connections of its links.

use std::collections::HashMap;

use bytes::Bytes;

use super::settings::{ExchangeSettings, Role};
use crate::exchange::effects::{Effects, Event, Values};
use crate::exchange::frame::LinkFrame;
use crate::exchange::leaf::Leaf;
use crate::exchange::names::Name;
use crate::exchange::root::Root;
use crate::exchange::row::{Identity, Row, RowChange, RowId};
use crate::exchange::{Exchange, LinkPeer, Outgoing};
use crate::ledger::Record;
use crate::protocol::ConnectionId;
use crate::server::event::exchange::ExchangeEvent;

/// Random numbers of a start.
#[derive(Clone, Copy, Debug)]
pub struct Seeds {
    /// The identity of a new folder.
    pub store: u64,
    pub run: u64,
    pub stream: u64,
}

/// The exchange of a service, protected by its lock.
#[derive(Debug)]
pub struct Participant {
    pub exchange: Exchange,
    /// The time of the exchange at the zero of the service's monotonic clock. It goes on over restarts.
    origin_ms: u64,
    /// The last step, and the last one of the group that is being committed.
    step: u64,
    taken: u64,
    /// At the root: the connection of each link, and of the last one that was refused.
    routes: HashMap<u64, Route>,
    /// The link of each connection in `routes`.
    links: HashMap<ConnectionId, u64>,
    /// Events that have not been reported, and whose causes are on disk.
    events: Vec<ExchangeEvent>,
    /// The position in the store at which a walk through its keys goes on.
    walk: u32,
}

/// The connection of a link.
#[derive(Clone, Debug)]
pub struct Route {
    pub connection: ConnectionId,
    pub leaf: Name,
    /// Whether the link is established; a refused one never was.
    is_linked: bool,
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
    ) -> Result<(Self, Vec<(u64, Record)>), RowsError> {
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
        let record = |(id, row): (RowId, Row)| (0, Record::Exchange(id, Some(Box::new(row))));
        let first_rows = first_rows.into_iter().map(record).collect();
        let participant = Self {
            exchange,
            origin_ms,
            step: 0,
            taken: 0,
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

    /// Notes what a step changes of links and of the walk.
    pub fn note(&mut self, effects: &Effects) {
        self.note_ended(&effects.events);
        if effects.rows.iter().any(restarts_walk) {
            self.walk = 0;
        }
        self.step = self.step.max(effects.step);
    }

    /// Adds events that are to be reported.
    pub fn report(&mut self, events: Vec<Event>) {
        self.events.extend(events.into_iter().map(ExchangeEvent::Link));
    }

    /// Notes that after the next commit the rows of all steps are committed.
    pub fn handle_taken(&mut self) {
        self.taken = self.step;
    }

    /// Handles the commit of the rows that were taken.
    pub fn handle_committed(&mut self) {
        self.exchange.handle_saved(self.taken);
    }

    /// Handles a failed commit, after all uncommitted rows have been put back.
    pub fn handle_commit_failure(&mut self, are_rules_back: bool) -> Effects {
        // The walk has to find the keys again whose rows are put back.
        (self.walk, self.taken) = (0, 0);
        self.exchange.handle_commit_failed(are_rules_back)
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
    pub fn note_routes(&mut self, effects: &Effects, connection: ConnectionId) {
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
            self.routes.insert(link, Route { connection, leaf: leaf.clone(), is_linked });
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

    /// Returns the number of links that have a connection.
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

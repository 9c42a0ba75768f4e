//! A root and its leaves with stores, rows, expiry and a clock, for tests of single histories.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;

use super::effects::{Cause, Effects, Event, Values};
use super::frame::{Content, IDLE_MS, LinkFrame};
use super::leaf::{JoinPolicy, Leaf, OnJoin};
use super::names::Name;
use super::root::Root;
use super::row::{Conflict, Identity, LostContent, Row, RowId};
use super::rules::{Patterns, Position, Rules, Text};
use super::{Exchange, LinkPeer};
use crate::protocol::Key;

/// A store without conditions. A value has its expiry time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Store {
    values: BTreeMap<Key, (Bytes, Option<u64>)>,
    now_ms: u64,
    /// The most values; 0: any number.
    pub values_max: usize,
}

/// A node with its store and what is on its disk.
#[derive(Clone, Debug)]
pub struct Node {
    pub exchange: Exchange,
    pub store: Store,
    pub disk: BTreeMap<RowId, Row>,
    pub events: Vec<Event>,
    runs: u64,
}

/// A root and its leaves. Each step is committed at once.
#[derive(Clone, Debug)]
pub struct Testbed {
    pub root: Node,
    pub leaves: Vec<Node>,
    pub up: Vec<VecDeque<Bytes>>,
    pub down: Vec<VecDeque<Bytes>>,
    links: u64,
    pub now_ms: u64,
}

impl Values for Store {
    fn content(&self, key: &Key) -> Option<Content> {
        let (value, until) = self.values.get(key)?;
        let ttl_ms = until.map(|until| until.saturating_sub(self.now_ms));
        (ttl_ms != Some(0)).then(|| Content { value: value.clone(), ttl_ms })
    }

    fn has_room(&self, key: &Key, _: &Content) -> bool {
        self.values_max == 0 || self.values.len() < self.values_max || self.values.contains_key(key)
    }
}

pub fn key(text: &str) -> Key {
    Key::new(text.as_bytes().to_vec()).unwrap()
}

pub fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

pub fn content(value: &str, ttl_ms: Option<u64>) -> Content {
    Content { value: value.as_bytes().to_vec().into(), ttl_ms }
}

pub fn new_root(rules: Rules, store: u64, run: u64) -> Exchange {
    let admit = vec![Text { text: "*".to_owned(), at: Position::default() }];
    let admit = Patterns::parse(&admit, Position::default(), "admit").unwrap();
    let identity = Identity { exchange: name("plant"), node: name("root"), store };
    Exchange::Root(Box::new(Root::new(identity, rules, admit, run)))
}

pub fn new_leaf(leaf: &str, on_join: OnJoin, store: u64, run: u64) -> Exchange {
    let identity = Identity { exchange: name("plant"), node: name(leaf), store };
    Exchange::Leaf(Box::new(Leaf::new(
        identity,
        JoinPolicy { on_join, ..JoinPolicy::default() },
        run,
        7_000 + run,
    )))
}

impl Node {
    pub fn new(exchange: Exchange) -> Self {
        let disk = exchange.first_rows().into_iter().collect();
        Self { exchange, store: Store::default(), disk, events: Vec::new(), runs: 0 }
    }

    pub fn root(&mut self) -> &mut Root {
        if let Exchange::Root(root) = &mut self.exchange { root } else { panic!("it is a leaf") }
    }

    pub fn leaf(&mut self) -> &mut Leaf {
        if let Exchange::Leaf(leaf) = &mut self.exchange { leaf } else { panic!("it is the root") }
    }

    pub fn name(&self) -> &Name {
        match &self.exchange {
            Exchange::Root(root) => &root.summary().0.node,
            Exchange::Leaf(leaf) => &leaf.row().identity.node,
        }
    }

    pub fn value(&self, key: &str) -> Option<String> {
        let content = self.store.content(&super::testbed::key(key))?;
        Some(String::from_utf8(content.value.to_vec()).unwrap())
    }

    /// All values as text.
    pub fn values(&self) -> Vec<(String, String)> {
        let keys = self.store.values.keys().map(|key| String::from_utf8(key.as_bytes().to_vec()).unwrap());
        keys.filter_map(|key| Some((key.clone(), self.value(&key)?))).collect()
    }

    /// The conflicts: the key, the value that lost, and the reason.
    pub fn conflicts(&self) -> Vec<(String, String, &'static str)> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let parts = |conflict: &Conflict| {
            let value = match &conflict.lost {
                LostContent::Value(value) => text(value),
                LostContent::Deletion => "-".to_owned(),
                other => format!("{other:?}"),
            };
            (text(conflict.key.as_bytes()), value, conflict.reason.as_str())
        };
        self.exchange.conflicts().since(0).map(|(_, conflict)| parts(conflict)).collect()
    }

    /// The causes of links that have ended.
    pub fn causes(&self) -> Vec<Cause> {
        let cause = |event: &Event| match event {
            Event::Ended { cause, .. } | Event::Refused { cause, .. } => Some(*cause),
            _ => None,
        };
        self.events.iter().filter_map(cause).collect()
    }

    /// Writes a value without the exchange.
    pub fn put(&mut self, key: &str, content: Option<Content>) {
        let key = super::testbed::key(key);
        match content {
            Some(Content { value, ttl_ms }) => {
                let until = ttl_ms.map(|ttl_ms| self.store.now_ms + ttl_ms);
                self.store.values.insert(key, (value, until));
            }
            None => drop(self.store.values.remove(&key)),
        }
    }

    /// Writes the rows and values of a step, and reports the commit.
    pub fn commit(&mut self, effects: Effects) {
        let step = self.write(effects);
        if step > 0 {
            self.exchange.handle_saved(step);
        }
    }

    /// Writes the rows and values of a step, of which the commit is reported later.
    pub fn write(&mut self, effects: Effects) -> u64 {
        for change in effects.rows {
            match change.after {
                Some(row) => drop(self.disk.insert(change.id, row)),
                None => drop(self.disk.remove(&change.id)),
            }
        }
        for change in effects.values {
            let key = String::from_utf8(change.key.as_bytes().to_vec()).unwrap();
            self.put(&key, change.content);
        }
        self.events.extend(effects.events);
        effects.step
    }

    /// A client changes a key.
    pub fn change(&mut self, key: &str, content: Option<Content>) {
        self.put(key, content.clone());
        let now_ms = self.store.now_ms;
        let effects = self.exchange.handle_change(&super::testbed::key(key), content.as_ref(), now_ms);
        self.commit(effects);
    }

    pub fn set(&mut self, key: &str, value: &str) {
        self.change(key, Some(content(value, None)));
    }

    /// Loses a key with what the exchange has of it.
    pub fn lose(&mut self, key: &str) {
        let id = RowId::Key(super::testbed::key(key));
        self.put(key, None);
        self.disk.remove(&id);
        self.exchange.restore(id, None);
    }

    pub fn delete(&mut self, key: &str) {
        self.change(key, None);
    }

    /// Runs the walk over the store, and the work that is due at once.
    pub fn work(&mut self) {
        while self.exchange.poll_timeout().is_some_and(|due| due <= self.store.now_ms) {
            let effects = self.exchange.handle_timeout(self.store.now_ms, &self.store);
            self.commit(effects);
        }
        if self.exchange.is_walk_due() {
            for key in self.store.values.keys().cloned().collect::<Vec<_>>() {
                let Some(content) = self.store.content(&key) else { continue };
                let effects = self.exchange.handle_found(&key, &content, self.store.now_ms, &self.store);
                self.commit(effects);
            }
            let effects = self.exchange.handle_walked();
            self.commit(effects);
        }
    }

    /// Starts the node again from its disk, with another configuration.
    pub fn restart_as(&mut self, make: impl FnOnce(u64) -> Exchange) {
        self.runs += 1;
        self.exchange = make(100 * self.runs);
        let mut rows: Vec<_> = self.disk.clone().into_iter().collect();
        rows.sort_by_key(|(id, _)| id.encode());
        for (id, row) in rows {
            self.exchange.restore(id, Some(row));
        }
    }
}

impl Testbed {
    /// Returns a root and leaves of these names, which have not connected.
    pub fn new(rules: Rules, leaves: &[&str]) -> Self {
        let root = Node::new(new_root(rules, 1, 1));
        let leaf = |(at, name): (usize, &&str)| {
            let number = 10 + at as u64;
            Node::new(new_leaf(name, OnJoin::Offer, number, number))
        };
        let leaves: Vec<_> = leaves.iter().enumerate().map(leaf).collect();
        let none = vec![VecDeque::new(); leaves.len()];
        Self { root, leaves, up: none.clone(), down: none, links: 1_000, now_ms: 0 }
    }

    /// Returns a root and leaves that have joined.
    pub fn joined(rules: Rules, leaves: &[&str]) -> Self {
        let mut testbed = Self::new(rules, leaves);
        testbed.settle();
        testbed
    }

    pub fn connect(&mut self, at: usize) {
        self.links += 1_000;
        self.leaves[at].leaf().handle_connected(self.links, self.now_ms);
        self.up[at].clear();
        self.down[at].clear();
    }

    /// Ends the connection on both sides.
    pub fn disconnect(&mut self, at: usize) {
        let leaf = &mut self.leaves[at];
        leaf.leaf().handle_lost();
        let name = leaf.name().clone();
        self.root.root().handle_all_lost(&name);
        self.up[at].clear();
        self.down[at].clear();
    }

    /// Moves the clock, and lets values expire.
    pub fn pass(&mut self, ms: u64) {
        self.now_ms += ms;
        for node in std::iter::once(&mut self.root).chain(&mut self.leaves) {
            node.store.now_ms = self.now_ms;
            let is_over = |(_, until): &(Bytes, Option<u64>)| until.is_some_and(|until| until <= self.now_ms);
            let expired = node.store.values.iter().filter(|(_, value)| is_over(value));
            for key in expired.map(|(key, _)| key.clone()).collect::<Vec<_>>() {
                node.store.values.remove(&key);
                let effects = node.exchange.handle_expired(&key, self.now_ms);
                node.commit(effects);
            }
        }
    }

    /// Moves the clock in steps in which links can show that they live.
    pub fn idle(&mut self, ms: u64) {
        for _ in 0..ms / IDLE_MS {
            self.pass(IDLE_MS);
            self.settle();
        }
    }

    /// Moves all frames that the nodes have to the channels.
    pub fn poll(&mut self) {
        self.root.work();
        self.leaves.iter_mut().for_each(Node::work);
        self.poll_frames();
    }

    /// Moves all frames that the nodes have to the channels, without any other work.
    pub fn poll_frames(&mut self) {
        while let Some(frame) = self.root.exchange.poll_outgoing(self.now_ms, &self.root.store) {
            let at = self.leaves.iter().position(|leaf| *leaf.name() == frame.leaf).unwrap();
            self.down[at].push_back(frame.payload);
        }
        for (leaf, up) in self.leaves.iter_mut().zip(&mut self.up) {
            while let Some(frame) = leaf.exchange.poll_outgoing(self.now_ms, &leaf.store) {
                up.push_back(frame.payload);
            }
        }
    }

    /// Delivers the next frame of a leaf. Returns whether there was one.
    pub fn deliver_up(&mut self, at: usize) -> bool {
        let Some(payload) = self.up[at].pop_front() else { return false };
        let name = self.leaves[at].name().clone();
        let peer = LinkPeer::Leaf(&name, &Bytes::new());
        let effects = self.root.exchange.handle_frame(peer, &payload, self.now_ms, &self.root.store);
        self.root.commit(effects);
        true
    }

    /// Delivers the next frame for a leaf. Returns whether there was one.
    pub fn deliver_down(&mut self, at: usize) -> bool {
        let Some(payload) = self.down[at].pop_front() else { return false };
        let leaf = &mut self.leaves[at];
        let effects = leaf.exchange.handle_frame(LinkPeer::Root, &payload, self.now_ms, &leaf.store);
        leaf.commit(effects);
        true
    }

    /// Delivers all frames, and connects leaves without a link again, until nothing is left to be done.
    pub fn settle(&mut self) {
        for round in 0.. {
            assert!(round < 10_000, "it does not come to rest");
            for at in 0..self.leaves.len() {
                if !self.leaves[at].leaf().has_link() {
                    self.connect(at);
                }
            }
            if !self.exchange_frames() {
                return;
            }
        }
    }

    /// Connects the leaves without a link, and delivers all frames, some times.
    pub fn try_to_settle(&mut self) {
        for _ in 0..20 {
            (0..self.leaves.len()).for_each(|at| {
                if !self.leaves[at].leaf().has_link() {
                    self.connect(at);
                }
            });
            self.exchange_frames();
        }
    }

    /// Delivers the frames that there are. Returns whether there were any.
    pub fn exchange_frames(&mut self) -> bool {
        self.poll();
        let mut is_delivered = false;
        for at in 0..self.leaves.len() {
            while self.deliver_up(at) || self.deliver_down(at) {
                is_delivered = true;
            }
        }
        is_delivered
    }

    /// Returns the frames on the way to a leaf.
    pub fn frames_down(&self, at: usize) -> Vec<LinkFrame> {
        self.down[at].iter().map(|payload| LinkFrame::decode(payload).unwrap()).collect()
    }

    /// Returns the frames on the way to the root.
    pub fn frames_up(&self, at: usize) -> Vec<LinkFrame> {
        self.up[at].iter().map(|payload| LinkFrame::decode(payload).unwrap()).collect()
    }
}

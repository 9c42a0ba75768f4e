//! A node of the simulation: a service on a simulated disk, with simulated time.

use std::sync::Arc;

use bytes::Bytes;

use super::super::commit_thread;
use super::super::ledger_steps_for_tests::LedgerSteps;
use super::super::state::State;
use super::super::tests::RecordingPublisher;
use super::super::{Service, StoreSettings};
use crate::clock;
use crate::exchange::leaf::{BeforeJoin, JoinPolicy, Leaf, OnJoin};
use crate::exchange::names::{ChangeId, Name};
use crate::exchange::root::Root;
use crate::exchange::rules::{Patterns, Position, RuleSource, Rules, Text};
use crate::exchange::{self, Exchange};
use crate::ledger::file::simulated::{self, SeededRandom, SimulatedDisk};
use crate::ledger::{FileLedger, Group, Policy};
use crate::protocol::Key;
use crate::server::delivery::Publisher;
use crate::server::exchange::participant::Seeds;
use crate::server::exchange::settings::{ExchangeSettings, Role};
use crate::store::Now;

const POLICY: Policy = Policy { snapshot_bytes: 128 * 1024, ..simulated::POLICY };
/// The names of the nodes; the first one is the root.
pub const NAMES: [&str; 4] = ["root", "leaf-a", "leaf-b", "leaf-c"];

/// A node with its data folder.
pub struct Node {
    pub name: Name,
    pub settings: StoreSettings,
    pub disk: SimulatedDisk,
    /// `None` while it does not run.
    pub process: Option<Process>,
    pub backup: Option<SimulatedDisk>,
    /// How far its wall clock is ahead of the simulation's.
    pub ahead_ms: u64,
}

/// A running node.
pub struct Process {
    pub service: Arc<Service>,
    pub storage: FileLedger,
    steps: LedgerSteps,
    pub sent_messages: RecordingPublisher,
    /// The time of the start.
    started_ms: u64,
    ahead_ms: u64,
    /// Whether a commit has failed and the disk has not recovered.
    pub has_failed: bool,
}

pub fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn patterns(texts: &[&str]) -> Vec<Text> {
    texts.iter().map(|text| Text { text: (*text).to_owned(), at: Position::default() }).collect()
}

/// Returns one of three sets of rules.
pub fn rules(number: usize) -> Rules {
    let rule = |keys: &[&str], change: &str, leaves: Option<&[&str]>| RuleSource {
        at: Position::default(),
        keys: Some(patterns(keys)),
        change: patterns(&[change]).pop(),
        leaves: leaves.map(patterns),
    };
    let all = rule(&["line/*"], "leaves", None);
    let rules = match number {
        0 => [rule(&["root/*"], "root", None), rule(&["one/*"], "leaves", Some(&["leaf-a"])), all, {
            rule(&["moved/*"], "leaves", None)
        }]
        .to_vec(),
        1 => vec![rule(&["root/*"], "root", None), rule(&["one/*"], "leaves", Some(&["leaf-b"])), all],
        _ => vec![rule(&["root/*", "one/*"], "leaves", None), rule(&["moved/*"], "root", None), all],
    };
    Rules::parse(&rules).unwrap()
}

pub fn role(at: usize, rules_number: usize) -> Role {
    if at > 0 {
        let Role::Leaf { uplink, .. } = crate::server::exchange::settings::tests::leaf() else { panic!() };
        let join = JoinPolicy { on_join: OnJoin::Offer, before_join: BeforeJoin::Accept };
        return Role::Leaf { uplink, join };
    }
    let admit = Patterns::parse(&patterns(&["leaf-*"]), Position::default(), "admit").unwrap();
    Role::Root { rules: rules(rules_number), admit }
}

impl Node {
    pub fn new(at: usize, ahead_ms: u64) -> Self {
        let exchange = ExchangeSettings { exchange: name("plant"), node: name(NAMES[at]), role: role(at, 0) };
        Self {
            name: name(NAMES[at]),
            settings: StoreSettings { exchange: Some(exchange), ..StoreSettings::default() },
            disk: SimulatedDisk::default(),
            process: None,
            backup: None,
            ahead_ms,
        }
    }

    /// Has a leaf delete the keys that it has when it joins a root.
    pub fn discard_own_keys(&mut self) {
        if let Some(ExchangeSettings { role: Role::Leaf { join, .. }, .. }) = &mut self.settings.exchange {
            join.on_join = OnJoin::Discard;
        }
    }

    /// Starts a process. Fails if the power is cut meanwhile.
    pub fn start(&mut self, now_ms: u64, random: &mut SeededRandom) -> Result<(), String> {
        let storage = FileLedger::open_on(Arc::new(self.disk.clone()), POLICY);
        let storage = storage.map_err(|error| format!("cannot be opened: {error}"))?;
        let (monotonic, mut draw) = (clock::monotonic(), || random.below(u64::MAX >> 1));
        let service = Service::with_storage(
            &self.settings,
            false,
            Some(storage),
            Arc::new(|_| {}),
            Arc::default(),
            clock::Reading { wall_ms: now_ms + self.ahead_ms, monotonic },
            Seeds { store: draw(), run: draw(), stream: draw() },
        );
        let service = service.map_err(|error| format!("cannot be loaded: {error}"))?;
        let storage = service.storage.lock().unwrap().take().unwrap();
        let sent_messages = RecordingPublisher::default();
        let (started_ms, ahead_ms) = (now_ms, self.ahead_ms);
        let has_failed = false;
        let steps = LedgerSteps::default();
        let process = Process { service, storage, steps, sent_messages, started_ms, ahead_ms, has_failed };
        self.process = Some(process);
        Ok(())
    }
}

impl Process {
    pub fn now(&self, now_ms: u64) -> Now {
        Now { wall_ms: now_ms + self.ahead_ms, monotonic_ms: now_ms - self.started_ms }
    }

    /// Calls the service's state at a time of the simulation.
    pub fn with<T>(&self, now_ms: u64, call: impl FnOnce(&mut State, &dyn Publisher, Now) -> T) -> T {
        call(&mut self.service.shared.lock(), &self.sent_messages, self.now(now_ms))
    }

    pub fn with_exchange<T>(&self, call: impl FnOnce(&mut Exchange) -> T) -> T {
        call(&mut self.service.shared.lock().exchange.as_mut().unwrap().exchange)
    }

    pub fn root<T>(&self, call: impl FnOnce(&Root) -> T) -> T {
        self.with_exchange(|exchange| if let Exchange::Root(root) = exchange { call(root) } else { panic!() })
    }

    pub fn leaf<T>(&self, call: impl FnOnce(&Leaf) -> T) -> T {
        self.with_exchange(|exchange| if let Exchange::Leaf(leaf) = exchange { call(leaf) } else { panic!() })
    }

    pub fn commit(&mut self, group: Group, now_ms: u64) -> bool {
        let now = self.now(now_ms);
        commit_thread::commit(&self.service.shared, &mut self.storage, group, now, &self.sent_messages)
    }

    /// Does some of the work that another thread does.
    pub fn work(&mut self, now_ms: u64) {
        let now = self.now(now_ms);
        let Self { service, storage, steps, .. } = self;
        steps.step(&service.shared, storage, now, 3);
    }

    pub fn try_recover(&mut self, now_ms: u64) -> bool {
        let now = self.now(now_ms);
        let Self { service, storage, sent_messages, .. } = self;
        match commit_thread::try_recover(&service.shared, storage, sent_messages, now) {
            Ok(()) => return true,
            Err(error) if error.kind.is_lack_of_room() => storage.release_reserve(),
            Err(_) => {}
        }
        false
    }

    /// Returns the value that the node shows.
    pub fn value(&self, key: &Key, now_ms: u64) -> Option<Bytes> {
        self.content(key, now_ms).map(|(value, _)| value)
    }

    /// Returns the value that the node shows, and whether it does not expire.
    pub fn content(&self, key: &Key, now_ms: u64) -> Option<(Bytes, bool)> {
        let content = self.with(now_ms, |state, _, now| state.store.content(key, now));
        content.map(|(value, ttl_ms)| (value, ttl_ms.is_none()))
    }

    /// Returns the place of a key's last change in the order of the node.
    pub fn place(&self, key: &Key) -> Option<u64> {
        self.with_exchange(|exchange| match exchange {
            Exchange::Root(root) => root.record(key).map(|record| record.ver),
            Exchange::Leaf(leaf) => leaf.pending(key).map(|(seq, _)| seq),
        })
    }

    /// Returns the change id of the last change of a key that the node shows.
    pub fn change_id(&self, key: &Key) -> Option<ChangeId> {
        self.with_exchange(|exchange| match exchange {
            Exchange::Root(root) => root.record(key).map(|record| record.change_id),
            Exchange::Leaf(leaf) => match leaf.pending(key) {
                Some((_, entry)) => Some(entry.change_id),
                None => leaf.note(key).map(|note| note.change_id),
            },
        })
    }

    /// Whether a key takes part at this node.
    pub fn concerns(&self, key: &Key) -> bool {
        self.with_exchange(|exchange| exchange.concerns(key))
    }

    pub fn rows(&self) -> Vec<(exchange::row::RowId, exchange::row::Row)> {
        self.with_exchange(|exchange| exchange.rows_from(None, usize::MAX))
    }
}

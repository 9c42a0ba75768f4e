//! Instances of a cluster on a real etcd: ownership passes on, and no commit is lost or repeated.

use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use mqkv::clock;
use mqkv::ledger::etcd::operation::WatchEvent;
use mqkv::ledger::etcd::{Layout, encode_run};
use mqkv::ledger::{Group, KeyRecord, Record};
use mqkv::protocol::Key;
use mqkv::server::cluster::{Effect, InstanceSettings, Role, Status};
use mqkv::server::etcd::{Application, Command, Etcd, Member, run};
use mqkv::store::{Now, StoredValue, Version};
use tokio::runtime::Builder;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Duration, sleep, timeout};

use super::common::Place;
use super::common::etcd::{EtcdCluster, connect};
use super::etcd_requests::watched;
use crate::a_watchdog::bounded;

const MARK: &str = "count=";

/// An application that increments a number in one key, and commits each increment.
struct Counter {
    started: Instant,
    state: Mutex<CounterState>,
    /// The numbers whose commit was reported, of all instances.
    committed: Arc<Mutex<Vec<u64>>>,
}

#[derive(Default)]
struct CounterState {
    is_serving: bool,
    number: u64,
    version: Version,
    sequence: u64,
    is_committing: bool,
}

impl Application for Counter {
    fn now(&self) -> Now {
        let reading = clock::now();
        let monotonic_ms = reading.monotonic.duration_since(self.started).as_millis() as u64;
        Now { wall_ms: reading.wall_ms, monotonic_ms }
    }

    fn machine_wall_ms(&self) -> u64 {
        clock::now().wall_ms
    }

    fn handle_effect(&self, effect: Effect) {
        let mut state = self.state.lock().unwrap();
        match effect {
            Effect::Reset => state.number = 0,
            Effect::Apply(Record::Key(KeyRecord { version, content, .. })) => {
                (state.number, state.version) = (number_in(&content.unwrap().value).unwrap(), version);
            }
            Effect::Serve { floor, .. } => {
                (state.is_serving, state.version) = (true, state.version.max(floor));
            }
            Effect::Committed { sequence } if sequence == state.sequence && state.is_committing => {
                state.is_committing = false;
                self.committed.lock().unwrap().push(state.number);
            }
            Effect::Stop => (state.is_serving, state.is_committing) = (false, false),
            Effect::Pause | Effect::Apply(_) | Effect::ShortOfSpace(true) => panic!("{effect:?}"),
            Effect::Joined { .. }
            | Effect::Committed { .. }
            | Effect::ShortOfSpace(false)
            | Effect::Report(_) => {}
        }
    }

    fn note_status(&self, _: &Status) {}

    fn take_group(&self) -> Option<Group> {
        let mut state = self.state.lock().unwrap();
        if !state.is_serving || state.is_committing {
            return None;
        }
        state.is_committing = true;
        state.number += 1;
        state.sequence += 1;
        state.version.ms += 1;
        let value = format!("{MARK}{};", state.number).into();
        let stored = StoredValue { value, fence: None, deadline_ms: None, persist: false };
        let record = KeyRecord { key: Key::new("n").unwrap(), version: state.version, content: Some(stored) };
        let records = vec![(state.sequence, Record::Key(record))];
        Some(Group { records, sequence: state.sequence, ..Group::default() })
    }

    async fn group_ready(&self) {
        // There always is one, as soon as the last one is committed.
        std::future::pending().await
    }
}

fn number_in(value: &[u8]) -> Option<u64> {
    String::from_utf8_lossy(value).split_once(MARK)?.1.split_once(';')?.0.parse().ok()
}

/// An instance on a thread of its own.
struct Running {
    commands: mpsc::Sender<Command>,
    kill: oneshot::Sender<()>,
    status: watch::Receiver<Option<Status>>,
    thread: JoinHandle<()>,
}

impl Running {
    fn start(cluster: &EtcdCluster, name: &str, committed: &Arc<Mutex<Vec<u64>>>) -> Self {
        let (commands, received) = mpsc::channel(1);
        let (kill, killed) = oneshot::channel();
        let (sender, status) = watch::channel(None);
        let (_, reached) = watch::channel(true);
        let instance = InstanceSettings {
            layout: Layout::new("test"),
            instance: name.into(),
            run: mqkv::random::u64(),
            hash_key: [7; 32],
            confirms_by_commit: true,
            compacts: false,
        };
        let counter = Counter {
            started: clock::monotonic(),
            state: Mutex::default(),
            committed: Arc::clone(committed),
        };
        let settings = mqkv::server::etcd::EtcdSettings { endpoints: cluster.urls(), ..Default::default() };
        let thread = thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let etcd = connect(&settings).await;
                let key = instance.layout.member(&instance.instance);
                let _member = Member::start(&etcd, key, encode_run(instance.run), 2);
                tokio::select! {
                    () = run(instance, etcd, &counter, received, reached, &sender) => {}
                    _ = killed => {}
                }
            });
            // The runtime ends without running its tasks, as in a killed process: the member key is left to its lease.
        });
        Self { commands, kill, status, thread }
    }

    fn kill(self) {
        self.kill.send(()).unwrap();
        bounded(|| self.thread.join()).unwrap();
    }

    async fn has_role(&mut self, role: Role) {
        let is_there = |status: &Option<Status>| status.as_ref().is_some_and(|status| status.role == role);
        let waited = timeout(Duration::from_secs(60), self.status.wait_for(is_there)).await;
        waited.unwrap_or_else(|_| panic!("not {role:?}")).unwrap();
    }
}

/// Waits for this many commits more.
async fn more(committed: &Mutex<Vec<u64>>, count: usize) {
    let start = committed.lock().unwrap().len();
    for _ in 0..1200 {
        if committed.lock().unwrap().len() >= start + count {
            return;
        }
        sleep(Duration::from_millis(50)).await;
    }
    panic!("no more commits after {:?}", committed.lock().unwrap().last());
}

async fn history(etcd: &Etcd, last: u64) -> Vec<u64> {
    let mut numbers: Vec<u64> = Vec::new();
    let mut watch = etcd.watch(&watched("/mqkv/test/", 1));
    // A killed instance may have committed more than it has reported.
    while numbers.last().is_none_or(|number| *number < last) {
        let number = |event: WatchEvent| number_in(&event.value?);
        numbers.extend(watch.next().await.unwrap().events.into_iter().filter_map(number));
    }
    numbers
}

#[tokio::test]
#[ignore = "needs Debian's etcd-server"]
async fn ownership_passes_on_and_no_commit_is_lost_or_repeated() {
    let place = Place::new();
    let mut cluster = EtcdCluster::start(&place, 3);
    let etcd = cluster.client().await;
    let committed = Arc::new(Mutex::new(Vec::new()));
    let mut first = Running::start(&cluster, "one", &committed);
    first.has_role(Role::Owner).await;
    let mut second = Running::start(&cluster, "two", &committed);
    second.has_role(Role::Follower).await;
    more(&committed, 50).await;
    first.kill();
    second.has_role(Role::Owner).await;
    more(&committed, 50).await;
    let mut third = Running::start(&cluster, "three", &committed);
    third.has_role(Role::Follower).await;
    for round in 0..4 {
        let leader = cluster.leader(&etcd).await;
        if round % 2 == 0 {
            cluster.kill(leader);
            more(&committed, 20).await;
            cluster.restart(leader);
        } else {
            cluster.pause(leader);
            more(&committed, 20).await;
            cluster.resume(leader);
        }
        more(&committed, 20).await;
    }
    // Whichever owns it gives it up.
    let owner = second.status.borrow().as_ref().unwrap().role;
    let (leaving, staying) = if owner == Role::Owner { (second, third) } else { (third, second) };
    leaving.commands.send(Command::Resign).await.unwrap();
    bounded(|| leaving.thread.join()).unwrap();
    more(&committed, 50).await;
    staying.kill();
    // All sorts of loss may repeat a report, but not a number.
    let mut committed = committed.lock().unwrap().clone();
    let last = *committed.iter().max().unwrap();
    let history = history(&etcd, last).await;
    assert!(history.starts_with(&(1..=last).collect::<Vec<_>>()), "{history:?}");
    committed.sort_unstable();
    assert!(committed.windows(2).all(|pair| pair[0] < pair[1]), "a number was committed twice");
}

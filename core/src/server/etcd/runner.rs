//! Runs an instance of a cluster: executes its operations on etcd and hands back the answers, in one task.

use std::future::{Future, pending, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::sleep;

use super::client::Etcd;
use super::watch::Watch;
use crate::ledger::Group;
use crate::ledger::etcd::action::{Action, ActionId, ActionKind, ActionResult, Answer};
use crate::ledger::etcd::operation::{EtcdError, WatchBatch};
use crate::server::cluster::{Effect, Instance, InstanceSettings, Status};
use crate::store::Now;

/// What an instance is run for.
pub trait Application {
    /// Returns the time, on whose monotonic clock the application has its deadlines.
    fn now(&self) -> Now;

    /// Returns what the clock of the machine shows, in Unix milliseconds, also if the time of the application does not follow it.
    fn machine_wall_ms(&self) -> u64;

    /// Handles an effect. They come in order.
    fn handle_effect(&self, effect: Effect);

    /// Notes what the instance is from now on.
    fn note_status(&self, status: &Status);

    /// Returns what is to be committed, if anything is. Called only while the instance can commit.
    fn take_group(&self) -> Option<Group>;

    /// Waits until there may be a group to take. Cancel safe.
    fn group_ready(&self) -> impl Future<Output = ()> + Send;
}

/// What the operator or another part of the process asks of a running instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Gives the store up, then ends the run.
    Resign,
}

/// Runs an instance until it has resigned. If the future is dropped, it ends as one that was killed.
///
/// The caller keeps the member key of the instance, with [`Member`](super::Member), longer than this runs.
///
/// `reached` is whether clients reach the instance: see [`Instance::set_reached`]. Without its sender, the last value stays.
pub async fn run(
    settings: InstanceSettings,
    etcd: Etcd,
    application: &impl Application,
    mut commands: mpsc::Receiver<Command>,
    mut reached: watch::Receiver<bool>,
    status: &watch::Sender<Option<Status>>,
) {
    let mut instance = Instance::new(settings);
    let mut operations = Operations { etcd, requests: Vec::new(), watches: Vec::new() };
    let (mut has_commands, mut has_reach) = (true, true);
    loop {
        let now = application.now();
        instance.set_reached(*reached.borrow_and_update(), now);
        instance.set_machine_clock(application.machine_wall_ms(), now);
        settle(&mut instance, application, &mut operations);
        status.send_if_modified(|shown| {
            let current = instance.status();
            let is_changed = shown.as_ref() != Some(&current);
            if is_changed {
                application.note_status(&current);
                *shown = Some(current);
            }
            is_changed
        });
        if instance.is_closed() {
            break;
        }
        let wait = instance
            .next_deadline()
            .map(|due_ms| due_ms.saturating_sub(application.now().monotonic_ms).max(1));
        let due = async {
            match wait {
                Some(wait_ms) => sleep(Duration::from_millis(wait_ms)).await,
                None => pending().await,
            }
        };
        tokio::select! {
            event = operations.next() => match event {
                Event::Answer(id, result) => instance.handle_answer(id, result, application.now()),
                Event::Watch(id, result) => instance.handle_watch(id, result, application.now()),
            },
            command = commands.recv(), if has_commands => match command {
                Some(Command::Resign) => instance.resign(),
                None => has_commands = false,
            },
            changed = reached.changed(), if has_reach => has_reach = changed.is_ok(),
            () = application.group_ready() => {}
            () = due => {}
        }
    }
}

/// Polls the instance until it asks for nothing more.
fn settle(instance: &mut Instance, application: &impl Application, operations: &mut Operations) {
    loop {
        let mut is_settled = true;
        while let Some(effect) = instance.poll_effect() {
            application.handle_effect(effect);
            is_settled = false;
        }
        if instance.wants_group()
            && let Some(group) = application.take_group()
        {
            instance.commit(group, application.now());
            is_settled = false;
        }
        while let Some(action) = instance.poll_action(application.now()) {
            operations.start(action);
            is_settled = false;
        }
        if is_settled {
            return;
        }
    }
}

type Request = Pin<Box<dyn Future<Output = ActionResult> + Send>>;

/// Operations that are under way: a handful, as each part of an instance has one at a time.
struct Operations {
    etcd: Etcd,
    requests: Vec<(ActionId, Request)>,
    watches: Vec<(ActionId, Watch)>,
}

enum Event {
    Answer(ActionId, ActionResult),
    Watch(ActionId, Result<WatchBatch, EtcdError>),
}

impl Operations {
    fn start(&mut self, Action { id, kind }: Action) {
        let etcd = self.etcd.clone();
        let request: Request = match kind {
            ActionKind::Read(read) => Box::pin(async move { etcd.read(&read).await.map(Answer::Read) }),
            ActionKind::Txn(txn) => Box::pin(async move { etcd.txn(&txn).await.map(Answer::Txn) }),
            ActionKind::Compact { revision } => {
                Box::pin(async move { etcd.compact(revision).await.map(|()| Answer::Compacted) })
            }
            ActionKind::Space => Box::pin(async move { etcd.size().await.map(Answer::Space) }),
            ActionKind::Watch(range) => {
                self.watches.push((id, etcd.watch(&range)));
                return;
            }
            ActionKind::CancelWatch(watch) => {
                self.watches.retain(|(id, _)| *id != watch);
                return;
            }
        };
        self.requests.push((id, request));
    }

    /// Waits for the next event. Dropping the future loses nothing.
    async fn next(&mut self) -> Event {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Event> {
        for (index, (id, request)) in self.requests.iter_mut().enumerate() {
            if let Poll::Ready(result) = request.as_mut().poll(cx) {
                let id = *id;
                drop(self.requests.swap_remove(index));
                return Poll::Ready(Event::Answer(id, result));
            }
        }
        for (index, (id, watch)) in self.watches.iter_mut().enumerate() {
            if let Poll::Ready(result) = watch.poll_next(cx) {
                let id = *id;
                if result.is_err() {
                    drop(self.watches.swap_remove(index));
                }
                return Poll::Ready(Event::Watch(id, result));
            }
        }
        Poll::Pending
    }
}

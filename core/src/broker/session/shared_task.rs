//! Shared tasks: the thread that has a message for a connection of another thread can run its task in that thread's place.
//!
//! Waking a thread takes longer than writing a notification, and the client waits for both.

use std::any::Any;
use std::cell::RefCell;
use std::fmt;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, TryLockError, Weak};
use std::task::{Context, Poll, Wake, Waker};

thread_local! {
    static CURRENT: RefCell<Option<Weak<SharedTask>>> = const { RefCell::new(None) };
}

/// The owner's thread is woken when the task is.
const OWNED: u8 = 0;
/// Another thread runs the task, which has not been woken since.
const BORROWED: u8 = 1;
/// The task was woken while another thread runs it.
const WOKEN: u8 = 2;

type BoxedFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

enum TaskState {
    Running(BoxedFuture),
    Complete,
    /// The payload of a panic on another thread; the owner resumes it.
    Panicked(Box<dyn Any + Send>),
}

/// A task of one thread that other threads can run for a moment.
pub struct SharedTask {
    task_state: Mutex<TaskState>,
    owner: OnceLock<Waker>,
    runner: AtomicU8,
}

/// The task of the thread that owns a [`SharedTask`]. Dropping it drops the shared one.
#[derive(Debug)]
pub struct OwnedTask(Arc<SharedTask>);

impl SharedTask {
    /// Returns the task that runs `future`.
    pub fn owner(future: impl Future<Output = ()> + Send + 'static) -> OwnedTask {
        let task_state = Mutex::new(TaskState::Running(Box::pin(future)));
        OwnedTask(Arc::new(Self { task_state, owner: OnceLock::new(), runner: AtomicU8::new(OWNED) }))
    }

    /// Returns the task that its owner runs on this thread now, if there is one.
    #[must_use]
    pub fn current() -> Option<Weak<Self>> {
        CURRENT.with_borrow(Clone::clone)
    }

    /// Runs the task on this thread, once `wake` has woken it. Returns false, without a call, if another thread runs it.
    ///
    /// Must not be called with a lock that the task needs. Timers that the task creates meanwhile are those of this thread.
    pub fn run(self: &Arc<Self>, wake: impl FnOnce()) -> bool {
        let Ok(mut task_state) = self.task_state.try_lock() else { return false };
        self.runner.store(BORROWED, Ordering::SeqCst);
        wake();
        // This poll sees what has woken the task until now; read, so that it also sees what was written before the wake.
        self.runner.swap(BORROWED, Ordering::SeqCst);
        let polled = catch_unwind(AssertUnwindSafe(|| self.poll(&mut task_state)));
        let is_pending = matches!(polled, Ok(Poll::Pending));
        if let Err(panic) = polled {
            *task_state = TaskState::Panicked(panic);
        }
        if self.runner.swap(OWNED, Ordering::SeqCst) == WOKEN || !is_pending {
            self.wake_owner();
        }
        true
    }

    fn poll(self: &Arc<Self>, task_state: &mut TaskState) -> Poll<()> {
        let TaskState::Running(future) = task_state else { return Poll::Ready(()) };
        let waker = Waker::from(Arc::clone(self));
        let polled = future.as_mut().poll(&mut Context::from_waker(&waker));
        if polled.is_ready() {
            *task_state = TaskState::Complete;
        }
        polled
    }

    fn wake_owner(&self) {
        if let Some(owner) = self.owner.get() {
            owner.wake_by_ref();
        }
    }
}

impl fmt::Debug for SharedTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedTask").finish_non_exhaustive()
    }
}

impl Wake for SharedTask {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let is_borrowed = |state| (state != OWNED).then_some(WOKEN);
        if self.runner.fetch_update(Ordering::SeqCst, Ordering::SeqCst, is_borrowed).is_err() {
            self.wake_owner();
        }
    }
}

impl Future for OwnedTask {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let task = &self.0;
        task.owner.get_or_init(|| context.waker().clone());
        let mut task_state = match task.task_state.try_lock() {
            Ok(task_state) => task_state,
            Err(TryLockError::Poisoned(error)) => error.into_inner(),
            // The other thread wakes this one when it has run the task.
            Err(TryLockError::WouldBlock) => {
                task.wake_by_ref();
                return Poll::Pending;
            }
        };
        if matches!(*task_state, TaskState::Panicked(_))
            && let TaskState::Panicked(panic) = mem::replace(&mut *task_state, TaskState::Complete)
        {
            drop(task_state);
            resume_unwind(panic);
        }
        /// Ends with a panic of the task, too.
        struct Current;
        impl Drop for Current {
            fn drop(&mut self) {
                CURRENT.set(None);
            }
        }
        CURRENT.set(Some(Arc::downgrade(task)));
        let _current = Current;
        task.poll(&mut task_state)
    }
}

impl Drop for OwnedTask {
    fn drop(&mut self) {
        // The future has wakers that hold the task.
        let mut task_state = self.0.task_state.lock().unwrap_or_else(PoisonError::into_inner);
        let dropped = mem::replace(&mut *task_state, TaskState::Complete);
        drop(task_state);
        drop(dropped);
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::atomic::AtomicUsize;
    use std::sync::mpsc::{Receiver, channel};
    use std::thread::{self, ThreadId};

    use tokio::sync::Notify;

    use super::*;
    use crate::a_watchdog::bounded;
    use crate::net::runtime_thread::RuntimeThread;

    /// A task that reports each of its steps, and what wakes it.
    fn task(thread: &RuntimeThread) -> (Arc<SharedTask>, Arc<Notify>, Receiver<ThreadId>) {
        let (steps, received) = channel();
        let notify = Arc::<Notify>::default();
        let woken = Arc::clone(&notify);
        let owner = SharedTask::owner(async move {
            loop {
                steps.send(thread::current().id()).unwrap();
                woken.notified().await;
            }
        });
        let task = Arc::clone(&owner.0);
        thread.handle().spawn(owner);
        (task, notify, received)
    }

    /// Waits until a task has been polled that was spawned before, and those that are ready.
    fn settle(thread: &RuntimeThread) {
        let (sender, settled) = channel();
        thread.handle().spawn(async move {
            tokio::task::yield_now().await;
            sender.send(()).unwrap();
        });
        bounded(|| settled.recv()).unwrap();
    }

    #[test]
    fn a_thread_runs_the_task_of_another_one_which_is_not_woken() {
        let thread = RuntimeThread::start("test").unwrap();
        let (task, notify, steps) = task(&thread);
        let owner = bounded(|| steps.recv()).unwrap();
        settle(&thread);
        assert!(task.run(|| notify.notify_one()));
        assert_eq!(steps.try_recv(), Ok(thread::current().id()));
        settle(&thread);
        assert!(steps.try_recv().is_err(), "once");
        notify.notify_one();
        assert_eq!(bounded(|| steps.recv()), Ok(owner));
    }

    /// A task without an end, whose polls are reported with their thread; on others than the first one, it calls `f`.
    fn polled(
        thread: &RuntimeThread,
        mut f: impl FnMut(&Waker) + Send + 'static,
    ) -> (Arc<SharedTask>, Receiver<ThreadId>) {
        let (polls, received) = channel();
        let mut own = None;
        let owner = SharedTask::owner(poll_fn(move |context| {
            let current = thread::current().id();
            polls.send(current).unwrap();
            if *own.get_or_insert(current) != current {
                f(context.waker());
            }
            Poll::Pending
        }));
        let task = Arc::clone(&owner.0);
        thread.handle().spawn(owner);
        (task, received)
    }

    #[test]
    fn a_task_that_is_woken_while_another_thread_runs_it_runs_again_on_its_own() {
        let thread = RuntimeThread::start("test").unwrap();
        let (task, polls) = polled(&thread, Waker::wake_by_ref);
        let owner = bounded(|| polls.recv()).unwrap();
        settle(&thread);
        assert!(task.run(|| {}));
        assert_eq!(
            [bounded(|| polls.recv()), bounded(|| polls.recv())],
            [Ok(thread::current().id()), Ok(owner)]
        );
    }

    #[test]
    fn no_wake_is_lost_while_two_threads_run_a_task() {
        const WAKES: usize = 20_000;
        let thread = RuntimeThread::start("test").unwrap();
        let (sent, seen) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let notify = Arc::<Notify>::default();
        let (done, is_done) = channel();
        let owner = SharedTask::owner({
            let (sent, seen, notify) = (Arc::clone(&sent), Arc::clone(&seen), Arc::clone(&notify));
            async move {
                while seen.load(Ordering::SeqCst) < 2 * WAKES {
                    notify.notified().await;
                    seen.store(sent.load(Ordering::SeqCst), Ordering::SeqCst);
                }
                done.send(()).unwrap();
            }
        });
        let task = Arc::clone(&owner.0);
        thread.handle().spawn(owner);
        thread::scope(|scope| {
            for runs in [true, false] {
                let (task, sent, notify) = (&task, &sent, &notify);
                scope.spawn(move || {
                    for _ in 0..WAKES {
                        sent.fetch_add(1, Ordering::SeqCst);
                        if !runs || !task.run(|| notify.notify_one()) {
                            notify.notify_one();
                        }
                    }
                });
            }
        });
        bounded(|| is_done.recv()).unwrap();
        settle(&thread);
        assert_eq!(Arc::strong_count(&seen), 1, "the future is dropped when it is complete");
    }

    #[test]
    fn a_task_that_panics_on_another_thread_ends_on_its_own() {
        let thread = RuntimeThread::start("test").unwrap();
        let (task, polls) = polled(&thread, |_| panic!("as the test wants it"));
        bounded(|| polls.recv()).unwrap();
        settle(&thread);
        assert!(task.run(|| {}));
        assert_eq!(bounded(|| polls.recv()), Ok(thread::current().id()));
        assert!(bounded(|| polls.recv()).is_err(), "the future is dropped");
        settle(&thread);
        assert!(matches!(*task.task_state.lock().unwrap(), TaskState::Complete));
    }

    #[test]
    fn a_future_is_dropped_with_its_owner_although_its_wakers_remain() {
        let thread = RuntimeThread::start("test").unwrap();
        let (_task, notify, steps) = task(&thread);
        bounded(|| steps.recv()).unwrap();
        thread.end();
        assert!(bounded(|| steps.recv()).is_err());
        drop(notify);
    }
}

//! Connections of other threads that a thread has woken, and whose tasks it runs itself.

use std::cell::{Cell, RefCell};
use std::ptr;
use std::sync::Arc;

use tokio::task::yield_now;

/// A connection whose task other threads can run.
pub trait Runnable {
    /// Runs the task on this thread; if that is not possible now, wakes its own.
    fn run_or_wake(self: Arc<Self>);
}

/// The most connections that a thread runs at a time; for the others, their threads are woken. So a message for many
/// connections is sent by all threads, and the thread's own connections wait for few writes: a task that is run for
/// another thread reads nothing.
const CONNECTIONS_MAX: usize = 2;

thread_local! {
    /// Separate from the connections, because each turn of a connection reads it: a thread-local without a destructor needs no
    /// check for its registration.
    static PHASE: Cell<Phase> = const { Cell::new(Phase::Ignored) };
    static CONNECTIONS: RefCell<Vec<Arc<dyn Runnable>>> = const { RefCell::new(Vec::new()) };
}

/// What happens to connections of other threads that are woken.
#[derive(Clone, Copy, PartialEq)]
enum Phase {
    /// Their threads are woken.
    Ignored,
    /// They are collected; there are none so far.
    Collecting,
    /// They are collected; there is at least one.
    Collected,
    /// The tasks of those that were collected run, and the threads of those that these wake are woken.
    Running,
}

/// Calls `f`, then runs the tasks of connections of other threads that it has woken. Must not be called with a lock.
pub fn run_after<R>(f: impl FnOnce() -> R) -> R {
    /// Dropped after a panic too: a connection that is not woken would wait for ever.
    struct Collection;
    impl Drop for Collection {
        fn drop(&mut self) {
            run_collected();
            PHASE.set(Phase::Ignored);
        }
    }
    if PHASE.get() != Phase::Ignored {
        return f();
    }
    PHASE.set(Phase::Collecting);
    let _collection = Collection;
    f()
}

/// Whether this thread runs the task of another one's connection.
#[must_use]
pub fn is_running() -> bool {
    PHASE.get() == Phase::Running
}

/// Runs those that [`run_after`] has collected, before its end: the thread is about to block.
pub fn run_collected() {
    if PHASE.get() == Phase::Collected {
        PHASE.set(Phase::Running);
        CONNECTIONS.take().into_iter().for_each(Runnable::run_or_wake);
        PHASE.set(Phase::Collecting);
    }
}

/// Waits until the task that calls it is run by its own thread, if it is not: its timers are to be those of its thread, and
/// the other one has work of its own.
pub async fn leave() {
    // This wakes the task's own thread. Another one may run the task before.
    while is_running() {
        yield_now().await;
    }
}

/// Keeps a connection of another thread for the end of [`run_after`]. Returns false if its thread is to be woken.
pub fn collect(connection: &Arc<impl Runnable + 'static>) -> bool {
    if matches!(PHASE.get(), Phase::Ignored | Phase::Running) {
        return false;
    }
    CONNECTIONS.with_borrow_mut(|connections| {
        if connections.iter().any(|known| ptr::addr_eq(Arc::as_ptr(known), Arc::as_ptr(connection))) {
            return true;
        }
        let has_room = connections.len() < CONNECTIONS_MAX;
        if has_room {
            connections.push(Arc::clone(connection) as Arc<dyn Runnable>);
            PHASE.set(Phase::Collected);
        }
        has_room
    })
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};
    use std::thread::{self, ThreadId};

    use super::*;
    use crate::a_watchdog::bounded;
    use crate::broker::session::connection_handle::ConnectionHandle;
    use crate::broker::session::shared_task::SharedTask;
    use crate::broker::session::wake_queue::WakeQueue;
    use crate::net::runtime_thread::RuntimeThread;
    use crate::protocol::ConnectionId;

    /// Starts a thread with some connections; returns what they report of each wake: their number, and the thread that has
    /// run them. Each then wakes the connections in `next`.
    fn connections(
        count: u64,
        next: Vec<Arc<ConnectionHandle>>,
    ) -> (RuntimeThread, Vec<Arc<ConnectionHandle>>, Receiver<(u64, ThreadId)>) {
        let thread = RuntimeThread::start("test").unwrap();
        thread.handle().spawn(Arc::<WakeQueue>::default().run());
        let ((sender, handles), (wakes, woken)) = (channel(), channel());
        for id in 0..count {
            let (sender, wakes, next) = (sender.clone(), wakes.clone(), next.clone());
            thread.handle().spawn(SharedTask::owner(async move {
                let handle = Arc::new(ConnectionHandle::new(ConnectionId(id)));
                sender.send(Arc::clone(&handle)).unwrap();
                let own = thread::current().id();
                loop {
                    handle.wake.notified().await;
                    assert!(is_running() || thread::current().id() == own);
                    wakes.send((id, thread::current().id())).unwrap();
                    run_after(|| next.iter().for_each(ConnectionHandle::wake));
                }
            }));
        }
        let handles = handles.iter().take(count as usize).collect();
        // All wait to be woken: a task that runs cannot be run by another thread.
        let (sender, settled) = channel();
        thread.handle().spawn(async move { sender.send(()).unwrap() });
        bounded(|| settled.recv()).unwrap();
        (thread, handles, woken)
    }

    #[test]
    fn a_thread_runs_the_few_connections_that_it_has_woken_and_wakes_the_threads_of_the_others() {
        let count = CONNECTIONS_MAX + 3;
        let (_thread, handles, woken) = connections(count as u64, Vec::new());
        run_after(|| handles.iter().flat_map(|handle| [handle, handle]).for_each(ConnectionHandle::wake));
        let mut woken: Vec<_> = woken.iter().take(count).collect();
        woken.sort_by_key(|(id, _)| *id);
        let own = woken.iter().map(|(_, by)| *by == thread::current().id());
        assert_eq!(own.collect::<Vec<_>>(), (0..count).map(|at| at < CONNECTIONS_MAX).collect::<Vec<_>>());
    }

    #[test]
    fn a_connection_that_is_run_on_another_thread_wakes_the_threads_of_others() {
        let (_last, last, last_woken) = connections(1, Vec::new());
        let (_thread, first, woken) = connections(1, last);
        run_after(|| first[0].wake());
        assert_eq!(bounded(|| woken.recv()).unwrap().1, thread::current().id());
        assert_ne!(bounded(|| last_woken.recv()).unwrap().1, thread::current().id());
    }

    #[test]
    fn connections_that_were_woken_do_not_wait_until_a_thread_has_blocked() {
        let (_thread, handles, woken) = connections(1, Vec::new());
        run_after(|| {
            handles[0].wake();
            assert!(woken.try_recv().is_err());
            crate::broker::wire::workers::block(|| bounded(|| woken.recv()).unwrap());
        });
        assert!(woken.try_recv().is_err(), "once");
    }

    #[test]
    fn connections_are_woken_after_a_panic_too() {
        let (_thread, handles, woken) = connections(1, Vec::new());
        let panicked = thread::spawn(move || {
            run_after(|| {
                handles[0].wake();
                panic!("as the test wants it");
            })
        });
        bounded(|| panicked.join()).unwrap_err();
        bounded(|| woken.recv()).unwrap();
    }
}

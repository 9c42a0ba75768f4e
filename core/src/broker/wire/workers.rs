//! Threads that serve connections: each has a runtime of its own, and keeps its connections until they close.
//!
//! A request is read, handled and answered by one thread, so no other thread has to be woken for it. A thread that has a message
//! for a connection of another one sends it by running the connection's task.

use std::cell::{Cell, OnceCell};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use tokio::net::TcpStream;
use tokio::runtime::Handle;

use crate::broker::session::shared_task::SharedTask;
use crate::broker::session::wake_queue::WakeQueue;
use crate::broker::session::woken;
use crate::net::runtime_thread::RuntimeThread;

thread_local! {
    static CURRENT: OnceCell<Current> = const { OnceCell::new() };
}

/// What a thread has of its [`Worker`].
struct Current {
    connections: Weak<()>,
    is_blocked: Arc<AtomicBool>,
    /// Whether all connections are served by this thread.
    is_only: bool,
    /// Whether a function of [`run_after_turn`] is still to be called.
    is_turn_running: Cell<bool>,
}

/// The threads, or the caller's runtime. Clones share them; they end when the last clone is dropped.
#[derive(Clone, Debug)]
pub struct Workers {
    caller: Handle,
    all: Arc<[Worker]>,
}

#[derive(Debug)]
struct Worker {
    runtime: RuntimeThread,
    /// Each connection of the thread holds a clone, so the reference count is their number plus 1.
    connections: Arc<()>,
    is_blocked: Arc<AtomicBool>,
}

impl Workers {
    /// Starts `count` threads; with 0, the current runtime serves all connections.
    ///
    /// # Errors
    ///
    /// The system has no thread or no descriptor left.
    pub fn start(count: usize) -> io::Result<Self> {
        let all = (0..count).map(|_| Worker::start(count == 1)).collect::<io::Result<_>>()?;
        Ok(Self { caller: Handle::current(), all })
    }

    /// Spawns a task on the caller's runtime.
    pub fn spawn_on_caller(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.caller.spawn(task);
    }

    /// Serves a connection on the thread that has the fewest, of those that are not blocked.
    ///
    /// `serve` gets the stream on that thread, or the error of registering it with the thread's runtime.
    pub fn serve<F>(&self, stream: TcpStream, serve: impl FnOnce(io::Result<TcpStream>) -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let load = |worker: &&Worker| {
            (worker.is_blocked.load(Ordering::Relaxed), Arc::strong_count(&worker.connections))
        };
        let worker = self.all.iter().min_by_key(load);
        let Some(worker) = worker else {
            self.caller.spawn(serve(Ok(stream)));
            return;
        };
        let (stream, connection) = (stream.into_std(), Arc::clone(&worker.connections));
        worker.runtime.handle().spawn(SharedTask::owner(async move {
            serve(stream.and_then(TcpStream::from_std)).await;
            drop(connection);
        }));
    }
}

impl Worker {
    fn start(is_only: bool) -> io::Result<Self> {
        let (runtime, connections) = (RuntimeThread::start("connections")?, Arc::new(()));
        let is_blocked = Arc::<AtomicBool>::default();
        let current = Current {
            connections: Arc::downgrade(&connections),
            is_blocked: Arc::clone(&is_blocked),
            is_only,
            is_turn_running: Cell::new(false),
        };
        runtime.handle().spawn(async move {
            CURRENT.with(|cell| _ = cell.set(current));
            Arc::<WakeQueue>::default().run().await;
        });
        Ok(Self { runtime, connections, is_blocked })
    }
}

/// Returns what `f` makes of the current thread, or false if this is not one of [`Workers`].
fn with_current(f: impl FnOnce(&Current) -> bool) -> bool {
    CURRENT.with(|current| current.get().is_some_and(f))
}

/// Calls `f` on this thread after the tasks that are ready now, so that the packets that have been reported on its
/// connections are handled before. Returns false, without a call, on a thread that is not one of [`Workers`].
pub fn run_after_turn(f: impl FnOnce() + Send + 'static) -> bool {
    let set_running = |is_running| {
        with_current(|current| {
            current.is_turn_running.set(is_running);
            true
        })
    };
    let is_worker = set_running(true);
    if is_worker {
        // Tasks run in the order in which they became ready.
        tokio::spawn(async move {
            set_running(false);
            woken::run_after(f);
        });
    }
    is_worker
}

/// Whether a function of [`run_after_turn`] is still to be called on this thread.
#[must_use]
pub fn is_turn_running() -> bool {
    with_current(|current| current.is_turn_running.get())
}

/// Whether this is one of several [`Workers`], with one connection: if it blocks, no other connection waits for it.
#[must_use]
pub fn may_block() -> bool {
    // The worker itself has the other reference.
    with_current(|current| !current.is_only && current.connections.strong_count() == 2)
}

/// Calls `f`, which may block. New connections go to other threads meanwhile.
pub fn block<R>(f: impl FnOnce() -> R) -> R {
    woken::run_collected();
    struct Blocked;
    impl Blocked {
        fn set(is_blocked: bool) {
            with_current(|current| {
                current.is_blocked.store(is_blocked, Ordering::Relaxed);
                true
            });
        }
    }
    impl Drop for Blocked {
        fn drop(&mut self) {
            Self::set(false);
        }
    }
    Blocked::set(true);
    let _blocked = Blocked;
    f()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::Mutex;
    use std::thread;

    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;
    use tokio::sync::Semaphore;

    use super::*;
    use crate::a_watchdog::bounded;

    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (client, listener.accept().await.unwrap().0)
    }

    #[tokio::test]
    async fn connections_are_spread_evenly_over_the_threads() {
        let workers = Workers::start(3).unwrap();
        let threads = Arc::new(Mutex::new(Vec::new()));
        let (begun, mut clients) = (Arc::new(Semaphore::new(0)), Vec::new());
        for _ in 0..6 {
            let (client, server) = pair().await;
            let (threads, begun) = (Arc::clone(&threads), Arc::clone(&begun));
            let serve = |stream: io::Result<TcpStream>| async move {
                threads.lock().unwrap().push(thread::current().id());
                begun.add_permits(1);
                drop(stream.unwrap().read_u8().await);
            };
            workers.serve(server, serve);
            clients.push(client);
        }
        begun.acquire_many(6).await.unwrap().forget();
        let threads = threads.lock().unwrap();
        let different: HashSet<_> = threads.iter().copied().collect();
        assert_eq!(different.len(), 3);
        assert!(different.iter().all(|one| threads.iter().filter(|other| *other == one).count() == 2));
    }

    #[tokio::test]
    async fn a_turn_ends_after_the_tasks_that_are_ready() {
        assert!(!run_after_turn(|| panic!("no thread of connections")));
        assert!(!may_block() && !is_turn_running());
        let workers = Workers::start(2).unwrap();
        let (sender, steps) = std::sync::mpsc::channel();
        let serve = |_| async move {
            let note = |step| {
                let sender = sender.clone();
                move || sender.send((step, is_turn_running(), may_block())).unwrap()
            };
            let others = [note(2), note(3)].map(|note| tokio::spawn(async move { note() }));
            assert!(run_after_turn(note(4)));
            note(1)();
            for other in others {
                other.await.unwrap();
            }
        };
        let (_client, server) = pair().await;
        workers.serve(server, serve);
        assert_eq!(steps.iter().collect::<Vec<_>>(), [1, 2, 3, 4].map(|step| (step, step < 4, true)));
    }

    #[tokio::test]
    async fn a_thread_that_is_blocked_gets_no_new_connection() {
        let workers = Workers::start(2).unwrap();
        let (sender, threads) = std::sync::mpsc::channel();
        let (release, released) = std::sync::mpsc::channel::<()>();
        let (_first, server) = pair().await;
        let blocked = sender.clone();
        workers.serve(server, |_| async move {
            block(|| {
                blocked.send(thread::current().id()).unwrap();
                bounded(|| released.recv()).unwrap();
            });
        });
        let first = bounded(|| threads.recv()).unwrap();
        let mut clients = Vec::new();
        for _ in 0..3 {
            let (client, server) = pair().await;
            clients.push(client);
            let sender = sender.clone();
            workers.serve(server, |stream| async move {
                sender.send(thread::current().id()).unwrap();
                drop(stream.unwrap().read_u8().await);
            });
            assert_ne!(bounded(|| threads.recv()).unwrap(), first);
        }
        release.send(()).unwrap();
    }

    #[tokio::test]
    async fn the_only_thread_may_not_block() {
        let workers = Workers::start(1).unwrap();
        let (sender, answer) = std::sync::mpsc::channel();
        let (_client, server) = pair().await;
        workers.serve(server, |_| async move { sender.send(may_block()).unwrap() });
        assert!(!bounded(|| answer.recv()).unwrap());
    }

    #[tokio::test]
    async fn a_thread_that_has_panicked_while_it_was_blocked_gets_new_connections() {
        let workers = Workers::start(2).unwrap();
        let (sender, ended) = std::sync::mpsc::channel::<()>();
        let (_first, server) = pair().await;
        workers.serve(server, |_| async move {
            let _sender = sender;
            block(|| panic!("as the test wants it"));
        });
        bounded(|| ended.recv()).unwrap_err();
        let (sender, threads) = std::sync::mpsc::channel();
        let mut clients = Vec::new();
        for _ in 0..2 {
            let (client, server) = pair().await;
            clients.push(client);
            let sender = sender.clone();
            workers.serve(server, |stream| async move {
                sender.send(thread::current().id()).unwrap();
                drop(stream.unwrap().read_u8().await);
            });
        }
        assert_ne!(bounded(|| threads.recv()).unwrap(), bounded(|| threads.recv()).unwrap());
    }

    #[tokio::test]
    async fn the_threads_end_with_the_last_clone_and_their_connections_are_closed() {
        let workers = Workers::start(1).unwrap();
        let (mut client, server) = pair().await;
        workers.serve(server, |stream| async move { drop(stream.unwrap().read_u8().await) });
        drop(workers);
        assert_eq!(client.read(&mut [0]).await.unwrap(), 0);
    }
}

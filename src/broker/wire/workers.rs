//! Threads that serve connections: each has a runtime of its own, and keeps its connections until they close.
//!
//! A request is read, handled and answered by one thread, so no other thread has to be woken for it.

use std::cell::OnceCell;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use tokio::net::TcpStream;
use tokio::runtime::Handle;

use crate::broker::session::wake_queue::WakeQueue;
use crate::net::runtime_thread::RuntimeThread;

thread_local! {
    /// What the current thread shares with its [`Worker`].
    static CURRENT: OnceCell<(Weak<()>, Arc<AtomicBool>)> = const { OnceCell::new() };
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
        let all = (0..count).map(|_| Worker::start()).collect::<io::Result<_>>()?;
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
        worker.runtime.handle().spawn(async move {
            serve(stream.and_then(TcpStream::from_std)).await;
            drop(connection);
        });
    }
}

impl Worker {
    fn start() -> io::Result<Self> {
        let (runtime, connections) = (RuntimeThread::start("connections")?, Arc::new(()));
        let is_blocked = Arc::<AtomicBool>::default();
        let shared = (Arc::downgrade(&connections), Arc::clone(&is_blocked));
        runtime.handle().spawn(async move {
            CURRENT.with(|current| _ = current.set(shared));
            Arc::<WakeQueue>::default().run().await;
        });
        Ok(Self { runtime, connections, is_blocked })
    }
}

/// Calls `f` on this thread after the packets that have arrived on its connections have been handled. Returns false,
/// without a call, on a thread that is not one of [`Workers`].
pub fn run_after_turn(f: impl FnOnce() + Send + 'static) -> bool {
    let is_worker = CURRENT.with(|current| current.get().is_some());
    if is_worker {
        // Tasks run in the order in which they became ready, and the tasks of these connections are ready.
        tokio::spawn(async move { f() });
    }
    is_worker
}

/// Whether this is one of [`Workers`], with one connection.
#[must_use]
pub fn serves_one_connection() -> bool {
    // The worker itself has the other reference.
    CURRENT.with(|current| current.get().is_some_and(|(connections, _)| connections.strong_count() == 2))
}

/// Calls `f`, which may block. New connections go to other threads meanwhile.
pub fn block<R>(f: impl FnOnce() -> R) -> R {
    let set = |is_blocked| {
        CURRENT.with(|current| {
            current.get().inspect(|(_, flag)| flag.store(is_blocked, Ordering::Relaxed)).is_some()
        })
    };
    set(true);
    let result = f();
    set(false);
    result
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
        assert!(!serves_one_connection());
        let workers = Workers::start(2).unwrap();
        let (sender, steps) = std::sync::mpsc::channel();
        let serve = |_| async move {
            let note = |step| {
                let sender = sender.clone();
                move || sender.send((step, serves_one_connection())).unwrap()
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
        assert_eq!(steps.iter().collect::<Vec<_>>(), [1, 2, 3, 4].map(|step| (step, true)));
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
                released.recv().unwrap();
            });
        });
        let first = threads.recv().unwrap();
        let mut clients = Vec::new();
        for _ in 0..3 {
            let (client, server) = pair().await;
            clients.push(client);
            let sender = sender.clone();
            workers.serve(server, |stream| async move {
                sender.send(thread::current().id()).unwrap();
                drop(stream.unwrap().read_u8().await);
            });
            assert_ne!(threads.recv().unwrap(), first);
        }
        release.send(()).unwrap();
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

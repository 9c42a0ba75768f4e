//! Threads that serve connections: each has a runtime of its own, and keeps its connections until they close.
//!
//! A request is read, handled and answered by one thread, so no other thread has to be woken for it.

use std::io;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio::runtime::Handle;

use crate::net::runtime_thread::RuntimeThread;

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

    /// Serves a connection on the thread that has the fewest.
    ///
    /// `serve` gets the stream on that thread, or the error of registering it with the thread's runtime.
    pub fn serve<F>(&self, stream: TcpStream, serve: impl FnOnce(io::Result<TcpStream>) -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let worker = self.all.iter().min_by_key(|worker| Arc::strong_count(&worker.connections));
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
        Ok(Self { runtime: RuntimeThread::start("connections")?, connections: Arc::default() })
    }
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
    async fn the_threads_end_with_the_last_clone_and_their_connections_are_closed() {
        let workers = Workers::start(1).unwrap();
        let (mut client, server) = pair().await;
        workers.serve(server, |stream| async move { drop(stream.unwrap().read_u8().await) });
        drop(workers);
        assert_eq!(client.read(&mut [0]).await.unwrap(), 0);
    }
}

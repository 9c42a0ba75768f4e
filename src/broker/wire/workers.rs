//! The threads that serve connections: each has a runtime of its own, and keeps the connections that it was given.
//!
//! Nothing wanders between them: a request is read, handled and answered by one thread, which nobody else has to wake.

use std::io;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio::runtime::Handle;

use crate::net::runtime_thread::RuntimeThread;

/// Some threads, or the runtime of whoever began; clones are the same ones. They end with the last of them.
#[derive(Clone, Debug)]
pub struct Workers {
    here: Handle,
    all: Arc<[Worker]>,
}

#[derive(Debug)]
struct Worker {
    runtime: RuntimeThread,
    /// As many besides this one as it has connections.
    connections: Arc<()>,
}

impl Workers {
    /// Starts so many threads; 0: everything is done by the runtime at hand.
    ///
    /// # Errors
    /// The system has no thread to give, or no descriptor.
    pub fn start(count: usize) -> io::Result<Self> {
        let all = (0..count).map(|_| Worker::start()).collect::<io::Result<_>>()?;
        Ok(Self { here: Handle::current(), all })
    }

    /// Gives a task to the runtime at hand.
    pub fn spawn_here(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.here.spawn(task);
    }

    /// Gives a connection to the thread that has the fewest.
    ///
    /// `serve` gets the stream there, or the reason why it cannot be used: there may be no room to wait for it.
    pub fn serve<F>(&self, stream: TcpStream, serve: impl FnOnce(io::Result<TcpStream>) -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let worker = self.all.iter().min_by_key(|worker| Arc::strong_count(&worker.connections));
        let Some(worker) = worker else {
            self.here.spawn(serve(Ok(stream)));
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
    async fn each_thread_has_as_many_connections_as_the_others() {
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
    async fn the_threads_end_with_those_who_use_them_and_their_connections_are_closed() {
        let workers = Workers::start(1).unwrap();
        let (mut client, server) = pair().await;
        workers.serve(server, |stream| async move { drop(stream.unwrap().read_u8().await) });
        drop(workers);
        assert_eq!(client.read(&mut [0]).await.unwrap(), 0);
    }
}

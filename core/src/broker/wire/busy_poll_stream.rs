//! TCP stream that polls for its next bytes, when busy polling is promising.

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Instant;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::task::yield_now;

use super::busy_poll::{BusyPoll, PauseAction};
use super::workers;
use crate::broker::session::woken;
use crate::{clock, platform};

/// The most bytes that a poll reads. They are initialized first, so it is a small number; the next read gets the rest.
const POLL_BYTES_MAX: usize = 2 * 1024;

/// The stream that received bytes last, of all streams that share this.
#[derive(Debug, Default)]
pub struct ActiveStream {
    /// The number of that stream.
    last: AtomicU64,
    /// How many streams have been numbered.
    streams: AtomicU64,
}

/// A TCP stream that polls before it lets its thread sleep, if its client is fast.
#[derive(Debug)]
pub struct BusyPollStream {
    stream: TcpStream,
    busy_poll: BusyPoll,
    active_stream: Arc<ActiveStream>,
    number: u64,
}

impl BusyPollStream {
    /// Wraps a stream. `active_stream` is shared by all streams that a poll of this one would delay.
    pub fn new(stream: TcpStream, active_stream: Arc<ActiveStream>) -> Self {
        let number = active_stream.streams.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        Self { stream, busy_poll: BusyPoll::default(), active_stream, number }
    }

    fn is_alone(&self) -> bool {
        self.active_stream.last.load(Ordering::Relaxed) == self.number
    }

    fn note_bytes(&mut self) {
        let is_alone = self.is_alone();
        if !is_alone {
            self.active_stream.last.store(self.number, Ordering::Relaxed);
        }
        self.busy_poll.handle_bytes(clock::monotonic, is_alone);
    }

    /// Reads as soon as there are bytes. Returns false if there were none until then, or another stream received some.
    fn poll_until(&self, until: Instant, buffer: &mut ReadBuf<'_>) -> io::Result<bool> {
        let room = buffer.initialize_unfilled_to(buffer.remaining().min(POLL_BYTES_MAX));
        loop {
            if let Some(len) = platform::poll_socket(&self.stream, room)? {
                buffer.advance(len);
                return Ok(true);
            }
            if clock::monotonic() >= until || !self.is_alone() {
                return Ok(false);
            }
        }
    }
}

impl AsyncRead for BusyPollStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if woken::is_running() {
            // The thread that runs this task for another one only sends: it has requests of its own.
            if this.stream.poll_read_ready(context).is_ready() {
                context.waker().wake_by_ref();
            }
            return Poll::Pending;
        }
        if let Poll::Ready(read) = Pin::new(&mut this.stream).poll_read(context, buffer) {
            this.note_bytes();
            return Poll::Ready(read);
        }
        // The read above has registered the task, so it is woken when bytes arrive.
        if !platform::CAN_POLL_SOCKETS || workers::is_turn_running() {
            // A poll would delay the end of the turn, which the client may be waiting for. The pause begins after it.
            return Poll::Pending;
        }
        loop {
            let is_alone = this.is_alone();
            match this.busy_poll.poll_pause(clock::monotonic, is_alone) {
                PauseAction::Sleep => return Poll::Pending,
                PauseAction::Yield => {
                    // The task is woken again after the other tasks of this thread have had a turn.
                    let _ = pin!(yield_now()).poll(context);
                    return Poll::Pending;
                }
                PauseAction::PollUntil(until) => {
                    if this.poll_until(until, buffer)? {
                        this.note_bytes();
                        return Poll::Ready(Ok(()));
                    }
                }
            }
        }
    }
}

impl AsyncWrite for BusyPollStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;
    use crate::a_watchdog::bounded;

    async fn pair(active_stream: &Arc<ActiveStream>) -> (TcpStream, BusyPollStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (server, _) = listener.accept().await.unwrap();
        client.set_nodelay(true).unwrap();
        server.set_nodelay(true).unwrap();
        (client, BusyPollStream::new(server, Arc::clone(active_stream)))
    }

    /// A client that sends bytes, waits until they are echoed, and sends the next.
    async fn send_rounds(mut client: TcpStream, rounds: usize) {
        let mut room = vec![0; 5_000];
        for round in 0..rounds {
            let len = 1 + round * 37 % 5_000;
            let sent: Vec<u8> = (0..len).map(|at| (round + at) as u8).collect();
            client.write_all(&sent).await.unwrap();
            client.read_exact(&mut room[..len]).await.unwrap();
            assert!(room[..len] == sent, "round {round}");
        }
    }

    /// Echoes all bytes until the client closes.
    async fn echo(mut stream: BusyPollStream) {
        let mut room = [0; 4_096];
        loop {
            match stream.read(&mut room).await.unwrap() {
                0 => return,
                len => stream.write_all(&room[..len]).await.unwrap(),
            }
        }
    }

    #[test]
    fn all_bytes_arrive_in_their_order_and_then_the_end() {
        let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (streams, received) = std::sync::mpsc::channel();
        // In two threads: polling for a client of the same thread never succeeds.
        let client = std::thread::spawn(move || {
            runtime().block_on(async {
                let (client, stream) = pair(&Arc::default()).await;
                let stream = (stream.stream.into_std().unwrap(), stream.active_stream);
                streams.send(stream).unwrap();
                send_rounds(client, 2_000).await;
            });
        });
        let (stream, active_stream) = bounded(|| received.recv()).unwrap();
        runtime().block_on(async {
            echo(BusyPollStream::new(TcpStream::from_std(stream).unwrap(), active_stream)).await
        });
        bounded(|| client.join()).unwrap();
    }

    #[tokio::test]
    async fn there_is_no_poll_before_the_end_of_a_turn() {
        let (mut client, stream) = pair(&Arc::default()).await;
        let active_stream = stream.active_stream;
        let (sender, actions) = std::sync::mpsc::channel();
        let workers = workers::Workers::start(1).unwrap();
        workers.serve(stream.stream, |stream| async move {
            let mut stream = BusyPollStream::new(stream.unwrap(), active_stream);
            stream.note_bytes();
            // A short pause, which is enough for a poll in the next one.
            let now = clock::monotonic();
            stream.busy_poll.poll_pause(|| now, true);
            stream.busy_poll.handle_bytes(|| now, true);
            assert!(workers::run_after_turn(|| {}));
            let mut room = [0];
            let read = std::future::poll_fn(|context| {
                Poll::Ready(Pin::new(&mut stream).poll_read(context, &mut ReadBuf::new(&mut room)).is_ready())
            });
            assert!(!read.await);
            // A pause in which it has polled would be over.
            sender.send(stream.busy_poll.poll_pause(|| now, true)).unwrap();
        });
        assert!(matches!(bounded(|| actions.recv()).unwrap(), PauseAction::PollUntil(_)));
        client.shutdown().await.unwrap();
    }

    #[tokio::test]
    async fn several_streams_of_one_thread_are_all_served() {
        let active_stream = Arc::default();
        let mut tasks = Vec::new();
        for _ in 0..5 {
            let (client, stream) = pair(&active_stream).await;
            tasks.extend([tokio::spawn(echo(stream)), tokio::spawn(send_rounds(client, 200))]);
        }
        for task in tasks {
            task.await.unwrap();
        }
    }
}

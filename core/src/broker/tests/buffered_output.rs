//! Streams that buffer output, as TLS and WebSockets do.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};

use super::*;

/// Keeps what is written until a flush.
struct BufferingStream {
    inner: DuplexStream,
    buffered: BytesMut,
    gate: Arc<Gate>,
}

/// Whether flushes wait, as they do while the client does not read.
#[derive(Default)]
struct Gate(Mutex<(bool, Option<Waker>)>);

impl Gate {
    fn close(&self) {
        self.0.lock().unwrap().0 = true;
    }

    fn open(&self) {
        let mut gate = self.0.lock().unwrap();
        gate.0 = false;
        gate.1.take().unwrap().wake();
    }
}

impl AsyncRead for BufferingStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(context, buffer)
    }
}

impl AsyncWrite for BufferingStream {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.buffered.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let mut gate = this.gate.0.lock().unwrap();
        if gate.0 {
            gate.1 = Some(context.waker().clone());
            return Poll::Pending;
        }
        let written = Pin::new(&mut this.inner).poll_write(context, &this.buffered);
        assert!(matches!(written, Poll::Ready(Ok(len)) if len == this.buffered.len()), "the pipe has room");
        this.buffered.clear();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

#[tokio::test]
async fn buffered_output_is_flushed_while_an_acknowledgement_is_held_back() {
    let echo = Arc::new(Echo::default());
    let broker = Broker::new(Settings::default(), Hooks::new(Arc::<Echo>::clone(&echo)));
    let (pipe, inner) = tokio::io::duplex(64 * 1024);
    let gate = Arc::<Gate>::default();
    let stream = BufferingStream { inner, buffered: BytesMut::new(), gate: Arc::clone(&gate) };
    let info = ConnectionInfo { buffers_output: true, ..ConnectionInfo::anonymous("memory") };
    let _closing = serve(broker, stream, info);
    let mut client = Client::on(pipe);
    client.send_connect(ConnectOptions::new("a")).await;
    assert!(matches!(client.receive().await, Packet::ConnAck(_)));
    gate.close();
    client.send(Packet::PingReq).await;
    expect_no_write(&mut client).await;
    client.publish(qos_1("hold", 1)).await;
    wait_for_held(&echo, 1).await;
    expect_no_write(&mut client).await;
    gate.open();
    assert_eq!(client.receive_bytes(2).await, [0xD0, 0]);
    expect_no_write(&mut client).await;
    echo.held.lock().unwrap().clear();
    assert_eq!(client.receive_bytes(4).await, [0x40, 2, 0, 1]);
}

//! How much a connection reads at once.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{DuplexStream, ReadBuf};

use super::*;

/// Notes the room for each read.
struct ObservedStream {
    inner: DuplexStream,
    rooms: Arc<Mutex<Vec<usize>>>,
}

impl AsyncRead for ObservedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.rooms.lock().unwrap().push(buffer.remaining());
        Pin::new(&mut self.inner).poll_read(context, buffer)
    }
}

impl AsyncWrite for ObservedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

#[tokio::test]
async fn reads_grow_to_32_kib_while_a_client_fills_them_and_are_small_again_afterwards() {
    const KIB: usize = 1024;
    let broker = Broker::new(Settings::default(), Hooks::new(Arc::new(())));
    let (pipe, inner) = tokio::io::duplex(KIB * KIB);
    let rooms = Arc::<Mutex<Vec<usize>>>::default();
    let stream = ObservedStream { inner, rooms: Arc::clone(&rooms) };
    let _closing = serve(broker, stream, ConnectionInfo::anonymous("memory"));
    let mut client = Client::on(pipe);
    client.send_connect(ConnectOptions::new("a")).await;
    assert!(matches!(client.receive().await, Packet::ConnAck(_)));
    for _ in 0..100 {
        client.send(Packet::PingReq).await;
        assert_eq!(client.receive_bytes(2).await, [0xD0, 0]);
    }
    let most = |rooms: &[usize]| rooms.iter().max().copied().unwrap();
    assert!(most(&rooms.lock().unwrap()) < 9 * KIB, "{rooms:?}");
    let many = [0xC0, 0].repeat(256 * KIB / 2);
    client.stream.write_all(&many).await.unwrap();
    client.receive_bytes(many.len()).await;
    assert!((32 * KIB..=64 * KIB).contains(&most(&rooms.lock().unwrap())), "{rooms:?}");
    for _ in 0..10 {
        client.send(Packet::PingReq).await;
        client.receive_bytes(2).await;
    }
    let last = rooms.lock().unwrap().pop().unwrap();
    assert!(last < 9 * KIB, "{last}");
}

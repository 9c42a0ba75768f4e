//! Lets through of a stranger's frames what a CONNECT can come to; the rest waits until the stranger has been answered.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What is read at a time while the gate is shut.
const CHUNK_BYTES: usize = 1024;

/// The stream below a WebSocket, whose crate makes room for a whole frame as soon as one is announced.
#[derive(Debug)]
pub(crate) struct FrameLimit<S> {
    stream: S,
    /// What has been read, and not been let through.
    held: BytesMut,
    /// What is left of the frame that is being let through.
    passing: u64,
    /// How much more may be announced in frames; none: the gate is open.
    room: Option<u64>,
    has_let_through: bool,
}

impl<S> FrameLimit<S> {
    /// A gate that is open.
    pub(crate) fn opened(stream: S) -> Self {
        Self { stream, held: BytesMut::new(), passing: 0, room: None, has_let_through: false }
    }

    /// A gate through which frames with so many bytes may come before it is opened; some bytes have come already.
    pub(crate) fn shut(stream: S, held: BytesMut, room: u64) -> Self {
        Self { held, room: Some(room), ..Self::opened(stream) }
    }

    /// Lets through whatever comes, from the next reading on.
    pub(crate) fn open(&mut self) {
        self.room = None;
    }
}

/// The lengths of a frame's head and of what follows it, once they are known.
fn lengths(frame: &[u8]) -> Option<(u64, u64)> {
    const MASK: u8 = 0x80;
    let announced = *frame.get(1)?;
    let (head, payload) = match announced & !MASK {
        126 => (4_u64, u64::from(u16::from_be_bytes(*frame.get(2..)?.first_chunk()?))),
        127 => (10, u64::from_be_bytes(*frame.get(2..)?.first_chunk()?)),
        short => (2, u64::from(short)),
    };
    let mask = if announced & MASK == 0 { 0 } else { 4 };
    Some((head.saturating_add(mask), payload))
}

/// That a frame is longer than any CONNECT: no error that a socket has.
pub(crate) const TOO_LONG: io::ErrorKind = io::ErrorKind::QuotaExceeded;

impl<S: AsyncRead + Unpin> AsyncRead for FrameLimit<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        loop {
            let passing = match this.room {
                None if this.held.is_empty() => return Pin::new(&mut this.stream).poll_read(context, into),
                None => usize::MAX,
                Some(_) => usize::try_from(this.passing).unwrap_or(usize::MAX),
            };
            let len = passing.min(this.held.len()).min(into.remaining());
            if len > 0 {
                into.put_slice(this.held.get(..len).unwrap_or_default());
                this.held.advance(len);
                this.passing = this.passing.saturating_sub(u64::try_from(len).unwrap_or(u64::MAX));
                return Poll::Ready(Ok(()));
            }
            if let Some(room) = this.room
                && this.passing == 0
                && let Some((head, payload)) = lengths(&this.held)
            {
                if payload <= room {
                    this.passing = head.saturating_add(payload);
                    this.room = Some(room.saturating_sub(payload));
                    this.has_let_through = true;
                    continue;
                }
                if this.has_let_through {
                    // Whoever opens the gate reads again.
                    return Poll::Pending;
                }
                let words = format!("Message too long for a CONNECT: {payload} > {room}");
                return Poll::Ready(Err(io::Error::new(TOO_LONG, words)));
            }
            let mut chunk = [0; CHUNK_BYTES];
            let mut chunk = ReadBuf::new(&mut chunk);
            ready!(Pin::new(&mut this.stream).poll_read(context, &mut chunk))?;
            if chunk.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            this.held.extend_from_slice(chunk.filled());
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for FrameLimit<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

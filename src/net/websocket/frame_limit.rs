//! Limits the frames of a client that has not been answered yet to the size of a CONNECT.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes per read while the limit is in force.
const CHUNK_BYTES: usize = 1024;

/// The stream below a WebSocket, with an optional limit on the total payload of the frames that can be read.
///
/// The WebSocket crate allocates a whole frame as soon as it has read the frame's header. Without this limit an
/// unauthenticated client could make the server allocate the maximum packet size with a few bytes. Frames over the limit
/// are not read until [`FrameLimit::remove_limit`]; a first frame over the limit is an error.
#[derive(Debug)]
pub(crate) struct FrameLimit<S> {
    stream: S,
    /// Bytes that were read from the stream and not delivered yet.
    buffer: BytesMut,
    /// Remaining bytes of the frame that is being delivered, header included.
    frame_left: u64,
    /// How many more payload bytes may be delivered. None: no limit.
    payload_left: Option<u64>,
    has_delivered_frame: bool,
}

impl<S> FrameLimit<S> {
    /// Returns a stream without a limit.
    pub(crate) fn unlimited(stream: S) -> Self {
        Self {
            stream,
            buffer: BytesMut::new(),
            frame_left: 0,
            payload_left: None,
            has_delivered_frame: false,
        }
    }

    /// Returns a stream whose frames may have `payload_max` bytes of payload in total. `buffer` has been read already.
    pub(crate) fn new(stream: S, buffer: BytesMut, payload_max: u64) -> Self {
        Self { buffer, payload_left: Some(payload_max), ..Self::unlimited(stream) }
    }

    /// Removes the limit from the next read on.
    pub(crate) fn remove_limit(&mut self) {
        self.payload_left = None;
    }
}

/// Returns the lengths of a frame's header and payload (RFC 6455, 5.2), or None until the header has arrived.
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

/// The error kind of a frame over the limit: a kind that no socket returns.
pub(crate) const TOO_LONG: io::ErrorKind = io::ErrorKind::QuotaExceeded;

impl<S: AsyncRead + Unpin> AsyncRead for FrameLimit<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        loop {
            let deliverable = match this.payload_left {
                None if this.buffer.is_empty() => return Pin::new(&mut this.stream).poll_read(context, into),
                None => usize::MAX,
                // The minimum with the buffer's length follows.
                Some(_) => usize::try_from(this.frame_left).unwrap_or(usize::MAX),
            };
            let len = deliverable.min(this.buffer.len()).min(into.remaining());
            if len > 0 {
                into.put_slice(this.buffer.get(..len).unwrap_or_default());
                this.buffer.advance(len);
                // `len` is at most `frame_left` while there is a limit; without one `frame_left` is not used again.
                this.frame_left = this.frame_left.saturating_sub(u64::try_from(len).unwrap_or(u64::MAX));
                return Poll::Ready(Ok(()));
            }
            if let Some(payload_left) = this.payload_left
                && this.frame_left == 0
                && let Some((head, payload)) = lengths(&this.buffer)
            {
                if let Some(left) = payload_left.checked_sub(payload) {
                    // `payload` is within the limit, so the sum is far from overflow.
                    this.frame_left = head.saturating_add(payload);
                    this.payload_left = Some(left);
                    this.has_delivered_frame = true;
                    continue;
                }
                if this.has_delivered_frame {
                    // No waker is needed: the caller reads again after it has removed the limit.
                    return Poll::Pending;
                }
                let text = format!("Message too long for a CONNECT: {payload} > {payload_left}");
                return Poll::Ready(Err(io::Error::new(TOO_LONG, text)));
            }
            let mut chunk = [0; CHUNK_BYTES];
            let mut chunk = ReadBuf::new(&mut chunk);
            ready!(Pin::new(&mut this.stream).poll_read(context, &mut chunk))?;
            if chunk.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            this.buffer.extend_from_slice(chunk.filled());
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

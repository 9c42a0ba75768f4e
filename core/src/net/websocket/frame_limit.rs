//! Limits the frames of a client, and splits the long ones into parts.

use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use bytes::{Buf, BufMut, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

/// The longest frame that is delivered. A multiple of the mask's four bytes, so that each part of a frame starts with the
/// first byte of the mask.
pub(super) const PART_BYTES_MAX: usize = 16 * 1024;
/// Bytes per read before the first response.
const UNANSWERED_READ_BYTES: usize = 1024;
/// Bytes per read afterwards.
const READ_BYTES: usize = 8 * 1024;
/// Bytes of the header of a part at most: two, a length of two, a mask.
const PART_HEADER_BYTES_MAX: usize = 8;

const FIN: u8 = 0x80;
const RESERVED: u8 = 0x70;
const OPCODE: u8 = 0x0F;
const CONTINUATION: u8 = 0x0;
const BINARY: u8 = 0x2;
/// Opcodes from here on are those of control frames.
const CLOSE: u8 = 0x8;
const MASK: u8 = 0x80;

/// The error kind of a frame over the limit: a kind that no socket returns.
pub(crate) const TOO_LONG: io::ErrorKind = io::ErrorKind::QuotaExceeded;

/// The stream below a WebSocket; a server's limits the frames of its client.
///
/// The WebSocket crate allocates a whole frame as soon as it has read the frame's header, and collects all frames of a
/// message: a client could reserve the maximum packet size with a few bytes. MQTT ignores the boundaries of messages
/// (MQTT 5, 6.0), so each binary frame is delivered as messages of at most [`PART_BYTES_MAX`], as its bytes arrive.
#[derive(Debug)]
pub(crate) struct FrameLimit<S> {
    stream: S,
    /// None: all frames pass unchanged.
    frames: Option<Frames>,
}

/// The frames of a client.
#[derive(Debug)]
struct Frames {
    /// Bytes that were read from the stream and not delivered yet.
    buffer: BytesMut,
    /// The header of a part, to be delivered before the part.
    header: BytesMut,
    /// Remaining bytes of the part that is being delivered.
    part_left: usize,
    /// Bytes of the frame after that part.
    frame_left: u64,
    mask: [u8; 4],
    /// Whether the last frame of a binary message has not come yet.
    is_continued: bool,
    /// The longest payload of a frame.
    payload_max: u64,
    /// How many more payload bytes may be delivered before the first response. None: it has been written.
    unanswered_left: Option<u64>,
    has_delivered_frame: bool,
}

impl<S> FrameLimit<S> {
    /// Returns a stream without a limit.
    pub(crate) fn unlimited(stream: S) -> Self {
        Self { stream, frames: None }
    }

    /// Returns a stream whose frames may have `payload_max` bytes of payload each and, until
    /// [`FrameLimit::remove_unanswered_limit`], `unanswered_max` in total. `buffer` has been read already.
    ///
    /// Frames over the second limit are not read until then; a first frame over one of them is an error.
    pub(crate) fn new(stream: S, buffer: BytesMut, payload_max: u64, unanswered_max: u64) -> Self {
        let frames = Frames {
            buffer,
            header: BytesMut::new(),
            part_left: 0,
            frame_left: 0,
            mask: [0; 4],
            is_continued: false,
            payload_max,
            unanswered_left: Some(unanswered_max),
            has_delivered_frame: false,
        };
        Self { stream, frames: Some(frames) }
    }

    /// Removes the limit before the first response, from the next read on.
    pub(crate) fn remove_unanswered_limit(&mut self) {
        if let Some(frames) = &mut self.frames {
            frames.unanswered_left = None;
        }
    }
}

/// The header of a frame (RFC 6455, 5.2).
struct Header {
    first: u8,
    /// The length of the header.
    bytes: usize,
    /// The length of the payload.
    payload: u64,
    mask: Option<[u8; 4]>,
}

impl Header {
    /// Returns None until the whole header has arrived.
    fn parse(frame: &[u8]) -> Option<Self> {
        let (first, second) = (*frame.first()?, *frame.get(1)?);
        let (length_end, payload) = match second & !MASK {
            126 => (4_usize, u64::from(u16::from_be_bytes(*frame.get(2..)?.first_chunk()?))),
            127 => (10, u64::from_be_bytes(*frame.get(2..)?.first_chunk()?)),
            short => (2, u64::from(short)),
        };
        if second & MASK == 0 {
            return Some(Self { first, bytes: length_end, payload, mask: None });
        }
        let mask = *frame.get(length_end..)?.first_chunk()?;
        Some(Self { first, bytes: length_end.saturating_add(4), payload, mask: Some(mask) })
    }
}

/// What to do next.
enum Step {
    /// Bytes can be delivered.
    Deliver,
    /// Bytes must be read.
    Read,
    /// A frame waits for the first response.
    Wait,
}

impl Frames {
    /// Prepares the next bytes to be delivered.
    fn advance(&mut self) -> io::Result<Step> {
        if !self.header.is_empty() {
            return Ok(Step::Deliver);
        }
        if self.part_left > 0 {
            return Ok(if self.buffer.is_empty() { Step::Read } else { Step::Deliver });
        }
        if self.frame_left > 0 {
            self.start_part();
            return Ok(Step::Deliver);
        }
        let Some(Header { first, bytes, payload, mask }) = Header::parse(&self.buffer) else {
            return Ok(Step::Read);
        };
        if payload > self.payload_max {
            return Err(too_long(format!("Message too long: {payload} > {}", self.payload_max)));
        }
        if let Some(left) = self.unanswered_left {
            match left.checked_sub(payload) {
                Some(left) => self.unanswered_left = Some(left),
                None if self.has_delivered_frame => return Ok(Step::Wait),
                None => return Err(too_long(format!("Message too long for a CONNECT: {payload} > {left}"))),
            }
        }
        self.has_delivered_frame = true;
        let opcode = first & OPCODE;
        let expected = if self.is_continued { CONTINUATION } else { BINARY };
        if let Some(mask) = mask.filter(|_| opcode == expected && first & RESERVED == 0) {
            self.buffer.advance(bytes);
            (self.is_continued, self.mask, self.frame_left) = (first & FIN == 0, mask, payload);
            self.start_part();
            return Ok(Step::Deliver);
        }
        // The frame of a ping, or a violation of the protocol: the WebSocket crate handles both.
        let payload = usize::try_from(payload).unwrap_or(usize::MAX);
        if payload > PART_BYTES_MAX {
            return Err(too_long(format!("Message too long: {payload} > {PART_BYTES_MAX}")));
        }
        if self.is_continued
            && opcode < CLOSE
            && let Some(first) = self.buffer.first_mut()
        {
            // The crate does not know of the unfinished message, so it would accept another one.
            *first = *first & !OPCODE | CONTINUATION;
        }
        self.part_left = bytes.saturating_add(payload);
        Ok(Step::Deliver)
    }

    /// Writes the header of the next part of a frame.
    fn start_part(&mut self) {
        let part = usize::try_from(self.frame_left).unwrap_or(usize::MAX).min(PART_BYTES_MAX);
        self.part_left = part;
        // `part` is at most `frame_left`.
        self.frame_left = self.frame_left.saturating_sub(u64::try_from(part).unwrap_or(u64::MAX));
        self.header.reserve(PART_HEADER_BYTES_MAX);
        match (u8::try_from(part), u16::try_from(part)) {
            (Ok(short @ 0..126), _) => self.header.extend_from_slice(&[FIN | BINARY, MASK | short]),
            (_, length) => {
                self.header.extend_from_slice(&[FIN | BINARY, MASK | 126]);
                // At most PART_BYTES_MAX.
                self.header.extend_from_slice(&length.unwrap_or(u16::MAX).to_be_bytes());
            }
        }
        self.header.extend_from_slice(&self.mask);
    }

    fn deliver(&mut self, into: &mut ReadBuf<'_>) {
        let is_header = !self.header.is_empty();
        let (bytes, len) =
            if is_header { (&mut self.header, usize::MAX) } else { (&mut self.buffer, self.part_left) };
        let len = len.min(bytes.len()).min(into.remaining());
        into.put_slice(bytes.get(..len).unwrap_or_default());
        bytes.advance(len);
        if !is_header {
            self.part_left = self.part_left.saturating_sub(len);
        }
    }
}

fn too_long(text: String) -> io::Error {
    io::Error::new(TOO_LONG, text)
}

impl<S: AsyncRead + Unpin> AsyncRead for FrameLimit<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let Some(frames) = &mut this.frames else {
            return Pin::new(&mut this.stream).poll_read(context, into);
        };
        let before = into.filled().len();
        while into.remaining() > 0 {
            let is_filled = into.filled().len() > before;
            match frames.advance() {
                Ok(Step::Deliver) => frames.deliver(into),
                _ if is_filled => break,
                Err(error) => return Poll::Ready(Err(error)),
                // No waker is needed: the caller reads again after it has removed the limit.
                Ok(Step::Wait) => return Poll::Pending,
                Ok(Step::Read) => {
                    let len = match frames.unanswered_left {
                        Some(_) => UNANSWERED_READ_BYTES,
                        None => READ_BYTES,
                    };
                    frames.buffer.reserve(len);
                    let mut room = (&mut frames.buffer).limit(len);
                    match pin!(this.stream.read_buf(&mut room)).poll(context) {
                        Poll::Ready(Ok(0)) => break,
                        Poll::Ready(Ok(_)) => {}
                        Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                        Poll::Pending => return Poll::Pending,
                    }
                }
            }
        }
        Poll::Ready(Ok(()))
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

//! One step of the traffic of a connection: a write, a flush or a read.

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::task::Poll;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// The result of a write or a read.
#[derive(Debug)]
pub enum Transfer {
    /// The number of bytes written.
    Written(io::Result<usize>),
    Flushed(io::Result<()>),
    /// The number of bytes read.
    Read(io::Result<usize>),
}

/// What is to be sent now.
#[derive(Debug)]
pub enum Sending<'a> {
    Write(&'a mut BytesMut),
    /// What the stream has buffered.
    Flush,
    Nothing,
}

/// Writes or flushes, or else reads if it `reads`. Cancellation safe.
///
/// One future polls the stream for both: two futures would need a lock around the stream.
pub async fn write_or_read<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    mut sending: Sending<'_>,
    (input, reads): (&mut BytesMut, bool),
) -> Transfer {
    poll_fn(|context| {
        // The futures are created anew for each poll: none has a state that would be lost.
        let sent = match &mut sending {
            Sending::Write(output) => {
                let written = pin!(stream.write(output)).poll(context);
                if let Poll::Ready(Ok(len)) = written {
                    output.advance(len);
                }
                written.map(Transfer::Written)
            }
            Sending::Flush => pin!(stream.flush()).poll(context).map(Transfer::Flushed),
            Sending::Nothing => Poll::Pending,
        };
        if sent.is_ready() {
            return sent;
        }
        if reads {
            return pin!(stream.read_buf(input)).poll(context).map(Transfer::Read);
        }
        Poll::Pending
    })
    .await
}

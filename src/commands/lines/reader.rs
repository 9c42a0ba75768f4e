//! Lines of a file or of standard input, read in a thread with a bounded queue.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::path::Path;
use std::thread;

use tokio::sync::{mpsc, watch};

use crate::commands::error::{CommandError, Kind};
use crate::commands::session::Session;
use crate::protocol::key::{KEY_BYTES_MAX, VALUE_BYTES_MAX};

/// The maximum length of a line: the longest key and value in base64, and the rest of the record.
pub const LINE_BYTES_MAX: usize = (VALUE_BYTES_MAX + KEY_BYTES_MAX) / 3 * 4 + 4096;
const READ_BYTES: usize = 64 * 1024;
/// The number of reads that may wait in the queue; then the reader blocks, and with it the writer of a pipe.
const CHUNKS_MAX: usize = 2;

/// A line of a file.
#[derive(Debug)]
pub struct Line {
    /// Counts from 1.
    pub number: u64,
    /// The bytes without the separator, or the reason why the line cannot be used.
    pub content: Result<Vec<u8>, CommandError>,
    /// Whether the file ends before the separator.
    pub is_cut_off: bool,
    /// The number of bytes of the file up to the end of this line.
    pub bytes_read: u64,
}

/// The lines of a file.
#[derive(Debug)]
pub struct Lines {
    chunks: mpsc::Receiver<Vec<Line>>,
    ready: VecDeque<Line>,
    bytes_total: Option<u64>,
    /// Becomes true when the session is canceled, which ends the lines.
    canceled: Option<watch::Receiver<bool>>,
}

impl Lines {
    /// Opens a file, or standard input for `-`. The lines end early if the session is canceled.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn open(path: &Path, separator: u8, session: &Session) -> Result<Self, CommandError> {
        let lines = if path == Path::new("-") {
            session.take_input()?;
            Self::start(io::stdin, "standard input".to_owned(), None, separator)
        } else {
            Self::of_file(path, separator)
        };
        Ok(Self { canceled: Some(session.canceled()), ..lines? })
    }

    /// Opens a file.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn of_file(path: &Path, separator: u8) -> Result<Self, CommandError> {
        let unreadable = |error| CommandError::file("read", path, &error);
        let file = File::open(path).map_err(unreadable)?;
        let metadata = file.metadata().map_err(unreadable)?;
        if metadata.is_dir() {
            return Err(unreadable(ErrorKind::IsADirectory.into()));
        }
        let bytes_total = metadata.is_file().then_some(metadata.len());
        Self::start(move || file, path.display().to_string(), bytes_total, separator)
    }

    /// Starts the thread. It is never joined: a read of standard input may not return.
    fn start<R: Read>(
        open: impl FnOnce() -> R + Send + 'static,
        name: String,
        bytes_total: Option<u64>,
        separator: u8,
    ) -> Result<Self, CommandError> {
        let (sender, chunks) = mpsc::channel(CHUNKS_MAX);
        let read = move || {
            let input = BufReader::with_capacity(READ_BYTES, open());
            read_lines(input, &name, separator, |chunk| sender.blocking_send(chunk).is_ok());
        };
        thread::Builder::new()
            .name("input".to_owned())
            .spawn(read)
            .map_err(|error| CommandError::system("start a thread", &error))?;
        Ok(Self { chunks, ready: VecDeque::new(), bytes_total, canceled: None })
    }

    /// Returns the next line, if it has been read already.
    pub fn try_next(&mut self) -> Option<Line> {
        if self.canceled.as_ref().is_some_and(|canceled| *canceled.borrow()) {
            return None;
        }
        if self.ready.is_empty() {
            self.ready.extend(self.chunks.try_recv().ok()?);
        }
        self.ready.pop_front()
    }

    /// Waits for the next line; returns None at the end. Cancel-safe.
    pub async fn next(&mut self) -> Option<Line> {
        if self.ready.is_empty() {
            let chunk = tokio::select! {
                biased;
                () = cancellation(self.canceled.as_mut()) => None,
                chunk = self.chunks.recv() => chunk,
            };
            self.ready.extend(chunk?);
        }
        self.try_next()
    }

    /// Returns the length of the file in bytes; None if it is not a regular file.
    #[must_use]
    pub fn bytes_total(&self) -> Option<u64> {
        self.bytes_total
    }
}

/// Waits until the session is canceled.
async fn cancellation(canceled: Option<&mut watch::Receiver<bool>>) {
    if let Some(canceled) = canceled
        && canceled.wait_for(|is_canceled| *is_canceled).await.is_ok()
    {
        return;
    }
    std::future::pending().await
}

/// Reads lines to the end. `send` takes the lines of one read, and returns whether the receiver still exists.
fn read_lines(mut input: impl BufRead, name: &str, separator: u8, mut send: impl FnMut(Vec<Line>) -> bool) {
    let mut splitter = Splitter::new(separator);
    loop {
        let mut chunk = Vec::new();
        let len = match input.fill_buf() {
            Ok([]) => {
                chunk.extend(splitter.end());
                send(chunk);
                return;
            }
            Ok(bytes) => {
                splitter.push(bytes, &mut chunk);
                bytes.len()
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => {
                chunk.push(splitter.failed(name, &error));
                send(chunk);
                return;
            }
        };
        input.consume(len);
        if !chunk.is_empty() && !send(chunk) {
            return;
        }
    }
}

/// Splits bytes into lines.
struct Splitter {
    separator: u8,
    number: u64,
    bytes_read: u64,
    line: Vec<u8>,
    is_too_long: bool,
}

impl Splitter {
    fn new(separator: u8) -> Self {
        Self { separator, number: 1, bytes_read: 0, line: Vec::new(), is_too_long: false }
    }

    fn push(&mut self, bytes: &[u8], lines: &mut Vec<Line>) {
        let separator = self.separator;
        for piece in bytes.split_inclusive(|byte| *byte == separator) {
            // A usize fits into u64 on every platform of Rust. The count is for the progress display only.
            self.bytes_read = self.bytes_read.saturating_add(piece.len() as u64);
            match piece.strip_suffix(&[separator]) {
                Some(last) => {
                    self.append(last);
                    lines.push(self.finish(false));
                }
                None => self.append(piece),
            }
        }
    }

    fn append(&mut self, piece: &[u8]) {
        if self.line.len().saturating_add(piece.len()) > LINE_BYTES_MAX {
            self.is_too_long = true;
            self.line = Vec::new();
        }
        if !self.is_too_long {
            self.line.extend_from_slice(piece);
        }
    }

    fn finish(&mut self, is_cut_off: bool) -> Line {
        let content = match std::mem::take(&mut self.is_too_long) {
            true => Err(CommandError::new(
                Kind::Data,
                format!("line too long: the limit is {LINE_BYTES_MAX} bytes"),
            )),
            false => Ok(std::mem::take(&mut self.line)),
        };
        let line = Line { number: self.number, content, is_cut_off, bytes_read: self.bytes_read };
        self.number = self.number.saturating_add(1);
        line
    }

    fn end(&mut self) -> Option<Line> {
        (!self.line.is_empty() || self.is_too_long).then(|| self.finish(true))
    }

    fn failed(&mut self, name: &str, error: &io::Error) -> Line {
        let content = Err(CommandError::new(Kind::File, format!("cannot read {name}: {error}")));
        Line { content, ..self.finish(true) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(bytes: &[u8], capacity: usize) -> Vec<(u64, Vec<u8>, bool, u64)> {
        let mut found = Vec::new();
        read_lines(BufReader::with_capacity(capacity, bytes), "x", b'\n', |chunk| {
            found.extend(
                chunk
                    .into_iter()
                    .map(|line| (line.number, line.content.unwrap(), line.is_cut_off, line.bytes_read)),
            );
            true
        });
        found
    }

    #[test]
    fn lines_do_not_depend_on_the_size_of_the_reads() {
        let expected = vec![
            (1, b"one".to_vec(), false, 4),
            (2, b"".to_vec(), false, 5),
            (3, b"three\r".to_vec(), false, 12),
            (4, b"fo".to_vec(), true, 14),
        ];
        for capacity in [1, 2, 3, 5, 64] {
            assert_eq!(lines(b"one\n\nthree\r\nfo", capacity), expected, "{capacity}");
        }
        assert_eq!(lines(b"", 8), []);
    }

    #[test]
    fn a_line_over_the_limit_is_an_error_and_not_buffered() {
        let mut splitter = Splitter::new(b'\n');
        let mut lines = Vec::new();
        let piece = vec![b'x'; 32 * 1024 * 1024];
        for _ in 0..=LINE_BYTES_MAX / piece.len() {
            splitter.push(&piece, &mut lines);
        }
        assert_eq!(splitter.line.capacity(), 0);
        splitter.push(b"x\nnext\n", &mut lines);
        assert_eq!(lines[0].content.as_ref().unwrap_err().kind, Kind::Data);
        assert_eq!(lines[1].content.as_deref().unwrap(), b"next");
    }

    #[test]
    fn a_read_error_is_the_last_line() {
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(ErrorKind::PermissionDenied.into())
            }
        }
        let mut found = Vec::new();
        read_lines(BufReader::new(Broken), "x", b'\n', |chunk| {
            found.extend(chunk);
            true
        });
        assert_eq!(found[0].content.as_ref().unwrap_err().kind, Kind::File);
    }
}

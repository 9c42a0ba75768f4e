//! Lines of a file or of standard input, read in a thread with a bounded queue.

use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::path::Path;
use std::sync::Arc;
use std::thread;

use bytes::{Buf, Bytes};
use tokio::sync::{mpsc, watch};

use crate::commands::error::{CommandError, Kind, Place};
use crate::commands::session::Session;
use crate::files::text;
use crate::protocol::key::{KEY_BYTES_MAX, VALUE_BYTES_MAX};

/// The maximum length of a line: the longest key and value in base64, and the rest of the record.
pub const LINE_BYTES_MAX: usize = (VALUE_BYTES_MAX + KEY_BYTES_MAX) / 3 * 4 + 4096;
const READ_BYTES: usize = 64 * 1024;
/// The number of reads that may wait in the queue; then the reader blocks, and with it the writer of a pipe.
const CHUNKS_MAX: usize = 2;

/// A line of a file.
#[derive(Debug)]
pub struct Line {
    pub place: Place,
    /// The bytes without the separator, or the reason why the line cannot be used.
    pub content: Result<Bytes, CommandError>,
    /// Whether the file ends before the separator.
    pub is_cut_off: bool,
    /// The number of bytes of the file up to the end of this line.
    pub bytes_read: u64,
}

/// The lines of a file.
#[derive(Debug)]
pub struct Lines {
    /// The bytes of one read each, or the error that ends the input.
    chunks: mpsc::Receiver<Result<Bytes, CommandError>>,
    splitter: Splitter,
    bytes_total: Option<u64>,
    /// Becomes true when the session is canceled, which ends the lines.
    canceled: Option<watch::Receiver<bool>>,
}

impl Lines {
    /// Opens a file, or standard input for `-`. The lines end early if the session is canceled.
    pub fn open(path: &Path, separator: u8, session: &Session) -> Result<Self, CommandError> {
        let lines = if path == Path::new("-") {
            session.take_input()?;
            Self::start(io::stdin, path, "standard input".to_owned(), None, separator)
        } else {
            Self::of_file(path, separator)
        };
        Ok(Self { canceled: Some(session.canceled()), ..lines? })
    }

    pub fn of_file(path: &Path, separator: u8) -> Result<Self, CommandError> {
        let unreadable = |error| CommandError::file("read", path, &error);
        let file = File::open(path).map_err(unreadable)?;
        let metadata = file.metadata().map_err(unreadable)?;
        if metadata.is_dir() {
            return Err(unreadable(ErrorKind::IsADirectory.into()));
        }
        let bytes_total = metadata.is_file().then_some(metadata.len());
        Self::start(move || file, path, path.display().to_string(), bytes_total, separator)
    }

    /// Starts the thread. It is never joined: a read of standard input may not return.
    fn start<R: Read>(
        open: impl FnOnce() -> R + Send + 'static,
        path: &Path,
        name: String,
        bytes_total: Option<u64>,
        separator: u8,
    ) -> Result<Self, CommandError> {
        let (sender, chunks) = mpsc::channel(CHUNKS_MAX);
        let read = move || {
            let input = BufReader::with_capacity(READ_BYTES, open());
            read_chunks(input, &name, |chunk| sender.blocking_send(chunk).is_ok());
        };
        thread::Builder::new()
            .name("input".to_owned())
            .spawn(read)
            .map_err(|error| CommandError::system("start a thread", &error))?;
        Ok(Self { chunks, splitter: Splitter::new(path.into(), separator), bytes_total, canceled: None })
    }

    /// Returns the next line, if it has been read already.
    pub fn try_next(&mut self) -> Option<Line> {
        if self.canceled.as_ref().is_some_and(|canceled| *canceled.borrow()) {
            return None;
        }
        loop {
            if let Some(line) = self.splitter.next() {
                return Some(line);
            }
            if self.splitter.is_over {
                return None;
            }
            let chunk = self.chunks.try_recv().ok()?;
            if let Some(line) = self.splitter.handle_chunk(chunk) {
                return Some(line);
            }
        }
    }

    /// Waits for the next line; returns None at the end. Cancel-safe.
    pub async fn next(&mut self) -> Option<Line> {
        loop {
            if let Some(line) = self.try_next() {
                return Some(line);
            }
            if self.splitter.is_over {
                return None;
            }
            let chunk = tokio::select! {
                biased;
                () = cancellation(self.canceled.as_mut()) => return None,
                chunk = self.chunks.recv() => chunk,
            };
            let Some(chunk) = chunk else {
                return self.splitter.end();
            };
            if let Some(line) = self.splitter.handle_chunk(chunk) {
                return Some(line);
            }
        }
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

/// Reads to the end. `send` takes the bytes of one read, and returns whether the receiver still exists.
fn read_chunks(
    mut input: impl BufRead,
    name: &str,
    mut send: impl FnMut(Result<Bytes, CommandError>) -> bool,
) {
    loop {
        let chunk = match input.fill_buf() {
            Ok([]) => return,
            Ok(bytes) => Bytes::copy_from_slice(bytes),
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => {
                send(Err(CommandError::new(Kind::File, format!("cannot read {name}: {error}"))));
                return;
            }
        };
        input.consume(chunk.len());
        if !send(Ok(chunk)) {
            return;
        }
    }
}

/// Splits bytes into lines. A line that one read contains shares its memory.
#[derive(Debug)]
struct Splitter {
    file: Arc<Path>,
    separator: u8,
    number: u64,
    bytes_read: u64,
    /// What is left of the last read.
    chunk: Bytes,
    /// The beginning of a line that continues in the next read.
    line: Vec<u8>,
    /// Whether nothing more is read: after a line that was too long, and may have no end, or of text in another encoding.
    is_over: bool,
}

impl Splitter {
    fn new(file: Arc<Path>, separator: u8) -> Self {
        Self {
            file,
            separator,
            number: 1,
            bytes_read: 0,
            chunk: Bytes::new(),
            line: Vec::new(),
            is_over: false,
        }
    }

    /// Takes the bytes of a read, once there is no further line in those before. Returns the line for an error.
    fn handle_chunk(&mut self, chunk: Result<Bytes, CommandError>) -> Option<Line> {
        match chunk {
            Ok(chunk) => {
                self.chunk = chunk;
                None
            }
            Err(error) => {
                self.line = Vec::new();
                Some(Line { content: Err(error), ..self.finish(Bytes::new(), true) })
            }
        }
    }

    /// Returns the next complete line, or the error of one that is too long, which is the last.
    fn next(&mut self) -> Option<Line> {
        let separator_at = self.separator_at();
        let piece = self.chunk.split_to(separator_at.unwrap_or(self.chunk.len()));
        self.count(piece.len().saturating_add(usize::from(separator_at.is_some())));
        if self.line.len().saturating_add(piece.len()) > LINE_BYTES_MAX {
            (self.line, self.chunk, self.is_over) = (Vec::new(), Bytes::new(), true);
            let message =
                format!("line too long: the limit is {LINE_BYTES_MAX} bytes; nothing after it is read");
            let content = Err(CommandError::new(Kind::Data, message));
            return Some(Line { content, ..self.finish(Bytes::new(), false) });
        }
        if separator_at.is_none() {
            self.line.extend_from_slice(&piece);
            return None;
        }
        self.chunk.advance(1);
        if self.line.is_empty() {
            return Some(self.finish(piece, false));
        }
        self.line.extend_from_slice(&piece);
        let line = std::mem::take(&mut self.line);
        Some(self.finish(line.into(), false))
    }

    /// Returns the position of the next separator. The search of `BufRead` is that of libc, which does not compare byte by byte.
    fn separator_at(&self) -> Option<usize> {
        let mut rest: &[u8] = &self.chunk;
        let at = rest.skip_until(self.separator).ok()?.checked_sub(1)?;
        (self.chunk.get(at) == Some(&self.separator)).then_some(at)
    }

    /// Returns the last line if it ends without a separator.
    fn end(&mut self) -> Option<Line> {
        let line = std::mem::take(&mut self.line);
        (!line.is_empty()).then(|| self.finish(line.into(), true))
    }

    fn count(&mut self, bytes: usize) {
        // A usize fits into u64 on every platform of Rust. The count is for the progress display only.
        self.bytes_read = self.bytes_read.saturating_add(bytes as u64);
    }

    /// Returns the first line of a text without its byte order mark.
    fn unmarked(&mut self, content: Bytes) -> Result<Bytes, CommandError> {
        match text::unmarked(&content) {
            Ok(text) => Ok(content.slice_ref(text)),
            Err(error) => {
                (self.chunk, self.is_over) = (Bytes::new(), true);
                Err(CommandError::new(Kind::Data, format!("the text {error}")).hint(error.hint()))
            }
        }
    }

    fn finish(&mut self, content: Bytes, is_cut_off: bool) -> Line {
        let place = Place { file: Arc::clone(&self.file), line: self.number };
        let is_first = self.number == 1 && self.separator == b'\n';
        let content = if is_first { self.unmarked(content) } else { Ok(content) };
        let line = Line { place, content, is_cut_off, bytes_read: self.bytes_read };
        self.number = self.number.saturating_add(1);
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns all lines of the input.
    fn read(input: impl BufRead) -> Vec<Line> {
        let (mut splitter, mut found) = (Splitter::new(Path::new("x").into(), b'\n'), Vec::new());
        read_chunks(input, "x", |chunk| {
            found.extend(splitter.handle_chunk(chunk));
            found.extend(std::iter::from_fn(|| splitter.next()));
            !splitter.is_over
        });
        found.extend(splitter.end());
        found
    }

    fn lines(bytes: &[u8], capacity: usize) -> Vec<(u64, Vec<u8>, bool, u64)> {
        let lines = read(BufReader::with_capacity(capacity, bytes)).into_iter();
        lines
            .map(|line| (line.place.line, line.content.unwrap().to_vec(), line.is_cut_off, line.bytes_read))
            .collect()
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
    fn the_first_line_has_no_byte_order_mark_and_text_in_another_encoding_is_one_error() {
        for capacity in [1, 2, 64] {
            let expected = [(1, b"one".to_vec(), false, 7), (2, b"\xEF\xBB\xBFtwo".to_vec(), true, 13)];
            assert_eq!(lines(b"\xEF\xBB\xBFone\n\xEF\xBB\xBFtwo", capacity), expected, "{capacity}");
            assert_eq!(lines(b"\xEF\xBB\xBF\n", capacity), [(1, Vec::new(), false, 4)]);
            for text in ["\u{FEFF}one\ntwo", "one\ntwo\n"] {
                let utf_16: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
                let found = read(BufReader::with_capacity(capacity, &utf_16[..]));
                let [Line { content: Err(error), .. }] = &found[..] else { panic!("{found:?}") };
                assert!(error.message.starts_with("the text is encoded in UTF-16"), "{error:?}");
            }
        }
    }

    #[test]
    fn a_line_over_the_limit_ends_the_input_before_the_line_ends() {
        let mut splitter = Splitter::new(Path::new("x").into(), b'\n');
        let piece = Bytes::from(vec![b'x'; 32 * 1024 * 1024]);
        let line = (0..=LINE_BYTES_MAX / piece.len()).find_map(|_| {
            assert!(!splitter.is_over);
            splitter.handle_chunk(Ok(piece.clone()));
            splitter.next()
        });
        let line = line.unwrap();
        assert_eq!((line.content.unwrap_err().kind, line.is_cut_off), (Kind::Data, false));
        assert!(splitter.is_over && splitter.end().is_none());
        assert_eq!(splitter.line.capacity(), 0);
    }

    #[test]
    fn a_read_error_is_the_last_line() {
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(ErrorKind::PermissionDenied.into())
            }
        }
        let found = read(BufReader::new(Broken));
        assert_eq!(found[0].content.as_ref().unwrap_err().kind, Kind::File);
    }
}

//! From the lines of a file to requests in flight and back to their outcomes, in order.

use crate::commands::CommandError;
use crate::commands::lines::error_policy::ErrorPolicy;
use crate::commands::lines::pipeline::Window;
use crate::commands::lines::reader::{Line, Lines};

/// What every work on the lines of a file has.
pub struct Flow<'a, T> {
    /// What is in flight.
    pub window: Window<'a, T>,
    /// What went wrong.
    pub troubles: ErrorPolicy,
    /// How many bytes the file has, where that is known.
    pub bytes_total: Option<u64>,
    /// How many of them have been read.
    pub bytes_read: u64,
    /// A line that cannot be carried out stands at the end of the window, so nothing more is read.
    pub is_failing: bool,
}

impl<T> Flow<'_, T> {
    /// Nothing in flight yet, and so many at most.
    pub fn new(inflight: u16, keep_going: bool, lines: &Lines) -> Self {
        Self {
            window: Window::new(inflight),
            troubles: ErrorPolicy::new(keep_going),
            bytes_total: lines.bytes_total(),
            bytes_read: 0,
            is_failing: false,
        }
    }

    fn takes_more(&self) -> bool {
        self.window.has_room() && !self.is_failing && !self.troubles.is_stopped()
    }

    /// Puts a line that cannot be carried out behind what is in flight.
    pub fn push_failed(&mut self, outcome: T) {
        self.is_failing = !self.troubles.keeps_going();
        self.window.push_landed(outcome);
    }
}

/// Work on the lines of a file.
pub trait Work<'a> {
    /// What becomes of a line.
    type Outcome;

    /// What it has.
    fn flow(&mut self) -> &mut Flow<'a, Self::Outcome>;

    /// Puts a line into the window, or carries it out.
    async fn take(&mut self, line: Line) -> Result<(), CommandError>;

    /// Says what became of a line.
    fn put(&mut self, outcome: Self::Outcome) -> Result<(), CommandError>;

    /// Says how far it is.
    fn tell_progress(&mut self) -> Result<(), CommandError>;
}

/// Takes line after line, as many as there is room for in flight, until the end or the first trouble that counts.
pub async fn pump<'a>(work: &mut impl Work<'a>, mut lines: Lines) -> Result<(), CommandError> {
    let mut has_more = true;
    loop {
        while let Some(outcome) = work.flow().window.try_next() {
            work.put(outcome)?;
        }
        while work.flow().takes_more()
            && let Some(line) = lines.try_next()
        {
            work.take(line).await?;
        }
        let flow = work.flow();
        let (waits, reads) = (!flow.window.is_empty(), has_more && flow.takes_more());
        if !waits && !reads {
            return Ok(());
        }
        work.tell_progress()?;
        tokio::select! {
            biased;
            () = work.flow().window.settle(), if waits => {}
            line = lines.next(), if reads => match line {
                Some(line) => work.take(line).await?,
                None => has_more = false,
            },
        }
    }
}

//! Processes the lines of a file through a pipeline of requests, in order.

use super::error_policy::ErrorPolicy;
use super::pipeline::Pipeline;
use super::reader::{Line, Lines};
use crate::client::{Error, Response};
use crate::commands::error::CommandError;

/// The state of every line processor.
#[derive(Debug)]
pub struct ProcessorState<T> {
    /// The requests in flight, and the lines that need none.
    pub pipeline: Pipeline<T>,
    /// The errors so far.
    pub errors: ErrorPolicy,
    /// The length of the file in bytes, where it is known.
    pub bytes_total: Option<u64>,
    /// The number of bytes that have been read.
    pub bytes_read: u64,
    /// Whether the pipeline contains a line that has failed, so that no further line may start.
    pub is_failing: bool,
}

impl<T> ProcessorState<T> {
    /// Creates the state for `inflight` requests in flight, or a number that adapts.
    pub fn new(inflight: Option<u16>, keep_going: bool, lines: &Lines) -> Self {
        Self {
            pipeline: Pipeline::new(inflight),
            errors: ErrorPolicy::new(keep_going),
            bytes_total: lines.bytes_total(),
            bytes_read: 0,
            is_failing: false,
        }
    }

    fn takes_more(&self) -> bool {
        self.pipeline.has_capacity() && !self.is_failing && !self.errors.is_stopped()
    }

    /// Adds a line that needs no request because it is invalid.
    pub fn push_failed(&mut self, line: T) {
        self.is_failing = !self.errors.keeps_going();
        self.pipeline.push_done(line);
    }
}

/// Turns lines into requests, and answers into output.
pub trait LineProcessor {
    /// What is stored of a line until it is answered.
    type Pending;
    /// A line that cannot be sent at once.
    type Deferred;

    fn state(&mut self) -> &mut ProcessorState<Self::Pending>;

    /// Pushes the request of a line into the pipeline, or returns the line if it has to wait: for the connection, or for the lines
    /// before it. Nearly all lines need not: a future for each of them would cost more than its request.
    fn start(&mut self, line: Line) -> Result<Option<Self::Deferred>, CommandError>;

    /// Waits, and pushes the request of a line into the pipeline or carries it out.
    async fn run(&mut self, deferred: Self::Deferred) -> Result<(), CommandError>;

    /// Emits the outcome of a line; `result` is that of its request, if it has one.
    fn finish(
        &mut self,
        line: Self::Pending,
        result: Option<Result<Response, Error>>,
    ) -> Result<(), CommandError>;

    fn report_progress(&mut self) -> Result<(), CommandError>;
}

/// Processes lines until the end of the file, or until an error stops them; pending requests are completed.
pub async fn process_lines(processor: &mut impl LineProcessor, mut lines: Lines) -> Result<(), CommandError> {
    let mut has_more = true;
    loop {
        while let Some((line, result)) = processor.state().pipeline.try_next() {
            processor.finish(line, result)?;
        }
        while processor.state().takes_more()
            && let Some(line) = lines.try_next()
        {
            // Not in a function of its own, whose future would be as large as those of all waiting lines.
            if let Some(deferred) = processor.start(line)? {
                processor.run(deferred).await?;
            }
        }
        let state = processor.state();
        let (waits, reads) = (!state.pipeline.is_empty(), has_more && state.takes_more());
        if !waits && !reads {
            return Ok(());
        }
        processor.report_progress()?;
        tokio::select! {
            biased;
            () = processor.state().pipeline.wait(), if waits => {}
            line = lines.next(), if reads => match line {
                Some(line) => if let Some(deferred) = processor.start(line)? {
                    processor.run(deferred).await?;
                },
                None => has_more = false,
            },
        }
    }
}

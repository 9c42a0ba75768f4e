//! The signals that end a verb: since when they are listened to, and what is told of what they end.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::sleep;

use crate::commands::output::Outcome;
use crate::commands::signal::{Signal, Signals};
use crate::commands::{CommandError, Kind, Verdict};

/// How long what a signal ends may take: longer than a goodbye to a broker that does not listen.
const PATIENCE: Duration = Duration::from_secs(3);

/// The signals that end a verb, from when on they no longer end the process by themselves: a terminal that was made
/// dark for a question must be given back, and what became of a write must be told.
#[derive(Clone, Debug, Default)]
pub struct Heeded(Rc<RefCell<Option<mpsc::Receiver<Signal>>>>);

impl Heeded {
    /// Begins to listen, to all of them.
    ///
    /// # Errors
    /// The system takes no handler.
    pub fn begin(&self) -> Result<(), CommandError> {
        self.listen(Signals::new)
    }

    /// Begins to listen to those behind which somebody is left who can be told.
    ///
    /// # Errors
    /// The system takes no handler.
    pub fn begin_for_write(&self) -> Result<(), CommandError> {
        self.listen(Signals::of_requests)
    }

    fn listen(&self, signals: fn() -> io::Result<Signals>) -> Result<(), CommandError> {
        if self.0.borrow().is_some() {
            return Ok(());
        }
        let failed = |error| CommandError::new(Kind::Bug, format!("cannot listen to signals: {error}"));
        let mut signals = signals().map_err(failed)?;
        let (told, heard) = mpsc::channel(1);
        tokio::spawn(async move {
            let signal = signals.next().await;
            let _ = told.send(signal).await;
            // Who is held up by a reader that does not read never hears of it.
            tokio::select! {
                _ = signals.next() => {}
                () = sleep(PATIENCE) => {}
            }
            signal.take_effect();
        });
        self.0.replace(Some(heard));
        Ok(())
    }

    /// The signal, once it has come; never, as long as signals end the process by themselves.
    pub async fn next(&self) -> Signal {
        poll_fn(|context| match &mut *self.0.borrow_mut() {
            Some(heard) => match heard.poll_recv(context) {
                Poll::Ready(Some(signal)) => Poll::Ready(signal),
                Poll::Ready(None) | Poll::Pending => Poll::Pending,
            },
            None => Poll::Pending,
        })
        .await
    }
}

/// What a write ends with into which a signal came, by what is known of its requests. Of `many` lines some may have been
/// carried out before.
pub fn ended(
    signal: Signal,
    many: bool,
    result: Result<Verdict, CommandError>,
) -> Result<Verdict, CommandError> {
    let Some(failure) = signal.failure() else { return Ok(signal.verdict()) };
    match result {
        // The answer was there with the signal.
        Ok(verdict) if !many => Ok(verdict),
        Ok(_) => Err(failure.cause("what had been sent by then was answered")),
        Err(error) => {
            let is_told = many || error.kind != Kind::Unavailable;
            let causes = is_told.then_some(error.message).into_iter().chain(error.causes).collect();
            let looks = !many && error.outcome == Some(Outcome::Unknown);
            let hints = looks.then(|| "mqkv get KEY, to see what is there".to_owned()).into_iter().collect();
            Err(CommandError { causes, hints, outcome: error.outcome, ..failure })
        }
    }
}

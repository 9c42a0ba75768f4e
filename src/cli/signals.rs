//! The signals that end a verb: since when they are listened to, and what is told of what they end.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::sleep;

use crate::client::Access;
use crate::commands::output::Outcome;
use crate::commands::process::signal::{Signal, Signals};
use crate::commands::{CommandError, Kind, Verdict};

/// How long what a signal ends may take: longer than a goodbye to a broker that does not listen.
const PATIENCE: Duration = Duration::from_secs(3);

/// Begins to listen to some signals.
type Listen = fn() -> io::Result<Signals>;

/// The signals that end a verb, from when on they no longer end the process by themselves: a terminal that was made
/// dark for a question must be given back, and what became of a write must be told.
#[derive(Clone, Debug, Default)]
pub struct Heeded {
    listen: Option<Listen>,
    heard: Rc<RefCell<Option<mpsc::Receiver<Signal>>>>,
}

impl Heeded {
    /// The signals of a verb that does not listen itself; `asks` says whether it asks for a password.
    #[must_use]
    pub fn of(access: Access, asks: bool) -> Self {
        let listen: Option<Listen> = match access {
            _ if asks => Some(Signals::new),
            // A terminal that is gone takes along whoever could be told.
            Access::Write => Some(Signals::of_requests),
            Access::Read => None,
        };
        Self { listen, heard: Rc::default() }
    }

    /// Whether there is something to listen to.
    #[must_use]
    pub fn listens(&self) -> bool {
        self.listen.is_some()
    }

    /// Begins to listen.
    ///
    /// # Errors
    /// The system takes no handler.
    pub fn begin(&self) -> Result<(), CommandError> {
        let Some(listen) = self.listen.filter(|_| self.heard.borrow().is_none()) else { return Ok(()) };
        let failed = |error| CommandError::system("listen to signals", &error);
        let mut signals = listen().map_err(failed)?;
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
        self.heard.replace(Some(heard));
        Ok(())
    }

    /// The signal, once it has come; never, as long as signals end the process by themselves.
    pub async fn next(&self) -> Signal {
        poll_fn(|context| match &mut *self.heard.borrow_mut() {
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
        Err(error) if !many && is_no(&error) => Err(error),
        Err(error) => {
            let is_told = many || error.kind != Kind::Unavailable;
            let causes = is_told.then_some(error.message).into_iter().chain(error.causes).collect();
            let looks = !many && error.outcome == Some(Outcome::Unknown);
            let hints = looks.then(|| "mqkv get KEY, to see what is there".to_owned()).into_iter().collect();
            Err(CommandError { causes, hints, outcome: error.outcome, ..failure })
        }
    }
}

/// Whether it is the answer, and leaves nothing open that the signal could have cut short.
fn is_no(error: &CommandError) -> bool {
    let is_answer = matches!(error.kind, Kind::Refused | Kind::Authorization);
    is_answer && error.outcome == Some(Outcome::Unchanged)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Error;
    use crate::protocol::ErrorReply;

    #[test]
    fn a_refusal_that_comes_together_with_the_signal_is_the_answer() {
        let refused = CommandError::from(Error::Refused(ErrorReply::FenceRequired));
        assert_eq!(ended(Signal::Interrupt, false, Err(refused.clone())), Err(refused.clone()));
        let of_many = ended(Signal::Interrupt, true, Err(refused.clone())).unwrap_err();
        assert_eq!((of_many.kind, of_many.causes), (Kind::Interrupted, vec![refused.message.clone()]));
        let open = CommandError { outcome: Some(Outcome::Unknown), ..refused };
        assert_eq!(ended(Signal::Interrupt, false, Err(open)).unwrap_err().kind, Kind::Interrupted);
        let closed = ended(Signal::Terminate, false, Err(Error::Closed.into())).unwrap_err();
        assert_eq!((closed.kind, closed.causes), (Kind::Terminated, vec![]));
    }
}

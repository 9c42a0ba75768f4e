//! Signals that end a verb: when they are handled, and the result of a write that they interrupt.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::sleep;

use crate::client::Access;
use crate::client::Outcome;
use crate::commands::process::signal::{exit_of, write_error_of};
use crate::commands::{CommandError, Exit, Kind};
use crate::platform::{Signal, Signals};

/// Time that an interrupted verb has to end: longer than a DISCONNECT to a broker that does not read.
const END_TIMEOUT: Duration = Duration::from_secs(3);

/// Starts to handle some signals.
type Listen = fn() -> io::Result<Signals>;

/// Handler of the signals that end a verb. Without a handler a signal ends the process at once. Some need one: a password
/// prompt must restore the terminal's modes, kubectl has to be ended, and a write must report what is known of its outcome.
#[derive(Clone, Debug, Default)]
pub struct EndSignals {
    listen: Option<Listen>,
    received: Rc<RefCell<Option<mpsc::Receiver<Signal>>>>,
}

impl EndSignals {
    /// Returns the handler of a verb that has none of its own; `has_to_end` is whether its connection has something to end.
    #[must_use]
    pub fn of(access: Access, has_to_end: bool) -> Self {
        let listen: Option<Listen> = match access {
            _ if has_to_end => Some(Signals::new),
            // Without SIGHUP: the terminal that could show the outcome is gone.
            Access::Write => Some(Signals::of_requests),
            Access::Read => None,
        };
        Self { listen, received: Rc::default() }
    }

    /// Returns whether there are signals to handle.
    #[must_use]
    pub fn has_handler(&self) -> bool {
        self.listen.is_some()
    }

    /// Starts to handle the signals, once.
    pub fn handle(&self) -> Result<(), CommandError> {
        let Some(listen) = self.listen.filter(|_| self.received.borrow().is_none()) else { return Ok(()) };
        let failed = |error| CommandError::system("listen to signals", &error);
        let mut signals = listen().map_err(failed)?;
        let (sender, receiver) = mpsc::channel(1);
        tokio::spawn(async move {
            let signal = signals.next().await;
            let _ = sender.send(signal).await;
            // A thread that blocks on a slow reader of its output does not see the signal: the process ends anyway.
            tokio::select! {
                _ = signals.next() => {}
                () = sleep(END_TIMEOUT) => {}
            }
            signal.take_effect();
        });
        self.received.replace(Some(receiver));
        Ok(())
    }

    /// Waits for the first signal; for ever, if none is handled.
    pub async fn next(&self) -> Signal {
        poll_fn(|context| match &mut *self.received.borrow_mut() {
            Some(received) => match received.poll_recv(context) {
                Poll::Ready(Some(signal)) => Poll::Ready(signal),
                Poll::Ready(None) | Poll::Pending => Poll::Pending,
            },
            None => Poll::Pending,
        })
        .await
    }
}

/// Returns the result of a write that a signal has interrupted, from the `result` of its requests. Of `many` lines, some
/// can have been executed before.
pub fn interrupted_result(
    signal: Signal,
    many: bool,
    result: Result<Exit, CommandError>,
) -> Result<Exit, CommandError> {
    let Some(failure) = write_error_of(signal) else { return Ok(exit_of(signal)) };
    match result {
        // The reply arrived together with the signal.
        Ok(exit) if !many => Ok(exit),
        Ok(_) => Err(failure.cause("all requests sent until then were answered")),
        Err(error) if !many && is_refusal(&error) => Err(error),
        Err(error) => {
            let is_reported = many || error.kind != Kind::Unavailable;
            let causes =
                is_reported.then(|| error.placed_message()).into_iter().chain(error.causes).collect();
            let is_unknown = error.outcome == Some(Outcome::Unknown);
            let hints = match many {
                // Such as the line to continue from.
                true => error.hints,
                false => is_unknown.then(|| "check the value: mqkv get KEY".to_owned()).into_iter().collect(),
            };
            Err(CommandError { causes, hints, outcome: error.outcome, ..failure })
        }
    }
}

/// Returns whether the error is a reply that leaves nothing unknown.
fn is_refusal(error: &CommandError) -> bool {
    let is_answer = matches!(error.kind, Kind::Refused | Kind::Authorization);
    is_answer && error.outcome == Some(Outcome::Unchanged)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Error;
    use crate::protocol::ErrorReply;

    #[test]
    fn a_refusal_that_arrives_with_the_signal_is_the_result() {
        let refused = CommandError::from(Error::Refused(ErrorReply::FenceRequired));
        assert_eq!(interrupted_result(Signal::Interrupt, false, Err(refused.clone())), Err(refused.clone()));
        let of_many = interrupted_result(Signal::Interrupt, true, Err(refused.clone())).unwrap_err();
        assert_eq!((of_many.kind, of_many.causes), (Kind::Interrupted, vec![refused.message.clone()]));
        let open = CommandError { outcome: Some(Outcome::Unknown), ..refused };
        assert_eq!(
            interrupted_result(Signal::Interrupt, false, Err(open)).unwrap_err().kind,
            Kind::Interrupted
        );
        let closed = interrupted_result(Signal::Terminate, false, Err(Error::Closed.into())).unwrap_err();
        assert_eq!((closed.kind, closed.causes), (Kind::Terminated, vec![]));
    }
}

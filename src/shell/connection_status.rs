//! Connection status: reports when the connection is lost and restored, and updates the prompt meanwhile.

use std::time::Duration;

use tokio::sync::watch::Receiver;
use tokio::time::interval;

use super::printer::Printer;
use super::watches::Watches;
use crate::client::ConnectionStatus;
use crate::clock;
use crate::render::escape::escape;

/// Reports changes of the connection until the client ends.
pub async fn report(mut status: Receiver<ConnectionStatus>, watches: Watches, printer: Printer) {
    let mut lost_at = None;
    let mut second = interval(Duration::from_secs(1));
    loop {
        tokio::select! {
            changed = status.changed() => if changed.is_err() { return },
            // The prompt counts the seconds since the loss.
            _ = second.tick(), if lost_at.is_some() => {
                printer.repaint();
                continue;
            }
        }
        let current = status.borrow_and_update().clone();
        match current {
            ConnectionStatus::Lost { since, cause } => {
                printer.state.set_offline(Some(since));
                if lost_at.replace(since).is_none() {
                    let cause = escape(cause.as_bytes());
                    printer.background_alert(&format!("connection lost: {cause}; reconnecting"));
                    printer.repaint();
                }
            }
            ConnectionStatus::Connecting => {}
            ConnectionStatus::Connected => {
                printer.state.set_offline(None);
                if let Some(since) = lost_at.take() {
                    let seconds = clock::monotonic().saturating_duration_since(since).as_secs();
                    let watches = match watches.count() {
                        0 => String::new(),
                        1 => "; 1 watch continues".to_owned(),
                        count => format!("; {count} watches continue"),
                    };
                    printer.background_message(&format!("connected again after {seconds} s{watches}"));
                }
            }
            ConnectionStatus::Ended(error) => {
                let error = escape(error.to_string().as_bytes());
                printer.background_alert(&format!("the session ended: {error}; \\c opens a new one"));
                return;
            }
        }
    }
}

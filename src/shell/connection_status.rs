//! Watches the connection: tells when it is lost, counts the seconds in the prompt, tells when it is back.

use std::time::Duration;

use tokio::sync::watch::Receiver;
use tokio::time::interval;

use super::watches::Watches;
use crate::client::ConnectionStatus;
use crate::render::escape::escape;
use crate::shell::printer::Printer;

/// Runs until the client is gone.
pub async fn observe(mut link: Receiver<ConnectionStatus>, watches: Watches, voice: Printer) {
    let mut lost_at = None;
    let mut second = interval(Duration::from_secs(1));
    loop {
        tokio::select! {
            changed = link.changed() => if changed.is_err() { return },
            _ = second.tick(), if lost_at.is_some() => {
                voice.repaint();
                continue;
            }
        }
        let state = link.borrow_and_update().clone();
        match state {
            ConnectionStatus::Lost { since, cause } => {
                voice.live.set_offline(Some(since));
                if lost_at.replace(since).is_none() {
                    let cause = escape(cause.as_bytes());
                    voice.alarm(&format!("lost the connection: {cause}; trying again"));
                }
            }
            ConnectionStatus::Connected => {
                voice.live.set_offline(None);
                if let Some(since) = lost_at.take() {
                    let away = (voice.streams.now)().saturating_duration_since(since).as_secs();
                    let watches = match watches.count() {
                        0 => String::new(),
                        1 => "; 1 watch goes on".to_owned(),
                        count => format!("; {count} watches go on"),
                    };
                    voice.tell(&format!("connected again after {away} s{watches}"));
                }
            }
            ConnectionStatus::Ended(error) => {
                let error = escape(error.to_string().as_bytes());
                voice.alarm(&format!("the session has ended: {error}; \\c makes another"));
                return;
            }
        }
    }
}

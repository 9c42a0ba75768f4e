//! Locks that the prompt holds and renews in the background.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use tokio::sync::oneshot;
use tokio::task::spawn_local;

use super::printer::Printer;
use crate::client::lock::LossReason;
use crate::commands::{BackgroundLock, CommandError, Kind, Released, Session, duration};
use crate::protocol::{Key, Timestamp};
use crate::render::escape::escape;

/// The held locks by key. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Locks {
    held: Rc<RefCell<BTreeMap<Vec<u8>, HeldLock>>>,
}

#[derive(Debug)]
struct HeldLock {
    token: Timestamp,
    holder: String,
    ttl_ms: u64,
    release: oneshot::Sender<ReleaseRequest>,
}

/// A request to the task that renews a lock.
#[derive(Debug)]
struct ReleaseRequest {
    /// There is no connection: do not wait for the store's answer.
    is_offline: bool,
    released: oneshot::Sender<Released>,
}

impl Locks {
    /// Returns whether this session holds the lock.
    #[must_use]
    pub fn has(&self, key: &Key) -> bool {
        self.held.borrow().contains_key(key.as_bytes())
    }

    /// Renews a lock until it is released or lost.
    pub fn hold(&self, holding: BackgroundLock, session: &Session, printer: &Printer) {
        let (release, requests) = oneshot::channel();
        let held = HeldLock {
            token: holding.token().clone(),
            holder: escape(holding.holder()),
            ttl_ms: holding.ttl_ms(),
            release,
        };
        let key = escape(holding.key().as_bytes());
        let token = escape(held.token.to_string().as_bytes());
        printer.message(&format!("locked {key} as {}, token {token}", held.holder));
        printer.dim_message(&format!("renewed in the background; `unlock {key}` releases it"));
        self.held.borrow_mut().insert(holding.key().as_bytes().to_vec(), held);
        self.update(session, printer);
        spawn_local(self.clone().renew(holding, requests, session.clone(), printer.clone()));
    }

    async fn renew(
        self,
        mut holding: BackgroundLock,
        mut requests: oneshot::Receiver<ReleaseRequest>,
        session: Session,
        printer: Printer,
    ) {
        let key = holding.key().as_bytes().to_vec();
        loop {
            tokio::select! {
                request = &mut requests => {
                    // An error means that the locks were dropped: the prompt has ended.
                    let Ok(ReleaseRequest { is_offline, released }) = request else { return };
                    let result = if is_offline { holding.abandon().await } else { holding.release().await };
                    let _ = released.send(result);
                    return;
                }
                event = holding.next() => match event {
                    Ok(None) => {
                        if let Some(held) = self.held.borrow_mut().get_mut(&key) {
                            held.token = holding.token().clone();
                        }
                        self.offer_token(&session);
                    }
                    Ok(Some(loss)) => {
                        self.remove(&key, &session, &printer);
                        printer.background_alert(&format!("LOCK LOST: {}: {}", escape(&key), cause(loss)));
                        printer.background_message(
                            "  another client may hold it now: stop everything that depends on it",
                        );
                        holding.abandon().await;
                        return;
                    }
                    Err(error) => {
                        let message = escape(error.message.as_bytes());
                        printer.background_message(&format!("lock {}: {message}", escape(&key)));
                    }
                },
            }
        }
    }

    /// Releases a lock and reports it.
    ///
    /// # Errors
    /// The lock had been lost.
    pub async fn release(
        &self,
        key: &[u8],
        is_offline: bool,
        session: &Session,
        printer: &Printer,
    ) -> Result<(), CommandError> {
        let Some(held) = self.remove(key, session, printer) else {
            return Ok(());
        };
        let name = escape(key);
        let (released, answer) = oneshot::channel();
        let lost = |cause: &str| {
            let message = format!("the lock {name} had been lost: {cause}");
            Err(CommandError::new(Kind::LockLost, message))
        };
        if held.release.send(ReleaseRequest { is_offline, released }).is_err() {
            return lost("its lease had expired");
        }
        match answer.await {
            Ok(Released::Free | Released::NotHeld) => printer.message(&format!("released {name}")),
            Ok(Released::Lost) => return lost("the store reports another holder, or none"),
            Ok(Released::Unconfirmed(error)) => printer.message(&format!(
                "the release of {name} is not confirmed; its lease ends within {}: {}",
                duration::of_ms(held.ttl_ms),
                escape(error.to_string().as_bytes())
            )),
            Err(_) => return lost("its lease had expired"),
        }
        Ok(())
    }

    #[must_use]
    pub fn keys(&self) -> Vec<Vec<u8>> {
        self.held.borrow().keys().cloned().collect()
    }

    /// Returns a line for each lock.
    #[must_use]
    pub fn list(&self) -> Vec<String> {
        let line = |(key, held): (&Vec<u8>, &HeldLock)| {
            let token = escape(held.token.to_string().as_bytes());
            format!("  {}  as {}  token {token}", escape(key), held.holder)
        };
        self.held.borrow().iter().map(line).collect()
    }

    fn remove(&self, key: &[u8], session: &Session, printer: &Printer) -> Option<HeldLock> {
        let held = self.held.borrow_mut().remove(key);
        self.update(session, printer);
        held
    }

    fn update(&self, session: &Session, printer: &Printer) {
        printer.state.set_locks(self.keys());
        self.offer_token(session);
    }

    /// Gives `--fence-env` the token of the only lock. With several locks the choice would be a guess, so it fails.
    fn offer_token(&self, session: &Session) {
        let held = self.held.borrow();
        let mut tokens = held.values().map(|held| held.token.clone());
        session.override_fence(match (tokens.next(), held.len()) {
            (None, _) => None,
            (Some(token), 1) => Some(Ok(token)),
            (Some(_), count) => {
                let message = format!("--fence-env: {count} locks are held, and each has its own token");
                Some(Err(CommandError::usage(message).hint("--fence TOKEN; \\locks lists the tokens")))
            }
        });
    }
}

fn cause(loss: LossReason) -> &'static str {
    match loss {
        LossReason::NotRenewed => "its lease could not be renewed in time",
        LossReason::Taken => "the store reports another holder, or none",
    }
}

//! The locks that are held in the background.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use tokio::sync::oneshot;
use tokio::task::spawn_local;

use crate::commands::output::LossReason;
use crate::commands::{CommandError, Holding, Kind, Released, Session, duration};
use crate::protocol::{Key, Timestamp};
use crate::render::escape::escape;
use crate::shell::printer::Printer;

/// The locks, by their keys. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Locks {
    held: Rc<RefCell<BTreeMap<Vec<u8>, Held>>>,
}

#[derive(Debug)]
struct Held {
    token: Timestamp,
    holder: String,
    ttl_ms: u64,
    stop: oneshot::Sender<Stop>,
}

/// A wish to give a lock back.
#[derive(Debug)]
struct Stop {
    is_hasty: bool,
    released: oneshot::Sender<Released>,
}

impl Locks {
    /// Whether this lock is held here.
    #[must_use]
    pub fn has(&self, key: &Key) -> bool {
        self.held.borrow().contains_key(key.as_bytes())
    }

    /// Keeps a lock until it is given back or lost.
    pub fn keep(&self, holding: Holding, session: &Session, voice: &Printer) {
        let (stop, stopped) = oneshot::channel();
        let held = Held {
            token: holding.token().clone(),
            holder: escape(holding.holder()),
            ttl_ms: holding.ttl_ms(),
            stop,
        };
        let key = name(holding.key().as_bytes());
        let token = escape(held.token.to_string().as_bytes());
        voice.say(&format!("locked {key} as {}, token {token}", held.holder));
        voice.say_dim(&format!("held and renewed in the background; unlock {key} releases it"));
        self.held.borrow_mut().insert(holding.key().as_bytes().to_vec(), held);
        self.show(session, voice);
        spawn_local(self.clone().hold(holding, stopped, session.clone(), voice.clone()));
    }

    async fn hold(
        self,
        mut holding: Holding,
        mut stopped: oneshot::Receiver<Stop>,
        session: Session,
        voice: Printer,
    ) {
        let key = holding.key().as_bytes().to_vec();
        loop {
            tokio::select! {
                stop = &mut stopped => {
                    // Nobody is left who could want to know.
                    let Ok(Stop { is_hasty, released }) = stop else { return };
                    let result = if is_hasty { holding.abandon().await } else { holding.release().await };
                    let _ = released.send(result);
                    return;
                }
                event = holding.next() => match event {
                    Ok(None) => {
                        if let Some(held) = self.held.borrow_mut().get_mut(&key) {
                            held.token = holding.token().clone();
                        }
                        self.offer(&session);
                    }
                    Ok(Some(loss)) => {
                        self.forget(&key, &session, &voice);
                        voice.alarm(&format!("THE LOCK {} IS LOST: {}", name(&key), why(loss)));
                        voice.tell("  somebody else may hold it by now; what needs it must stop");
                        holding.abandon().await;
                        return;
                    }
                    Err(error) => voice.tell(&format!("lock {}: {}", name(&key), escape(error.message.as_bytes()))),
                },
            }
        }
    }

    /// Gives a lock back, and says so.
    ///
    /// # Errors
    /// It had been lost.
    pub async fn release(
        &self,
        key: &[u8],
        is_hasty: bool,
        session: &Session,
        voice: &Printer,
    ) -> Result<(), CommandError> {
        let Some(held) = self.forget(key, session, voice) else {
            return Ok(());
        };
        let (released, answer) = oneshot::channel();
        let lost = |cause: &str| {
            let message = format!("the lock {} had been lost: {cause}", name(key));
            Err(CommandError::new(Kind::LockLost, message))
        };
        if held.stop.send(Stop { is_hasty, released }).is_err() {
            return lost("its lease was over");
        }
        match answer.await {
            Ok(Released::Free | Released::NotHeld) => voice.say(&format!("released {}", name(key))),
            Ok(Released::Lost) => return lost("the store says that it was not ours any more"),
            Ok(Released::Unconfirmed(error)) => voice.say(&format!(
                "{} may not be released, but will be free within {}: {error}",
                name(key),
                duration::of_ms(held.ttl_ms)
            )),
            Err(_) => return lost("its lease was over"),
        }
        Ok(())
    }

    /// The keys of the locks.
    #[must_use]
    pub fn keys(&self) -> Vec<Vec<u8>> {
        self.held.borrow().keys().cloned().collect()
    }

    /// The locks, a line each.
    #[must_use]
    pub fn list(&self) -> Vec<String> {
        let line = |(key, held): (&Vec<u8>, &Held)| {
            let token = escape(held.token.to_string().as_bytes());
            format!("  {}  as {}  token {token}", name(key), held.holder)
        };
        self.held.borrow().iter().map(line).collect()
    }

    fn forget(&self, key: &[u8], session: &Session, voice: &Printer) -> Option<Held> {
        let held = self.held.borrow_mut().remove(key);
        self.show(session, voice);
        held
    }

    fn show(&self, session: &Session, voice: &Printer) {
        voice.live.set_locks(self.keys());
        self.offer(session);
    }

    /// Offers the token of the one lock to `--fence-env`. Of many, nobody can tell which is meant.
    fn offer(&self, session: &Session) {
        let held = self.held.borrow();
        let mut tokens = held.values().map(|held| held.token.clone());
        session.override_fence(match (tokens.next(), held.len()) {
            (None, _) => None,
            (Some(token), 1) => Some(Ok(token)),
            (Some(_), count) => Some(Err(CommandError::usage(format!(
                "--fence-env: {count} locks are held, and each has its own token"
            ))
            .hint("--fence TOKEN; \\locks lists the tokens"))),
        });
    }
}

fn why(loss: LossReason) -> &'static str {
    match loss {
        LossReason::NotRenewed => "its lease could not be renewed in time",
        LossReason::Taken => "the store says that it is not ours any more",
    }
}

fn name(key: &[u8]) -> String {
    escape(key)
}

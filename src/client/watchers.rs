//! The watches that run over one session: carries their steps to it, and their events to who watches.

use std::collections::HashMap;

use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use super::ask::{Access, Ask, Response, Stamps};
use super::error::Error;
use super::watch::{Step, Watch, WatchEvent, recipient};
use super::{Found, interpret};
use crate::clock::Reading;
use crate::protocol::message::{Message, Qos};
use crate::protocol::{Key, Reply, Request};

/// What tells one watch of a session from another.
pub(super) type WatchId = u64;

/// Where a watch's events go. An error is the last.
pub(super) type Events = mpsc::Sender<Result<WatchEvent, Error>>;

/// Whose step an answer belongs to.
#[derive(Debug)]
pub(super) struct StepTicket {
    watch: WatchId,
    step: Step,
}

/// All watches of one session.
#[derive(Debug, Default)]
pub(super) struct Watchers {
    active: HashMap<WatchId, Active>,
}

#[derive(Debug)]
struct Active {
    watch: Watch,
    events: Events,
    /// It has had its initial values, so that later trouble is worth another try.
    established: bool,
}

/// What a step asks of the session.
pub(super) enum Work {
    Subscribe(StepTicket),
    Ask(Ask, StepTicket),
}

impl Active {
    /// Tells what is left to tell, then the error; whoever reads slowly is no longer waited for by anybody.
    fn end(mut self, error: Error) {
        tokio::spawn(async move {
            while let Some(event) = self.watch.poll_event() {
                if self.events.send(Ok(event)).await.is_err() {
                    return;
                }
            }
            let _ = self.events.send(Err(error)).await;
        });
    }
}

impl Watchers {
    pub(super) fn begin(&mut self, id: WatchId, mut watch: Watch, events: Events, connected: bool) {
        if connected {
            watch.handle_connected();
        }
        self.active.insert(id, Active { watch, events, established: false });
    }

    /// Ends a watch. Returns its keys that no other watch needs: they are to be stopped.
    pub(super) fn end(&mut self, id: WatchId) -> Vec<Key> {
        let Some(ended) = self.active.remove(&id) else {
            return Vec::new();
        };
        let needed = |key: &Key| self.active.values().any(|other| other.watch.contains(key));
        ended.watch.keys().iter().filter(|key| !needed(key)).cloned().collect()
    }

    pub(super) fn handle_connected(&mut self) {
        for active in self.active.values_mut() {
            active.watch.handle_connected();
        }
    }

    pub(super) fn handle_lost(&mut self, since_ms: u64, cause: &str) {
        for active in self.active.values_mut() {
            active.watch.handle_lost(since_ms, cause);
        }
    }

    /// There will be no connection any more: every watch ends with this error.
    pub(super) fn handle_closed(&mut self, error: &Error) {
        for (_, active) in self.active.drain() {
            active.end(error.clone());
        }
    }

    /// A message came that is no response.
    pub(super) fn handle_message(&mut self, message: &Message, client_id: &str) {
        let cause = match recipient(message, client_id) {
            Ok(key) => {
                let mut watched = false;
                for active in self.active.values_mut().filter(|active| active.watch.contains(&key)) {
                    active.watch.handle_notification(&key, message);
                    watched = true;
                }
                if watched {
                    return;
                }
                "its key is not watched"
            }
            Err(cause) => cause,
        };
        for active in self.active.values_mut() {
            active.watch.skip(message, cause.to_owned());
        }
    }

    pub(super) fn handle_subscribed(&mut self, ticket: StepTicket, result: Result<Qos, Error>) {
        let Some(active) = self.active.get_mut(&ticket.watch) else { return };
        match result {
            Ok(_) => active.watch.handle_subscribed(),
            Err(error) => self.handle_failed(ticket, error),
        }
    }

    pub(super) fn handle_answer(
        &mut self,
        ticket: StepTicket,
        result: Result<Response, Error>,
        now: Reading,
    ) {
        let Some(active) = self.active.get_mut(&ticket.watch) else { return };
        let request = match &ticket.step {
            Step::Register(key) => Request::KeyNotify { key: key.clone(), stop: false },
            Step::Read(key) => Request::Get { key: key.clone() },
            Step::Subscribe => return,
        };
        let error = match (&ticket.step, result.and_then(|response| interpret(&request, response))) {
            (Step::Register(key), Ok((Reply::Done, _))) => return active.watch.handle_registered(key),
            (Step::Read(key), Ok((Reply::Value(value), version))) => {
                active.established = true;
                return active.watch.handle_read(key, Some(Found { value, version }), now);
            }
            (Step::Read(key), Ok((Reply::Absent, _))) => {
                active.established = true;
                return active.watch.handle_read(key, None, now);
            }
            (_, Ok((other, _))) => super::unexpected(&request, &other),
            (_, Err(error)) => error,
        };
        self.handle_failed(ticket, error);
    }

    fn handle_failed(&mut self, ticket: StepTicket, error: Error) {
        let Some(active) = self.active.get_mut(&ticket.watch) else { return };
        match error {
            // With the next connection everything is begun again.
            Error::Lost { .. } => {}
            Error::Timeout { .. } | Error::NoStore { .. } if active.established => {
                active.watch.handle_unanswered(ticket.step);
            }
            error => {
                if let Some(active) = self.active.remove(&ticket.watch) {
                    active.end(error);
                }
            }
        }
    }

    /// What some watch asks of the session next, if anything.
    pub(super) fn poll_work(&mut self) -> Option<Work> {
        let (watch, step) =
            self.active.iter_mut().find_map(|(id, active)| Some((*id, active.watch.poll_step()?)))?;
        let request = match &step {
            Step::Subscribe => return Some(Work::Subscribe(StepTicket { watch, step })),
            Step::Register(key) => Request::KeyNotify { key: key.clone(), stop: false },
            Step::Read(key) => Request::Get { key: key.clone() },
        };
        let ask = Ask { payload: request.encode(), access: Access::Read, stamps: Stamps::default() };
        Some(Work::Ask(ask, StepTicket { watch, step }))
    }

    /// Watches whose events nobody takes any more.
    pub(super) fn abandoned(&self) -> Vec<WatchId> {
        self.active.iter().filter(|(_, active)| active.events.is_closed()).map(|(id, _)| *id).collect()
    }

    /// Hands events to who watches. Returns the first channel that is full: nothing should be read before it has room.
    pub(super) fn deliver(&mut self) -> Option<Events> {
        let mut full = None;
        for active in self.active.values_mut() {
            loop {
                let room = match active.events.try_reserve() {
                    Ok(room) => room,
                    // It is to be stopped at the store before it is forgotten.
                    Err(TrySendError::Closed(())) => break,
                    Err(TrySendError::Full(())) => {
                        full = Some(active.events.clone());
                        break;
                    }
                };
                match active.watch.poll_event() {
                    Some(event) => room.send(Ok(event)),
                    None => break,
                }
            }
        }
        full
    }
}

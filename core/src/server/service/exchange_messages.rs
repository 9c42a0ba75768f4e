//! Messages on the topics of an exchange: frames of leaves, and requests of operators.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::application::Service;
use super::exchange_inspection::{NodeReport, report_step};
use super::shared::Shared;
use super::state::State;
use crate::broker::{self, Broker, Continuation, Peer, Verdict};
use crate::exchange::Exchange;
use crate::exchange::effects::Effects;
use crate::exchange::fingerprint::PreparedHashes;
use crate::exchange::frame::LinkFrame;
use crate::exchange::names::Name;
use crate::mqtt::ReasonCode;
use crate::protocol::exchange::topic::Topic;
use crate::protocol::exchange::{Answer, Command, Refusal, RootReport};
use crate::protocol::{ErrorReply, Key, Message, Reply};
use crate::server::authorization::ClientPermissions;
use crate::server::delivery::{BrokerPublisher, Publisher, ReplyTo, Response};
use crate::server::event::exchange::ExchangeEvent;
use crate::server::exchange::command::{LEAVES_PER_STEP_MAX, execute};
use crate::server::exchange::membership::Membership;
use crate::server::exchange::settings::RootFile;
use crate::server::exchange::uplink::FrameOutcome;
use crate::server::metrics::Metrics;

/// The time between two attempts to handle a frame that waits for commits.
const FRAME_PAUSE: Duration = Duration::from_millis(5);

/// The status of a root with many leaves that is not complete yet.
struct RunningStatus {
    shared: Arc<Shared>,
    metrics: Arc<Metrics>,
    /// The answer so far, and where it goes.
    reply: Option<(RootReport, ReplyTo)>,
    /// Number of failed commits at the start: a failed one undoes what the answer may show.
    failures: u64,
}

/// A frame that waits until the commit queue has drained.
struct WaitingFrame {
    shared: Arc<Shared>,
    metrics: Arc<Metrics>,
    from: Peer,
    leaf: Name,
    payload: Bytes,
}

impl Service {
    /// Sets what a root's file defines besides its names: the rules, and the leaves that may join by themselves.
    ///
    /// # Errors
    /// The file is the one of another node.
    pub fn set_exchange_rules(&self, publisher: &dyn Publisher, file: RootFile) -> Result<(), String> {
        let RootFile { exchange, node, rules, admit } = file;
        let is_own = |own: &&Membership| own.exchange == exchange && own.node == node;
        if self.membership.as_ref().filter(is_own).is_none() {
            return Err(format!("the file is now the one of {node} of the exchange {exchange}"));
        }
        let now = self.shared.now();
        let mut state = self.shared.lock();
        state.with_exchange(publisher, now, |exchange, _, _| match exchange {
            Exchange::Root(root) => {
                root.set_admit(admit);
                ((), root.set_rules(rules))
            }
            Exchange::Leaf(_) => ((), Effects::default()),
        });
        self.shared.wake_commit_thread(&mut state);
        drop(state);
        self.shared.wake_exchange();
        Ok(())
    }

    /// Handles a message on a topic of exchanges.
    pub(super) fn handle_exchange_message(
        &self,
        publisher: &dyn Publisher,
        from: &Peer,
        mut message: Message,
        now: Instant,
    ) -> Verdict {
        let membership = self.membership.as_ref();
        let topic = Topic::parse(&message.topic);
        if topic == Some(Topic::Command) {
            return match self.reply_to(publisher, from, &mut message, now) {
                Ok(reply_to) => self.handle_command(publisher, from, &message.payload, reply_to),
                Err(verdict) => *verdict,
            };
        }
        let Some(membership) = membership else { return Verdict::Route(message) };
        if let Some(Topic::Up { exchange, leaf }) = topic
            && membership.uplink.is_none()
            && exchange == membership.exchange.as_str()
            && let Ok(leaf) = Name::new(leaf)
        {
            let (shared, metrics) = (Arc::clone(&self.shared), Arc::clone(self.metrics()));
            let frame = WaitingFrame { shared, metrics, from: from.clone(), leaf, payload: message.payload };
            let is_handled = frame.handle(publisher);
            return if is_handled { Verdict::Consumed } else { Verdict::Continue(Box::new(frame)) };
        }
        // A leaf reports the first code as a wrong exchange or address.
        let (code, reason) = match topic {
            Some(Topic::Up { .. }) => {
                (ReasonCode::NoMatchingSubscribers, "this store is not the root of that exchange")
            }
            _ => (ReasonCode::NotAuthorized, "only a node of the exchange publishes there"),
        };
        let client_id = Arc::clone(&from.client_id);
        (self.shared.events)(
            broker::Event::Dropped { client_id, topic: message.topic.into_owned(), reason }.into(),
        );
        Verdict::Refused(code)
    }

    fn handle_command(
        &self,
        publisher: &dyn Publisher,
        from: &Peer,
        payload: &Bytes,
        reply_to: ReplyTo,
    ) -> Verdict {
        let command = Command::decode(payload);
        let permissions = ClientPermissions::key_permissions_of(from);
        let is_readable = |key: &Key| {
            permissions.as_ref().is_none_or(|permissions| permissions.read.contains(key.as_bytes()))
        };
        let reconnects = matches!(command, Some(Command::Reconnect));
        let resync = match &command {
            Some(Command::Resync { name, is_new_root }) => {
                Some(ExchangeEvent::Resync { leaf: name.clone(), is_new_root: *is_new_root })
            }
            _ => None,
        };
        let now = self.shared.now();
        let mut state = self.shared.lock();
        let has_failed = state.exchange.is_some() && state.commit_queue.has_failed();
        let answer = match command {
            None => Some(Ok(Answer::Refused(Refusal::UnknownCommand))),
            Some(command) if command.changes() && has_failed => {
                Some(Ok(Answer::Refused(Refusal::NotPersisted)))
            }
            Some(command) => state.with_exchange(publisher, now, |exchange, now_ms, values| {
                let asked = match &command {
                    Command::Key { key } => Some(key.clone()),
                    Command::Value { id } => {
                        exchange.conflicts().get(*id).map(|conflict| conflict.key.clone())
                    }
                    _ => None,
                };
                if asked.is_some_and(|key| !is_readable(&key)) {
                    return (Ok(Answer::Refused(Refusal::NotReadable)), Effects::default());
                }
                let (mut answer, effects) = execute(exchange, command, now_ms, values);
                if let Answer::Conflicts(page) = &mut answer {
                    // The exchange's clock does not follow steps of the wall clock.
                    for conflict in &mut page.conflicts {
                        conflict.at_ms = now.wall_ms.saturating_sub(now_ms.saturating_sub(conflict.at_ms));
                        if !is_readable(&conflict.key) {
                            conflict.hide_values();
                        }
                    }
                }
                (Ok(answer), effects)
            }),
        };
        let answer = answer.unwrap_or(Ok(Answer::Refused(Refusal::NoExchange)));
        let resync = resync.filter(|_| matches!(answer, Ok(Answer::Done { .. })));
        match answer {
            Ok(Answer::Root(report)) if report.leaves.len() == LEAVES_PER_STEP_MAX => {
                let (shared, metrics) = (Arc::clone(&self.shared), Arc::clone(self.metrics()));
                let (reply, failures) = (Some((report, reply_to)), state.commit_queue.failures());
                return Verdict::Continue(Box::new(RunningStatus { shared, metrics, reply, failures }));
            }
            answer => state.send_to_operator(publisher, reply_to, answer),
        }
        self.shared.wake_commit_thread(&mut state);
        drop(state);
        // The sink of the events is foreign code, so it is not called under the lock.
        if let Some(event) = resync {
            (self.shared.events)(event.into());
        }
        self.shared.wake_exchange();
        if reconnects {
            // An attempt that runs already is not repeated.
            self.shared.uplink_retry.notify_waiters();
        }
        Verdict::Consumed
    }
}

impl State {
    /// Answers a request of an operator after the commits of all that the answer may show: it is there after a crash.
    fn send_to_operator(
        &mut self,
        publisher: &dyn Publisher,
        reply_to: ReplyTo,
        answer: Result<Answer, ErrorReply>,
    ) {
        let view = match self.commit_queue.error_if_full().map_or(answer, Err) {
            Ok(answer) => Response::with_payload(Some(answer.encode()), &Reply::Done, None),
            Err(error) => Response::error(error),
        };
        self.send_page(publisher, reply_to, view);
    }
}

impl RunningStatus {
    /// Appends some leaves. Sends the answer and returns true once it has all of them.
    fn advance(&mut self, publisher: &dyn Publisher) -> bool {
        let Some((mut report, reply_to)) = self.reply.take() else { return true };
        let last = report.leaves.last().and_then(|leaf| Name::new(&leaf.name).ok());
        let more = match report_step(&self.shared, last.as_ref()) {
            Some((NodeReport::Root(more), _)) => more.leaves,
            _ => Vec::new(),
        };
        let is_complete = more.len() < LEAVES_PER_STEP_MAX;
        report.leaves.extend(more);
        if !is_complete {
            self.reply = Some((report, reply_to));
            return false;
        }
        let mut state = self.shared.lock();
        let has_failed = state.commit_queue.failures() != self.failures;
        let answer = if has_failed { Err(ErrorReply::NotPersisted) } else { Ok(Answer::Root(report)) };
        state.send_to_operator(publisher, reply_to, answer);
        true
    }
}

impl Continuation for RunningStatus {
    fn step(&mut self, broker: &Broker) -> Option<Verdict> {
        let metrics = Arc::clone(&self.metrics);
        self.advance(&BrokerPublisher { broker, metrics: &*metrics }).then_some(Verdict::Consumed)
    }
}

impl fmt::Debug for RunningStatus {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("RunningStatus").finish_non_exhaustive()
    }
}

impl WaitingFrame {
    /// Handles the frame, unless the commit queue must drain first. Returns whether it did.
    fn handle(&self, publisher: &dyn Publisher) -> bool {
        if self.shared.lock().must_leaf_frames_wait() {
            return false;
        }
        let principal = Bytes::from(self.from.principal.identity());
        let _hashes = prepared_hashes(&self.payload);
        let now = self.shared.now();
        let mut state = self.shared.lock();
        let leaf = (&self.leaf, &principal);
        let outcome = state.handle_leaf_frame(publisher, &self.from, leaf, &self.payload, now);
        self.shared.wake_commit_thread(&mut state);
        self.shared.wake_expiry_task(&mut state);
        drop(state);
        let is_handled = outcome == FrameOutcome::Handled;
        if is_handled {
            self.shared.wake_exchange();
        }
        is_handled
    }
}

/// Computes the digests of the long values of a leaf's changes before the lock is taken.
fn prepared_hashes(payload: &Bytes) -> Option<PreparedHashes> {
    let frame =
        if PreparedHashes::is_long(payload) { LinkFrame::decode(payload).ok()? } else { return None };
    let LinkFrame::Changes(changes) = frame else { return None };
    let contents = changes.items.iter().filter_map(|proposal| proposal.content.content());
    Some(PreparedHashes::of(contents.map(|content| &content.value)))
}

impl Continuation for WaitingFrame {
    fn step(&mut self, broker: &Broker) -> Option<Verdict> {
        let metrics = Arc::clone(&self.metrics);
        self.handle(&BrokerPublisher { broker, metrics: &*metrics }).then_some(Verdict::Consumed)
    }

    /// The commit queue drains with the next commit.
    fn pause(&self) -> Duration {
        FRAME_PAUSE
    }
}

impl fmt::Debug for WaitingFrame {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("WaitingFrame").field("leaf", &self.leaf).finish_non_exhaustive()
    }
}

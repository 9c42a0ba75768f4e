//! Connection handles: what the rest of the broker sees of a connection, and how it closes one.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::thread;

use tokio::sync::Notify;

use super::shared_task::SharedTask;
use super::wake_queue::{Queued, WakeQueue};
use super::woken::{self, Runnable};
use crate::broker::authentication::Credential;
use crate::mqtt::ReasonCode;
use crate::protocol::ConnectionId;

/// The reason string for [`CloseReason::NotReading`].
pub const NOT_READING: &str = "the client does not read its messages, and memory is scarce";

/// Why a connection is closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// The client has sent a DISCONNECT.
    ClientDisconnect {
        /// Whether the Will Message is published all the same (reason code 0x04).
        publishes_will: bool,
        /// A new session expiry interval in seconds, if the client has sent one.
        session_expiry_s: Option<u32>,
    },
    /// The server closes the connection, with a DISCONNECT.
    ServerDisconnect {
        reason: ReasonCode,
        /// The reason string.
        text: String,
    },
    /// The server closes the connection and ends the session: memory is scarce, and the client does not read.
    NotReading,
    /// The network connection was lost.
    ConnectionLost(String),
}

impl CloseReason {
    /// Returns the session expiry interval that comes with the end of the connection, in seconds; None if it stays as it was.
    #[must_use]
    pub fn session_expiry_s(&self) -> Option<u32> {
        match self {
            Self::ClientDisconnect { session_expiry_s, .. } => *session_expiry_s,
            Self::ServerDisconnect { .. } | Self::ConnectionLost(_) => None,
            // Its messages would take the memory as before.
            Self::NotReading => Some(0),
        }
    }

    /// Whether the client's Will Message is published (MQTT 5, 3.1.2.5).
    #[must_use]
    pub fn publishes_will(&self) -> bool {
        match self {
            Self::ClientDisconnect { publishes_will, .. } => *publishes_will,
            // All clients are disconnected, so no client would receive the message.
            Self::ServerDisconnect { reason, .. } => *reason != ReasonCode::ServerShuttingDown,
            Self::NotReading | Self::ConnectionLost(_) => true,
        }
    }
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClientDisconnect { .. } => write!(f, "closed by the client"),
            Self::ServerDisconnect { reason, text } => write!(f, "{reason}: {text}"),
            Self::NotReading => write!(f, "{}: {NOT_READING}", ReasonCode::QuotaExceeded),
            Self::ConnectionLost(text) => write!(f, "connection lost: {text}"),
        }
    }
}

/// How far a connection has come when the broker drains. A connection passes the phases in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DrainPhase {
    /// The broker does not drain.
    Open,
    /// The packets that were read are handled, and no others.
    Draining,
    /// These packets have been handled.
    Drained,
    /// The connection closes once all its messages have been sent.
    Finishing,
}

/// An accepted connection, shared by its task and the rest of the broker.
#[derive(Debug)]
pub struct ConnectionHandle {
    pub id: ConnectionId,
    /// Wakes the connection's task.
    pub wake: Notify,
    /// The queue of the thread that serves the connection, if it has one.
    wake_queue: Option<Arc<WakeQueue>>,
    /// The connection's task, if other threads can run it.
    task: Option<Weak<SharedTask>>,
    is_in_wake_queue: AtomicBool,
    /// See [`ConnectionHandle::is_backlogged`]. The task reads it for each message, so that it takes no lock.
    is_backlogged: AtomicBool,
    /// Number of acknowledgements that were held back, and of those that were released.
    held: AtomicU64,
    released: AtomicU64,
    /// The task must be woken when more than this number are released.
    awaited: AtomicU64,
    close_reason: OnceLock<CloseReason>,
    phase: AtomicU8,
    /// Of the client's user.
    credential: Mutex<Option<Arc<dyn Credential>>>,
    certificate_expiry_s: OnceLock<u64>,
}

/// Holds back the acknowledgement of a message until it is dropped, so that one write sends it with the answer to the
/// message. The acknowledgement is written earlier if anything else is written.
#[derive(Debug)]
pub struct HeldAcknowledgement(Arc<ConnectionHandle>);

impl Drop for HeldAcknowledgement {
    fn drop(&mut self) {
        let released = self.0.released.fetch_add(1, Ordering::SeqCst).wrapping_add(1);
        if released > self.0.awaited.load(Ordering::SeqCst) {
            self.0.wake();
        }
    }
}

impl ConnectionHandle {
    /// Returns the handle of a connection that the current thread serves.
    #[must_use]
    pub fn new(id: ConnectionId) -> Self {
        let phase = AtomicU8::new(DrainPhase::Open as u8);
        Self {
            id,
            wake: Notify::new(),
            wake_queue: WakeQueue::current(),
            task: SharedTask::current(),
            is_in_wake_queue: AtomicBool::new(false),
            is_backlogged: AtomicBool::new(false),
            held: AtomicU64::new(0),
            released: AtomicU64::new(0),
            awaited: AtomicU64::new(u64::MAX),
            close_reason: OnceLock::new(),
            phase,
            credential: Mutex::default(),
            certificate_expiry_s: OnceLock::new(),
        }
    }

    /// Wakes the connection's task.
    pub fn wake(self: &Arc<Self>) {
        // The task looks at everything when it runs.
        self.awaited.store(u64::MAX, Ordering::SeqCst);
        match self.wake_queue.as_ref().filter(|queue| !queue.is_current()) {
            Some(_) if woken::collect(self) => {}
            Some(queue) => self.wake_by(queue),
            None => self.wake.notify_one(),
        }
    }

    fn wake_by(self: &Arc<Self>, queue: &WakeQueue) {
        if !self.is_in_wake_queue.swap(true, Ordering::AcqRel) {
            queue.push(Arc::<Self>::clone(self));
        }
    }

    /// Notes whether the client should acknowledge messages before it is given more.
    pub fn set_backlogged(&self, is_backlogged: bool) {
        self.is_backlogged.store(is_backlogged, Ordering::Relaxed);
    }

    /// Whether the client should acknowledge messages before it is given more.
    #[must_use]
    pub fn is_backlogged(&self) -> bool {
        self.is_backlogged.load(Ordering::Relaxed)
    }

    /// Holds back the acknowledgement of the message that is being handled. Must be called by the connection's task.
    #[must_use]
    pub fn hold_acknowledgement(self: &Arc<Self>) -> HeldAcknowledgement {
        self.held.fetch_add(1, Ordering::SeqCst);
        HeldAcknowledgement(Arc::clone(self))
    }

    /// Returns how many acknowledgements were held back.
    #[must_use]
    pub fn held(&self) -> u64 {
        self.held.load(Ordering::SeqCst)
    }

    /// Whether all acknowledgements after the first `written` are held back; if so, the task is woken when one of them is
    /// released. They are released in the order in which they were held back.
    ///
    /// A task that waited for the last one would not write any under a steady load.
    #[must_use]
    pub fn awaits_release(&self, written: u64) -> bool {
        let are_held = || self.released.load(Ordering::SeqCst) <= written;
        if !are_held() {
            return false;
        }
        self.awaited.store(written, Ordering::SeqCst);
        // One may have been released in between.
        are_held()
    }

    /// Notes when the client's certificate expires, once, in seconds since 1970.
    pub fn set_certificate_expiry(&self, expiry_s: Option<u64>) {
        if let Some(expiry_s) = expiry_s {
            let _ = self.certificate_expiry_s.set(expiry_s);
        }
    }

    /// Notes the credential that the client has authenticated with last.
    pub fn set_credential(&self, credential: Option<Arc<dyn Credential>>) {
        *self.credential.lock().unwrap_or_else(PoisonError::into_inner) = credential;
    }

    /// Closes the connection if what its client has authenticated with is no longer valid; returns whether it is closed.
    pub fn close_if_invalid(&self, now_s: u64) -> bool {
        let credential = self.credential.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let text = if credential.is_some_and(|credential| !credential.is_valid()) {
            "the password or token is no longer valid"
        } else if self.certificate_expiry_s.get().is_some_and(|expiry_s| *expiry_s < now_s) {
            "the client certificate has expired"
        } else {
            return false;
        };
        self.close(ReasonCode::NotAuthorized, text);
        true
    }

    /// Moves the connection to a later phase; an earlier one changes nothing.
    pub fn advance(&self, phase: DrainPhase) {
        self.phase.fetch_max(phase as u8, Ordering::AcqRel);
        self.wake.notify_one();
    }

    #[must_use]
    pub fn has_reached(&self, phase: DrainPhase) -> bool {
        self.phase.load(Ordering::Acquire) >= phase as u8
    }

    /// Requests that the connection's task closes it with a DISCONNECT.
    pub fn close(&self, reason: ReasonCode, text: &str) {
        // The first request decides; an error means that there was one.
        let _ = self.close_reason.set(CloseReason::ServerDisconnect { reason, text: text.to_owned() });
        self.wake.notify_one();
    }

    /// Returns why the connection is to be closed, if it is.
    #[must_use]
    pub fn close_reason(&self) -> Option<&CloseReason> {
        self.close_reason.get()
    }
}

impl Runnable for ConnectionHandle {
    fn run_or_wake(self: Arc<Self>) {
        // A panic of the task during another one would end the process.
        let task = self.task.as_ref().filter(|_| !thread::panicking()).and_then(Weak::upgrade);
        let has_run = task.is_some_and(|task| task.run(|| self.wake.notify_one()));
        if !has_run && let Some(queue) = &self.wake_queue {
            self.wake_by(queue);
        }
    }
}

impl Queued for ConnectionHandle {
    fn leave_wake_queue(&self) {
        // Before the task is woken: a wake that comes later must not be taken for this one.
        self.is_in_wake_queue.swap(false, Ordering::AcqRel);
        self.wake.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::future::{Future, poll_fn};
    use std::pin::pin;
    use std::sync::mpsc::sync_channel;
    use std::task::Poll;

    use super::*;
    use crate::a_watchdog::bounded;

    /// Polls a future once.
    async fn is_ready(future: impl Future) -> bool {
        let mut future = pin!(future);
        poll_fn(|context| Poll::Ready(future.as_mut().poll(context).is_ready())).await
    }

    #[test]
    fn connections_that_another_thread_wakes_are_collected_and_all_woken() {
        let runtime = || tokio::runtime::Builder::new_current_thread().build().unwrap();
        let queue = Arc::<WakeQueue>::default();
        let (sender, handles) = sync_channel(0);
        let thread = thread::spawn({
            let queue = Arc::clone(&queue);
            move || {
                runtime().block_on(async {
                    let mut run = pin!(Arc::clone(&queue).run());
                    poll_fn(|context| Poll::Ready(run.as_mut().poll(context).is_ready())).await;
                    let own: Vec<_> =
                        (0..3).map(|id| Arc::new(ConnectionHandle::new(ConnectionId(id)))).collect();
                    own[0].wake();
                    assert_eq!(queue.waiting(), 0, "its own thread needs no queue");
                    assert!(is_ready(own[0].wake.notified()).await);
                    sender.send(own.clone()).unwrap();
                    // The other thread has woken them twice.
                    sender.send(Vec::new()).unwrap();
                    assert_eq!(queue.waiting(), 3);
                    assert!(!is_ready(own[2].wake.notified()).await, "not before the queue runs");
                    poll_fn(|context| Poll::Ready(run.as_mut().poll(context).is_ready())).await;
                    for handle in &own {
                        assert!(is_ready(handle.wake.notified()).await);
                        assert!(!is_ready(handle.wake.notified()).await, "once");
                    }
                });
            }
        });
        let own: Vec<Arc<ConnectionHandle>> = bounded(|| handles.recv()).unwrap();
        own.iter().chain(&own).for_each(|handle| handle.wake());
        bounded(|| handles.recv()).unwrap();
        bounded(|| thread.join()).unwrap();
    }
}

//! Tells the service manager how far the server has come, if there is one that wants to know (`NOTIFY_SOCKET`).

use sd_notify::NotifyState;

/// It serves; `status` says where.
pub fn ready(status: &str) {
    tell(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// It reads again what it has read at its start; [`reloaded`] follows. The manager tells by the time whether this is the
/// answer to its own signal.
pub fn reloading() {
    let states = [Some(NotifyState::Reloading), NotifyState::monotonic_usec_now().ok()];
    tell(&states.into_iter().flatten().collect::<Vec<_>>());
}

/// It has read it, and what cannot be used is as before.
pub fn reloaded() {
    tell(&[NotifyState::Ready]);
}

/// It stops.
pub fn stopping() {
    tell(&[NotifyState::Stopping, NotifyState::Status("answering pending requests")]);
}

/// A manager that does not listen is no reason not to serve.
fn tell(states: &[NotifyState<'_>]) {
    let _ = sd_notify::notify(states);
}

//! Tells the service manager how far the server has come, if there is one that wants to know (`NOTIFY_SOCKET`).

use sd_notify::NotifyState;

/// It serves; `status` says where.
pub fn ready(status: &str) {
    tell(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// It stops.
pub fn stopping() {
    tell(&[NotifyState::Stopping, NotifyState::Status("answering what has come in")]);
}

/// A manager that does not listen is no reason not to serve.
fn tell(states: &[NotifyState<'_>]) {
    let _ = sd_notify::notify(states);
}

//! Notifications of the service manager (`NOTIFY_SOCKET`).

use sd_notify::NotifyState;

/// Notifies that the server is ready; `status` is one line, because a line feed would begin another message.
pub fn ready(status: &str) {
    notify(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// Notifies that a reload begins; [`reloaded`] follows. The manager recognizes by the time whether this belongs to its own
/// signal.
pub fn reloading() {
    let states = [Some(NotifyState::Reloading), NotifyState::monotonic_usec_now().ok()];
    notify(&states.into_iter().flatten().collect::<Vec<_>>());
}

/// Notifies that a reload is complete.
pub fn reloaded() {
    notify(&[NotifyState::Ready]);
}

/// Notifies that the server stops.
pub fn stopping() {
    notify(&[NotifyState::Stopping, NotifyState::Status("answering pending requests")]);
}

/// Errors are ignored: the server works without a manager.
fn notify(states: &[NotifyState<'_>]) {
    let _ = sd_notify::notify(states);
}

//! Control of the line editor by other threads: to leave the terminal, and to continue with the same line.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use crate::platform::interrupt_this_process;

/// Why the editor leaves the terminal in the middle of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// The shell stops the process: Ctrl-Z.
    Stop,
    /// The process continues, and the shell has changed the modes of the terminal.
    Resume,
    /// The prompt needs another width.
    Repaint,
}

/// What the editor edits, and whether it has to leave.
#[derive(Debug, Default)]
pub struct EditorControl {
    /// Whether the editor has taken the terminal for the requested line. From then on Ctrl-C is a key for the editor and no
    /// SIGINT, until it gives the terminal back.
    pub has_begun: watch::Sender<bool>,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    is_editing: bool,
    leave: Option<Leave>,
    /// Whether a SIGINT for the editor may arrive after it has given the terminal back.
    is_late: bool,
    edited: Edited,
    has_hint: bool,
    is_searching: bool,
}

/// The line on the screen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edited {
    pub line: String,
    /// The place of the cursor, in bytes.
    pub at: usize,
}

impl EditorControl {
    /// Prepares for a request of a line.
    pub fn prepare(&self) {
        self.has_begun.send_replace(false);
        self.inner().is_late = false;
    }

    /// Reports that the editor takes the terminal.
    pub fn begin(&self) {
        self.has_begun.send_replace(false);
        let mut inner = self.inner();
        *inner = Inner { is_editing: true, is_late: inner.is_late, ..Inner::default() };
    }

    /// Reports that the editor has given the terminal back. Returns why it had to leave, if it had to, and whether a hint is
    /// behind the line.
    pub fn end(&self) -> (Option<Leave>, bool) {
        let mut inner = self.inner();
        inner.is_editing = false;
        // The editor may have returned because of a key, before the signal.
        inner.is_late = inner.leave.is_some();
        (inner.leave.take(), inner.has_hint)
    }

    #[must_use]
    pub fn is_editing(&self) -> bool {
        self.inner().is_editing && *self.has_begun.borrow()
    }

    /// Makes the editor leave the terminal. Returns whether it is editing.
    pub fn leave(&self, why: Leave) -> bool {
        let mut inner = self.inner();
        let is_editing = inner.is_editing && *self.has_begun.borrow();
        // A search would be lost.
        let is_possible =
            is_editing && inner.leave.is_none() && !(why == Leave::Repaint && inner.is_searching);
        if is_possible {
            inner.leave = Some(why);
            interrupt_this_process();
        }
        is_editing
    }

    /// Returns whether a SIGINT that has arrived was sent by [`Self::leave`], once.
    pub fn is_late_signal(&self) -> bool {
        let mut inner = self.inner();
        // The editor may have read the end of the line, and not given the terminal back yet.
        std::mem::take(&mut inner.is_late) || inner.leave.is_some()
    }

    #[must_use]
    pub fn edited(&self) -> Edited {
        self.inner().edited.clone()
    }

    /// Reports a change of the line or of the cursor's place.
    pub fn set_edited(&self, line: &str, at: usize) {
        let mut inner = self.inner();
        line.clone_into(&mut inner.edited.line);
        inner.edited.at = at;
    }

    /// Reports whether the prompt on the screen is that of a search in the history.
    pub fn set_searching(&self, is_searching: bool) {
        self.inner().is_searching = is_searching;
    }

    #[must_use]
    pub fn is_searching(&self) -> bool {
        self.inner().is_searching
    }

    /// Reports whether a hint is behind the line.
    pub fn set_hint(&self, has_hint: bool) {
        self.inner().has_hint = has_hint;
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        // Each change is a few assignments, so a panic leaves no half-made change behind.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_signal_of_a_leave_is_late_before_and_after_the_editor_gives_the_terminal_back() {
        let control = EditorControl::default();
        control.begin();
        assert!(!control.is_late_signal());
        // As `leave` does, which also sends the signal.
        control.inner().leave = Some(Leave::Stop);
        assert!(control.is_late_signal());
        assert_eq!(control.end(), (Some(Leave::Stop), false));
        assert!(control.is_late_signal());
        assert!(!control.is_late_signal());
    }
}

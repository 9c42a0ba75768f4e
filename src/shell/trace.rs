//! Where a trace goes that is for the screen: above the line that is being typed, once there can be one.

use std::sync::{Arc, OnceLock};

use super::screen::Screen;

/// The way there. Clones share it; it never blocks for long.
#[derive(Clone, Debug)]
pub struct Above {
    screen: Arc<OnceLock<Screen>>,
    plain: fn(&str, bool),
    color: bool,
}

impl Above {
    /// Before there is a screen, lines are put on standard error, with colour if so.
    #[must_use]
    pub fn new(plain: fn(&str, bool), color: bool) -> Self {
        Self { screen: Arc::default(), plain, color }
    }

    /// Prints a line; lines that nobody could read any more are lost.
    pub fn tell(&self, line: String) {
        match self.screen.get() {
            Some(screen) => screen.tell_if_room(line),
            None => (self.plain)(&line, self.color),
        }
    }

    /// From now on there is a screen.
    pub(super) fn begin(&self, screen: Screen) {
        // There is one for each shell.
        let _ = self.screen.set(screen);
    }
}

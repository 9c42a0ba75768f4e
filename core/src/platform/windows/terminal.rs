//! Modes of the console, which the line editor and the reader of passwords set and restore themselves.

#[must_use]
pub fn is_terminal_in_line_mode() -> bool {
    true
}

#[derive(Debug)]
pub struct KeyMode(());

impl KeyMode {
    #[must_use]
    pub fn set() -> Self {
        Self(())
    }
}

#[derive(Debug)]
pub struct SavedTerminal {
    pub is_asking: bool,
}

impl SavedTerminal {
    #[must_use]
    pub fn new() -> Option<Self> {
        None
    }
}

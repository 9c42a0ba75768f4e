//! Modes of the terminal.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};

use nix::sys::termios::{
    ControlFlags, InputFlags, LocalFlags, SetArg, SpecialCharacterIndices, Termios, tcgetattr, tcsetattr,
};

/// Returns whether the terminal of standard input delivers lines, as a shell leaves it, and not single keys.
#[must_use]
pub fn is_terminal_in_line_mode() -> bool {
    tcgetattr(io::stdin()).is_ok_and(|modes| modes.local_flags.contains(LocalFlags::ICANON))
}

/// Makes the terminal of standard input deliver single keys until this is dropped. A line editor that sets the same modes
/// for each read leaves none in which a key between two reads would be echoed, or be a signal.
#[derive(Debug)]
pub struct KeyMode {
    /// The modes before; `None` if there is no terminal.
    saved: Option<Termios>,
}

impl KeyMode {
    #[must_use]
    pub fn set() -> Self {
        let saved = tcgetattr(io::stdin()).ok();
        if let Some(mut modes) = saved.clone() {
            modes.input_flags &= !(InputFlags::BRKINT
                | InputFlags::ICRNL
                | InputFlags::INPCK
                | InputFlags::ISTRIP
                | InputFlags::IXON);
            modes.control_flags |= ControlFlags::CS8;
            modes.local_flags &=
                !(LocalFlags::ECHO | LocalFlags::ICANON | LocalFlags::IEXTEN | LocalFlags::ISIG);
            for (index, value) in [(SpecialCharacterIndices::VMIN, 1), (SpecialCharacterIndices::VTIME, 0)] {
                if let Some(character) = modes.control_chars.get_mut(index as usize) {
                    *character = value;
                }
            }
            // If the terminal is gone, the editor reports it.
            let _ = tcsetattr(io::stdin(), SetArg::TCSADRAIN, &modes);
        }
        Self { saved }
    }
}

impl Drop for KeyMode {
    fn drop(&mut self) {
        if let Some(saved) = &self.saved {
            let _ = tcsetattr(io::stdin(), SetArg::TCSADRAIN, saved);
        }
    }
}

/// Modes of the terminal before a prompt that switches echo off: a signal must not leave it so.
#[derive(Debug)]
pub struct SavedTerminal {
    terminal: File,
    modes: Termios,
    /// The prompt has not ended: the cursor is behind it.
    pub is_asking: bool,
}

impl SavedTerminal {
    /// Saves the modes; None without a terminal.
    #[must_use]
    pub fn new() -> Option<Self> {
        let terminal = OpenOptions::new().read(true).write(true).open("/dev/tty").ok()?;
        let modes = tcgetattr(&terminal).ok()?;
        Some(Self { terminal, modes, is_asking: true })
    }
}

impl Drop for SavedTerminal {
    fn drop(&mut self) {
        // Fails if the terminal is gone: nothing to restore.
        let _ = tcsetattr(&self.terminal, SetArg::TCSANOW, &self.modes);
        if self.is_asking {
            let _ = self.terminal.write_all(b"\n");
        }
    }
}

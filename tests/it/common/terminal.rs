//! A terminal with a program in it: keys are typed, the screen is read.

use std::io::{Read, Write};
use std::num::NonZero;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};
use std::thread;

use nix::sys::signal::{Signal, kill};
use nix::sys::termios::{LocalFlags, SetArg, tcgetattr, tcsetattr};
use nix::unistd::Pid;
use pty_process::Size;
use pty_process::blocking::{Command as InTerminal, Pty, open};

use super::until;

/// Ctrl and a letter.
pub const CTRL_C: &str = "\x03";
pub const CTRL_D: &str = "\x04";
pub const TAB: &str = "\t";
pub const ENTER: &str = "\r";
pub const UP: &str = "\x1b[A";
pub const RIGHT: &str = "\x1b[C";
pub const HOME: &str = "\x1b[H";

/// A terminal; what runs in it is killed when this is dropped.
pub struct Terminal {
    pty: Arc<Pty>,
    child: Child,
    screen: Arc<Mutex<vt100::Parser>>,
    /// All that has come, with what steers the terminal.
    bytes: Arc<Mutex<Vec<u8>>>,
    columns: u16,
}

impl Terminal {
    /// Starts a program in a terminal of 80 columns.
    pub fn start(command: Command) -> Self {
        Self::of_size(command, 30, 80)
    }

    /// Starts a program in a terminal of this size.
    pub fn of_size(mut command: Command, rows: u16, columns: u16) -> Self {
        if !command.get_envs().any(|(name, _)| name == "TERM") {
            command.env("TERM", "xterm-256color");
        }
        let (pty, inside) = open().unwrap();
        pty.resize(Size::new(rows, columns)).unwrap();
        keep_output(&pty);
        let child = InTerminal::from(command).spawn(inside).unwrap();
        let pty = Arc::new(pty);
        let screen = Arc::new(Mutex::new(vt100::Parser::new(some(rows), some(columns), 1000)));
        let (source, sink) = (Arc::clone(&pty), Arc::clone(&screen));
        let bytes: Arc<Mutex<Vec<u8>>> = Arc::default();
        let kept = Arc::clone(&bytes);
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            // Reading fails when nobody has the other end any more.
            while let Ok(count @ 1..) = (&*source).read(&mut bytes) {
                kept.lock().unwrap().extend_from_slice(&bytes[..count]);
                sink.lock().unwrap().process(&bytes[..count]);
            }
        });
        Self { pty, child, screen, bytes, columns }
    }

    /// Types keys.
    pub fn keys(&self, keys: &str) {
        self.bytes(keys.as_bytes());
    }

    /// Sends what a keyboard sends, even if it is no text.
    pub fn bytes(&self, bytes: &[u8]) {
        (&*self.pty).write_all(bytes).unwrap();
    }

    /// Types a line, and Enter.
    pub fn line(&self, line: &str) {
        self.keys(&format!("{line}{ENTER}"));
    }

    /// Types a secret, once the program has turned off what shows it, and Enter.
    pub fn secret(&self, secret: &str) {
        until("what is typed is not shown", || {
            let modes = tcgetattr(&self.pty).unwrap().local_flags;
            (!modes.contains(LocalFlags::ECHO)).then_some(())
        });
        self.line(secret);
    }

    /// Pastes a text as a terminal does that brackets it.
    pub fn paste(&self, text: &str) {
        self.keys(&format!("\x1b[200~{text}\x1b[201~"));
    }

    /// Changes the size.
    pub fn resize(&mut self, rows: u16, columns: u16) {
        self.screen.lock().unwrap().screen_mut().set_size(some(rows), some(columns));
        self.columns = columns;
        self.pty.resize(Size::new(rows, columns)).unwrap();
    }

    /// What is on the screen: a line for each row, without blanks at its end.
    pub fn screen(&self) -> String {
        let screen = self.screen.lock().unwrap();
        let rows: Vec<_> =
            screen.screen().rows(0, self.columns).map(|row| row.trim_end().to_owned()).collect();
        rows.join("\n").trim_end().to_owned()
    }

    /// The colour of the last row's first character.
    pub fn color_of_last_row(&self) -> vt100::Color {
        let screen = self.screen.lock().unwrap();
        let (row, _) = screen.screen().cursor_position();
        screen.screen().cell(row, 0).unwrap().fgcolor()
    }

    /// The column of the cursor.
    pub fn cursor(&self) -> u16 {
        self.screen.lock().unwrap().screen().cursor_position().1
    }

    /// Enters a line that takes its time, and waits until the editor has given the terminal back, so that Ctrl-C is a
    /// signal. The screen does not tell: the cursor stands in the first column whenever the prompt is painted anew.
    #[track_caller]
    pub fn begin(&self, line: &str) {
        // While the line before it ends, keys are echoed as well.
        self.wait_for("the editor to have the terminal", |_| !self.is_bright());
        self.keys(line);
        self.wait_for(line, |screen| screen.ends_with(line));
        self.keys(ENTER);
        self.wait_for("the line to run", |_| self.is_bright());
    }

    /// Types Ctrl-D, once the editor has the terminal: until then it would be the end of what nobody reads.
    #[track_caller]
    pub fn leave(&self) {
        self.wait_for("the editor to have the terminal", |_| !self.is_bright());
        self.keys(CTRL_D);
    }

    /// Waits until the screen is as it should be, and returns it.
    #[track_caller]
    pub fn wait_for(&self, what: &str, is_so: impl Fn(&str) -> bool) -> String {
        let shown = std::cell::RefCell::new(String::new());
        let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            until(what, || {
                shown.replace(self.screen());
                is_so(&shown.borrow()).then(|| shown.borrow().clone())
            })
        }));
        found.unwrap_or_else(|_| panic!("waited in vain: {what}\n--- screen\n{}\n---", shown.borrow()))
    }

    /// Waits until a text is on the screen, and returns the screen.
    #[track_caller]
    pub fn shows(&self, text: &str) -> String {
        self.wait_for(text, |screen| screen.contains(text))
    }

    /// Waits until a text has come, even if what followed has pushed it off the screen.
    #[track_caller]
    pub fn has_shown(&self, text: &str) {
        let is_there = |bytes: &[u8]| bytes.windows(text.len()).any(|bytes| bytes == text.as_bytes());
        self.wait_for(text, |_| is_there(&self.bytes.lock().unwrap()));
    }

    /// Waits until the last row is this, hints included.
    #[track_caller]
    pub fn ends_with(&self, row: &str) -> String {
        self.wait_for(&format!("last row: {row}"), |screen| screen.lines().last() == Some(row))
    }

    /// Clears the line, and waits for an empty prompt: keys that come together with Ctrl-C are lost with the line.
    #[track_caller]
    pub fn clear(&self, prompt: &str) {
        // Nothing but what follows on this key can look like an empty prompt.
        self.keys("~");
        self.wait_for("the last key", |screen| screen.lines().last().is_some_and(|row| row.contains('~')));
        self.keys(CTRL_C);
        self.ends_with(prompt);
    }

    /// Whether what is typed is shown, a line at a time, and Ctrl-C is a signal: as a terminal should be left.
    pub fn is_bright(&self) -> bool {
        let modes = tcgetattr(&*self.pty).unwrap().local_flags;
        modes.contains(LocalFlags::ECHO | LocalFlags::ICANON | LocalFlags::ISIG)
    }

    /// Sends the program a signal.
    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).unwrap();
    }

    /// Whether a byte has come, be it one that steers the terminal.
    pub fn has_come(&self, byte: u8) -> bool {
        self.bytes.lock().unwrap().contains(&byte)
    }

    /// Closes the terminal as if its window were closed: the program gets SIGHUP.
    pub fn hang_up(&self) {
        self.signal(Signal::SIGHUP);
    }

    /// Waits for the program's end. Returns its exit code.
    #[track_caller]
    pub fn end(&mut self) -> Option<i32> {
        let shown = self.screen();
        until(&format!("the end of the program; screen was\n{shown}"), || self.child.try_wait().unwrap())
            .code()
    }
}

/// With Ctrl-C a terminal throws away what is on its way to the screen; here it may be what is waited for.
fn keep_output(pty: &Pty) {
    let mut modes = tcgetattr(pty).unwrap();
    modes.local_flags |= LocalFlags::NOFLSH;
    tcsetattr(pty, SetArg::TCSANOW, &modes).unwrap();
}

fn some(count: u16) -> NonZero<u16> {
    NonZero::new(count).unwrap()
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

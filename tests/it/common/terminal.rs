//! A pseudo-terminal with a program in it: the test types keys and reads the screen.

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

use super::{Place, reset_signals, wait_until};
use crate::a_watchdog::bounded;

pub const CTRL_C: &str = "\x03";
pub const CTRL_Z: &str = "\x1a";
pub const CTRL_D: &str = "\x04";
pub const TAB: &str = "\t";
pub const ENTER: &str = "\r";
pub const UP: &str = "\x1b[A";
pub const RIGHT: &str = "\x1b[C";
pub const HOME: &str = "\x1b[H";

/// A terminal; its program is killed when this is dropped.
pub struct Terminal {
    pty: Arc<Pty>,
    child: Child,
    screen: Arc<Mutex<vt100::Parser>>,
    /// All output, control sequences included.
    bytes: Arc<Mutex<Vec<u8>>>,
    columns: u16,
}

impl Terminal {
    /// Starts a program in a terminal of 80 columns.
    pub fn start(command: Command) -> Self {
        Self::of_size(command, 30, 80)
    }

    /// Starts a program in a terminal of this size.
    pub fn of_size(command: Command, rows: u16, columns: u16) -> Self {
        Self::with_echo(command, rows, columns, true)
    }

    /// Starts a program in a terminal that shows what the program writes, and not what is typed.
    pub fn without_echo(command: Command, rows: u16, columns: u16) -> Self {
        Self::with_echo(command, rows, columns, false)
    }

    fn with_echo(mut command: Command, rows: u16, columns: u16, has_echo: bool) -> Self {
        if !command.get_envs().any(|(name, _)| name == "TERM") {
            command.env("TERM", "xterm-256color");
        }
        let (pty, inside) = open().unwrap();
        pty.resize(Size::new(rows, columns)).unwrap();
        set_modes(&pty, has_echo);
        reset_signals(&mut command);
        let child = InTerminal::from(command).spawn(inside).unwrap();
        let pty = Arc::new(pty);
        let screen = Arc::new(Mutex::new(vt100::Parser::new(some(rows), some(columns), 1000)));
        let (source, sink) = (Arc::clone(&pty), Arc::clone(&screen));
        let bytes: Arc<Mutex<Vec<u8>>> = Arc::default();
        let kept = Arc::clone(&bytes);
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            // Reading fails once no process has the terminal open.
            while let Ok(count @ 1..) = (&*source).read(&mut bytes) {
                kept.lock().unwrap().extend_from_slice(&bytes[..count]);
                sink.lock().unwrap().process(&bytes[..count]);
            }
        });
        Self { pty, child, screen, bytes, columns }
    }

    /// Starts an interactive shell in a terminal, and the program with these arguments in it.
    pub fn in_shell(shell: &[&str], place: &Place, words: &[&str]) -> Self {
        let program = place.command(words);
        let mut command = Command::new(shell[0]);
        command.args(&shell[1..]).env_clear().current_dir(place.folder());
        command.envs(program.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.env("PS1", "$ ").env("PATH", "/usr/bin:/bin");
        let terminal = Self::start(command);
        terminal.ends_with("$");
        let line = std::iter::once(program.get_program()).chain(program.get_args());
        terminal.line(&line.map(|word| word.to_str().unwrap()).collect::<Vec<_>>().join(" "));
        terminal
    }

    pub fn keys(&self, keys: &str) {
        self.bytes(keys.as_bytes());
    }

    /// Sends bytes as a keyboard would, UTF-8 or not.
    pub fn bytes(&self, bytes: &[u8]) {
        (&*self.pty).write_all(bytes).unwrap();
    }

    /// Types a line and Enter.
    pub fn line(&self, line: &str) {
        self.keys(&format!("{line}{ENTER}"));
    }

    /// Types a secret and Enter, once the program has turned off echo.
    pub fn secret(&self, secret: &str) {
        wait_until("echo is off", || {
            let modes = tcgetattr(&self.pty).unwrap().local_flags;
            (!modes.contains(LocalFlags::ECHO)).then_some(())
        });
        self.line(secret);
    }

    /// Pastes a text, as a terminal with bracketed paste does.
    pub fn paste(&self, text: &str) {
        self.keys(&format!("\x1b[200~{text}\x1b[201~"));
    }

    pub fn resize(&mut self, rows: u16, columns: u16) {
        self.screen.lock().unwrap().screen_mut().set_size(some(rows), some(columns));
        self.columns = columns;
        self.pty.resize(Size::new(rows, columns)).unwrap();
    }

    /// Returns the rows of the screen, without trailing spaces.
    pub fn screen(&self) -> String {
        let screen = self.screen.lock().unwrap();
        let rows: Vec<_> =
            screen.screen().rows(0, self.columns).map(|row| row.trim_end().to_owned()).collect();
        rows.join("\n").trim_end().to_owned()
    }

    /// Returns the number of line feeds that were received.
    pub fn received_lines(&self) -> usize {
        self.bytes.lock().unwrap().iter().filter(|byte| **byte == b'\n').count()
    }

    /// Shows the screen with its colors.
    pub fn parsed<T>(&self, view: impl FnOnce(&vt100::Screen) -> T) -> T {
        view(self.screen.lock().unwrap().screen())
    }

    /// Returns all output so far, control sequences included.
    pub fn received(&self) -> Vec<u8> {
        self.bytes.lock().unwrap().clone()
    }

    /// Returns the process id of the program.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the color of the first character in the row of the cursor.
    pub fn color_of_last_row(&self) -> vt100::Color {
        let screen = self.screen.lock().unwrap();
        let (row, _) = screen.screen().cursor_position();
        screen.screen().cell(row, 0).unwrap().fgcolor()
    }

    /// Returns the column of the cursor.
    pub fn cursor(&self) -> u16 {
        self.screen.lock().unwrap().screen().cursor_position().1
    }

    /// Enters a line that runs for long, and waits until the editor has left raw mode, so that Ctrl-C is a signal. The
    /// screen cannot show that: the cursor is in the first column at each repaint of the prompt, too.
    #[track_caller]
    pub fn start_command(&self, line: &str) {
        // Until the previous line has ended, the terminal is in cooked mode too.
        self.wait_for("raw mode", |_| !self.is_cooked());
        self.keys(line);
        self.wait_for(line, |screen| screen.ends_with(line));
        self.keys(ENTER);
        self.wait_for("cooked mode", |_| self.is_cooked());
    }

    /// Types Ctrl-D once the editor has set raw mode: in cooked mode it would be the end of input that no program reads.
    #[track_caller]
    pub fn press_ctrl_d(&self) {
        self.wait_for("raw mode", |_| !self.is_cooked());
        self.keys(CTRL_D);
    }

    /// Waits until the screen is as expected and returns it.
    #[track_caller]
    pub fn wait_for(&self, what: &str, is_so: impl Fn(&str) -> bool) -> String {
        let shown = std::cell::RefCell::new(String::new());
        let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            wait_until(what, || {
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

    /// Waits until this is the last row, hints included.
    #[track_caller]
    pub fn ends_with(&self, row: &str) -> String {
        self.wait_for(&format!("last row: {row}"), |screen| screen.lines().last() == Some(row))
    }

    /// Clears the line and waits for an empty prompt: keys typed together with Ctrl-C are lost with the line.
    #[track_caller]
    pub fn clear(&self, prompt: &str) {
        // An empty prompt that follows this key is the one after Ctrl-C.
        self.keys("~");
        self.wait_for("the last key", |screen| screen.lines().last().is_some_and(|row| row.contains('~')));
        self.keys(CTRL_C);
        self.ends_with(prompt);
    }

    /// Returns whether the terminal is in cooked mode: echo, line input, and Ctrl-C as a signal.
    pub fn is_cooked(&self) -> bool {
        let modes = tcgetattr(&*self.pty).unwrap().local_flags;
        modes.contains(LocalFlags::ECHO | LocalFlags::ICANON | LocalFlags::ISIG)
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).unwrap();
    }

    /// Returns whether the program has written this byte, in a control sequence or not.
    pub fn has_received(&self, byte: u8) -> bool {
        self.bytes.lock().unwrap().contains(&byte)
    }

    /// Sends the program SIGHUP, as a terminal does when its window is closed.
    pub fn hang_up(&self) {
        self.signal(Signal::SIGHUP);
    }

    /// Waits for the program to exit and returns its exit code.
    #[track_caller]
    pub fn end(&mut self) -> Option<i32> {
        let shown = self.screen();
        wait_until(&format!("the end of the program; screen was\n{shown}"), || self.child.try_wait().unwrap())
            .code()
    }
}

/// Keeps pending output at Ctrl-C, which a terminal discards by default: the test may wait for it. Sets the echo.
fn set_modes(pty: &Pty, has_echo: bool) {
    let mut modes = tcgetattr(pty).unwrap();
    modes.local_flags |= LocalFlags::NOFLSH;
    modes.local_flags.set(LocalFlags::ECHO, has_echo);
    tcsetattr(pty, SetArg::TCSANOW, &modes).unwrap();
}

fn some(count: u16) -> NonZero<u16> {
    NonZero::new(count).unwrap()
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = bounded(|| self.child.wait());
    }
}

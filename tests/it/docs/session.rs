//! Runs the commands of a page as a reader would: in terminals, in a new folder, with a store on free ports.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use super::compare::is_as_shown;
use super::is_writing;
use super::page::{Edits, Input, Options, Page, Part, Step};
use crate::common::pki::Ca;
use crate::common::{CTRL_C, Place, Terminal, reserved_port, reserved_short_port, write_script};

/// Ports on the pages. Tests have free ones instead.
const PORTS: [&str; 9] = ["1883", "1884", "1885", "1886", "8883", "18883", "8884", "8080", "9883"];
/// The home directory on the pages. Tests have one in `/tmp` whose path is as long, for columns of tables.
const HOME: &str = "/home/ann";
const COLUMNS: u16 = 110;
const ROWS: u16 = 200;
/// What the shell writes before it reads a command; the status of the last one and a BEL follow.
const READY: &[u8] = b"\x1b]9;ready ";

/// A text of the page, and the text in its place in the test.
type Pair = (String, String);

/// Runs a page so many times in one home directory. Returns what differs from the page, and the outputs to put in.
pub fn run(page: &Page, has: &dyn Fn(&str) -> bool, times: usize) -> (Vec<String>, Edits) {
    let mut session = Session::start(page);
    for _ in 0..times {
        for part in &page.parts {
            session.part(part, has);
        }
        session.end_all();
    }
    (std::mem::take(&mut session.differences), std::mem::take(&mut session.edits))
}

struct Session<'a> {
    page: &'a Path,
    /// Programs and temporary files.
    place: Place,
    home: TempDir,
    ports: Vec<Pair>,
    pairs: Vec<Pair>,
    /// The terminal of each name that takes the next command.
    terminals: BTreeMap<String, Shell>,
    staying: Vec<Staying<'a>>,
    differences: Vec<String>,
    edits: Edits,
    /// How long to wait for the output of a command in the background, in seconds.
    patience_s: u64,
}

/// A command that goes on.
struct Staying<'a> {
    name: String,
    shell: Shell,
    step: &'a Step,
    options: Options,
    /// Where the output begins.
    from: usize,
}

/// A shell in a terminal. Its processes are killed when this is dropped.
struct Shell {
    terminal: Terminal,
    id: String,
    commands: Cell<usize>,
    /// Whether commands run in the background, whose output may come at any time.
    has_jobs: Cell<bool>,
}

impl<'a> Session<'a> {
    fn part(&mut self, part: &'a Part, has: &dyn Fn(&str) -> bool) {
        match part {
            Part::Console { steps, options } if options.needs.iter().all(|name| has(name)) => {
                self.console(steps, options);
            }
            Part::Script { text, line, options } if options.needs.iter().all(|name| has(name)) => {
                self.script(text, *line);
            }
            Part::Replacement { of_page, of_test } => {
                self.pairs.insert(0, (of_page.clone(), of_test.clone()));
            }
            Part::File { name, text } => self.file(name, text),
            Part::Console { .. } | Part::Script { .. } | Part::NotRun => {}
        }
    }

    fn start(page: &'a Page) -> Self {
        let place = Place::new();
        let is_used = |port: &str| without_number(&page.text, port) != page.text || port == "1883";
        let free = |port: &str| if port.len() == 4 { reserved_short_port() } else { reserved_port() };
        let ports: Vec<Pair> = PORTS
            .iter()
            .filter(|port| is_used(port))
            .map(|port| ((*port).to_owned(), free(port).to_string()))
            .collect();
        let home = tempfile::Builder::new().prefix("").rand_bytes(4).tempdir_in("/tmp").unwrap();
        for folder in ["bin", "tmp"] {
            fs::create_dir(place.path(folder)).unwrap();
        }
        let session = Self {
            page: &page.path,
            place,
            home,
            ports,
            pairs: Vec::new(),
            terminals: BTreeMap::new(),
            staying: Vec::new(),
            differences: Vec::new(),
            edits: BTreeMap::new(),
            patience_s: if is_writing() { 2 } else { 20 },
        };
        session.write_program();
        session
    }

    /// Writes `mqkv`, which listens on the free ports where it would listen on those of the page by default.
    fn write_program(&self) {
        let port =
            |of_page: &str| self.ports.iter().find(|pair| pair.0 == of_page).map_or("0", |pair| &pair.1);
        let listen = |port: &str| {
            let both = format!("--listen 127.0.0.1:{port} --listen '[::1]:{port}'");
            if has_ipv6() { both } else { format!("--listen 127.0.0.1:{port}") }
        };
        let (plain, tls) = (listen(port("1883")), listen(port("8883")));
        let program = format!(
            "#!/bin/bash\n\
             case \" $* \" in\n\
             *' --listen'* | *' --exec '* | *' --leave-exchange '* | *' -h '* | *' --help '* | *' serve user '*) ;;\n\
             ' serve'*' --tls-cert '*) set -- \"$@\" {tls} ;;\n\
             ' serve '*) set -- \"$@\" {plain} ;;\n\
             esac\n\
             exec -a mqkv {} \"$@\"\n",
            env!("CARGO_BIN_EXE_mqkv")
        );
        write(&self.place.path("bin/mqkv"), &program);
    }

    fn home(&self) -> &Path {
        self.home.path()
    }

    /// Returns what to run in place of a text of the page.
    fn of_test(&self, text: &str) -> String {
        let text = self.pairs.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to));
        let text = text.replace(HOME, &self.home().display().to_string());
        self.ports.iter().fold(text, |text, (from, to)| with_number(&text, from, to))
    }

    /// Returns what the page would show of an output.
    fn of_page(&self, text: &str) -> String {
        let text = self.ports.iter().fold(text.to_owned(), |text, (to, from)| with_number(&text, from, to));
        let text = text.replace(&self.home().display().to_string(), HOME);
        self.pairs.iter().rev().fold(text, |text, (to, from)| text.replace(from, to))
    }

    /// Writes a file of the page.
    fn file(&self, name: &str, text: &str) {
        let path = self.home().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        write(&path, &self.of_test(text));
    }

    /// Takes the shell of a terminal out of the list, or starts it. In a terminal with a name, a command that stays must
    /// have ended.
    fn take_shell(&mut self, name: &str) -> Shell {
        let staying = self.staying.iter().position(|staying| !name.is_empty() && staying.name == name);
        if let Some(at) = staying {
            let Staying { shell, step, options, from, .. } = self.staying.remove(at);
            if shell.finish().is_none() {
                self.differences.push(format!("{}: no end after a minute", self.at(step)));
            }
            self.compare(step, &options, false, || shell.output(from));
            return shell;
        }
        let shell = self.terminals.remove(name);
        shell.unwrap_or_else(|| Shell::start(&self.place, self.home(), self.of_test("localhost:1883")))
    }

    /// Runs a script of the page in the first terminal. Each of its commands must succeed.
    fn script(&mut self, text: &str, line: usize) {
        let mut piece = String::new();
        for command in text.lines() {
            match command {
                "certificates" => self.write_certificates(),
                _ => piece.push_str(&format!("{command}\n")),
            }
            // What follows may need the server.
            if command.starts_with("mqkv serve ") && command.ends_with("& disown") {
                self.piece(&std::mem::take(&mut piece), line);
            }
        }
        self.piece(&piece, line);
    }

    fn piece(&mut self, text: &str, line: usize) {
        let shell = self.take_shell("");
        let script = format!(
            "failed=\ntrap 'failed=\"$failed $BASH_COMMAND\"' ERR\n{}trap - ERR\n\
             [ -z \"$failed\" ] || {{ echo \"failed:$failed\"; false; }}\n",
            self.of_test(text)
        );
        let from = shell.enter(&self.place, &script);
        let status = shell.finish().unwrap_or("none after a minute".to_owned());
        if status != "0" {
            let shown = self.of_page(&shown(&shell.output(from)).join("\n"));
            self.differences.push(format!(
                "{}:{}: exit status {status}\n{shown}",
                self.page.display(),
                line + 1
            ));
        }
        self.wait_for_server(text);
        self.terminals.insert(String::new(), shell);
    }

    /// Writes a CA, a certificate of `localhost` and one of a client, as a page that needs TLS has them.
    fn write_certificates(&self) {
        let ca = Ca::new(&self.place, "ca.crt");
        ca.issue(&self.place, "server", &["localhost"]);
        ca.issue(&self.place, "client", &["connector-0"]);
        let names = [("ca.crt", "ca.crt"), ("server.pem", "server.crt"), ("client.pem", "client.crt")];
        for (from, to) in
            names.into_iter().chain([("server.key", "server.key"), ("client.key", "client.key")])
        {
            fs::copy(self.place.path(from), self.home().join(to)).unwrap();
        }
    }

    fn console(&mut self, steps: &'a [Step], options: &Options) {
        let mut steps = steps.iter().enumerate().peekable();
        while let Some((_, step)) = steps.next() {
            match &step.input {
                Input::Command { terminal, text } => {
                    let shell = self.take_shell(terminal);
                    let from = shell.enter(&self.place, &self.of_test(text));
                    let lines: Vec<&Step> = std::iter::from_fn(|| {
                        steps
                            .next_if(|(_, step)| matches!(step.input, Input::Line { .. }))
                            .map(|(_, step)| step)
                    })
                    .collect();
                    if !lines.is_empty() {
                        if self.prompt(&shell, from, step, &lines, options) {
                            self.terminals.insert(terminal.clone(), shell);
                        }
                    } else if steps.peek().is_some_and(|(_, step)| matches!(step.input, Input::Interrupt))
                        || (steps.peek().is_none() && options.stays)
                    {
                        self.stay(terminal, shell, step, from, options);
                    } else {
                        if shell.finish().is_none() {
                            self.differences.push(format!("{}: no end after a minute", self.at(step)));
                        }
                        self.wait_for_server(text);
                        shell.has_jobs.set(shell.has_jobs.get() || text.ends_with('&'));
                        self.compare(step, options, shell.has_jobs.get(), || shell.output(from));
                        self.terminals.insert(terminal.clone(), shell);
                    }
                }
                Input::Interrupt => {
                    let Some(Staying { name, shell, step: before, options, from }) = self.staying.pop()
                    else {
                        self.differences.push(format!("{}: no command to interrupt", self.at(step)));
                        return;
                    };
                    self.compare(before, &options, true, || shell.output(from));
                    let from = shell.terminal.received().len();
                    shell.terminal.keys(CTRL_C);
                    shell.finish();
                    // The shell ends the line in which the terminal shows Ctrl-C.
                    let output = || shell.output(from).trim_ascii_start().to_vec();
                    self.compare(step, &options, false, output);
                    self.terminals.insert(name, shell);
                }
                Input::Line { .. } => {
                    self.differences.push(format!("{}: a line of mqkv's prompt without mqkv", self.at(step)));
                }
            }
        }
    }

    /// Leaves a command running, once it shows what the page shows of its beginning.
    fn stay(&mut self, name: &str, shell: Shell, step: &'a Step, from: usize, options: &Options) {
        // The values at the beginning of a watch: the changes below them are made later.
        let mut ready =
            step.output.iter().enumerate().filter(|(at, line)| *at == 0 || line.contains("  CURRENT  "));
        let ready = ready.next_back().map_or(1, |(at, _)| at + 1);
        within_seconds(20, || self.lines(&shell.output(from)).len() >= ready);
        self.staying.push(Staying { name: name.to_owned(), shell, step, options: options.clone(), from });
    }

    /// Enters lines at the prompt of mqkv, each when the terminal shows what the page shows above it. Returns whether all
    /// was as shown, and leaves the prompt then.
    fn prompt(
        &mut self,
        shell: &Shell,
        from: usize,
        command: &'a Step,
        lines: &[&'a Step],
        options: &Options,
    ) -> bool {
        let mut expected = command.output.clone();
        for line in lines {
            let Input::Line { prompt, text } = &line.input else { continue };
            expected.push(format!("{prompt}>"));
            if !self.shows(&expected, options, || shell.output(from)) {
                return self.differs(shell, from, command);
            }
            shell.terminal.line(&self.of_test(text));
            expected.pop();
            expected.push(format!("{prompt}> {text}"));
            expected.extend(line.output.iter().cloned());
        }
        expected.push("…>".to_owned());
        if !self.shows(&expected, options, || shell.output(from)) {
            return self.differs(shell, from, command);
        }
        shell.terminal.press_ctrl_d();
        shell.finish();
        true
    }

    fn differs(&mut self, shell: &Shell, from: usize, command: &Step) -> bool {
        let shown = self.lines(&shell.output(from)).join("\n");
        self.differences.push(format!("{}\n--- output\n{shown}\n", self.at(command)));
        false
    }

    /// Returns whether an output becomes as shown, within a time.
    fn shows(&self, expected: &[String], options: &Options, output: impl Fn() -> Vec<u8>) -> bool {
        let is_so = || is_as_shown(expected, &self.lines(&output()), options.numbers_vary);
        within_seconds(10, is_so)
    }

    /// Compares an output with what the page shows. More may come if `is_background`.
    fn compare(&mut self, step: &Step, options: &Options, is_background: bool, output: impl Fn() -> Vec<u8>) {
        let is_so = || is_as_shown(&step.output, &self.lines(&output()), options.numbers_vary);
        if is_so() || (is_background && within_seconds(self.patience_s, is_so)) {
            return;
        }
        let lines = self.lines(&output());
        let shown = step.output.join("\n");
        self.differences.push(format!(
            "{}\n--- page\n{shown}\n--- output\n{}\n",
            self.at(step),
            lines.join("\n")
        ));
        let indented = |line: &String| format!("{}{line}", " ".repeat(step.indent)).trim_end().to_owned();
        self.edits.insert(step.lines.start, (step.lines.clone(), lines.iter().map(indented).collect()));
    }

    fn at(&self, step: &Step) -> String {
        let text = match &step.input {
            Input::Command { text, .. } => text,
            Input::Line { text, .. } => text,
            Input::Interrupt => "^C",
        };
        format!("{}:{}: {text}", self.page.display(), step.lines.start)
    }

    /// Returns the lines of an output as the page would show them.
    fn lines(&self, output: &[u8]) -> Vec<String> {
        shown(output).iter().map(|line| self.of_page(line)).collect()
    }

    /// Waits until the servers that a command has started listen.
    fn wait_for_server(&self, text: &str) {
        for line in text.lines() {
            let is_server = ["mqkv serve", "mosquitto -p"].iter().any(|command| line.starts_with(command));
            if !is_server
                || line.contains("--exec")
                || line.contains("--leave-exchange")
                || line.contains(" user ")
            {
                continue;
            }
            let named = self.ports.iter().filter(|(of_page, _)| without_number(line, of_page) != line);
            let mut ports: Vec<&str> = named.map(|(_, port)| port.as_str()).collect();
            if !line.contains("--listen") && !line.contains(" -p ") {
                let default = if line.contains("--tls-cert") { "8883" } else { "1883" };
                ports.extend(self.ports.iter().filter(|pair| pair.0 == default).map(|pair| pair.1.as_str()));
            }
            for port in ports {
                let address = format!("127.0.0.1:{port}");
                within_seconds(20, || TcpStream::connect(&address).is_ok());
            }
        }
    }

    /// Compares the outputs of the commands that stay, and ends them.
    fn end_all(&mut self) {
        let staying = std::mem::take(&mut self.staying);
        for Staying { shell, step, options, from, .. } in &staying {
            self.compare(step, options, true, || shell.output(*from));
        }
        self.terminals.clear();
    }
}

impl Shell {
    fn start(place: &Place, home: &Path, broker: String) -> Self {
        let mut command = Command::new("bash");
        command
            .args(["--norc", "--noprofile", "--noediting", "-i"])
            .env_clear()
            .env(
                "PATH",
                format!("{}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", place.path("bin").display()),
            )
            .env("HOME", home)
            .env("TMPDIR", place.path("tmp"))
            .env("USER", "ann")
            .env("HOSTNAME", "desk")
            .env("LANG", "C.UTF-8")
            .env("NO_COLOR", "1")
            .env("MQKV_BROKER", broker)
            .env("PS1", "\x1b]9;ready ${?}\x07")
            .env("PS2", "")
            .current_dir(home);
        let terminal = Terminal::without_echo(command, ROWS, COLUMNS);
        let shell = Self {
            id: terminal.id().to_string(),
            terminal,
            commands: Cell::new(0),
            has_jobs: Cell::new(false),
        };
        shell.finish();
        shell
    }

    /// Enters a command and returns where its output begins. The shell reads it from a file, for it may be longer than
    /// the line of a terminal.
    fn enter(&self, place: &Place, text: &str) -> usize {
        let name = format!("tmp/command-{}-{}", self.id, self.commands.get());
        place.write(&name, format!("{text}\n"));
        let from = self.terminal.received().len();
        self.terminal.keys(&format!(". {}\n", place.path(&name).display()));
        self.commands.set(self.commands.get() + 1);
        from
    }

    /// Waits until the shell has run its commands; returns the exit status of the last one, or None if it was interrupted
    /// after a minute.
    fn finish(&self) -> Option<String> {
        const TIMEOUT_S: u64 = 60;
        if !within_seconds(TIMEOUT_S, || self.exit_status().is_some()) {
            self.terminal.keys(CTRL_C);
            within_seconds(TIMEOUT_S, || self.exit_status().is_some());
            return None;
        }
        self.exit_status()
    }

    fn exit_status(&self) -> Option<String> {
        let bytes = self.terminal.received();
        let last = positions(&bytes, READY).nth(self.commands.get())?;
        let status = &bytes[last + READY.len()..];
        let end = status.iter().position(|byte| *byte == b'\x07')?;
        Some(String::from_utf8_lossy(&status[..end]).into_owned())
    }

    /// Returns the output from a position on, up to the next prompt.
    fn output(&self, from: usize) -> Vec<u8> {
        let mut bytes = self.terminal.received().split_off(from);
        let end = positions(&bytes, READY).next();
        if let Some(end) = end {
            // What a process in the background writes stands behind the prompt.
            let after = bytes.split_off(end);
            let rest = after.iter().position(|byte| *byte == b'\x07').map_or(after.len(), |at| at + 1);
            bytes.extend_from_slice(&after[rest..]);
        }
        bytes
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else { continue };
            let session = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(3));
            let id = entry.file_name().to_string_lossy().parse().ok();
            if let (Some(session), Some(id)) = (session, id)
                && session == self.id
            {
                let _ = kill(Pid::from_raw(id), Signal::SIGKILL);
            }
        }
    }
}

/// Writes a file for its owner only; one with `#!` can be executed.
fn write(path: &Path, text: &str) {
    if text.starts_with("#!") {
        return write_script(path, text);
    }
    fs::write(path, text).unwrap();
    fs::set_permissions(path, PermissionsExt::from_mode(0o600)).unwrap();
}

fn positions<'a>(bytes: &'a [u8], searched: &'a [u8]) -> impl Iterator<Item = usize> + 'a {
    bytes.windows(searched.len()).enumerate().filter(move |(_, window)| *window == searched).map(|(at, _)| at)
}

/// Returns the lines that a terminal shows.
fn shown(output: &[u8]) -> Vec<String> {
    let size = [ROWS, COLUMNS].map(|count| std::num::NonZero::new(count).unwrap());
    let mut screen = vt100::Parser::new(size[0], size[1], 0);
    screen.process(output);
    let mut lines: Vec<String> =
        screen.screen().contents().lines().map(|line| line.trim_end().to_owned()).collect();
    while lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    lines
}

/// Returns whether something becomes true within a time.
fn within_seconds(seconds: u64, is_so: impl Fn() -> bool) -> bool {
    let begun = mqkv::clock::monotonic();
    while !is_so() {
        if mqkv::clock::monotonic() - begun > std::time::Duration::from_secs(seconds) {
            return false;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    true
}

fn has_ipv6() -> bool {
    TcpListener::bind("[::1]:0").is_ok()
}

fn without_number(text: &str, number: &str) -> String {
    with_number(text, number, "")
}

/// Returns the text with another number, where it is not a part of a longer one.
fn with_number(text: &str, number: &str, other: &str) -> String {
    let mut result = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(number) {
        let (before, after) = (&rest[..at], &rest[at + number.len()..]);
        let is_part =
            before.ends_with(|c: char| c.is_ascii_digit()) || after.starts_with(|c: char| c.is_ascii_digit());
        result.push_str(before);
        result.push_str(if is_part { number } else { other });
        rest = after;
    }
    result + rest
}

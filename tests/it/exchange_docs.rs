//! The commands of `docs/exchange.md`, and the example, as written.

use std::collections::BTreeMap;
use std::fs;
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::common::{Place, Terminal, reserved_port, wait_until};

/// The ports of the page. Tests have free ones instead.
const PORTS: [&str; 2] = ["1883", "1884"];

/// A command of the page with the output that the page shows.
struct Step<'a> {
    /// The terminal's prompt.
    prompt: &'a str,
    command: &'a str,
    output: Vec<&'a str>,
}

/// Free ports in place of those of the page.
struct Ports([String; 2]);

impl Ports {
    fn free() -> Self {
        Self(PORTS.map(|_| reserved_port().to_string()))
    }

    fn put_into(&self, text: &str) -> String {
        PORTS.iter().zip(&self.0).fold(text.to_owned(), |text, (of_page, free)| text.replace(of_page, free))
    }

    fn take_from(&self, text: &str) -> String {
        PORTS.iter().zip(&self.0).fold(text.to_owned(), |text, (of_page, free)| text.replace(free, of_page))
    }
}

fn file(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap()
}

/// Returns the code blocks of a section in this language.
fn blocks<'a>(page: &'a str, heading: &str, language: &str) -> Vec<&'a str> {
    let (_, section) = page.split_once(&format!("\n## {heading}\n")).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let begin = format!("```{language}\n");
    section.split(&begin).skip(1).map(|rest| rest.split("```").next().unwrap()).collect()
}

fn steps(blocks: &[&'static str]) -> Vec<Step<'static>> {
    let mut steps: Vec<Step<'_>> = Vec::new();
    for line in blocks.iter().flat_map(|block| block.lines()) {
        match line.split_once("$ ").filter(|(prompt, _)| ["plant", "press"].contains(prompt)) {
            Some((prompt, command)) => steps.push(Step { prompt, command, output: Vec::new() }),
            None => steps.last_mut().unwrap().output.push(line),
        }
    }
    steps
}

/// Replaces what differs in each run: times of day, and mutexes.
fn without_chance(line: &str) -> String {
    let word = |word: &str| {
        let is_hex = word.len() == 32 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
        let is_time = word.len() >= 8
            && word.bytes().enumerate().all(|(at, byte)| match at {
                2 | 5 => byte == b':',
                8 => byte == b'.',
                _ => byte.is_ascii_digit(),
            });
        if is_hex {
            "HEX".to_owned()
        } else if is_time {
            "TIME".to_owned()
        } else {
            word.to_owned()
        }
    };
    line.trim_end().split(' ').map(word).collect::<Vec<_>>().join(" ")
}

/// Whether a line is output of the shell about its jobs, which has process ids.
fn is_about_jobs(line: &str) -> bool {
    line.starts_with("[1]")
}

/// Returns what the page shows of a terminal, or what the terminal shows.
fn comparable<'a>(lines: impl Iterator<Item = &'a str>) -> String {
    lines.filter(|line| !is_about_jobs(line)).map(|line| without_chance(line) + "\n").collect()
}

/// A shell in a terminal. The servers that it has started are killed when this is dropped.
struct Shell<'a> {
    place: &'a Place,
    terminal: Terminal,
}

impl<'a> Shell<'a> {
    fn start(place: &'a Place, prompt: &str) -> Self {
        let folder = Path::new(env!("CARGO_BIN_EXE_mqkv")).parent().unwrap();
        let mut command = Command::new("bash");
        command
            .args(["--norc", "--noprofile", "-i"])
            .env_clear()
            .env("PATH", format!("{}:/usr/bin:/bin", folder.display()))
            .env("HOME", place.folder())
            .env("PS1", format!("{prompt}$ "))
            .env("NO_COLOR", "1")
            .current_dir(place.folder());
        // Wide enough for the lines of the shell about its jobs.
        Self { place, terminal: Terminal::of_size(command, 300, 120) }
    }
}

impl Drop for Shell<'_> {
    fn drop(&mut self) {
        let screen = self.terminal.screen();
        for id in screen.lines().filter_map(|line| line.strip_prefix("[1] ")?.trim().parse().ok()) {
            // An id may belong to another process by now.
            if fs::read_link(format!("/proc/{id}/cwd")).is_ok_and(|folder| folder == self.place.folder()) {
                let _ = kill(Pid::from_raw(id), Signal::SIGKILL);
            }
        }
    }
}

fn prompts(screen: &str, prompt: &str) -> usize {
    screen.lines().filter(|line| line.starts_with(&format!("{prompt}$"))).count()
}

/// Waits until a server that was started in the background listens.
fn wait_for_server(command: &str) {
    let (_, rest) = command.split_once("--listen ").unwrap();
    let address = format!("127.0.0.1:{}", rest.split(' ').next().unwrap());
    wait_until(&address, || TcpStream::connect(&address).ok());
}

#[test]
fn the_commands_of_the_page_work_as_written() {
    const HEADINGS: [&str; 3] = ["Tour", "Files", "Rules"];
    let page: &'static str = file("docs/exchange.md").leak();
    let (place, ports) = (Place::new(), Ports::free());
    let of_sections =
        |language| HEADINGS.into_iter().flat_map(move |heading| blocks(page, heading, language));
    for block in of_sections("toml") {
        let (name, content) = block.split_once('\n').unwrap();
        place.write(name.strip_prefix("# ").unwrap(), ports.put_into(content));
    }
    let steps = steps(&of_sections("console").collect::<Vec<_>>());
    assert!(steps.len() > 30, "the page has few commands");
    let mut terminals: BTreeMap<&str, (Shell<'_>, usize)> = BTreeMap::new();
    for Step { prompt, command, output } in &steps {
        let (Shell { terminal, .. }, entered) =
            terminals.entry(prompt).or_insert_with(|| (Shell::start(&place, prompt), 0));
        // A command in this terminal may still run.
        terminal.wait_for(command, |screen| prompts(screen, prompt) > *entered);
        let command = ports.put_into(command);
        terminal.line(&command);
        *entered += 1;
        if command.starts_with("mqkv watch") {
            // It ends with what follows in the other terminal.
            for line in output.iter().filter(|line| line.contains("  CURRENT  ")) {
                terminal.shows(line.split_once("  ").unwrap().1);
            }
        } else {
            terminal.wait_for(&command, |screen| prompts(screen, prompt) > *entered);
        }
        if command.starts_with("mqkv serve") {
            wait_for_server(&command);
        }
    }
    for (prompt, (Shell { terminal, .. }, entered)) in &terminals {
        let screen = terminal.wait_for("the end", |screen| prompts(screen, prompt) > *entered);
        let shown = ports.take_from(&screen);
        let mut expected = String::new();
        for step in steps.iter().filter(|step| step.prompt == *prompt) {
            expected.push_str(&format!("{prompt}$ {}\n", step.command));
            step.output.iter().for_each(|line| expected.push_str(&format!("{line}\n")));
        }
        expected.push_str(&format!("{prompt}$\n"));
        let (shown, expected) = (comparable(shown.lines()), comparable(expected.lines()));
        assert!(shown == expected, "--- shown\n{shown}--- page\n{expected}---");
    }
}

#[test]
fn the_page_shows_the_files_of_the_example() {
    let page = file("docs/exchange.md");
    let blocks = blocks(&page, "Tour", "toml");
    for name in ["root.toml", "press-7.toml"] {
        let shown = format!("# {name}\n{}", file(&format!("examples/exchange/{name}")));
        assert!(blocks.contains(&shown.as_str()), "{name} differs from the page:\n{shown}");
    }
    let of_other = file("examples/exchange/press-7.toml").replace("press-7", "press-9");
    assert_eq!(file("examples/exchange/press-9.toml"), of_other);
}

#[test]
fn the_example_finds_its_collision() {
    let place = Place::new();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/exchange/run.sh");
    let output = Command::new("bash")
        .arg(script)
        .env_clear()
        .envs([("PATH", "/usr/bin:/bin"), ("MQKV", env!("CARGO_BIN_EXE_mqkv"))])
        .envs([("HOME", place.folder()), ("TMPDIR", place.folder())])
        .output()
        .unwrap();
    let (shown, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{shown}{errors}");
    assert!(shown.trim_end().ends_with("is a conflict"), "{shown}");
    assert_eq!(fs::read_dir(place.folder()).unwrap().count(), 0, "it leaves no files");
}

//! A page in Markdown: its code blocks, and the commands in them.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::a_watchdog::bounded;

/// Languages whose blocks are commands.
const SHELLS: [&str; 5] = ["sh", "console", "bash", "shell", "zsh"];

/// A page, from the top.
pub struct Page {
    pub path: PathBuf,
    pub text: String,
    pub parts: Vec<Part>,
}

/// What a test does with a part of a page.
pub enum Part {
    /// Runs commands, and compares what they print.
    Console { steps: Vec<Step>, options: Options },
    /// Runs a script, which must succeed.
    Script { text: String, line: usize, options: Options },
    /// Writes a file.
    File { name: String, text: String },
    /// Puts a text in place of another one in all commands that follow, and the other way round in their output.
    Replacement { of_page: String, of_test: String },
    /// Nothing, for a reason that the page states.
    NotRun,
}

/// What the page states about a block, behind its language.
#[derive(Clone, Default)]
pub struct Options {
    /// Programs without which the block is not run.
    pub needs: Vec<String>,
    /// The last command goes on while the commands that follow run in another terminal.
    pub stays: bool,
    /// Numbers in the output differ in each run.
    pub numbers_vary: bool,
    file: Option<String>,
    no_run: bool,
}

/// A command, or another input, with the output that the page shows.
pub struct Step {
    pub input: Input,
    pub output: Vec<String>,
    /// The lines of the output in the page, from 0.
    pub lines: Range<usize>,
    /// The indentation of the block in the page.
    pub indent: usize,
}

pub enum Input {
    /// A line for the shell of the terminal with this name.
    Command { terminal: String, text: String },
    /// A line for the prompt of mqkv, which is `prompt`.
    Line { prompt: String, text: String },
    /// Ctrl-C, for the command that stays.
    Interrupt,
}

/// The lines that replace others, by where these begin.
pub type Edits = BTreeMap<usize, (Range<usize>, Vec<String>)>;

impl Page {
    /// Reads a page. Panics with the line where a block is not as it must be.
    pub fn read(path: &Path) -> Self {
        let text = fs::read_to_string(path).unwrap();
        let parts = Reader { path, lines: text.lines().collect(), parts: Vec::new() }.read();
        Self { path: path.to_owned(), text, parts }
    }

    /// Returns the page with this output in place of what these lines show.
    pub fn with_output(&self, edits: Edits) -> String {
        let mut lines: Vec<String> = self.text.lines().map(str::to_owned).collect();
        for (_, (range, output)) in edits.into_iter().rev() {
            lines.splice(range, output);
        }
        lines.join("\n") + "\n"
    }
}

struct Reader<'a> {
    path: &'a Path,
    lines: Vec<&'a str>,
    parts: Vec<Part>,
}

impl Reader<'_> {
    fn fail(&self, line: usize, what: &str) -> ! {
        panic!("{}:{}: {what}", self.path.display(), line + 1)
    }

    fn read(mut self) -> Vec<Part> {
        let mut at = 0;
        while let Some(line) = self.lines.get(at) {
            let (indent, content) = (line.len() - line.trim_start().len(), line.trim_start());
            if content.starts_with("~~~") {
                self.fail(at, "a block begins with ```");
            } else if let Some(info) = content.strip_prefix("```") {
                let end = (at + 1..self.lines.len()).find(|line| self.lines[*line].trim() == "```");
                let end = end.unwrap_or_else(|| self.fail(at, "the block has no end"));
                self.block(info, at + 1..end, indent);
                at = end;
            } else if content == "<!-- test" {
                let end = (at + 1..self.lines.len()).find(|line| self.lines[*line].trim() == "-->");
                let end = end.unwrap_or_else(|| self.fail(at, "the comment has no end"));
                self.comment(at + 1..end);
                at = end;
            } else if indent >= 4 && is_command(content) {
                self.fail(at, "commands stand in a block that begins with ```");
            }
            at += 1;
        }
        self.parts
    }

    /// Reads a comment for the test: replacements, and a script that the reader does not see.
    fn comment(&mut self, range: Range<usize>) {
        let (mut script, line) = (String::new(), range.start);
        for at in range {
            match self.lines[at].strip_prefix("replace ").map(|words| words.split_once(' ')) {
                Some(Some((of_page, of_test))) => self
                    .parts
                    .push(Part::Replacement { of_page: of_page.to_owned(), of_test: of_test.to_owned() }),
                Some(None) => self.fail(at, "replace OF-PAGE OF-TEST"),
                None => script.push_str(&format!("{}\n", self.lines[at])),
            }
        }
        if !script.is_empty() {
            self.parts.push(Part::Script { text: script, line, options: Options::default() });
        }
    }

    fn block(&mut self, info: &str, range: Range<usize>, indent: usize) {
        let line = range.start - 1;
        let (language, rest) = info.trim().split_once(' ').unwrap_or((info.trim(), ""));
        let options = self.options(rest, line);
        let dedented = |line: &str| line.get(indent..).unwrap_or("").to_owned();
        let content: Vec<String> = self.lines[range.clone()].iter().map(|line| dedented(line)).collect();
        let text: String = content.iter().map(|line| format!("{line}\n")).collect();
        if language.is_empty() {
            self.fail(line, "the block has no language; `text` is one");
        } else if options.no_run {
            self.parts.push(Part::NotRun);
        } else if let Some(name) = options.file {
            // The name stands above the file for readers.
            let text = text.strip_prefix(&format!("# {name}\n")).unwrap_or(&text).to_owned();
            self.parts.push(Part::File { name, text });
        } else if language == "console" {
            let steps = self.steps(&content, range.start, indent);
            self.parts.push(Part::Console { steps, options });
        } else if language == "sh" {
            self.parts.push(Part::Script { text, line, options });
        } else if SHELLS.contains(&language) || content.iter().any(|line| is_command(line)) {
            self.fail(line, "a block of commands is `sh` or `console`");
        }
    }

    fn options(&self, text: &str, line: usize) -> Options {
        let mut options = Options::default();
        let mut rest = text.trim();
        while let Some(word) = rest.split(' ').next().filter(|word| !word.is_empty()) {
            rest = rest[word.len()..].trim_start();
            if word == "no-run:" {
                if rest.is_empty() {
                    self.fail(line, "no-run has no reason");
                }
                options.no_run = true;
                break;
            }
            let mut argument = || {
                let argument = rest.split(' ').next().filter(|word| !word.is_empty());
                let argument = argument.unwrap_or_else(|| self.fail(line, &format!("{word} WHAT")));
                rest = rest[argument.len()..].trim_start();
                argument.to_owned()
            };
            match word {
                "stays" => options.stays = true,
                "numbers-vary" => options.numbers_vary = true,
                "file:" => options.file = Some(argument()),
                "needs:" => options.needs.push(argument()),
                _ => self.fail(line, &format!("unknown option of a block: {word}")),
            }
        }
        options
    }

    fn steps(&self, content: &[String], begin: usize, indent: usize) -> Vec<Step> {
        let mut steps: Vec<Step> = Vec::new();
        let mut at = 0;
        while let Some(line) = content.get(at) {
            let input = if line == "^C" {
                Input::Interrupt
            } else if let Some((terminal, first)) = shell_line(line) {
                let mut text = first.to_owned();
                while let Some(more) = content.get(at + 1).and_then(|line| line.strip_prefix("> "))
                    && is_incomplete(&text)
                {
                    text.push_str(&format!("\n{more}"));
                    at += 1;
                }
                Input::Command { terminal: terminal.to_owned(), text }
            } else if let Some((prompt, text)) = prompt_line(line) {
                Input::Line { prompt: prompt.to_owned(), text: text.to_owned() }
            } else {
                let Some(step) = steps.last_mut() else {
                    self.fail(begin + at, "the block does not begin with a command");
                };
                step.output.push(line.clone());
                step.lines.end += 1;
                at += 1;
                continue;
            };
            at += 1;
            steps.push(Step { input, output: Vec::new(), lines: begin + at..begin + at, indent });
        }
        steps
    }
}

/// Returns whether a line outside of the blocks that are run looks like a command.
fn is_command(line: &str) -> bool {
    let is_called = |program: &str| {
        line.strip_prefix(program)
            .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_lowercase() || c == '-'))
    };
    shell_line(line).is_some() || is_called("mqkv ") || is_called("cargo ")
}

/// Splits a line at a shell's prompt, `$` or `NAME$`.
fn shell_line(line: &str) -> Option<(&str, &str)> {
    let (terminal, command) = line.split_once("$ ")?;
    terminal.bytes().all(|byte| byte.is_ascii_lowercase()).then_some((terminal, command))
}

/// Splits a line at mqkv's prompt: `BROKER>`, or `BROKER [STATE]>`.
fn prompt_line(line: &str) -> Option<(&str, &str)> {
    let (prompt, text) = line.split_once("> ").or_else(|| Some((line.strip_suffix('>')?, "")))?;
    let (broker, state) = prompt.split_once(' ').unwrap_or((prompt, "[]"));
    let is_broker = broker.contains(':') && !broker.contains(|c: char| "\"'<({".contains(c));
    (is_broker && state.starts_with('[') && state.ends_with(']')).then_some((prompt, text))
}

/// Returns whether a shell would wait for more lines.
fn is_incomplete(command: &str) -> bool {
    if command.ends_with('\\') {
        return true;
    }
    // With the end of a here-document missing, the shell succeeds with a warning.
    let check = bounded(|| std::process::Command::new("bash").args(["-n", "-c", command]).output()).unwrap();
    !check.status.success() || !check.stderr.is_empty()
}

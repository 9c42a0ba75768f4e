//! The page of messages: it has every message of an error that the sources construct, and no other.
//!
//! The messages are literals in the sources: arguments of the constructors of `CommandError`, values of `let message`, and texts that the
//! `Display` of an error writes. A message without words of its own, such as `{name}: {what}`, has the words of another.

use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use super::root;

/// Files whose `write!` and `write_str` are messages.
const DISPLAYS: &[&str] = &[
    "client/error.rs",
    "commands/lines/words.rs",
    "ledger/error.rs",
    "net/tls/error.rs",
    "net/websocket/error.rs",
    "protocol/key.rs",
    "server/error.rs",
    "server/etcd/error.rs",
    "server/identity/error.rs",
];

/// Texts that continue a message, or that are shown inside one only.
const PARTS: &[&str] = &[
    "the broker ended the connection: {reason}",
    "the certificate of {target} is ",
    "for no host (it has no subjectAltName), ",
    "reason 0x{:02X}",
    "Key({})",
    "invalid server settings: {what}",
    "not for {}",
    "{VERB} takes the name of a shell",
];

/// Messages of the page that have no literal of one of these forms: those of clap, of tables and of the output.
const OTHERS: &[&str] = &[
    "connection refused: ",
    "connection closed by the other side: ",
    "connection timed out after ",
    "FILE contains ",
    "FILE is in DER format",
    "FILE is malformed PEM",
    "FILE is larger than",
    "the store refused the request: ",
    "the broker ended the connection: ",
    "the certificate of HOST:PORT is for NAMES",
];

/// Returns the words of a message between its placeholders.
fn words(literal: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut depth = 0_u32;
    for c in literal.chars() {
        match c {
            '{' => {
                depth += 1;
                words.push(String::new());
            }
            '}' => depth = depth.saturating_sub(1),
            c if depth == 0 => words.last_mut().unwrap().push(c),
            _ => {}
        }
    }
    words
}

/// Returns whether a message of the page is a literal with its placeholders filled.
fn is_filled(words: &[String], message: &str) -> bool {
    let (first, rest) = words.split_first().unwrap();
    let Some(mut message) = message.strip_prefix(first.as_str()) else { return false };
    let Some((last, middle)) = rest.split_last() else { return message.is_empty() };
    for word in middle.iter().filter(|word| !word.is_empty()) {
        let Some((_, after)) = message.split_once(word.as_str()) else { return false };
        message = after;
    }
    message.len() > last.len() && message.ends_with(last.as_str())
}

fn has_own_words(words: &[String]) -> bool {
    words
        .iter()
        .flat_map(|word| word.split(|c: char| !c.is_alphabetic()))
        .filter(|word| word.len() > 1)
        .count()
        > 1
}

/// The literals of messages in a file.
#[derive(Default)]
struct Messages {
    found: Vec<String>,
    has_displays: bool,
}

impl Messages {
    fn visit(&mut self, tokens: TokenStream) {
        let tokens: Vec<_> = tokens.into_iter().collect();
        let is = |at: usize, text: &str| tokens.get(at).is_some_and(|token| token.to_string() == text);
        for (at, token) in tokens.iter().enumerate() {
            let TokenTree::Group(group) = token else {
                if is(at, "let") && is(at + 1, "message") && is(at + 2, "=") {
                    self.take(&tokens[at + 3..]);
                }
                continue;
            };
            // Tests are not part of the program.
            if is(at.wrapping_sub(2), "mod") && is(at.wrapping_sub(1), "tests") {
                continue;
            }
            let arguments: Vec<_> = group.stream().into_iter().collect();
            if group.delimiter() == Delimiter::Parenthesis {
                let name = tokens.get(at.wrapping_sub(1)).map(ToString::to_string).unwrap_or_default();
                let is_of_error = is(at.wrapping_sub(4), "CommandError");
                let is_bug = arguments.iter().take(4).any(|token| token.to_string() == "Bug");
                match name.as_str() {
                    "usage" if is_of_error => self.take(&arguments),
                    "new" if is_of_error && !is_bug => self.take(after_comma(&arguments)),
                    "data_error" | "configuration" | "unsupported" => self.take(&arguments),
                    "write_str" if self.has_displays => self.take(&arguments),
                    // The name is before the `!`.
                    "!" if self.has_displays && is(at.wrapping_sub(2), "write") => {
                        self.take(after_comma(&arguments))
                    }
                    _ => {}
                }
            }
            self.visit(group.stream());
        }
    }

    /// Takes the literal at the beginning of an expression: alone, or in `format!`.
    fn take(&mut self, expression: &[TokenTree]) {
        match expression {
            [TokenTree::Literal(literal), ..] => {
                if let Ok(text) = syn::parse_str::<syn::LitStr>(&literal.to_string()) {
                    self.found.push(text.value());
                }
            }
            [TokenTree::Ident(name), _, TokenTree::Group(group), ..] if name == "format" => {
                self.take(&group.stream().into_iter().collect::<Vec<_>>());
            }
            _ => {}
        }
    }
}

fn after_comma(arguments: &[TokenTree]) -> &[TokenTree] {
    let comma = arguments.iter().position(|token| token.to_string() == ",");
    comma.and_then(|comma| arguments.get(comma + 1..)).unwrap_or_default()
}

fn sources(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        if name == "tests" || name.ends_with("_tests") || name == "testing" {
            continue;
        }
        if path.is_dir() {
            sources(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// Returns the messages in the sources, each with its file.
fn constructed() -> Vec<(String, String)> {
    let folder = root().join("src");
    let mut files = Vec::new();
    sources(&folder, &mut files);
    let mut all = Vec::new();
    for file in files {
        let name = file.strip_prefix(&folder).unwrap().to_str().unwrap().to_owned();
        let mut messages = Messages { has_displays: DISPLAYS.contains(&&*name), ..Messages::default() };
        messages.visit(fs::read_to_string(&file).unwrap().parse().unwrap());
        all.extend(messages.found.into_iter().map(|message| (message, name.clone())));
    }
    all
}

/// Returns the messages of the page: the first cell of each row.
fn listed() -> Vec<String> {
    let page = fs::read_to_string(root().join("docs/troubleshooting.md")).unwrap();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.map(|row| row.split("` | ").next().unwrap().replace("\\|", "|")).collect()
}

#[test]
fn every_message_of_an_error_is_on_the_page() {
    let listed = listed();
    let missing: Vec<_> = constructed()
        .into_iter()
        .filter(|(message, _)| {
            let words = words(message);
            has_own_words(&words)
                && !PARTS.contains(&message.as_str())
                && !listed.iter().any(|entry| is_filled(&words, entry))
        })
        .map(|(message, file)| format!("{file}: {message}"))
        .collect();
    assert!(missing.is_empty(), "not in docs/troubleshooting.md:\n{}", missing.join("\n"));
}

#[test]
fn every_message_on_the_page_is_one_of_the_program() {
    let constructed: Vec<_> = constructed().iter().map(|(message, _)| words(message)).collect();
    let sources = {
        let mut files = Vec::new();
        sources(&root().join("src"), &mut files);
        files.iter().map(|file| fs::read_to_string(file).unwrap()).collect::<String>()
    };
    // The other literals are looked up with their fixed words.
    let is_in_sources = |entry: &str| {
        let longest =
            entry.split(|c: char| c.is_ascii_uppercase() || c.is_ascii_digit()).max_by_key(|part| part.len());
        longest.is_some_and(|part| part.len() > 4 && sources.contains(part.trim().trim_end_matches(':')))
    };
    let unknown: Vec<_> = listed()
        .into_iter()
        .filter(|entry| {
            let is_known = constructed.iter().any(|words| is_filled(words, entry));
            !is_known && !OTHERS.iter().any(|other| entry.starts_with(other)) && !is_in_sources(entry)
        })
        .collect();
    assert!(unknown.is_empty(), "on the page, but not in the sources:\n{}", unknown.join("\n"));
}

#[test]
fn every_refusal_of_a_store_is_on_the_page() {
    let source = fs::read_to_string(root().join("core/src/protocol/error_reply.rs")).unwrap();
    let table = source.split("const TEXTS").nth(1).unwrap().split("];").next().unwrap();
    let texts: Vec<_> = table.split('"').skip(1).step_by(2).collect();
    assert!(texts.len() == 21, "{texts:?}");
    for text in texts {
        let message = format!("the store refused the request: {text}");
        assert!(listed().contains(&message), "not in docs/troubleshooting.md: {message}");
    }
}

//! `exchange check`: validates an exchange file, and shows which rule holds for a key.

use std::os::unix::ffi::OsStrExt;

use super::file::{ExchangeFile, FileRole};
use super::read;
use crate::cli::report::Reporter;
use crate::commands::exchange::CheckArgs;
use crate::commands::{CommandError, Exit};
use crate::exchange::rules::{Patterns, Rule, Rules};
use crate::protocol::Key;
use crate::render::escape::escape;
use crate::render::log::{Field, answer};

/// The rules of a root's file, with the lines at which they stand.
struct LocatedRules<'a> {
    rules: &'a Rules,
    lines: &'a [usize],
}

/// Runs the verb.
///
/// # Errors
/// The file cannot be read or has mistakes; a key is invalid, or the file has no rules.
pub fn run(args: &CheckArgs, reporter: &mut Reporter) -> Result<Exit, CommandError> {
    let file = read(&args.file)?;
    let key = |word: &std::ffi::OsString| Key::new(word.as_bytes().to_vec());
    let keys: Vec<Key> = args
        .keys
        .iter()
        .map(key)
        .collect::<Result<_, _>>()
        .map_err(|error| CommandError::usage(error.to_string()))?;
    let rules = match &file.role {
        FileRole::Root { rules, lines, .. } => Some(LocatedRules { rules, lines }),
        FileRole::Leaf { .. } => None,
    };
    if rules.is_none() && !keys.is_empty() {
        let error = CommandError::usage("the file of a leaf has no rules: the root sends them");
        return Err(error.hint("mqkv exchange check FILE KEY..., with the file of the root"));
    }
    if keys.is_empty() {
        let text =
            if reporter.is_json() { answer("exchange-check", fields(&file)) } else { describe(args, &file) };
        reporter.data(text.as_bytes())?;
    }
    let mut exit = Exit::Yes;
    for key in &keys {
        let Some(rules) = &rules else { break };
        let found = rules.find(key);
        if reporter.is_json() {
            reporter.data(answer("exchange-check", key_fields(key, found)).as_bytes())?;
        } else if let Some((line, number, rule)) = found {
            reporter.data(key_text(key, line, number, rule).as_bytes())?;
        } else {
            reporter.negative(&format!("no rule for {}: the key takes no part", escape(key.as_bytes())));
        }
        if found.is_none() {
            exit = Exit::No;
        }
    }
    Ok(exit)
}

impl LocatedRules<'_> {
    /// Returns the rule that holds for a key, with its line and its number from 1.
    fn find(&self, key: &Key) -> Option<(usize, usize, &Rule)> {
        let (index, rule) = self.rules.find_with_index(key)?;
        Some((self.lines.get(index).copied().unwrap_or(0), index.saturating_add(1), rule))
    }
}

fn describe(args: &CheckArgs, file: &ExchangeFile) -> String {
    let ExchangeFile { exchange, node, role } = file;
    let path = escape(args.file.as_os_str().as_bytes());
    match role {
        FileRole::Root { lines, admit, .. } => {
            let rules = match lines.len() {
                1 => "1 rule".to_owned(),
                count => format!("{count} rules"),
            };
            let admit = match texts(admit) {
                none if none.is_empty() => "admits no leaf unasked".to_owned(),
                patterns => format!("admits {}", patterns.join(", ")),
            };
            format!("{path}: valid; root of {exchange}, {rules}, {admit}\n")
        }
        FileRole::Leaf { connection, .. } => {
            let root = connection.endpoint.url().unwrap_or_default();
            format!("{path}: valid; leaf {node} of {exchange}, root at {}\n", escape(root.as_bytes()))
        }
    }
}

fn fields(file: &ExchangeFile) -> Vec<(&'static str, Field)> {
    let text = |text: &str| Field::Text(text.to_owned());
    let mut fields = vec![("exchange", text(file.exchange.as_str())), ("node", text(file.node.as_str()))];
    match &file.role {
        FileRole::Root { lines, admit, .. } => fields.extend([
            ("role", text("root")),
            ("rules", number(lines.len())),
            ("admit", Field::List(texts(admit))),
        ]),
        FileRole::Leaf { connection, .. } => {
            fields.extend([
                ("role", text("leaf")),
                ("root", text(&connection.endpoint.url().unwrap_or_default())),
            ]);
        }
    }
    fields
}

fn key_text(key: &Key, line: usize, number: usize, rule: &Rule) -> String {
    let key = escape(key.as_bytes());
    let leaves = rule.leaves().map_or_else(|| "all leaves".to_owned(), |leaves| texts(leaves).join(", "));
    let change = rule.change().as_str();
    format!("{key}: rule {number} in line {line}, change by {change}, sent to {leaves}\n")
}

fn key_fields(key: &Key, found: Option<(usize, usize, &Rule)>) -> Vec<(&'static str, Field)> {
    let mut fields =
        vec![("key", Field::Bytes(key.as_bytes().to_vec())), ("found", Field::Switch(found.is_some()))];
    if let Some((line, index, rule)) = found {
        fields.extend([("rule", number(index)), ("line", number(line))]);
        fields.push(("change", Field::Text(rule.change().as_str().to_owned())));
        fields.extend(rule.leaves().map(|leaves| ("leaves", Field::List(texts(leaves)))));
    }
    fields
}

fn texts(patterns: &Patterns) -> Vec<String> {
    patterns.texts().map(|text| escape(text.as_bytes())).collect()
}

fn number(number: usize) -> Field {
    Field::Number(u64::try_from(number).unwrap_or(u64::MAX))
}

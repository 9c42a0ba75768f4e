//! `exchange check`: validates an exchange file, and shows which rule holds for a key.

use std::ffi::OsString;
use std::path::PathBuf;

use serde::Serialize;

use super::file::{ExchangeFile, FileRole};
use super::read;
use crate::cli::report::Reporter;
use crate::commands::exchange::CheckArgs;
use crate::commands::{CommandError, Exit};
use crate::exchange::rules::{Patterns, Rules};
use crate::protocol::Key;
use crate::render::escape::escape;
use crate::render::json::{self, Json};
use crate::render::{Record, Rendered, Style, Widths, counted, name, negative};

/// A valid file.
#[derive(Debug, Serialize)]
#[serde(tag = "op", rename = "exchange-check")]
struct ValidFile {
    #[serde(skip)]
    path: PathBuf,
    exchange: String,
    node: String,
    #[serde(flatten)]
    role: NodeRole,
}

#[derive(Debug, Serialize)]
#[serde(tag = "role", rename_all = "lowercase")]
enum NodeRole {
    Root {
        /// The number of rules.
        rules: usize,
        /// Patterns of the leaves that may join by themselves.
        admit: Vec<String>,
    },
    Leaf {
        /// The URL of the root.
        root: String,
    },
}

/// A key, and the rule that holds for it.
#[derive(Debug, Serialize)]
#[serde(tag = "op", rename = "exchange-check")]
struct KeyRule {
    #[serde(flatten, serialize_with = "json::key")]
    key: Key,
    found: bool,
    #[serde(flatten)]
    rule: Option<FoundRule>,
}

#[derive(Debug, Serialize)]
struct FoundRule {
    /// Counts from 1.
    #[serde(rename = "rule")]
    number: usize,
    /// Its line in the file.
    line: usize,
    change: &'static str,
    /// Patterns of the leaves that get the keys; `None`: all leaves.
    #[serde(skip_serializing_if = "Option::is_none")]
    leaves: Option<Vec<String>>,
}

/// Runs the verb.
///
/// # Errors
/// The file cannot be read or has mistakes; a key is invalid, or the file has no rules.
pub fn run(args: &CheckArgs, reporter: &mut Reporter) -> Result<Exit, CommandError> {
    let file = read(&args.file)?;
    let key = |word: &OsString| Key::new(word.as_encoded_bytes().to_vec());
    let keys: Vec<Key> = args
        .keys
        .iter()
        .map(key)
        .collect::<Result<_, _>>()
        .map_err(|error| CommandError::usage(error.to_string()))?;
    if keys.is_empty() {
        reporter.put(&ValidFile::new(args.file.clone(), file))?;
        return Ok(Exit::Yes);
    }
    let FileRole::Root { rules, lines, .. } = &file.role else {
        let error = CommandError::usage("the file of a leaf has no rules: the root sends them");
        return Err(error.hint("mqkv exchange check FILE KEY..., with the file of the root"));
    };
    let mut exit = Exit::Yes;
    for key in keys {
        let rule = FoundRule::find(&key, rules, lines);
        let found = rule.is_some();
        reporter.put(&KeyRule { key, found, rule })?;
        if !found {
            exit = Exit::No;
        }
    }
    Ok(exit)
}

impl ValidFile {
    fn new(path: PathBuf, ExchangeFile { exchange, node, role }: ExchangeFile) -> Self {
        let role = match role {
            FileRole::Root { lines, admit, .. } => {
                NodeRole::Root { rules: lines.len(), admit: texts(&admit) }
            }
            FileRole::Leaf { connection, .. } => {
                NodeRole::Leaf { root: connection.endpoint.url().unwrap_or_default() }
            }
        };
        Self { path, exchange: exchange.to_string(), node: node.to_string(), role }
    }
}

impl FoundRule {
    /// Returns the rule of a root's file that holds for a key; `lines` are those of the rules.
    fn find(key: &Key, rules: &Rules, lines: &[usize]) -> Option<Self> {
        let (index, rule) = rules.find_with_index(key)?;
        Some(Self {
            number: index.saturating_add(1),
            line: lines.get(index).copied().unwrap_or_default(),
            change: rule.change().as_str(),
            leaves: rule.leaves().map(texts),
        })
    }
}

fn texts(patterns: &Patterns) -> Vec<String> {
    patterns.texts().map(|text| escape(text.as_bytes())).collect()
}

impl Record for ValidFile {
    fn json(&self, json: &Json<'_>) -> Rendered {
        json.data(self)
    }

    fn text(&self, _: &Style, _: &mut Widths) -> Rendered {
        let Self { path, exchange, node, role } = self;
        let path = escape(path.as_os_str().as_encoded_bytes());
        let role = match role {
            NodeRole::Root { rules, admit } => {
                let admit = match &admit[..] {
                    [] => "admits no leaf unasked".to_owned(),
                    patterns => format!("admits {}", patterns.join(", ")),
                };
                format!("root of {exchange}, {}, {admit}", counted(rules, "rule"))
            }
            NodeRole::Leaf { root } => {
                format!("leaf {node} of {exchange}, root at {}", escape(root.as_bytes()))
            }
        };
        Rendered::stdout(format!("{path}: valid; {role}\n"))
    }
}

impl Record for KeyRule {
    fn json(&self, json: &Json<'_>) -> Rendered {
        json.data(self)
    }

    fn text(&self, style: &Style, _: &mut Widths) -> Rendered {
        let key = name(&self.key);
        let Some(FoundRule { number, line, change, leaves }) = &self.rule else {
            return negative(&format!("no rule for {key}: the key takes no part"), style);
        };
        let leaves = leaves.as_ref().map_or_else(|| "all leaves".to_owned(), |leaves| leaves.join(", "));
        Rendered::stdout(format!(
            "{key}: rule {number} in line {line}, change by {change}, sent to {leaves}\n"
        ))
    }
}

//! The records of `config` and `context`.

use std::path::PathBuf;

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

use crate::render::escape::escape;
use crate::render::json::{self, Json};
use crate::render::style::{Paint, paint};
use crate::render::table::table;
use crate::render::{Format, Record, Rendered, Style, Widths, confirmation, notice};

/// A record of `config` or `context`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "op")]
pub enum ConfigRecord {
    /// The path of the configuration file.
    #[serde(rename = "config")]
    Path {
        #[serde(serialize_with = "json::path")]
        file: PathBuf,
        exists: bool,
    },
    /// The effective settings.
    #[serde(rename = "config")]
    Settings {
        /// The name of the context in use.
        context: Option<String>,
        /// The file of the context.
        #[serde(skip_serializing_if = "Option::is_none", serialize_with = "json::path_if_any")]
        file: Option<PathBuf>,
        #[serde(serialize_with = "by_name")]
        settings: Vec<SettingRow>,
        /// Whether the origins are printed.
        #[serde(skip)]
        with_origin: bool,
    },
    #[serde(skip)]
    Contexts(Vec<ContextRow>),
    #[serde(rename = "context")]
    Context {
        #[serde(rename = "context")]
        name: String,
        #[serde(serialize_with = "json::path")]
        file: PathBuf,
        #[serde(rename = "default")]
        is_default: bool,
        #[serde(serialize_with = "by_name")]
        settings: Vec<SettingRow>,
    },
    #[serde(rename = "context", serialize_with = "no_context")]
    NoContext,
    /// The result of a change of the configuration file.
    #[serde(rename = "context")]
    Changed {
        change: FileChange,
        /// The context that was changed.
        #[serde(skip_serializing_if = "Option::is_none")]
        context: Option<String>,
        #[serde(serialize_with = "json::path")]
        file: PathBuf,
    },
}

/// A setting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SettingRow {
    /// The name in the configuration file.
    #[serde(skip)]
    pub name: String,
    pub value: SettingValue,
    /// The origin of the value, as text.
    pub origin: String,
}

/// The value of a setting. It contains no secrets, only the names of their files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum SettingValue {
    Text(String),
    Number(u32),
    Switch(bool),
}

/// A context in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "op", rename = "context")]
pub struct ContextRow {
    #[serde(rename = "context")]
    pub name: String,
    /// The URL of the broker.
    pub broker: String,
    #[serde(rename = "default")]
    pub is_default: bool,
    #[serde(rename = "read_only")]
    pub is_read_only: bool,
}

/// A change of the configuration file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileChange {
    /// A context was added.
    Added,
    /// The first context was added, which is the default.
    #[serde(rename = "added")]
    AddedAsDefault,
    /// A context was replaced.
    Replaced,
    /// A context was removed.
    Removed,
    /// A context has a new name.
    Renamed,
    /// A context was made the default.
    Used,
    /// There is no default context any more.
    NoneUsed,
    /// The file was edited.
    Edited,
    /// The file was opened in an editor and not changed.
    Unchanged,
}

/// Writes settings as members.
fn by_name<S: Serializer>(settings: &[SettingRow], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(settings.iter().map(|row| (&row.name, row)))
}

/// Writes that there is no context.
fn no_context<S: Serializer>(serializer: S) -> Result<S::Ok, S::Error> {
    let mut members = serializer.serialize_map(Some(1))?;
    members.serialize_entry("context", &None::<()>)?;
    members.end()
}

impl Record for ConfigRecord {
    fn json(&self, json: &Json<'_>) -> Rendered {
        match self {
            Self::Contexts(contexts) => {
                let lines: Vec<_> = contexts.iter().map(|context| json.data(context).stdout).collect();
                Rendered::stdout(lines.concat())
            }
            other => json.data(other),
        }
    }

    fn text(&self, style: &Style, _: &mut Widths) -> Rendered {
        match self {
            Self::Path { file, exists } => {
                let is_noted = !exists && style.format == Format::Text && !style.quiet;
                let note = if is_noted { "  (not there yet)" } else { "" };
                Rendered::stdout(format!("{}{note}\n", escape(file.as_os_str().as_encoded_bytes())))
            }
            Self::Settings { settings, with_origin, .. } => {
                Rendered::stdout(rows(settings, *with_origin, style))
            }
            Self::Context { settings, .. } => Rendered::stdout(rows(settings, false, style)),
            Self::Contexts(contexts) if contexts.is_empty() => {
                notice("no contexts; add one with: mqkv context add NAME -b URL", style)
            }
            Self::Contexts(contexts) => Rendered::stdout(list(contexts, style)),
            Self::NoContext => notice("no context is in use", style),
            Self::Changed { change, context, file } => {
                let name = text(context.as_deref().unwrap_or_default());
                let file = escape(file.as_os_str().as_encoded_bytes());
                confirmation(|| change.text(&name, &file), None, style)
            }
        }
    }
}

impl FileChange {
    fn text(self, name: &str, file: &str) -> String {
        match self {
            Self::Added => format!("added {name} to {file}"),
            Self::AddedAsDefault => {
                format!("added {name} to {file}; it is the default: verbs use it from now on")
            }
            Self::Replaced => format!("replaced {name} in {file}"),
            Self::Renamed => format!("renamed a context to {name} in {file}"),
            Self::Removed => format!("removed {name} from {file}"),
            Self::Used => format!("{name} is the default context"),
            Self::NoneUsed => "there is no default context".to_owned(),
            Self::Edited => format!("changed {file}"),
            Self::Unchanged => format!("{file} is unchanged"),
        }
    }
}

fn list(contexts: &[ContextRow], style: &Style) -> String {
    let is_text = style.format == Format::Text;
    let lines = contexts.iter().map(|context| {
        let mark = match (context.is_default, is_text) {
            (true, true) => "* ",
            (false, true) => "  ",
            (_, false) => "",
        };
        let mut notes = Vec::new();
        if context.is_default && !is_text {
            notes.push("default");
        }
        if context.is_read_only {
            notes.push("read-only");
        }
        vec![format!("{mark}{}", text(&context.name)), text(&context.broker), notes.join(",")]
    });
    columns(&lines.collect::<Vec<_>>(), is_text)
}

fn rows(settings: &[SettingRow], with_origin: bool, style: &Style) -> String {
    let is_text = style.format == Format::Text;
    let lines = settings.iter().map(|row| {
        let origin = text(&row.origin);
        let origin = if is_text { paint(&origin, Paint::Dim, style.color_stdout) } else { origin };
        vec![row.name.clone(), value_text(&row.value), if with_origin { origin } else { String::new() }]
    });
    columns(&lines.collect::<Vec<_>>(), is_text)
}

/// Formats three columns: aligned for a terminal, separated by tabs for a pipe; without trailing blanks.
fn columns(rows: &[Vec<String>], is_text: bool) -> String {
    const WORDS: usize = 2;
    match is_text {
        true => table(rows, WORDS),
        false => rows.iter().map(|row| format!("{}\n", row.join("\t").trim_end())).collect(),
    }
}

fn value_text(value: &SettingValue) -> String {
    match value {
        SettingValue::Text(words) => text(words),
        SettingValue::Number(number) => number.to_string(),
        SettingValue::Switch(switch) => switch.to_string(),
    }
}

fn text(words: &str) -> String {
    escape(words.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::shown;

    fn listed(name: &str, broker: &str, is_default: bool, is_read_only: bool) -> ContextRow {
        ContextRow { name: name.to_owned(), broker: broker.to_owned(), is_default, is_read_only }
    }

    #[test]
    fn contexts_are_aligned_on_a_terminal_and_separated_by_tabs_in_a_pipe() {
        let all = ConfigRecord::Contexts(vec![
            listed("lab", "mqtt://localhost:1883", true, false),
            listed("prod", "mqtts://aio:8883", false, true),
        ]);
        let text = shown(&all, &Style::PLAIN).0;
        assert_eq!(text, "* lab   mqtt://localhost:1883\n  prod  mqtts://aio:8883       read-only\n");
        let lines = shown(&all, &Style::LINES).0;
        assert_eq!(lines, "lab\tmqtt://localhost:1883\tdefault\nprod\tmqtts://aio:8883\tread-only\n");
    }

    #[test]
    fn origins_are_shown_on_request() {
        let row = SettingRow {
            name: "broker".to_owned(),
            value: SettingValue::Text("mqtt://h:1\u{1b}".to_owned()),
            origin: "-b".to_owned(),
        };
        let with = |with_origin| {
            let settings = vec![row.clone()];
            let record = ConfigRecord::Settings { context: None, file: None, settings, with_origin };
            shown(&record, &Style::PLAIN).0
        };
        assert_eq!(with(false), "broker  mqtt://h:1\\x1B\n");
        assert_eq!(with(true), "broker  mqtt://h:1\\x1B  -b\n");
    }

    #[test]
    fn each_context_is_an_object_and_settings_are_members_in_their_order() {
        let all = vec![listed("lab", "mqtt://h", true, false), listed("prod", "mqtts://h", false, true)];
        let lines = shown(&ConfigRecord::Contexts(all), &Style::JSON).0;
        assert_eq!(
            lines,
            "{\"v\":1,\"op\":\"context\",\"context\":\"lab\",\"broker\":\"mqtt://h\",\"default\":true,\"read_only\":false}\n\
             {\"v\":1,\"op\":\"context\",\"context\":\"prod\",\"broker\":\"mqtts://h\",\"default\":false,\"read_only\":true}\n"
        );
        let row = |name: &str, value| SettingRow { name: name.to_owned(), value, origin: "-b".to_owned() };
        let settings = vec![row("z", SettingValue::Switch(true)), row("a", SettingValue::Number(5))];
        let record = ConfigRecord::Settings { context: None, file: None, settings, with_origin: false };
        assert_eq!(
            shown(&record, &Style::JSON).0,
            "{\"v\":1,\"op\":\"config\",\"context\":null,\"settings\":{\"z\":{\"value\":true,\"origin\":\"-b\"},\
             \"a\":{\"value\":5,\"origin\":\"-b\"}}}\n"
        );
        let none = shown(&ConfigRecord::NoContext, &Style::JSON).0;
        assert_eq!(none, "{\"v\":1,\"op\":\"context\",\"context\":null}\n");
    }
}

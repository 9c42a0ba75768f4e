//! Records of `config` and `context` for terminals and pipes.

use super::escape::escape;
use super::style::{Paint, paint};
use super::{Format, Rendered, Style};
use crate::commands::configured::{ConfigRecord, FileChange, SettingRow, SettingValue};

/// Formats a record.
#[must_use]
pub fn output(configured: &ConfigRecord, style: &Style) -> Rendered {
    let is_text = style.format == Format::Text;
    match configured {
        ConfigRecord::Path { file, exists } => {
            let note = if *exists || !is_text || style.quiet { "" } else { "  (not there yet)" };
            Rendered::stdout(format!("{}{note}\n", escape(file.as_os_str().as_encoded_bytes())))
        }
        ConfigRecord::Settings { settings, with_origin, .. } => {
            Rendered::stdout(rows(settings, *with_origin, style))
        }
        ConfigRecord::Context { settings, .. } => Rendered::stdout(rows(settings, false, style)),
        ConfigRecord::Contexts(contexts) if contexts.is_empty() => {
            notice("no contexts; add one with: mqkv context add NAME -b URL", style)
        }
        ConfigRecord::Contexts(contexts) => {
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
                [format!("{mark}{}", text(&context.name)), text(&context.broker), notes.join(",")]
            });
            Rendered::stdout(columns(&lines.collect::<Vec<_>>(), is_text))
        }
        ConfigRecord::NoContext => notice("no context is in use", style),
        ConfigRecord::Changed { change, context, file } => {
            let name = text(context.as_deref().unwrap_or_default());
            let file = escape(file.as_os_str().as_encoded_bytes());
            let done = match change {
                FileChange::Added => format!("added {name} to {file}"),
                FileChange::AddedAsDefault => {
                    format!("added {name} to {file}; it is the default: verbs use it from now on")
                }
                FileChange::Replaced => format!("replaced {name} in {file}"),
                FileChange::Renamed => format!("renamed a context to {name} in {file}"),
                FileChange::Removed => format!("removed {name} from {file}"),
                FileChange::Used => format!("{name} is the default context"),
                FileChange::NoneUsed => "there is no default context".to_owned(),
                FileChange::Edited => format!("changed {file}"),
                FileChange::Unchanged => format!("{file} is unchanged"),
            };
            // In a pipe nothing is printed, as for `set`: the exit status is enough.
            if is_text && !style.quiet { Rendered::stdout(format!("{done}\n")) } else { Rendered::default() }
        }
    }
}

fn notice(words: &str, style: &Style) -> Rendered {
    if style.quiet { Rendered::default() } else { Rendered::stderr(format!("{words}\n")) }
}

fn rows(settings: &[SettingRow], with_origin: bool, style: &Style) -> String {
    let is_text = style.format == Format::Text;
    let lines = settings.iter().map(|row| {
        let origin = text(&row.origin);
        let origin = if is_text { paint(&origin, Paint::Dim, style.color_stdout) } else { origin };
        [row.name.clone(), value_text(&row.value), if with_origin { origin } else { String::new() }]
    });
    columns(&lines.collect::<Vec<_>>(), is_text)
}

/// Formats three columns: aligned for a terminal, separated by tabs for a pipe; without trailing blanks.
fn columns(lines: &[[String; 3]], is_text: bool) -> String {
    let wide = |at: usize| {
        lines.iter().filter_map(|line| line.get(at)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let (first, second) = if is_text { (wide(0), wide(1)) } else { (0, 0) };
    let gap = if is_text { "  " } else { "\t" };
    let line = |[one, two, three]: &[String; 3]| {
        format!("{}\n", format!("{one:first$}{gap}{two:second$}{gap}{three}").trim_end())
    };
    lines.iter().map(line).collect()
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
    use crate::commands::configured::ContextRow;

    fn listed(name: &str, broker: &str, is_default: bool, is_read_only: bool) -> ContextRow {
        ContextRow { name: name.to_owned(), broker: broker.to_owned(), is_default, is_read_only }
    }

    #[test]
    fn contexts_are_aligned_on_a_terminal_and_separated_by_tabs_in_a_pipe() {
        let all = ConfigRecord::Contexts(vec![
            listed("lab", "mqtt://localhost:1883", true, false),
            listed("prod", "mqtts://aio:8883", false, true),
        ]);
        let text = output(&all, &Style::PLAIN).stdout;
        assert_eq!(text, "* lab   mqtt://localhost:1883\n  prod  mqtts://aio:8883       read-only\n");
        let lines = output(&all, &Style { format: Format::Lines, ..Style::PLAIN }).stdout;
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
            output(&record, &Style::PLAIN).stdout
        };
        assert_eq!(with(false), "broker  mqtt://h:1\\x1B\n");
        assert_eq!(with(true), "broker  mqtt://h:1\\x1B  -b\n");
    }
}

//! Records of the verbs with many keys or many lines.

use bytes::Bytes;

use super::escape::{escape, spell};
use super::style::{Paint, paint};
use super::{Format, Rendered, Style, Widths, json, record, text};
use crate::commands::Place;
use crate::commands::output::{Answer, Answered, Exported, Got, Imported, Output};

/// Formats a record of one of these verbs; None for others.
#[must_use]
pub fn output(output: &Output, style: &Style) -> Option<Rendered> {
    let is_json = style.format == Format::Json;
    Some(match output {
        Output::Entry { .. } => json::output(output, style.quiet),
        // Standard output is the export itself, so the summary goes to standard error.
        Output::Exported(_) if is_json => to_stderr(json::output(output, style.quiet)),
        Output::Exported(ended) => message(exported(*ended), style),
        Output::Progress(_) | Output::BenchProgress(_) => Rendered::default(),
        _ if is_json => return None,
        Output::Listed { key, null: true } => Rendered::stdout([key.as_bytes(), b"\0"].concat()),
        Output::Listed { key, null: false } => Rendered::stdout(format!("{}\n", spell(key.as_bytes()))),
        Output::Counted(count) => Rendered::stdout(format!("{count}\n")),
        Output::Got { is_one_of_many: true, .. } => return line_per_value(output, style),
        // On a terminal each of them has been reported.
        Output::AnsweredNo { .. } if style.format == Format::Text => Rendered::default(),
        Output::AnsweredNo { lines, first } => super::message::negative(&answered_no(*lines, first), style),
        Output::Validated { lines: 1 } => message("1 line is valid\n".to_owned(), style),
        Output::Validated { lines } => message(format!("{lines} lines are valid\n"), style),
        Output::Imported(ended) => message(imported(*ended), style),
        Output::Answered(answered) => answer(answered, style),
        _ => return None,
    })
}

fn message(text: String, style: &Style) -> Rendered {
    if style.quiet { Rendered::default() } else { Rendered::stderr(text) }
}

fn to_stderr(rendered: Rendered) -> Rendered {
    Rendered::stderr(String::from_utf8_lossy(&rendered.stdout).into_owned())
}

fn exported(ended: Exported) -> String {
    let missing = match ended.missing {
        0 => String::new(),
        missing => format!("; {} deleted meanwhile", keys_were(missing)),
    };
    format!("exported {}{missing} (without times to live)\n", keys(ended.keys))
}

fn imported(ended: Imported) -> String {
    let Imported { written, skipped, failed, dry_run } = ended;
    let mut out = match dry_run {
        true => format!("would write {}", keys(written)),
        false => format!("wrote {}", keys(written)),
    };
    if skipped > 0 {
        out.push_str(&format!("; skipped {}", keys(skipped)));
    }
    if failed > 0 {
        out.push_str(&format!("; {failed} failed"));
    }
    if !dry_run && written > 0 {
        out.push_str(" (with new versions)");
    }
    out.push('\n');
    out
}

fn answered_no(lines: u64, first: &Place) -> String {
    let first = shown(first);
    match lines {
        1 => format!("{first}: negative answer"),
        lines => format!("{first}: the first of {lines} negative answers"),
    }
}

fn shown(place: &Place) -> String {
    escape(place.to_string().as_bytes())
}

fn keys(count: u64) -> String {
    if count == 1 { "1 key".to_owned() } else { format!("{count} keys") }
}

fn keys_were(count: u64) -> String {
    if count == 1 { "1 key was".to_owned() } else { format!("{count} keys were") }
}

fn answer(answered: &Answered, style: &Style) -> Rendered {
    match &answered.answer {
        Answer::Failed { is_end: true, .. } => Rendered::default(),
        Answer::Failed { error, .. } => {
            Rendered::stderr(super::error::error(error, error.kind.code(), style))
        }
        Answer::Record(inner) => {
            let rendered = line_per_value(inner, style)
                .or_else(|| output(inner, style))
                .unwrap_or_else(|| record::output(inner, style, &mut Widths::default()));
            if rendered.stderr.is_empty() {
                return rendered;
            }
            let label = paint("error:", Paint::Error, style.color_stderr);
            let stderr = match rendered.stderr.strip_prefix(&label) {
                // A program sees it in the output, and many lines may be answered so: their number is reported at the end.
                Some(_) if style.format != Format::Text => String::new(),
                Some(message) => format!("{label} {}:{message}", shown(&answered.place)),
                None => format!("{}: {}", shown(&answered.place), rendered.stderr),
            };
            Rendered { stderr, ..rendered }
        }
    }
}

/// Formats a value among others on a line of its own; a missing value is an empty line.
fn line_per_value(record: &Output, style: &Style) -> Option<Rendered> {
    let Output::Got { key, got, .. } = record else {
        return None;
    };
    match (style.format, got) {
        (Format::Lines, Got::Found(found)) => Some(value_line(&found.value)),
        (Format::Lines, Got::Default(value)) => Some(value_line(value)),
        (Format::Lines | Format::Hex | Format::Base64, Got::Missing) => {
            Some(Rendered { stdout: "\n".into(), ..text::not_found(key, style) })
        }
        _ => None,
    }
}

fn value_line(value: &Bytes) -> Rendered {
    Rendered::stdout(format!("{}\n", spell(value)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::lines::records::Members;
    use crate::commands::output::{DeleteOutcome, Deletion, Progress, VersionedValue};
    use crate::commands::{CommandError, Kind};
    use crate::protocol::{Key, Timestamp};

    const LINES: Style = Style { format: Format::Lines, ..Style::PLAIN };
    const JSON: Style = Style { format: Format::Json, ..LINES };
    const TEXT: Style = Style { format: Format::Text, ..LINES };

    fn key(bytes: &'static [u8]) -> Key {
        Key::new(bytes).unwrap()
    }

    fn formatted(record: &Output, style: &Style) -> (String, String) {
        let Rendered { stdout, stderr } = super::super::output(record, style, &mut Widths::default());
        (String::from_utf8(stdout.to_vec()).unwrap(), stderr)
    }

    fn place(line: u64) -> Place {
        Place { file: std::path::Path::new("f").into(), line }
    }

    fn data(text: &str) -> (String, String) {
        (text.to_owned(), String::new())
    }

    fn stderr(text: &str) -> (String, String) {
        (String::new(), text.to_owned())
    }

    #[test]
    fn a_key_is_an_escaped_line_or_its_bytes_and_nul() {
        let listed = |null| Output::Listed { key: key(b"a\\b\n"), null };
        assert_eq!(formatted(&listed(false), &LINES), data("a\\\\b\\x0A\n"));
        assert_eq!(formatted(&listed(true), &TEXT), data("a\\b\n\0"));
        assert_eq!(
            formatted(&listed(false), &JSON),
            data("{\"v\":1,\"op\":\"keys\",\"key\":\"a\\\\b\\n\"}\n")
        );
    }

    #[test]
    fn an_entry_is_json_in_every_format() {
        let found = VersionedValue { value: (&b"\xff"[..]).into(), version: Some(Timestamp::of_store(5, 3)) };
        let entry = Output::Entry { key: key(b"k"), found };
        let line = "{\"v\":1,\"op\":\"export\",\"key\":\"k\",\"value\":\"/w==\",\"encoding\":\"base64\",\
                    \"version\":\"000000000000005:00003:StateStore\"}\n";
        for style in [LINES, JSON, TEXT] {
            assert_eq!(formatted(&entry, &style), data(line));
        }
    }

    #[test]
    fn summaries_go_to_standard_error() {
        let exported = Output::Exported(Exported { keys: 2, missing: 1 });
        assert_eq!(
            formatted(&exported, &LINES),
            stderr("exported 2 keys; 1 key was deleted meanwhile (without times to live)\n")
        );
        assert_eq!(
            formatted(&exported, &JSON),
            stderr("{\"v\":1,\"op\":\"export\",\"keys\":2,\"missing\":1}\n")
        );
        let imported = Output::Imported(Imported { written: 1, skipped: 2, failed: 3, dry_run: false });
        assert_eq!(
            formatted(&imported, &TEXT),
            stderr("wrote 1 key; skipped 2 keys; 3 failed (with new versions)\n")
        );
        assert_eq!(
            formatted(&imported, &JSON),
            data("{\"v\":1,\"op\":\"import\",\"written\":1,\"left\":2,\"failed\":3,\"dry_run\":false}\n")
        );
        assert_eq!(formatted(&imported, &Style { quiet: true, ..TEXT }), stderr(""));
        let progress = Progress { count: 1, unit: "keys", bytes_read: 0, bytes_total: None };
        assert_eq!(formatted(&Output::Progress(progress), &JSON), stderr(""));
    }

    #[test]
    fn each_get_of_a_batch_has_a_line() {
        let got = |got| {
            let answer = Answer::Record(Box::new(Output::Got { key: key(b"k"), got, is_one_of_many: false }));
            Output::Answered(Answered { place: place(3), id: None, answer })
        };
        let found = got(Got::Found(VersionedValue { value: "a\\\nb".into(), version: None }));
        assert_eq!(formatted(&found, &LINES), data("a\\\\\\x0Ab\n"));
        assert_eq!(formatted(&got(Got::Missing), &LINES), data("\n"));
        assert_eq!(formatted(&got(Got::Missing), &TEXT), stderr("error: f:3: key not found: k\n"));
        assert_eq!(
            formatted(&got(Got::Missing), &JSON),
            data("{\"v\":1,\"line\":3,\"op\":\"get\",\"key\":\"k\",\"found\":false}\n")
        );
    }

    #[test]
    fn an_answer_has_its_id_and_an_error_is_printed_once() {
        let id = Members::parse(b"{\"id\":[7]}").unwrap().id();
        let deleted = Output::Deleted {
            verb: Deletion::Del,
            key: key(b"k"),
            outcome: DeleteOutcome::Missing,
            is_missing_ignored: false,
        };
        let answer = Answer::Record(Box::new(deleted));
        assert_eq!(
            formatted(&Output::Answered(Answered { place: place(1), id: id.clone(), answer }), &JSON).0,
            "{\"v\":1,\"id\":[7],\"line\":1,\"op\":\"del\",\"key\":\"k\",\"deleted\":0,\"reason\":\"missing\"}\n"
        );
        let failed = |is_end| {
            let error = CommandError::new(Kind::Data, "no JSON").at(place(2));
            Output::Answered(Answered {
                place: place(2),
                id: id.clone(),
                answer: Answer::Failed { error, is_end },
            })
        };
        assert_eq!(formatted(&failed(false), &LINES), stderr("error: f:2: no JSON\n"));
        assert_eq!(formatted(&failed(true), &LINES), stderr(""));
        assert_eq!(
            formatted(&failed(true), &JSON).0,
            "{\"v\":1,\"id\":[7],\"line\":2,\"error\":{\"kind\":\"data\",\"code\":65,\
             \"message\":\"line 2: no JSON\",\"file\":\"f\",\"line\":2,\"retryable\":false}}\n"
        );
    }
}

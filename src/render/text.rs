//! Records as text, for terminals and pipes.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;

use super::bench;
use super::doctor;
use super::escape::{escape, escape_lines};
use super::frame;
use super::lock;
use super::message::negative;
use super::milliseconds::ms_text;
use super::style::{Paint, paint};
use super::wrap::wrapped;
use super::{Rendered, Style, Widths, configured, exchange, monitor, watch};
use crate::commands::duration;
use crate::commands::output::{DeleteOutcome, SetOutcome};
use crate::commands::output::{EditResult, Got, Meaning, Output};
use crate::protocol::frame::Frame;
use crate::protocol::topic::Topic;
use crate::protocol::{Condition, Key, Notification, Reply, Timestamp};

/// Formats a record for a terminal, including confirmations.
#[must_use]
pub fn output(output: &Output, style: &Style, widths: &mut Widths) -> Rendered {
    match output {
        Output::Got { key, got, is_one_of_many } => got_text(key, got, *is_one_of_many, style),
        Output::Set { key, size, ttl_ms, outcome, .. } if outcome.applied => {
            let expires = ttl_ms.map(expires_in).unwrap_or_default();
            stored(key, *size, &expires, outcome, style)
        }
        Output::Edited { key, result: EditResult::Stored { size, ttl_ms, outcome } } => {
            // An earlier time to live has ended: the user may not expect that of an editor.
            let expires = ttl_ms.map_or_else(|| ", no time to live".to_owned(), expires_in);
            stored(key, *size, &expires, outcome, style)
        }
        Output::Edited { key, result: EditResult::Unchanged } => {
            confirmation(&format!("no change: {}", name(key)), None, style)
        }
        Output::Deleted { key, outcome: DeleteOutcome::Deleted { version }, .. } => {
            confirmation(&format!("deleted {}", name(key)), version.as_ref(), style)
        }
        Output::Traffic { event, at_ms, columns_max, .. } => {
            monitor::text(event, *at_ms, *columns_max, style, widths)
        }
        Output::Watched { event, received_ms, sequence } => {
            watch::text(event, *received_ms, sequence.is_some(), style, widths)
        }
        Output::Watching { keys, .. } => {
            watch::fit(keys, widths);
            lines(output, style)
        }
        Output::Locked { key, holder, token, ttl_ms, held_until } => {
            lock::locked(key, holder, token, *ttl_ms, *held_until)
        }
        Output::Unlocked { key, outcome: DeleteOutcome::Deleted { .. }, .. } => {
            confirmation(&format!("released {}", name(key)), None, style)
        }
        Output::Exchange(record) => exchange::text(record, style),
        other => lines(other, style),
    }
}

/// Formats a record for a pipe: data only, no confirmations.
#[must_use]
pub fn lines(output: &Output, style: &Style) -> Rendered {
    match output {
        Output::Got { key, got: Got::Missing, .. } => not_found(key, style),
        Output::Got { .. } => Rendered::default(),
        Output::Set { key, condition, outcome, .. } => not_stored(key, *condition, outcome, style),
        Output::Deleted { key, outcome, is_missing_ignored, .. } => match outcome {
            DeleteOutcome::Missing if !is_missing_ignored => not_found(key, style),
            DeleteOutcome::ValueDiffers { .. } => {
                negative(&format!("not deleted: {} has another value", name(key)), style)
            }
            DeleteOutcome::Missing | DeleteOutcome::Deleted { .. } => Rendered::default(),
        },
        Output::Edited { key, result: EditResult::Conflict { draft } } => conflict(key, draft, style),
        Output::Edited { .. } => Rendered::default(),
        Output::Watching { keys, prefix: Some(prefix) } if keys.is_empty() && !style.quiet => {
            Rendered::stderr(format!("no key begins with {} yet\n", escape(prefix.as_bytes())))
        }
        Output::Watching { .. } => Rendered::default(),
        Output::Hint(hint) => hint_line(hint, style),
        Output::Traffic { event, at_ms, .. } => monitor::columns(event, *at_ms, style),
        Output::Checked(checked) => doctor::checked(checked, style),
        // These records are formatted in `bulk`.
        Output::Listed { .. }
        | Output::Counted(_)
        | Output::Validated { .. }
        | Output::AnsweredNo { .. }
        | Output::Entry { .. }
        | Output::Exported(_)
        | Output::Imported(_)
        | Output::Answered(_)
        | Output::CheckSummary(_)
        | Output::Progress(_)
        | Output::BenchProgress(_) => Rendered::default(),
        Output::Benched(report) => bench::output(report, style),
        Output::Watched { event, received_ms, sequence } => {
            watch::columns(event, *received_ms, sequence.is_some(), style)
        }
        Output::HandlerEnded { key, ended } => watch::handler_ended(key, *ended, style),
        Output::Locked { holder, token, held_until, .. } => lock::locked_line(holder, token, *held_until),
        Output::LockWaiting { key, holder, unrenewed } => lock::waiting(key, holder, *unrenewed, style),
        Output::LockHeld { key, holder, unrenewed } => lock::held(key, holder.as_ref(), *unrenewed, style),
        Output::LockNote { key, note } => lock::note(key, note, style),
        Output::Unlocked { key, holder, outcome } => lock::not_unlocked(key, holder, outcome)
            .map_or_else(Rendered::default, |text| negative(&text, style)),
        Output::Holder { key, found } => match lock::holder(found.as_ref()) {
            Some(holder) => line(&holder, found.as_ref().and_then(|found| found.version.as_ref()), style),
            None => negative(&format!("{} is free", name(key)), style),
        },
        Output::Pinged { broker, connect, tls, round_trip, .. } => {
            ping_line(broker, *connect, *tls, *round_trip)
        }
        Output::Response { payload, version } => {
            let reply = match Frame::decode(payload) {
                Ok(reply) => frame::text(&reply),
                Err(_) => format!("(not a frame) {}", escape(payload)),
            };
            line(&reply, version.as_ref(), style)
        }
        Output::Topic(topic) => line(&topic_text(topic), None, style),
        Output::Frame { meaning, frame } => {
            let head = meaning_text(meaning);
            line(&format!("{head}\n{}", frame::text(frame)), None, style)
        }
        Output::Clock(clock) => line(&clock_text(clock), None, style),
        Output::Config(record) => configured::output(record, style),
        Output::Exchange(record) => exchange::lines(record, style),
    }
}

fn got_text(key: &Key, got: &Got, is_one_of_many: bool, style: &Style) -> Rendered {
    let value_text = |value: &Bytes| match is_one_of_many {
        true => format!("{}  {}", name(key), escape(value)),
        false => escape_lines(value),
    };
    match got {
        Got::Found(found) => line(&value_text(&found.value), found.version.as_ref(), style),
        Got::Default(value) => line(&value_text(value), None, style),
        Got::Written { file, size, version, .. } => {
            let file = escape(file.as_os_str().as_encoded_bytes());
            confirmation(&format!("wrote {file} ({})", bytes_text(*size)), version.as_ref(), style)
        }
        Got::Missing => not_found(key, style),
    }
}

fn expires_in(ms: u64) -> String {
    format!(", expires in {}", duration::of_ms(ms))
}

fn stored(key: &Key, size: usize, expires: &str, outcome: &SetOutcome, style: &Style) -> Rendered {
    let text = format!("stored {} ({}{expires})", name(key), bytes_text(size));
    confirmation(&text, outcome.version.as_ref(), style)
}

fn not_stored(key: &Key, condition: Option<Condition>, outcome: &SetOutcome, style: &Style) -> Rendered {
    if outcome.applied {
        return Rendered::default();
    }
    let reason = match condition {
        Some(Condition::AbsentOrEqual) => "has another value",
        Some(Condition::Absent) | None => "exists",
    };
    negative(&format!("not stored: {} {reason}", name(key)), style)
}

/// Formats the result of an edit that was not written. The text must not be lost, so --quiet does not hide its file.
fn conflict(key: &Key, draft: &Path, style: &Style) -> Rendered {
    let error = paint("error:", Paint::Error, style.color_stderr);
    let draft = escape(draft.as_os_str().as_encoded_bytes());
    Rendered::stderr(format!(
        "{error} not stored: {} was changed meanwhile\n  the edited text is in {draft}\n",
        name(key)
    ))
}

/// Formats data; with --verbose, its version too.
fn line(text: &str, version: Option<&Timestamp>, style: &Style) -> Rendered {
    let version = version.filter(|_| style.verbose).map(|version| escape(version.to_string().as_bytes()));
    let version = version
        .map_or_else(String::new, |version| format!("  {}", paint(&version, Paint::Dim, style.color_stdout)));
    Rendered::stdout(format!("{text}{version}\n"))
}

/// Formats a confirmation.
fn confirmation(text: &str, version: Option<&Timestamp>, style: &Style) -> Rendered {
    if style.quiet {
        return Rendered::default();
    }
    line(text, version, style)
}

fn hint_line(hint: &str, style: &Style) -> Rendered {
    /// Of the text behind its label.
    const HINT_INDENT: usize = 6;
    if style.quiet {
        return Rendered::default();
    }
    let label = paint("hint:", Paint::Hint, style.color_stderr);
    let hint = wrapped(&escape(hint.as_bytes()), style.stderr_columns(), HINT_INDENT);
    Rendered::stderr(format!("{label} {hint}\n"))
}

pub(super) fn not_found(key: &Key, style: &Style) -> Rendered {
    negative(&format!("key not found: {}", name(key)), style)
}

fn name(key: &Key) -> String {
    escape(key.as_bytes())
}

fn bytes_text(count: usize) -> String {
    if count == 1 { "1 byte".to_owned() } else { format!("{count} bytes") }
}

fn ping_line(broker: &str, connect: Option<Duration>, tls: Option<&str>, round_trip: Duration) -> Rendered {
    let tls = tls.map_or_else(String::new, |version| format!(" (TLS {version})"));
    let connect = connect.map_or_else(String::new, |connect| format!("  connect {}{tls}", ms_text(connect)));
    let broker = escape(broker.as_bytes());
    Rendered::stdout(format!("{broker}{connect}  round trip {}\n", ms_text(round_trip)))
}

fn topic_text(topic: &Topic) -> String {
    match topic {
        Topic::Request => "request".to_owned(),
        Topic::Response { client_id } => format!("response  client {}", escape(client_id.as_bytes())),
        Topic::Notify { client_id, key } => {
            format!("notification  client {}  key {}", escape(client_id), name(key))
        }
    }
}

fn meaning_text(meaning: &Meaning) -> String {
    match meaning {
        Meaning::Request(request) => match request.key() {
            Some(key) => format!("request: {} {}", request.verb(), name(key)),
            None => format!("request: {}", request.verb()),
        },
        Meaning::Notification(Notification::Set(_)) => "notification: the key was set".to_owned(),
        Meaning::Notification(Notification::Delete) => {
            "notification: the key was deleted or has expired".to_owned()
        }
        Meaning::Reply(reply) => format!("reply: {}", reply_text(reply)),
        Meaning::Other => "frame: not a message of the state store".to_owned(),
    }
}

fn reply_text(reply: &Reply) -> &'static str {
    match reply {
        Reply::Done => "done",
        Reply::Value(_) => "a value",
        Reply::Count(0) => "none: key not found, or not watched",
        Reply::Count(_) => "the number of deleted keys",
        Reply::NotApplied => "not applied: the condition does not hold",
        Reply::Absent => "key not found",
        Reply::Keys { token: None, .. } => "the last page of keys",
        Reply::Keys { .. } => "a page of keys, more to come",
        Reply::Error(_) => "refused",
    }
}

fn clock_text(clock: &Timestamp) -> String {
    let time = duration::rfc3339(clock.ms).unwrap_or_else(|| format!("{} ms", clock.ms));
    format!("{time}  counter {}  node {}", clock.counter, escape(clock.node().as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::output::Deletion;
    use crate::commands::output::VersionedValue;

    const STYLE: Style = Style::PLAIN;

    fn key(text: &str) -> Key {
        Key::new(text.to_owned()).unwrap()
    }

    fn formatted(record: &Output) -> (String, String) {
        let Rendered { stdout, stderr } = output(record, &STYLE, &mut Widths::default());
        (String::from_utf8(stdout.to_vec()).unwrap(), stderr)
    }

    fn data(text: &str) -> (String, String) {
        (text.to_owned(), String::new())
    }

    fn words(text: &str) -> (String, String) {
        (String::new(), text.to_owned())
    }

    #[test]
    fn a_value_is_escaped_and_its_version_is_shown_on_request() {
        let record = Output::Got {
            key: key("k"),
            got: Got::Found(VersionedValue {
                value: (&b"\x1b[2J\xff"[..]).into(),
                version: Some(Timestamp::of_store(5, 3)),
            }),
            is_one_of_many: false,
        };
        assert_eq!(formatted(&record), data("\\x1B[2J\\xFF\n"));
        let verbose = output(&record, &Style { verbose: true, ..STYLE }, &mut Widths::default());
        assert_eq!(verbose.stdout, "\\x1B[2J\\xFF  000000000000005:00003:StateStore\n");
    }

    #[test]
    fn a_no_goes_to_standard_error() {
        let missing = Output::Got { key: key("line1/temp\n"), got: Got::Missing, is_one_of_many: false };
        assert_eq!(formatted(&missing), words("error: key not found: line1/temp\\x0A\n"));
        let differs = Output::Deleted {
            verb: Deletion::VDel,
            key: key("k"),
            outcome: DeleteOutcome::ValueDiffers { version: None },
            is_missing_ignored: false,
        };
        assert_eq!(formatted(&differs), words("error: not deleted: k has another value\n"));
        assert_eq!(
            output(&differs, &Style { quiet: true, ..STYLE }, &mut Widths::default()),
            Rendered::default()
        );
        assert_eq!(
            lines(&differs, &STYLE),
            output(&differs, &STYLE, &mut Widths::default()),
            "also in a pipe"
        );
    }

    #[test]
    fn a_stored_value_is_confirmed_with_size_and_expiry() {
        let set = |applied, condition, ttl_ms, size| Output::Set {
            key: key("line1/temp"),
            size,
            ttl_ms,
            condition,
            outcome: SetOutcome { applied, version: None },
        };
        assert_eq!(
            formatted(&set(true, None, Some(30_000), 4)),
            data("stored line1/temp (4 bytes, expires in 30s)\n")
        );
        assert_eq!(formatted(&set(true, None, None, 1)), data("stored line1/temp (1 byte)\n"));
        assert_eq!(
            formatted(&set(false, Some(Condition::Absent), None, 4)),
            words("error: not stored: line1/temp exists\n")
        );
        assert_eq!(
            formatted(&set(false, Some(Condition::AbsentOrEqual), None, 4)),
            words("error: not stored: line1/temp has another value\n")
        );
    }

    #[test]
    fn a_ping_has_the_time_to_connect_only_once() {
        let ping = |connect, tls| Output::Pinged {
            broker: "localhost:1883".to_owned(),
            sequence: 1,
            connect,
            tls,
            round_trip: Duration::from_micros(57),
        };
        assert_eq!(
            formatted(&ping(Some(Duration::from_micros(12_100)), None)),
            data("localhost:1883  connect 12.1 ms  round trip 0.057 ms\n")
        );
        assert_eq!(
            formatted(&ping(Some(Duration::from_micros(12_100)), Some("1.3"))),
            data("localhost:1883  connect 12.1 ms (TLS 1.3)  round trip 0.057 ms\n")
        );
        assert_eq!(formatted(&ping(None, None)), data("localhost:1883  round trip 0.057 ms\n"));
    }

    #[test]
    fn a_response_that_is_no_frame_is_shown_escaped() {
        let response = Output::Response { payload: (&b"hello\n"[..]).into(), version: None };
        assert_eq!(formatted(&response), data("(not a frame) hello\\x0A\n"));
    }
}

//! Events of `watch` for terminals and pipes.

use super::escape::escape;
use super::style::{Paint, paint};
use super::{Rendered, Style, Widths, time};
use crate::commands::duration;
use crate::commands::output::{Ended, VersionedValue, WatchEvent};
use crate::protocol::{Key, Timestamp, Value};

/// The separator of columns in a pipe.
const TAB: &str = "\t";

/// The maximum width of the column of keys on a terminal; a longer key moves its value.
const KEY_WIDTH_MAX: usize = 32;

/// The columns of an event about a key.
struct Row<'a> {
    word: &'static str,
    key: &'a Key,
    state: State<'a>,
    version: Option<&'a Timestamp>,
}

enum State<'a> {
    Value(&'a Value),
    /// The key has a value that the notification does not contain.
    Unknown,
    Absent,
    /// The key was deleted.
    Gone,
}

/// Widens the column of the keys for these.
pub fn fit(keys: &[Key], widths: &mut Widths) {
    for key in keys {
        widths.key.fit(&escape(key.as_bytes()), KEY_WIDTH_MAX);
    }
}

/// Formats an event for a terminal.
#[must_use]
pub fn text(
    event: &WatchEvent,
    received_ms: u64,
    is_data: bool,
    style: &Style,
    widths: &mut Widths,
) -> Rendered {
    let Some(row) = row(event) else { return connection_event(event, received_ms, is_data, style, "  ") };
    let color = style.color_stdout;
    let dim = |text: &str| paint(text, Paint::Dim, color);
    let mut line = format!(
        "{}  {:<7}  {}",
        dim(&time::of_stream(received_ms, style.stdout_is_terminal, style)),
        row.word,
        widths.key.pad(escape(row.key.as_bytes()), KEY_WIDTH_MAX)
    );
    match row.state {
        State::Value(value) => line.extend(["  ", &escape(value)]),
        State::Unknown => line.extend(["  ", &dim("(unknown value)")]),
        State::Absent => line.extend(["  ", &dim("(key not found)")]),
        State::Gone => {}
    }
    if let Some(version) = row.version.filter(|_| style.verbose) {
        line.extend(["  ", &dim(&escape(version.to_string().as_bytes()))]);
    }
    line.truncate(line.trim_end_matches(' ').len());
    line.push('\n');
    Rendered::stdout(line)
}

/// Formats an event for a pipe: time, event, key, the value if there is one, and the version on request.
#[must_use]
pub fn columns(event: &WatchEvent, received_ms: u64, is_data: bool, style: &Style) -> Rendered {
    let Some(row) = row(event) else { return connection_event(event, received_ms, is_data, style, TAB) };
    let mut columns = vec![time::in_utc(received_ms), row.word.to_owned(), escape(row.key.as_bytes())];
    if let State::Value(value) = row.state {
        columns.push(escape(value));
    }
    if let Some(version) = row.version.filter(|_| style.verbose) {
        columns.resize(4, String::new());
        columns.push(escape(version.to_string().as_bytes()));
    }
    Rendered::stdout(format!("{}\n", columns.join(TAB)))
}

/// Formats an event for standard error, where only the bytes of values are data.
#[must_use]
pub fn on_stderr(event: &WatchEvent, received_ms: u64, style: &Style) -> Rendered {
    let plain =
        Style { color_stdout: style.color_stderr, stdout_is_terminal: style.stderr_is_terminal, ..*style };
    let Rendered { stdout, stderr } = text(event, received_ms, true, &plain, &mut Widths::default());
    let is_wanted = !style.quiet || matches!(event, WatchEvent::Gap { .. });
    let line = if is_wanted { String::from_utf8_lossy(&stdout).into_owned() } else { String::new() };
    Rendered::stderr(stderr + &line)
}

/// Formats the failure of a command that was run for a key.
#[must_use]
pub fn handler_ended(key: &Key, ended: Ended, style: &Style) -> Rendered {
    if style.quiet {
        return Rendered::default();
    }
    let cause = match ended {
        Ended::Code(code) => format!("exit status {code}"),
        Ended::Signal(signal) => format!("ended by signal {signal}"),
    };
    let label = paint("warning:", Paint::Warning, style.color_stderr);
    Rendered::stderr(format!("{label} the command for {} failed: {cause}\n", escape(key.as_bytes())))
}

/// Returns the value of an event.
#[must_use]
pub fn value(event: &WatchEvent) -> Option<&Value> {
    match row(event)?.state {
        State::Value(value) => Some(value),
        State::Unknown | State::Absent | State::Gone => None,
    }
}

fn row(event: &WatchEvent) -> Option<Row<'_>> {
    let (word, key, state, version) = match event {
        WatchEvent::Current { key, found } => ("CURRENT", key, State::of(found.as_ref()), version_of(found)),
        WatchEvent::Resync { key, found } => ("RESYNC", key, State::of(found.as_ref()), version_of(found)),
        WatchEvent::Set { key, value, version } => {
            ("SET", key, value.as_ref().map_or(State::Unknown, State::Value), version.as_ref())
        }
        WatchEvent::Delete { key, version } => ("DELETE", key, State::Gone, version.as_ref()),
        WatchEvent::Lost { .. } | WatchEvent::Gap { .. } | WatchEvent::Skipped { .. } => return None,
    };
    Some(Row { word, key, state, version })
}

impl<'a> State<'a> {
    fn of(found: Option<&'a VersionedValue>) -> Self {
        found.map_or(Self::Absent, |found| Self::Value(&found.value))
    }
}

fn version_of(found: &Option<VersionedValue>) -> Option<&Timestamp> {
    found.as_ref().and_then(|found| found.version.as_ref())
}

/// Formats an event that is not about a key. A gap is printed even with --quiet, because changes may be missing.
fn connection_event(
    event: &WatchEvent,
    received_ms: u64,
    is_data: bool,
    style: &Style,
    separator: &str,
) -> Rendered {
    let notice = |text: String| if style.quiet { Rendered::default() } else { Rendered::stderr(text) };
    match event {
        WatchEvent::Lost { cause, .. } => {
            notice(format!("connection lost: {}; reconnecting\n", escape(cause.as_bytes())))
        }
        WatchEvent::Skipped { topic, cause } => {
            let (topic, cause) = (escape(topic.as_bytes()), escape(cause.as_bytes()));
            let label = paint("warning:", Paint::Warning, style.color_stderr);
            notice(format!("{label} skipped a message on {topic}: {cause}\n"))
        }
        WatchEvent::Gap { since_ms, until_ms } => {
            // On standard error the format is always that of a terminal.
            let separator = if is_data { separator } else { "  " };
            let color = if is_data { style.color_stdout } else { style.color_stderr };
            let word = if separator == TAB { "GAP".to_owned() } else { format!("{:<7}", "GAP") };
            // The column of the key is empty; a key cannot be.
            let key = if separator == TAB { TAB } else { "" };
            let is_terminal = match is_data {
                true => separator != TAB && style.stdout_is_terminal,
                false => style.stderr_is_terminal,
            };
            let columns = [
                paint(&time::of_stream(received_ms, is_terminal, style), Paint::Dim, color),
                paint(&word, Paint::Error, color),
                format!("{key}{}", gap(*since_ms, *until_ms, is_terminal, style)),
            ];
            let line = format!("{}\n", columns.join(separator));
            if is_data { Rendered::stdout(line) } else { Rendered::stderr(line) }
        }
        WatchEvent::Current { .. }
        | WatchEvent::Set { .. }
        | WatchEvent::Delete { .. }
        | WatchEvent::Resync { .. } => Rendered::default(),
    }
}

/// Formats the length, the beginning and the end of a gap.
pub(super) fn gap(since_ms: u64, until_ms: u64, is_terminal: bool, style: &Style) -> String {
    const DAY_MS: u64 = 24 * 60 * 60 * 1000;
    let ms = until_ms.saturating_sub(since_ms);
    // Across midnight the time of day is not enough.
    let moment = |at| time::of_stream(at, is_terminal && ms < DAY_MS, style);
    format!("{}, from {} to {}", duration::of_ms(ms), moment(since_ms), moment(until_ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STYLE: Style = Style::PLAIN;
    const VERBOSE: Style = Style { verbose: true, ..STYLE };
    const NOW: u64 = 1_763_669_639_958;

    fn key() -> Key {
        Key::new("line1/temp").unwrap()
    }

    fn found(value: &'static [u8]) -> Option<VersionedValue> {
        Some(VersionedValue { value: value.into(), version: Some(Timestamp::of_store(5, 3)) })
    }

    fn set(value: Option<&'static [u8]>) -> WatchEvent {
        WatchEvent::Set { key: key(), value: value.map(Value::from), version: None }
    }

    fn on_terminal(event: &WatchEvent) -> String {
        formatted(text(event, NOW, true, &STYLE, &mut Widths::default()))
    }

    fn in_pipe(event: &WatchEvent) -> String {
        formatted(columns(event, NOW, true, &STYLE))
    }

    fn formatted(rendered: Rendered) -> String {
        assert_eq!(rendered.stderr, "");
        String::from_utf8(rendered.stdout.to_vec()).unwrap()
    }

    #[test]
    fn an_event_is_a_line_on_a_terminal_and_columns_in_a_pipe() {
        let current = WatchEvent::Current { key: key(), found: found(b"21.5") };
        assert_eq!(on_terminal(&current), "20:13:59.958  CURRENT  line1/temp  21.5\n");
        assert_eq!(in_pipe(&current), "2025-11-20T20:13:59.958Z\tCURRENT\tline1/temp\t21.5\n");
        let resync = WatchEvent::Resync { key: key(), found: found(b"") };
        assert_eq!(on_terminal(&resync), "20:13:59.958  RESYNC   line1/temp\n");
        assert_eq!(in_pipe(&resync), "2025-11-20T20:13:59.958Z\tRESYNC\tline1/temp\t\n");
        let delete = WatchEvent::Delete { key: key(), version: None };
        assert_eq!(on_terminal(&delete), "20:13:59.958  DELETE   line1/temp\n");
        assert_eq!(in_pipe(&delete), "2025-11-20T20:13:59.958Z\tDELETE\tline1/temp\n");
    }

    #[test]
    fn the_columns_of_a_terminal_align() {
        let mut widths = Widths::default();
        fit(&[key(), Key::new("温").unwrap()], &mut widths);
        let mut line = |name: &'static str, value: Option<&'static [u8]>| {
            let key = Key::new(name).unwrap();
            let event = WatchEvent::Set { key, value: value.map(Value::from), version: None };
            formatted(text(&event, NOW, true, &STYLE, &mut widths))
        };
        assert_eq!(line("温", Some(b"1")), "20:13:59.958  SET      温          1\n");
        assert_eq!(line("line1/pressure", Some(b"2")), "20:13:59.958  SET      line1/pressure  2\n");
        assert_eq!(line("温", Some(b"3")), "20:13:59.958  SET      温              3\n");
        assert_eq!(line("k", None), "20:13:59.958  SET      k               (unknown value)\n");
        assert_eq!(line("k", Some(b"")), "20:13:59.958  SET      k\n");
    }

    #[test]
    fn without_a_value_there_is_no_fourth_column() {
        let absent = WatchEvent::Current { key: key(), found: None };
        assert_eq!(on_terminal(&absent), "20:13:59.958  CURRENT  line1/temp  (key not found)\n");
        assert_eq!(in_pipe(&absent), "2025-11-20T20:13:59.958Z\tCURRENT\tline1/temp\n");
        assert_eq!(on_terminal(&set(None)), "20:13:59.958  SET      line1/temp  (unknown value)\n");
        assert_eq!(in_pipe(&set(None)), "2025-11-20T20:13:59.958Z\tSET\tline1/temp\n");
    }

    #[test]
    fn a_value_cannot_forge_a_column_or_a_line() {
        assert_eq!(
            in_pipe(&set(Some(b"a\tb\nc\xff"))),
            "2025-11-20T20:13:59.958Z\tSET\tline1/temp\ta\\x09b\\x0Ac\\xFF\n"
        );
    }

    #[test]
    fn the_version_is_shown_on_request_in_its_own_column() {
        let current = |found| WatchEvent::Current { key: key(), found };
        let version = "000000000000005:00003:StateStore";
        let line = formatted(text(&current(found(b"x")), NOW, true, &VERBOSE, &mut Widths::default()));
        assert_eq!(line, format!("20:13:59.958  CURRENT  line1/temp  x  {version}\n"));
        let delete = WatchEvent::Delete { key: key(), version: Some(Timestamp::of_store(5, 3)) };
        let line = formatted(columns(&delete, NOW, true, &VERBOSE));
        assert_eq!(line, format!("2025-11-20T20:13:59.958Z\tDELETE\tline1/temp\t\t{version}\n"));
    }

    #[test]
    fn a_gap_has_its_length_and_its_ends_and_no_key() {
        let gap = WatchEvent::Gap { since_ms: NOW - 4_201, until_ms: NOW };
        assert_eq!(on_terminal(&gap), "20:13:59.958  GAP      4s 201ms, from 20:13:55.757 to 20:13:59.958\n");
        assert_eq!(
            in_pipe(&gap),
            "2025-11-20T20:13:59.958Z\tGAP\t\t4s 201ms, from 2025-11-20T20:13:55.757Z to 2025-11-20T20:13:59.958Z\n"
        );
        let long = WatchEvent::Gap { since_ms: NOW - 86_400_000, until_ms: NOW };
        assert_eq!(
            on_terminal(&long),
            "20:13:59.958  GAP      1d, from 2025-11-19T20:13:59.958Z to 2025-11-20T20:13:59.958Z\n"
        );
    }

    #[test]
    fn an_event_that_is_not_data_goes_to_standard_error() {
        let lost = WatchEvent::Lost { since_ms: NOW, cause: "silent\n".to_owned() };
        let skipped = WatchEvent::Skipped { topic: "a/\x1b".to_owned(), cause: "odd".to_owned() };
        let quiet = Style { quiet: true, ..STYLE };
        let text = |event: &WatchEvent, style: &Style| text(event, NOW, false, style, &mut Widths::default());
        let columns = |event: &WatchEvent, style: &Style| columns(event, NOW, false, style);
        for render in [&text as &dyn Fn(&WatchEvent, &Style) -> Rendered, &columns] {
            assert_eq!(render(&lost, &STYLE).stderr, "connection lost: silent\\x0A; reconnecting\n");
            assert_eq!(render(&skipped, &STYLE).stderr, "warning: skipped a message on a/\\x1B: odd\n");
            assert_eq!(render(&lost, &quiet), Rendered::default());
        }
    }

    #[test]
    fn a_gap_is_reported_even_with_quiet() {
        let gap = WatchEvent::Gap { since_ms: NOW, until_ms: NOW };
        let quiet = Style { quiet: true, ..STYLE };
        assert_eq!(text(&gap, NOW, false, &quiet, &mut Widths::default()).stdout, "");
        assert!(text(&gap, NOW, false, &quiet, &mut Widths::default()).stderr.contains("GAP"));
        assert!(on_stderr(&gap, NOW, &quiet).stderr.contains("GAP"));
        assert_eq!(on_stderr(&set(None), NOW, &quiet), Rendered::default());
    }

    #[test]
    fn a_failed_command_is_reported() {
        let text = |ended| handler_ended(&key(), ended, &STYLE).stderr;
        assert_eq!(text(Ended::Code(3)), "warning: the command for line1/temp failed: exit status 3\n");
        assert_eq!(
            text(Ended::Signal(15)),
            "warning: the command for line1/temp failed: ended by signal 15\n"
        );
    }
}

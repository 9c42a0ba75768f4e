//! Events of `watch` for terminals and pipes, and as JSON.

use super::*;
use crate::client::VersionedValue;
use crate::render::shown;

const STYLE: Style = Style::PLAIN;
const VERBOSE: Style = Style { verbose: true, ..STYLE };
const NOW: u64 = 1_763_669_639_958;

fn key() -> Key {
    Key::new("line1/temp").unwrap()
}

fn found(value: &'static [u8]) -> Option<VersionedValue> {
    Some(VersionedValue { value: value.into(), version: Some(Timestamp::of_store(5, 3)), details: None })
}

fn set(value: Option<&'static [u8]>) -> WatchEvent {
    WatchEvent::Set { key: key(), value: value.map(Value::from), version: None, details: None }
}

fn record(event: &WatchEvent, sequence: Option<u64>) -> Watched {
    Watched { event: event.clone(), received_ms: NOW, sequence }
}

fn formatted(event: &WatchEvent, style: &Style) -> String {
    let (stdout, stderr) = shown(&record(event, Some(1)), style);
    assert_eq!(stderr, "");
    stdout
}

fn on_terminal(event: &WatchEvent) -> String {
    formatted(event, &STYLE)
}

fn in_pipe(event: &WatchEvent) -> String {
    formatted(event, &Style::LINES)
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
    let watching = Watching { keys: vec![key(), Key::new("温").unwrap()], prefix: None, interval: None };
    assert_eq!(watching.text(&STYLE, &mut widths), Rendered::default());
    let mut line = |name: &'static str, value: Option<&'static [u8]>| {
        let key = Key::new(name).unwrap();
        let event = WatchEvent::Set { key, value: value.map(Value::from), version: None, details: None };
        let Rendered { stdout, .. } = record(&event, Some(1)).text(&STYLE, &mut widths);
        String::from_utf8(stdout.to_vec()).unwrap()
    };
    assert_eq!(line("温", Some(b"1")), "20:13:59.958  SET      温          1\n");
    assert_eq!(line("line1/pressure", Some(b"2")), "20:13:59.958  SET      line1/pressure  2\n");
    assert_eq!(line("温", Some(b"3")), "20:13:59.958  SET      温              3\n");
    assert_eq!(line("k", None), "20:13:59.958  SET      k               (unknown value)\n");
    assert_eq!(line("k", Some(b"")), "20:13:59.958  SET      k\n");
}

#[test]
fn the_notice_of_a_prefix_has_the_time_after_which_new_keys_are_found_if_the_store_does_not_notify() {
    let notice = |keys: Vec<Key>, interval| {
        let watching = Watching { keys, prefix: Some("k\n".to_owned()), interval };
        shown(&watching, &STYLE).1
    };
    let interval = Some(Duration::from_secs(3));
    let none = "no key that this client may read begins with k\\x0A yet";
    assert_eq!(notice(vec![], None), format!("{none}\n"));
    assert_eq!(notice(vec![], interval), format!("{none}; new keys within 3 s\n"));
    assert_eq!(notice(vec![key()], None), "");
    assert_eq!(
        notice(vec![key()], interval),
        "watching the keys that begin with k\\x0A; new keys within 3 s\n"
    );
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
    let line = formatted(&current(found(b"x")), &VERBOSE);
    assert_eq!(line, format!("20:13:59.958  CURRENT  line1/temp  x  {version}\n"));
    let delete = WatchEvent::Delete { key: key(), version: Some(Timestamp::of_store(5, 3)) };
    let line = formatted(&delete, &Style { format: Format::Lines, ..VERBOSE });
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
    for style in [STYLE, Style::LINES] {
        let text = |event: &WatchEvent, quiet| shown(&record(event, None), &Style { quiet, ..style });
        let stderr = |text: &str| (String::new(), text.to_owned());
        assert_eq!(text(&lost, false), stderr("connection lost: silent\\x0A; reconnecting\n"));
        assert_eq!(text(&skipped, false), stderr("warning: skipped a message on a/\\x1B: odd\n"));
        assert_eq!(text(&lost, true), Default::default());
    }
    let json = |quiet| shown(&record(&skipped, None), &Style { quiet, ..Style::JSON });
    let expected = "{\"v\":1,\"event\":\"skipped\",\"topic\":\"a/\\u001b\",\"cause\":\"odd\"}\n";
    assert_eq!(json(false), (String::new(), expected.to_owned()));
    assert_eq!(json(true), Default::default());
}

#[test]
fn a_gap_is_reported_even_with_quiet() {
    let gap = WatchEvent::Gap { since_ms: NOW, until_ms: NOW };
    let raw = Style { format: Format::Raw, ..Style::QUIET };
    for (sequence, style) in [(None, Style::QUIET), (None, raw), (Some(1), raw)] {
        let (stdout, stderr) = shown(&record(&gap, sequence), &style);
        assert_eq!(stdout, "");
        assert!(stderr.contains("GAP"), "{stderr}");
    }
    assert_eq!(shown(&record(&set(None), Some(1)), &raw), Default::default());
    assert_eq!(
        shown(&record(&set(Some(b"\n\xc3")), Some(1)), &Style { format: Format::Hex, ..raw }).0,
        "0ac3\n"
    );
}

#[test]
fn a_failed_command_is_reported() {
    let text = |ended, style: &Style| shown(&CommandEnded { key: key(), ended }, style).1;
    assert_eq!(text(Ended::Code(3), &STYLE), "warning: the command for line1/temp failed: exit status 3\n");
    assert_eq!(
        text(Ended::Signal(15), &STYLE),
        "warning: the command for line1/temp failed: ended by signal 15\n"
    );
    assert_eq!(
        text(Ended::Code(3), &Style::JSON),
        "{\"v\":1,\"event\":\"command-ended\",\"key\":\"line1/temp\",\"code\":3}\n"
    );
}

#[test]
fn a_watch_is_a_stream_of_objects() {
    let watched = |event, sequence| shown(&record(&event, sequence), &Style::JSON).0;
    let key = |bytes: &'static [u8]| Key::new(bytes).unwrap();
    let version = Some(Timestamp::of_store(1, 0));
    let set = WatchEvent::Set {
        key: key(b"k"),
        value: Some("21.7".into()),
        version: version.clone(),
        details: None,
    };
    assert_eq!(
        watched(set, Some(2)),
        "{\"v\":1,\"event\":\"set\",\"key\":\"k\",\"value\":\"21.7\",\"encoding\":\"utf-8\",\
         \"version\":\"000000000000001:00000:StateStore\",\"received\":\"2025-11-20T20:13:59.958Z\",\"seq\":2}\n"
    );
    let delete = WatchEvent::Delete { key: key(b"\xff"), version: None };
    assert_eq!(
        watched(delete, Some(3)),
        "{\"v\":1,\"event\":\"delete\",\"key\":\"/w==\",\"key_encoding\":\"base64\",\
         \"received\":\"2025-11-20T20:13:59.958Z\",\"seq\":3}\n"
    );
    let current = WatchEvent::Current { key: key(b"k"), found: None };
    assert_eq!(
        watched(current, Some(1)),
        "{\"v\":1,\"event\":\"current\",\"key\":\"k\",\"found\":false,\
         \"received\":\"2025-11-20T20:13:59.958Z\",\"seq\":1}\n"
    );
    let found = Some(VersionedValue { value: (&b"\xff"[..]).into(), version, details: None });
    assert_eq!(
        watched(WatchEvent::Resync { key: key(b"k"), found }, Some(5)),
        "{\"v\":1,\"event\":\"resync\",\"key\":\"k\",\"found\":true,\"value\":\"/w==\",\"encoding\":\"base64\",\
         \"version\":\"000000000000001:00000:StateStore\",\"received\":\"2025-11-20T20:13:59.958Z\",\"seq\":5}\n"
    );
    let gap = WatchEvent::Gap { since_ms: 1_763_669_639_958, until_ms: 1_763_669_640_958 };
    assert_eq!(
        watched(gap, Some(4)),
        "{\"v\":1,\"event\":\"gap\",\"since\":\"2025-11-20T20:13:59.958Z\",\
         \"until\":\"2025-11-20T20:14:00.958Z\",\"ms\":1000,\"seq\":4}\n"
    );
}

//! Events as text: at wide and narrow terminals, in pipes, and as JSON.

use std::time::Duration;

use super::*;
use crate::commands::monitor::record::Traffic;
use crate::commands::monitor::traffic_event::Correlation;
use crate::protocol::{ErrorReply, Key, Value};
use crate::render::{Format, Zone, rendered};

const NOW: u64 = 1_763_669_639_958;
const VERSION: &str = "001763669639958:00003:StateStore";

fn style(format: Format, color: bool) -> Style {
    Style {
        stdout_is_terminal: true,
        zone: Zone::Utc,
        format,
        color_stdout: color,
        color_stderr: color,
        stderr_is_terminal: false,
        columns: None,
        verbose: false,
        quiet: false,
    }
}

fn formatted(event: &TrafficEvent, columns_max: Option<usize>, style: &Style) -> String {
    let record = Traffic::new(event.clone(), NOW, Some(7), columns_max);
    let Rendered { stdout, stderr } = rendered(&record, style, &mut Widths::default());
    stderr + std::str::from_utf8(&stdout).unwrap()
}

fn on_terminal(event: &TrafficEvent, columns_max: usize) -> String {
    formatted(event, Some(columns_max), &style(Format::Text, false))
}

fn in_pipe(event: &TrafficEvent) -> String {
    formatted(event, None, &style(Format::Lines, false))
}

fn in_json(event: &TrafficEvent) -> String {
    formatted(event, None, &style(Format::Json, false))
}

fn key() -> Key {
    Key::new("line1/temp").unwrap()
}

fn summary(verb: &'static str) -> RequestSummary {
    RequestSummary { client: Some("plc-7".into()), verb: Some(verb), key: Some(key()) }
}

fn correlation() -> Correlation {
    Correlation { response_topic: Some("r".to_owned()), data: Some((&b"\x01\xff"[..]).into()) }
}

fn set(value: &'static [u8]) -> DecodedRequest {
    let ttl_ms = std::num::NonZeroU64::new(30_000);
    let condition = Some(Condition::Absent);
    DecodedRequest {
        summary: summary("SET"),
        request: Ok(Request::Set { key: key(), value: Value::from(value), condition, ttl_ms }),
        timestamp: Some("1:0:n".to_owned()),
        fence: Some("5:0:StateStore".to_owned()),
        persist: true,
        expiry_s: Some(10),
        correlation: correlation(),
        problem: None,
    }
}

fn reply(verb: &'static str, reply: Reply) -> DecodedReply {
    DecodedReply {
        summary: summary(verb),
        elapsed: Some(Duration::from_micros(412)),
        reply: Ok(reply),
        version: Some(VERSION.to_owned()),
        correlation: correlation(),
    }
}

fn notification(change: Notification) -> TrafficEvent {
    let version = Some(VERSION.to_owned());
    TrafficEvent::Notification(DecodedNotification {
        client: "w".into(),
        key: key(),
        change: Ok(change),
        version,
    })
}

#[test]
fn a_request_without_a_visible_reply_shows_why() {
    let problem = Some("no reply: its QoS is not 1");
    let seen = TrafficEvent::Request(DecodedRequest { problem, ..set(b"21.5") });
    for text in [on_terminal(&seen, 200), in_pipe(&seen)] {
        assert!(text.contains("no reply: its QoS is not 1"), "{text}");
    }
    assert!(in_json(&seen).ends_with(",\"problem\":\"no reply: its QoS is not 1\"}\n"));
}

#[test]
fn a_request_shows_all_that_it_asks() {
    let seen = TrafficEvent::Request(set(b"21.5"));
    assert_eq!(
        on_terminal(&seen, 200),
        "20:13:59.958  REQUEST   plc-7  SET  line1/temp  NX PX 30000 persist  4 bytes  fence 5:0:StateStore  21.5\n"
    );
    assert_eq!(
        in_pipe(&seen),
        "2025-11-20T20:13:59.958Z\tREQUEST\tplc-7\tSET\tline1/temp\tNX PX 30000 persist\t4\t\t5:0:StateStore\t\t21.5\n"
    );
    assert_eq!(
        in_json(&seen),
        "{\"v\":1,\"event\":\"request\",\"received\":\"2025-11-20T20:13:59.958Z\",\"seq\":7,\"client\":\"plc-7\",\
         \"verb\":\"SET\",\"key\":\"line1/temp\",\"condition\":\"nx\",\"ttl_ms\":30000,\"value\":\"21.5\",\
         \"encoding\":\"utf-8\",\"size\":4,\"persist\":true,\"fence\":\"5:0:StateStore\",\"timestamp\":\"1:0:n\",\
         \"expiry_s\":10,\"response_topic\":\"r\",\"correlation\":\"01ff\"}\n"
    );
}

#[test]
fn a_reply_shows_outcome_time_and_version() {
    let found = TrafficEvent::Reply(reply("GET", Reply::Value("21.5".into())));
    assert_eq!(
        on_terminal(&found, 200),
        format!("20:13:59.958  REPLY     plc-7  GET  line1/temp  4 bytes  0.412 ms  {VERSION}  21.5\n")
    );
    assert_eq!(
        in_pipe(&found),
        format!("2025-11-20T20:13:59.958Z\tREPLY\tplc-7\tGET\tline1/temp\t\t4\t{VERSION}\t\t0.412\t21.5\n")
    );
    assert_eq!(
        in_json(&found),
        format!(
            "{{\"v\":1,\"event\":\"reply\",\"received\":\"2025-11-20T20:13:59.958Z\",\"seq\":7,\"client\":\"plc-7\",\
             \"verb\":\"GET\",\"key\":\"line1/temp\",\"reply\":\"value\",\"value\":\"21.5\",\"encoding\":\"utf-8\",\
             \"size\":4,\"version\":\"{VERSION}\",\"ms\":0.412,\"response_topic\":\"r\",\"correlation\":\"01ff\"}}\n"
        )
    );
}

#[test]
fn a_reply_is_interpreted_by_its_request() {
    let outcome = |verb, given| {
        in_pipe(&TrafficEvent::Reply(reply(verb, given))).split('\t').nth(5).unwrap().to_owned()
    };
    assert_eq!(outcome("SET", Reply::Done), "OK");
    assert_eq!(outcome("SET", Reply::NotApplied), "not applied");
    assert_eq!(outcome("VDEL", Reply::NotApplied), "value differs");
    assert_eq!(outcome("DEL", Reply::Count(1)), "deleted");
    assert_eq!(outcome("DEL", Reply::Count(0)), "key not found");
    assert_eq!(outcome("KEYNOTIFY", Reply::Count(0)), "was not watched");
    assert_eq!(outcome("GET", Reply::Absent), "key not found");
    let keys = Reply::Keys { keys: vec!["a".into(), "b".into()], token: Some("t".into()) };
    assert_eq!(outcome("SCAN", keys), "2 keys, more to come");
}

#[test]
fn a_refusal_is_in_color_and_only_a_refusal() {
    let refused = TrafficEvent::Reply(DecodedReply {
        version: None,
        ..reply("SET", Reply::Error(ErrorReply::QuotaExceeded))
    });
    let color = style(Format::Text, true);
    assert!(
        formatted(&refused, Some(200), &color)
            .contains("\x1b[1;31mrefused: the quota has been exceeded\x1b[0m")
    );
    assert!(
        !formatted(&TrafficEvent::Reply(reply("SET", Reply::Done)), Some(200), &color).contains("\x1b[1;31m")
    );
    assert!(in_json(&refused).contains("\"reply\":\"refused\",\"refused\":\"the quota has been exceeded\""));
}

#[test]
fn a_line_is_cut_at_the_width_and_the_version_gives_way_first() {
    let found = TrafficEvent::Reply(reply("GET", Reply::Value("x".repeat(500).into())));
    assert_eq!(
        on_terminal(&found, 80),
        "20:13:59.958  REPLY     plc-7  GET  line1/temp  0.412 ms  xxxxxxxxxxxxxxxxxxxxx…\n"
    );
    assert_eq!(on_terminal(&found, 80).trim_end().chars().count(), 80);
    assert!(on_terminal(&found, 130).contains(VERSION));
    assert_eq!(
        on_terminal(&TrafficEvent::Request(set(b"21.5")), 60),
        "20:13:59.958  REQUEST   plc-7  SET  line1/temp  NX PX 30000…\n"
    );
    let set = TrafficEvent::Reply(DecodedReply { version: None, ..reply("SET", Reply::Done) });
    let line = "20:13:59.958  REPLY     plc-7  SET  line1/temp  OK  0.412 ms";
    assert_eq!(on_terminal(&set, 60), format!("{line}\n"));
    assert_eq!(on_terminal(&set, 59), format!("{}\n", line.trim_end_matches("  0.412 ms")));
    for width in 0..200 {
        let line = on_terminal(&found, width);
        assert!(width_of(line.trim_end_matches('\n')) <= width.max(1), "{width}: {line}");
    }
    assert!(formatted(&found, None, &style(Format::Text, false)).contains(&"x".repeat(500)));
}

#[test]
fn the_columns_of_a_terminal_align() {
    let mut widths = Widths::default();
    let mut line = |event: TrafficEvent| {
        let Rendered { stdout, .. } = text(&event, NOW, Some(80), &style(Format::Text, false), &mut widths);
        std::str::from_utf8(&stdout).unwrap().trim_start_matches("20:13:59.958  ").to_owned()
    };
    let request = |client: &'static str, verb: &'static str, name: &'static str| {
        let key = Key::new(name).unwrap();
        TrafficEvent::Reply(DecodedReply {
            summary: RequestSummary { client: Some(client.into()), verb: Some(verb), key: Some(key) },
            version: None,
            ..reply("SET", Reply::Done)
        })
    };
    assert_eq!(
        line(request("plc-7", "SET", "line1/temp")),
        "REPLY     plc-7  SET  line1/temp  OK  0.412 ms\n"
    );
    assert_eq!(line(request("w", "DEL", "a")), "REPLY     w      DEL  a           OK  0.412 ms\n");
    // The longest verb is too long for every line of a narrow terminal.
    assert_eq!(
        line(request("w", "KEYNOTIFY", "a")),
        "REPLY     w      KEYNOTIFY  a           OK  0.412 ms\n"
    );
    assert_eq!(line(request("w", "GET", "a")), "REPLY     w      GET  a           OK  0.412 ms\n");
    // What follows a column that is empty needs the space.
    let refused = TrafficEvent::Reply(DecodedReply {
        summary: RequestSummary { client: Some("w".into()), verb: None, key: None },
        version: None,
        ..reply("SET", Reply::Error(ErrorReply::UnknownCommand))
    });
    assert_eq!(line(refused), "REPLY     w      refused: unknown command  0.412 ms\n");
    let gap = TrafficEvent::Gap { since_ms: NOW, until_ms: NOW };
    assert_eq!(line(gap), "GAP       0s, from 20:13:59.958 to 20:13:59.958\n");
}

#[test]
fn a_long_name_leaves_room_for_the_outcome() {
    let long = RequestSummary {
        client: Some("c".repeat(100).into()),
        verb: Some("SET"),
        key: Some(Key::new("k".repeat(1000)).unwrap()),
    };
    let seen = TrafficEvent::Reply(DecodedReply { summary: long, ..reply("SET", Reply::Done) });
    assert_eq!(
        on_terminal(&seen, 80),
        "20:13:59.958  REPLY     …ccccccccc  SET  kkkkkkkkkkkkkkkkkkk…  OK  0.412 ms\n"
    );
}

#[test]
fn network_data_cannot_control_the_terminal() {
    let evil = || "\x1b[2J\r\n\t\u{9b}\u{202e}".to_owned();
    let correlation = Correlation { response_topic: Some(evil()), data: Some(evil().into()) };
    let summary =
        RequestSummary { client: Some(evil().into()), verb: None, key: Some(Key::new(evil()).unwrap()) };
    let request = DecodedRequest {
        summary: summary.clone(),
        request: Err(Malformed { error: "bad".to_owned(), payload: evil().into() }),
        timestamp: Some(evil()),
        fence: Some(evil()),
        correlation: correlation.clone(),
        ..set(b"")
    };
    let answer = DecodedReply {
        summary: summary.clone(),
        version: Some(evil()),
        correlation,
        ..reply("GET", Reply::Error(ErrorReply::Unknown(evil())))
    };
    let decoded = DecodedNotification {
        client: evil().into(),
        key: Key::new(evil()).unwrap(),
        change: Err(Malformed { error: "bad".to_owned(), payload: evil().into() }),
        version: Some(evil()),
    };
    let listening = TrafficEvent::Listening { broker: evil(), filters: vec![evil()], refused: Some(evil()) };
    for event in [
        TrafficEvent::Request(request),
        TrafficEvent::Reply(answer),
        TrafficEvent::Notification(decoded),
        TrafficEvent::Unanswered { summary, waited: Duration::ZERO },
        TrafficEvent::Lost { since_ms: NOW, cause: evil() },
        listening,
    ] {
        for text in [on_terminal(&event, 500), in_pipe(&event), in_json(&event)] {
            let harmless = |c: char| !c.is_control() && c != '\u{202e}';
            assert!(text.lines().all(|line| line.replace('\t', "").chars().all(harmless)), "{text:?}");
        }
        assert_eq!(
            in_pipe(&event).lines().count(),
            if matches!(event, TrafficEvent::Listening { .. }) { 2 } else { 1 }
        );
    }
}

#[test]
fn notifications_gaps_and_missing_replies_have_their_lines() {
    let decoded = notification(Notification::Set(Some("x".into())));
    assert_eq!(
        on_terminal(&decoded, 120),
        format!("20:13:59.958  NOTIFY    w  SET  line1/temp  1 byte  {VERSION}  x\n")
    );
    assert_eq!(
        in_pipe(&notification(Notification::Delete)),
        format!("2025-11-20T20:13:59.958Z\tNOTIFY\tw\tDELETE\tline1/temp\t\t\t{VERSION}\t\t\t\n")
    );
    let missing = TrafficEvent::Unanswered { summary: summary("GET"), waited: Duration::from_secs(11) };
    assert_eq!(
        on_terminal(&missing, 120),
        "20:13:59.958  NO-REPLY  plc-7  GET  line1/temp  timed out  11000.0 ms\n"
    );
    let gap = TrafficEvent::Gap { since_ms: NOW - 4201, until_ms: NOW };
    assert_eq!(
        on_terminal(&gap, 120),
        "20:13:59.958  GAP       4s 201ms, from 20:13:55.757 to 20:13:59.958\n"
    );
    assert!(in_json(&gap).contains("\"since\":\"2025-11-20T20:13:55.757Z\""));
}

#[test]
fn an_event_that_is_not_data_goes_to_standard_error_unless_quiet() {
    let filters = vec!["a".to_owned(), "clients/#".to_owned()];
    let listening = TrafficEvent::Listening { broker: "h:1".to_owned(), filters, refused: None };
    assert_eq!(in_pipe(&listening), "listening at h:1 to a, clients/#\n");
    assert!(in_json(&listening).ends_with("\"broker\":\"h:1\",\"filters\":[\"a\",\"clients/#\"]}\n"));
    let lost = TrafficEvent::Lost { since_ms: NOW, cause: "reset".to_owned() };
    assert_eq!(in_pipe(&lost), "connection lost: reset; reconnecting\n");
    assert!(in_json(&lost).ends_with("\"since\":\"2025-11-20T20:13:59.958Z\",\"cause\":\"reset\"}\n"));
    let quiet = Style { quiet: true, ..style(Format::Lines, false) };
    assert_eq!(formatted(&lost, None, &quiet), "");
}

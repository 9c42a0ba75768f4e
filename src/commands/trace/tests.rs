//! Contents of trace lines, and what is cut or redacted.

use std::time::Duration;

use super::*;
use crate::protocol::{Condition, Key, Request, UserProperties, topic};

const AT_MS: u64 = 1_763_669_639_958;

fn line_of(traced: &TraceEvent) -> String {
    let line = line(traced, AT_MS, &Style::PLAIN);
    let line = line.strip_prefix("2025-11-20T20:13:59.958Z  ").unwrap();
    line.strip_suffix('\n').unwrap().to_owned()
}

fn as_json(traced: &TraceEvent) -> String {
    line(traced, AT_MS, &Style { format: Format::Json, ..Style::PLAIN })
}

fn reason(code: u8) -> ReasonCode {
    ReasonCode { code, text: None }
}

fn publish(topic: &str, payload: &[u8]) -> Packet {
    let payload = payload.to_vec().into();
    Packet::Publish {
        packet_id: Some(2),
        message: Message { topic: topic.to_owned().into(), payload, ..Message::default() },
    }
}

#[test]
fn a_connect_shows_identity_and_options_without_secrets() {
    let seen = ConnectPacket {
        client_id: "me".to_owned(),
        keep_alive_s: 10,
        clean_start: true,
        session_expiry_s: 0,
        packet_bytes_max: 1000,
        username: Some("a b".to_owned()),
        has_password: true,
        method: None,
        data_bytes: None,
    };
    let connect = TraceEvent::Sent(Packet::Connect(seen.clone()));
    assert_eq!(
        line_of(&connect),
        "->  CONNECT client-id=me clean-start keep-alive=10 session-expiry=0 packet-bytes-max=1000 \
         user=\"a b\" password=<redacted>"
    );
    assert_eq!(
        as_json(&connect),
        "{\"v\":1,\"trace\":\"sent\",\"at\":\"2025-11-20T20:13:59.958Z\",\"packet\":\"CONNECT\",\
         \"client_id\":\"me\",\"clean_start\":true,\"keep_alive\":10,\"session_expiry\":0,\
         \"packet_bytes_max\":1000,\"user\":\"a b\",\"password\":\"<redacted>\"}\n"
    );
    let method = Some("K8S-SAT".to_owned());
    let token = ConnectPacket { username: None, has_password: false, method, data_bytes: Some(900), ..seen };
    let token = line_of(&TraceEvent::Sent(Packet::Connect(token)));
    assert!(token.ends_with(" method=K8S-SAT data=<900 bytes redacted>"), "{token}");
}

#[test]
fn a_connack_shows_all_granted_limits() {
    let properties = vec![
        Property::Number("receive-max", 16),
        Property::Text("server-reference", "other:1".to_owned()),
        Property::Secret("data", 3),
        Property::User("region".to_owned(), "x\n".to_owned()),
    ];
    let reason = ReasonCode { code: 0x87, text: Some("no \x1b[2J".to_owned()) };
    let connack = TraceEvent::Received(Packet::ConnAck { reason, session_present: true, properties });
    assert_eq!(
        line_of(&connack),
        "<-  CONNACK reason=\"not authorized (0x87)\" text=\"no \\x1B[2J\" session-present receive-max=16 \
         server-reference=other:1 data=<3 bytes redacted> region=x\\x0A"
    );
    let json = as_json(&connack);
    assert!(json.contains("\"user_properties\":[[\"region\",\"x\\n\"]]"), "{json}");
}

#[test]
fn requests_replies_and_notifications_are_shown_decoded() {
    let key = Key::new("line 1").unwrap();
    let request = Request::Set {
        key: key.clone(),
        value: "21.5".into(),
        condition: Some(Condition::Absent),
        ttl_ms: std::num::NonZeroU64::new(5000),
    };
    let request = line_of(&TraceEvent::Sent(publish(topic::REQUEST, &request.encode())));
    assert!(
        request.starts_with("->  PUBLISH id=2 request [SET \"line 1\" 21.5 NX PX 5000] size="),
        "{request}"
    );
    let response = topic::response("me");
    for (payload, words) in [
        (&b"+OK\r\n"[..], "[OK]"),
        (b"$4\r\n21.5\r\n", "[21.5]"),
        (b"$0\r\n\r\n", "[\"\"]"),
        (b"$-1\r\n", "[key not found]"),
        (b":-1\r\n", "[-1]"),
        (b"-ERR syntax error\r\n", "[-ERR syntax error]"),
        (b"*1\r\n*2\r\n$1\r\na\r\n$1\r\nb\r\n", "[a b]"),
        (b"nonsense\x07", "[nonsense\\x07]"),
    ] {
        let reply = line_of(&TraceEvent::Received(publish(&response, payload)));
        assert!(reply.starts_with(&format!("<-  PUBLISH id=2 reply {words} size=")), "{reply}");
    }
    let notify = topic::notify("me", &key).unwrap();
    let set = b"*4\r\n$6\r\nNOTIFY\r\n$3\r\nSET\r\n$5\r\nVALUE\r\n$1\r\nv\r\n";
    let notification = line_of(&TraceEvent::Received(publish(&notify, set)));
    assert!(notification.starts_with("<-  PUBLISH id=2 notification [SET v] key=\"line 1\" size="));
    let other = line_of(&TraceEvent::Received(publish("a/b", b"\xff")));
    assert_eq!(other, "<-  PUBLISH id=2 message [\\xFF] size=1 qos=1 topic=a/b");
}

#[test]
fn the_properties_of_a_message_are_shown() {
    let message = Message {
        topic: "a".into(),
        response_topic: Some("b".to_owned()),
        correlation: Some((&b"\x00\xff"[..]).into()),
        content_type: Some("text".into()),
        expiry_s: Some(10),
        payload_format: Some(1),
        retain: true,
        user_properties: UserProperties::from_iter([("__ts", "1:2:n"), ("empty", "")]),
        ..Message::default()
    };
    let packet = Packet::Publish { packet_id: None, message };
    assert_eq!(
        line_of(&TraceEvent::Received(packet.clone())),
        "<-  PUBLISH message [\"\"] size=0 qos=1 retain topic=a response-topic=b correlation=00ff \
         content-type=text expiry=10 payload-format=1 __ts=1:2:n empty=\"\""
    );
    let json = as_json(&TraceEvent::Received(packet));
    assert!(json.contains("\"kind\":\"message\",\"words\":[\"\\\"\\\"\"]"), "{json}");
    assert!(json.contains("\"retain\":true,\"topic\":\"a\",\"response_topic\":\"b\""), "{json}");
}

#[test]
fn lines_are_bounded_whatever_the_network_sends() {
    let long = "x".repeat(60_000);
    let message = Message {
        topic: long.clone().into(),
        payload: vec![0; 1_000_000].into(),
        response_topic: Some(long.clone()),
        correlation: Some(long.clone().into()),
        content_type: Some(long.clone().into()),
        user_properties: std::iter::repeat_n((&long, &long), 1000).collect(),
        ..Message::default()
    };
    let line = line_of(&TraceEvent::Received(Packet::Publish { packet_id: None, message }));
    assert!(line.len() < 100_000, "{}", line.len());
    assert!(line.contains("…(1000000 bytes)]") && line.ends_with(" …=\"and 968 more\""));
    let words = std::iter::repeat_n("$1\r\nk\r\n", 1000).collect::<String>();
    let line = line_of(&TraceEvent::Sent(publish(topic::REQUEST, format!("*1000\r\n{words}").as_bytes())));
    assert!(line.len() < 1000, "{line}");
}

#[test]
fn other_packets_are_a_name_and_little_more() {
    let text = |packet| line_of(&TraceEvent::Received(packet));
    assert_eq!(
        text(Packet::PubAck { packet_id: 3, reason: reason(0x10) }),
        "<-  PUBACK id=3 reason=\"no matching subscribers (0x10)\""
    );
    assert_eq!(text(Packet::SubAck { packet_id: 3, reason: reason(1) }), "<-  SUBACK id=3 qos=1");
    assert_eq!(
        text(Packet::SubAck { packet_id: 3, reason: reason(0x87) }),
        "<-  SUBACK id=3 reason=\"not authorized (0x87)\""
    );
    assert_eq!(
        text(Packet::UnsubAck { packet_id: 4, reason: reason(0) }),
        "<-  UNSUBACK id=4 reason=success"
    );
    assert_eq!(text(Packet::PingResp), "<-  PINGRESP");
    assert_eq!(text(Packet::Other("PUBREC".to_owned())), "<-  PUBREC");
    let auth = Packet::Auth { reason: reason(0x19), method: Some("K8S-SAT".to_owned()), data_bytes: Some(7) };
    assert_eq!(
        line_of(&TraceEvent::Sent(auth)),
        "->  AUTH reason=\"re-authenticate (0x19)\" method=K8S-SAT data=<7 bytes redacted>"
    );
}

#[test]
fn connecting_and_the_loss_of_a_connection_are_shown() {
    let connected = |tls, is_resumed| TraceEvent::Connected {
        address: Some("127.0.0.1:1883".to_owned()),
        tls,
        is_resumed,
    };
    let lost = |again_in| TraceEvent::Lost { cause: "reset\x07".to_owned(), again_in };
    for (traced, words) in [
        (TraceEvent::Connecting { target: "h:1".to_owned() }, "--  connecting to h:1"),
        (connected(None, false), "--  connected to 127.0.0.1:1883"),
        (connected(Some("1.3"), false), "--  connected to 127.0.0.1:1883, TLS 1.3"),
        (connected(Some("1.2"), true), "--  connected to 127.0.0.1:1883, TLS 1.2, resumed"),
        (lost(Some(Duration::from_millis(120))), "--  no connection: reset\\x07; retrying in 120 ms"),
        (lost(None), "--  no connection: reset\\x07"),
        (TraceEvent::TooLarge { size: 9, max: 8 }, "--  not sent: 9 bytes; the broker accepts at most 8"),
    ] {
        assert_eq!(line_of(&traced), words);
    }
    assert_eq!(
        as_json(&lost(Some(Duration::from_millis(120)))),
        "{\"v\":1,\"trace\":\"lost\",\"at\":\"2025-11-20T20:13:59.958Z\",\"cause\":\"reset\\u0007\",\"again_ms\":120}\n"
    );
}

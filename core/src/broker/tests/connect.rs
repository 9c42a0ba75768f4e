//! CONNECT and CONNACK (MQTT 5, 3.1 and 3.2).

use super::*;
use crate::broker::authentication::{Authenticated, Authenticator, Credential, Denial, PendingCheck};
use crate::net::Secret;

#[tokio::test]
async fn a_connack_announces_the_limits() {
    let server = start().await;
    let (mut client, connack) = Client::connect_with(&server, ConnectOptions::new("a")).await;
    assert_eq!((connack.code, connack.session_present), (ConnectReturnCode::Success, false));
    let properties = connack.properties.unwrap();
    assert_eq!(properties.receive_max, Some(1024));
    assert_eq!(properties.max_packet_size, Some(64 * 1024 * 1024));
    assert_eq!(properties.topic_alias_max, Some(16));
    assert_eq!(properties.assigned_client_identifier, None);
    client.expect_nothing().await;
    client.disconnect().await;
}

#[tokio::test]
async fn a_client_without_a_client_id_is_assigned_one() {
    let server = start().await;
    let (_one, first) = Client::connect_with(&server, ConnectOptions::new("")).await;
    let (_two, second) = Client::connect_with(&server, ConnectOptions::new("")).await;
    let ids = [first, second].map(|connack| connack.properties.unwrap().assigned_client_identifier.unwrap());
    assert!(ids[0].starts_with("mqkv-") && ids[0] != ids[1], "{ids:?}");
}

#[tokio::test]
async fn other_protocols_and_versions_are_rejected_in_their_own_way() {
    let server = start().await;
    let mut v3 = Client::unconnected(&server);
    v3.send_bytes(b"\x10\x0f\0\x06MQIsdp\x03\x02\0\x3c\0\x01a").await;
    assert_eq!(v3.receive_to_end().await, [0x20, 0x02, 0x00, 0x01]);
    let mut v6 = Client::unconnected(&server);
    v6.send_bytes(&[0x10, 0x0E, 0, 4, b'M', b'Q', b'T', b'T', 6, 2, 0, 60, 0, 0, 1, b'a']).await;
    let Packet::ConnAck(connack) = v6.receive().await else { panic!("no CONNACK") };
    assert_eq!(connack.code, ConnectReturnCode::UnsupportedProtocolVersion);
    let mut http = Client::unconnected(&server);
    http.send_bytes(b"GET / HTTP/1.1\r\n\r\n").await;
    assert_eq!(http.receive_any().await, None);
    let mut options = ConnectOptions::new("a");
    options.properties.authentication_method = Some("K8S-SAT".to_owned());
    let (_, connack) = Client::connect_with(&server, options).await;
    assert_eq!(connack.code, ConnectReturnCode::BadAuthenticationMethod);
}

#[tokio::test]
async fn a_connack_has_no_reserved_flag_and_limits_neither_qos_nor_retain() {
    let server = start().await;
    let mut client = Client::unconnected(&server);
    client.send_bytes(b"\x10\x0e\0\x04MQTT\x05\x02\0\0\0\0\x01a").await;
    let head = client.receive_bytes(4).await;
    assert_eq!((head[0], head[2], head[3]), (0x20, 0, 0));
    let (_, connack) = Client::connect_with(&server, ConnectOptions::new("b")).await;
    let properties = connack.properties.unwrap();
    assert_eq!((properties.max_qos, properties.retain_available), (None, None));
    assert_eq!(properties.wildcard_subscription_available, None);
    assert_eq!(properties.shared_subscription_available, None);
    assert_eq!(properties.subscription_identifiers_available, None);
    assert_eq!(properties.authentication_method, None);
    assert_eq!((properties.session_expiry_interval, properties.server_keep_alive), (None, None));
}

#[tokio::test]
async fn client_ids_of_all_lengths_are_accepted() {
    let server = start().await;
    let alphabet = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    let long: &'static str = "x".repeat(65_535).leak();
    for client_id in ["a", &alphabet[..23], &alphabet[39..], "ä/ #+$\u{FEFF}", long] {
        let (client, connack) = Client::connect_with(&server, ConnectOptions::new(client_id)).await;
        assert_eq!(connack.code, ConnectReturnCode::Success, "{client_id}");
        assert_eq!(connack.properties.unwrap().assigned_client_identifier, None);
        client.disconnect().await;
    }
}

#[tokio::test]
async fn response_information_is_never_sent() {
    let server = start().await;
    for wanted in [0, 1] {
        let mut options = ConnectOptions::new("a");
        options.properties.request_response_info = Some(wanted);
        let (client, connack) = Client::connect_with(&server, options).await;
        assert_eq!(connack.properties.unwrap().response_information, None);
        client.disconnect().await;
    }
}

#[tokio::test]
async fn the_server_may_impose_its_keep_alive_and_a_shorter_expiry() {
    let settings = Settings { keep_alive_s_max: 1, session_expiry_s_max: 60, ..Settings::default() };
    let server = start_with(settings).await;
    for keep_alive in [0, 60] {
        let (_, connack) =
            Client::connect_with(&server, ConnectOptions { keep_alive, ..ConnectOptions::persistent("a") })
                .await;
        let properties = connack.properties.unwrap();
        assert_eq!(properties.server_keep_alive, Some(1));
        assert_eq!(properties.session_expiry_interval, Some(60));
    }
    let (mut client, _) = Client::connect_with(&server, ConnectOptions::new("b")).await;
    assert_eq!(client.receive_disconnect().await, DisconnectReasonCode::KeepAliveTimeout);
}

#[tokio::test]
async fn a_first_packet_that_is_no_connect_closes_the_connection_without_an_answer() {
    let server = start().await;
    for first in [
        &b"\x30\x05\0\x01a\0x"[..],
        b"\xc0\0",
        b"\xe0\0",
        b"\x82\x07\0\x01\0\0\x01a\0",
        b"\xf0\x02\x19\0",
        b"\x00\0",
        b"\x16\x03\x01\0\x05",
    ] {
        let mut client = Client::unconnected(&server);
        client.send_bytes(first).await;
        assert_eq!(client.receive_to_end().await, b"", "{first:?}");
    }
}

#[tokio::test]
async fn an_invalid_connect_is_rejected_with_a_connack_and_never_with_a_disconnect() {
    const MALFORMED: u8 = 0x81;
    const PROTOCOL: u8 = 0x82;
    const VERSION: u8 = 0x84;
    let server = start().await;
    let cases: [(&str, &[u8], u8); 26] = [
        ("the reserved flag", b"\x10\x0e\0\x04MQTT\x05\x03\0\0\0\0\x01a", MALFORMED),
        ("a will's QoS without a will", b"\x10\x0e\0\x04MQTT\x05\x0a\0\0\0\0\x01a", MALFORMED),
        ("a retained will without a will", b"\x10\x0e\0\x04MQTT\x05\x22\0\0\0\0\x01a", MALFORMED),
        ("a will of QoS 3", b"\x10\x15\0\x04MQTT\x05\x1e\0\0\0\0\x01a\0\0\x01w\0\x01m", MALFORMED),
        ("a will that is missing", b"\x10\x0e\0\x04MQTT\x05\x06\0\0\0\0\x01a", MALFORMED),
        (
            "a will's topic that is not UTF-8",
            b"\x10\x15\0\x04MQTT\x05\x06\0\0\0\0\x01a\0\0\x01\xff\0\x01m",
            MALFORMED,
        ),
        ("a will's topic with a wildcard", b"\x10\x15\0\x04MQTT\x05\x06\0\0\0\0\x01a\0\0\x01#\0\x01m", 0x90),
        (
            "a will that is not announced",
            b"\x10\x15\0\x04MQTT\x05\x02\0\0\0\0\x01a\0\0\x01w\0\x01m",
            MALFORMED,
        ),
        ("a user name that is missing", b"\x10\x0e\0\x04MQTT\x05\x82\0\0\0\0\x01a", MALFORMED),
        ("a user name that is not announced", b"\x10\x11\0\x04MQTT\x05\x02\0\0\0\0\x01a\0\x01u", MALFORMED),
        ("a user name that is not UTF-8", b"\x10\x11\0\x04MQTT\x05\x82\0\0\0\0\x01a\0\x01\xff", MALFORMED),
        ("a password that is missing", b"\x10\x11\0\x04MQTT\x05\xc2\0\0\0\0\x01a\0\x01u", MALFORMED),
        (
            "a password that is not announced",
            b"\x10\x14\0\x04MQTT\x05\x82\0\0\0\0\x01a\0\x01u\0\x01p",
            MALFORMED,
        ),
        ("no client id", b"\x10\x0b\0\x04MQTT\x05\x02\0\0\0", MALFORMED),
        ("a client id that is not UTF-8", b"\x10\x0e\0\x04MQTT\x05\x02\0\0\0\0\x01\xff", MALFORMED),
        ("a client id with the character 0", b"\x10\x0e\0\x04MQTT\x05\x02\0\0\0\0\x01\0", MALFORMED),
        ("a client id that is longer than the packet", b"\x10\x0e\0\x04MQTT\x05\x02\0\0\0\0\x02a", MALFORMED),
        ("a Receive Maximum of 0", b"\x10\x11\0\x04MQTT\x05\x02\0\0\x03\x21\0\0\0\x01a", PROTOCOL),
        ("a Maximum Packet Size of 0", b"\x10\x13\0\x04MQTT\x05\x02\0\0\x05\x27\0\0\0\0\0\x01a", PROTOCOL),
        (
            "a session expiry that comes twice",
            b"\x10\x18\0\x04MQTT\x05\x02\0\0\x0a\x11\0\0\0\x01\x11\0\0\0\x01\0\x01a",
            PROTOCOL,
        ),
        (
            "authentication data without a method",
            b"\x10\x12\0\x04MQTT\x05\x02\0\0\x04\x16\0\x01x\0\x01a",
            PROTOCOL,
        ),
        (
            "a user property whose value is not UTF-8",
            b"\x10\x14\0\x04MQTT\x05\x02\0\0\x06\x26\0\0\0\x01\xff\0\x01a",
            MALFORMED,
        ),
        (
            "a user property of a will whose value is not UTF-8",
            b"\x10\x1b\0\x04MQTT\x05\x06\0\0\0\0\x01a\x06\x26\0\0\0\x01\xff\0\x01w\0\x01m",
            MALFORMED,
        ),
        ("a property of PUBLISH", b"\x10\x11\0\x04MQTT\x05\x02\0\0\x03\x23\0\x01\0\x01a", MALFORMED),
        ("a method that is not known", b"\x10\x12\0\x04MQTT\x05\x02\0\0\x04\x15\0\x01x\0\x01a", 0x8C),
        ("a version to come", b"\x10\x0e\0\x04MQTT\x06\x02\0\0\0\0\x01a", VERSION),
    ];
    for (what, bytes, reason) in cases {
        let mut client = Client::unconnected(&server);
        client.send_bytes(bytes).await;
        // The packets behind it are not read.
        let _ = client.stream.write_all(b"\x30\x05\0\x01a\0x").await;
        let answer = client.receive_to_end().await;
        assert!(answer.len() >= 5, "{what}: {answer:?}");
        assert_eq!((answer[0], answer[2], answer[3]), (0x20, 0, reason), "{what}: {answer:?}");
        assert_eq!(usize::from(answer[1]) + 2, answer.len(), "{what}: more than a CONNACK");
    }
}

#[tokio::test]
async fn packets_behind_a_rejected_connect_are_not_handled() {
    let (server, echo) = start_echo().await;
    let mut client = Client::unconnected(&server);
    client.send_bytes(b"\x10\x0e\0\x04MQTT\x06\x02\0\0\0\0\x01a\x30\x05\0\x01a\0x").await;
    assert_eq!(client.receive_to_end().await[3], 0x84);
    assert!(echo.senders.lock().unwrap().is_empty());
}

/// Ends a check with its result.
type EndOfCheck = tokio::sync::oneshot::Sender<Result<Authenticated, Denial>>;

/// Supports any method; the test decides when a check is done, and its result.
#[derive(Default)]
struct Deferred(Mutex<Option<EndOfCheck>>);

impl Authenticator for Deferred {
    fn has_users(&self) -> bool {
        false
    }

    fn supports_method(&self, _: &str) -> bool {
        true
    }

    fn check_password(&self, _: &str, _: String, _: Secret) -> PendingCheck {
        panic!("no client has a password")
    }

    fn check_data(&self, _: &str, _: Secret) -> PendingCheck {
        let (sender, result) = tokio::sync::oneshot::channel();
        *self.0.lock().unwrap() = Some(sender);
        Box::pin(async { result.await.unwrap() })
    }
}

/// A credential that is valid or not.
#[derive(Debug)]
struct Validity(bool);

impl Credential for Validity {
    fn is_valid(&self) -> bool {
        self.0
    }
}

/// Otherwise a credential that is revoked during the check would stay in use until the next reload.
#[tokio::test]
async fn a_credential_that_is_revoked_during_its_check_ends_the_connection() {
    let authenticator = Arc::new(Deferred::default());
    let hooks = Hooks {
        authenticator: Arc::<Deferred>::clone(&authenticator),
        ..Hooks::new(Arc::new(Echo::default()))
    };
    let server = Server::start(Settings::default(), hooks).await.unwrap();
    let mut client = Client::unconnected(&server);
    client.send_bytes(b"\x10\x16\0\x04MQTT\x05\x02\0\0\x08\x15\0\x01x\x16\0\x01t\0\x01a").await;
    let decide = loop {
        if let Some(decide) = authenticator.0.lock().unwrap().take() {
            break decide;
        }
        tokio::task::yield_now().await;
    };
    let credential = Arc::new(Validity(false));
    assert!(decide.send(Ok(Authenticated { user: "ann".into(), credential })).is_ok());
    let Packet::ConnAck(_) = client.receive().await else { panic!("no CONNACK") };
    assert_eq!(client.receive_disconnect().await, DisconnectReasonCode::NotAuthorized);
}

#[tokio::test]
async fn packets_behind_a_connect_with_authentication_are_handled_after_the_connack_or_not_at_all() {
    for is_accepted in [true, false] {
        let (echo, authenticator) = (Arc::new(Echo::default()), Arc::new(Deferred::default()));
        let hooks = Hooks {
            authenticator: Arc::<Deferred>::clone(&authenticator),
            ..Hooks::new(Arc::<Echo>::clone(&echo))
        };
        let server = Server::start(Settings::default(), hooks).await.unwrap();
        let mut client = Client::unconnected(&server);
        let connect = b"\x10\x16\0\x04MQTT\x05\x02\0\0\x08\x15\0\x01x\x16\0\x01t\0\x01a";
        client.send_bytes(&[&connect[..], b"\x32\x06\0\x01a\0\x01\0", b"\xc0\0"].concat()).await;
        let decide = loop {
            if let Some(decide) = authenticator.0.lock().unwrap().take() {
                break decide;
            }
            tokio::task::yield_now().await;
        };
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        assert!(echo.senders.lock().unwrap().is_empty(), "nothing is handled before the CONNACK");
        let (reason, reason_string) = (ReasonCode::NotAuthorized, "no");
        let denial = Denial { reason, reason_string, log_text: String::new() };
        let authenticated = Authenticated { user: "ann".into(), credential: Arc::new(Validity(true)) };
        assert!(decide.send(if is_accepted { Ok(authenticated) } else { Err(denial) }).is_ok());
        let Packet::ConnAck(connack) = client.receive().await else { panic!("no CONNACK") };
        assert_eq!(connack.code == ConnectReturnCode::Success, is_accepted);
        if is_accepted {
            assert_eq!(client.receive_puback().await, PubAckReason::NoMatchingSubscribers);
            assert_eq!(client.receive().await, Packet::PingResp);
        } else {
            assert_eq!(client.receive_any().await, None);
        }
        assert_eq!(echo.senders.lock().unwrap().len(), usize::from(is_accepted));
    }
}

#[tokio::test]
async fn a_connack_beyond_the_maximum_packet_size_is_not_sent_and_a_reason_string_only_if_it_fits() {
    let server = start().await;
    let connack_bytes = {
        let mut client = Client::unconnected(&server);
        client.send_bytes(b"\x10\x0e\0\x04MQTT\x05\x02\0\0\0\0\x01a").await;
        usize::from(client.receive_bytes(2).await[1]) + 2
    };
    for (packet_bytes_max, reason) in [(connack_bytes, 0), (connack_bytes - 1, 0x95)] {
        let mut client = Client::unconnected(&server);
        let max = u8::try_from(packet_bytes_max).unwrap();
        client
            .send_bytes(&[&b"\x10\x13\0\x04MQTT\x05\x02\0\0\x05\x27\0\0\0"[..], &[max], b"\0\x01a"].concat())
            .await;
        client.stream.shutdown().await.unwrap();
        let answer = client.receive_to_end().await;
        assert_eq!(answer[3], reason);
        assert!(answer.len() <= packet_bytes_max, "{answer:?}");
    }
    let mut client = Client::unconnected(&server);
    client.send_bytes(b"\x10\x17\0\x04MQTT\x05\x02\0\0\x09\x27\0\0\0\x08\x15\0\x01x\0\x01a").await;
    assert_eq!(client.receive_to_end().await, [0x20, 3, 0, 0x8C, 0]);
}

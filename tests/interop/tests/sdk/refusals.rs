//! What the store refuses, as the SDK reads it.

use std::fs;
use std::time::Duration;

use azure_iot_operations_mqtt::control_packet::{PublishProperties, TopicName};
use azure_iot_operations_mqtt::error::SessionErrorKind;
use azure_iot_operations_protocol::{rpc_command::invoker, telemetry};
use azure_iot_operations_services::state_store::{Error, ErrorKind, Operation, ServiceError, SetOptions};
use mqkv_interop::{Guest, Mqkv, come_in_vain, later, now, settings, within};

const PATIENCE: Duration = Duration::from_secs(10);
/// A guest may read the key `shared` and do everything below its own name; its topics are those of the SDK.
const RULES: &str = r#"
rules:
- principals: {clientIds: [guest]}
  brokerResources:
  - method: Connect
  - {method: Publish, topics: [statestore/v1/FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8/command/invoke]}
  - {method: Publish, topics: ["clients/{principal.clientId}/#"]}
  - {method: Subscribe, topics: ["clients/{principal.clientId}/#"]}
  stateStoreResources:
  - {method: Read, keyType: String, keys: [shared]}
  - {method: ReadWrite, keyType: Pattern, keys: ["{principal.clientId}/*"]}
"#;
const TWO_MINUTES: Duration = Duration::from_secs(120);

/// What the store has said, as the SDK has understood it.
#[track_caller]
fn refusal<T: std::fmt::Debug>(answer: Result<T, Error>) -> String {
    let error = answer.unwrap_err();
    let ErrorKind::ServiceError(refusal) = error.kind() else { panic!("{error:?}") };
    assert!(!matches!(refusal, ServiceError::Unknown(_)), "the SDK does not know {refusal:?}");
    format!("{refusal:?}")
}

#[tokio::test]
async fn refusals_of_a_fence_are_understood() {
    let server = Mqkv::start(&[]);
    let guest = Guest::join(server.port(), "guest");
    let set = |fence| guest.set_with("k", "v", fence, SetOptions::default());
    let token = now();
    let newer = later(&token, Duration::from_secs(1));
    assert!(set(Some(newer)).await.unwrap().response);
    assert_eq!(refusal(set(None).await), "MissingFencingToken");
    assert_eq!(refusal(set(Some(token.clone())).await), "FencingTokenLowerVersion");
    assert_eq!(refusal(set(Some(later(&token, TWO_MINUTES))).await), "FencingTokenSkew");
    assert_eq!(refusal(guest.store.del("k".into(), None, PATIENCE).await), "MissingFencingToken");
    let stale = guest.store.vdel("k".into(), "v".into(), Some(token), PATIENCE).await;
    assert_eq!(refusal(stale), "FencingTokenLowerVersion");
    guest.leave().await;
}

#[tokio::test]
async fn a_key_that_no_rule_allows_is_refused_and_the_rest_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let rules = folder.path().join("rules");
    fs::write(&rules, RULES).unwrap();
    let server = Mqkv::start(&["--authz", rules.to_str().unwrap()]);
    let guest = Guest::join(server.port(), "guest");
    let store = &guest.store;
    let set = |key| guest.set_with(key, "v", None, SetOptions::default());
    assert_eq!(refusal(set("shared").await), "NotAuthorized");
    assert_eq!(refusal(store.del("shared".into(), None, PATIENCE).await), "NotAuthorized");
    assert_eq!(refusal(store.vdel("shared".into(), "v".into(), None, PATIENCE).await), "NotAuthorized");
    assert_eq!(guest.get("shared").await, None, "it may look");
    assert_eq!(refusal(set("other/k").await), "NotAuthorized");
    assert_eq!(refusal(store.get("other/k".into(), PATIENCE).await), "NotAuthorized");
    assert_eq!(refusal(store.observe("other/k".into(), PATIENCE).await), "NotAuthorized");
    let mut observation = guest.observe("guest/k").await;
    guest.set("guest/k", "v").await;
    assert_eq!(Guest::notification(&mut observation).await.operation, Operation::Set(b"v".to_vec()));
    assert_eq!(guest.keys("*").await.0, ["guest/k"]);
    let uninvited = settings(server.port(), "uninvited");
    assert_eq!(come_in_vain(uninvited).await, SessionErrorKind::ReconnectHalted);
    guest.leave().await;
}

#[tokio::test]
async fn a_full_store_is_understood_and_has_room_again_after_a_delete() {
    let server = Mqkv::start(&["--keys-max", "2"]);
    let guest = Guest::join(server.port(), "guest");
    let set = |key: &'static str| guest.set_with(key, "v", None, SetOptions::default());
    set("a").await.unwrap();
    set("b").await.unwrap();
    assert_eq!(refusal(set("c").await), "KeyQuotaExceeded");
    assert!(set("b").await.unwrap().response, "what is there can be written");
    guest.del("a").await;
    assert!(set("c").await.unwrap().response);
    guest.leave().await;
}

#[tokio::test]
async fn a_time_to_live_of_nothing_is_a_syntax_error() {
    let server = Mqkv::start(&[]);
    let guest = Guest::join(server.port(), "guest");
    let options = SetOptions { expires: Some(Duration::ZERO), ..SetOptions::default() };
    assert_eq!(refusal(guest.set_with("k", "v", None, options).await), "SyntaxError");
    guest.leave().await;
}

/// The SDK's clock follows every message that it hears: one from the future makes it run ahead.
#[tokio::test]
async fn a_clock_that_runs_ahead_is_understood() {
    let server = Mqkv::start(&[]);
    let guest = Guest::join(server.port(), "guest");
    guest.set("k", "v").await;
    let options = telemetry::receiver::OptionsBuilder::default().topic_pattern("time").build().unwrap();
    let mut receiver: telemetry::Receiver<Vec<u8>> =
        telemetry::Receiver::new(guest.context.clone(), guest.mqtt.clone(), options).unwrap();
    let from_the_future = later(&now(), TWO_MINUTES);
    let properties = PublishProperties {
        user_properties: vec![("__ts".to_owned(), from_the_future.to_string())],
        ..PublishProperties::default()
    };
    // Retained, so that it comes whenever the receiver has subscribed.
    let topic = TopicName::new("time").unwrap();
    within(guest.mqtt.publish_qos1(topic, true, b"tick".as_slice(), properties).await.unwrap())
        .await
        .unwrap();
    within(receiver.recv()).await.unwrap().unwrap();
    assert!(mqkv_interop::order(&guest.clock(), &from_the_future).is_gt());
    let ahead = guest.set_with("k", "w", None, SetOptions::default()).await;
    assert_eq!(refusal(ahead), "TimestampSkew");
    assert_eq!(guest.get("k").await.unwrap(), b"v", "only SET needs a clock");
    within(receiver.shutdown()).await.unwrap();
    guest.leave().await;
}

/// What the SDK's client of the store would never send goes through the SDK's invoker.
#[tokio::test]
async fn refusals_of_what_makes_no_sense_are_understood() {
    let server = Mqkv::start(&[]);
    let guest = Guest::join(server.port(), "guest");
    guest.set("k", "v").await;
    let options = invoker::OptionsBuilder::default()
        .request_topic_pattern("statestore/v1/FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8/command/invoke")
        .response_topic_prefix(Some("raw/guest".into()))
        .command_name("invoke")
        .build()
        .unwrap();
    let raw: invoker::Invoker<Vec<u8>, Vec<u8>> =
        invoker::Invoker::new(guest.context.clone(), guest.mqtt.clone(), options).unwrap();
    let ask = async |payload: &[u8], fence: Option<&str>| {
        let mut request = invoker::RequestBuilder::default();
        request.payload(payload.to_vec()).unwrap().timeout(PATIENCE);
        if let Some(fence) = fence {
            request.custom_user_data(vec![("__ft".to_owned(), fence.to_owned())]);
        }
        let response = within(raw.invoke(request.build().unwrap())).await.unwrap();
        let text = response.payload.strip_prefix(b"-ERR ").unwrap().strip_suffix(b"\r\n").unwrap();
        format!("{:?}", ServiceError::from(text.to_vec()))
    };
    for (payload, understood) in [
        (b"*2\r\n$3\r\nPUT\r\n$1\r\nk\r\n".as_slice(), "UnknownCommand"),
        (b"*2\r\n$3\r\nget\r\n$1\r\nk\r\n", "UnknownCommand"),
        (b"*1\r\n$3\r\nGET\r\n", "WrongNumberOfArguments"),
        (b"*2\r\n$3\r\nSET\r\n$1\r\nk\r\n", "WrongNumberOfArguments"),
        (b"*4\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n$2\r\nXX\r\n", "SyntaxError"),
        (b"*2\r\n$3\r\nGET\r\n$1\r\nk", "SyntaxError"),
        (b"GET k", "SyntaxError"),
        (b"", "SyntaxError"),
        // The page names this text; the SDK has a name for it too, but does not read it.
        (b"*2\r\n$3\r\nGET\r\n$0\r\n\r\n", "Unknown(\"the key length is zero\")"),
    ] {
        assert_eq!(ask(payload, None).await, understood, "{}", payload.escape_ascii());
    }
    let del = b"*2\r\n$3\r\nDEL\r\n$1\r\nk\r\n";
    assert_eq!(ask(del, Some("yesterday")).await, "TimestampMalformed");
    assert_eq!(guest.get("k").await.unwrap(), b"v");
    within(raw.shutdown()).await.unwrap();
    guest.leave().await;
}

#[tokio::test]
async fn only_the_store_tells_of_changes() {
    let server = Mqkv::start(&[]);
    let [guest, forger] = ["guest", "forger"].map(|name| Guest::join(server.port(), name));
    let mut observation = guest.observe("k").await;
    // "guest" and "k" in hexadecimal digits.
    let topic = "clients/statestore/v1/FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8/6775657374/command/notify/6B";
    let properties = PublishProperties {
        user_properties: vec![("__ts".to_owned(), now().to_string())],
        ..PublishProperties::default()
    };
    let forged = b"*2\r\n$6\r\nNOTIFY\r\n$6\r\nDELETE\r\n".as_slice();
    let sent = forger.mqtt.publish_qos1(TopicName::new(topic).unwrap(), false, forged, properties).await;
    within(sent.unwrap()).await.unwrap();
    guest.set("k", "v").await;
    let told = Guest::notification(&mut observation).await;
    assert_eq!(told.operation, Operation::Set(b"v".to_vec()));
    for guest in [guest, forger] {
        guest.leave().await;
    }
}

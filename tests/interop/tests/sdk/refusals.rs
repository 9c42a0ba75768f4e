//! Error replies of the store, as the SDK parses them.

use std::fs;
use std::time::Duration;

use azure_iot_operations_mqtt::control_packet::{PublishProperties, TopicName};
use azure_iot_operations_mqtt::error::SessionErrorKind;
use azure_iot_operations_protocol::{rpc_command::invoker, telemetry};
use azure_iot_operations_services::state_store::{Error, ErrorKind, Operation, ServiceError, SetOptions};
use mqkv_interop::{Mqkv, SdkClient, connection_error, later, now, settings, within};

const TIMEOUT: Duration = Duration::from_secs(10);
/// The client may read the key `shared`, and read and write keys below its client id; the topics are those of the SDK.
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

/// Returns the error reply, as the SDK has parsed it.
#[track_caller]
fn error_reply<T: std::fmt::Debug>(answer: Result<T, Error>) -> String {
    let error = answer.unwrap_err();
    let ErrorKind::ServiceError(reply) = error.kind() else { panic!("{error:?}") };
    assert!(!matches!(reply, ServiceError::Unknown(_)), "the SDK does not know {reply:?}");
    format!("{reply:?}")
}

#[tokio::test]
async fn error_replies_about_fencing_tokens_are_known_to_the_sdk() {
    let server = Mqkv::start(&[]);
    let client = SdkClient::connect(server.port(), "guest");
    let set = |fence| client.set_with("k", "v", fence, SetOptions::default());
    let token = now();
    let newer = later(&token, Duration::from_secs(1));
    assert!(set(Some(newer)).await.unwrap().response);
    assert_eq!(error_reply(set(None).await), "MissingFencingToken");
    assert_eq!(error_reply(set(Some(token.clone())).await), "FencingTokenLowerVersion");
    assert_eq!(error_reply(set(Some(later(&token, TWO_MINUTES))).await), "FencingTokenSkew");
    assert_eq!(error_reply(client.store.del("k".into(), None, TIMEOUT).await), "MissingFencingToken");
    let stale = client.store.vdel("k".into(), "v".into(), Some(token), TIMEOUT).await;
    assert_eq!(error_reply(stale), "FencingTokenLowerVersion");
    client.disconnect().await;
}

#[tokio::test]
async fn a_request_for_a_key_that_no_rule_allows_is_refused_and_the_session_continues() {
    let folder = tempfile::tempdir().unwrap();
    let rules = folder.path().join("rules");
    fs::write(&rules, RULES).unwrap();
    let server = Mqkv::start(&["--authz", rules.to_str().unwrap()]);
    let client = SdkClient::connect(server.port(), "guest");
    let store = &client.store;
    let set = |key| client.set_with(key, "v", None, SetOptions::default());
    assert_eq!(error_reply(set("shared").await), "NotAuthorized");
    assert_eq!(error_reply(store.del("shared".into(), None, TIMEOUT).await), "NotAuthorized");
    assert_eq!(error_reply(store.vdel("shared".into(), "v".into(), None, TIMEOUT).await), "NotAuthorized");
    assert_eq!(client.get("shared").await, None, "it may read");
    assert_eq!(error_reply(set("other/k").await), "NotAuthorized");
    assert_eq!(error_reply(store.get("other/k".into(), TIMEOUT).await), "NotAuthorized");
    assert_eq!(error_reply(store.observe("other/k".into(), TIMEOUT).await), "NotAuthorized");
    let mut observation = client.observe("guest/k").await;
    client.set("guest/k", "v").await;
    assert_eq!(SdkClient::notification(&mut observation).await.operation, Operation::Set(b"v".to_vec()));
    assert_eq!(client.keys("*").await.0, ["guest/k"]);
    let unknown = settings(server.port(), "unknown");
    assert_eq!(connection_error(unknown).await, SessionErrorKind::ReconnectHalted);
    client.disconnect().await;
}

#[tokio::test]
async fn a_full_store_is_reported_and_accepts_keys_again_after_a_delete() {
    let server = Mqkv::start(&["--keys-max", "2"]);
    let client = SdkClient::connect(server.port(), "guest");
    let set = |key: &'static str| client.set_with(key, "v", None, SetOptions::default());
    set("a").await.unwrap();
    set("b").await.unwrap();
    assert_eq!(error_reply(set("c").await), "KeyQuotaExceeded");
    assert!(set("b").await.unwrap().response, "an existing key can be written");
    client.del("a").await;
    assert!(set("c").await.unwrap().response);
    client.disconnect().await;
}

#[tokio::test]
async fn a_time_to_live_of_zero_is_a_syntax_error() {
    let server = Mqkv::start(&[]);
    let client = SdkClient::connect(server.port(), "guest");
    let options = SetOptions { expires: Some(Duration::ZERO), ..SetOptions::default() };
    assert_eq!(error_reply(client.set_with("k", "v", None, options).await), "SyntaxError");
    client.disconnect().await;
}

/// The SDK's clock follows the timestamp of every message: one from the future makes it run ahead.
#[tokio::test]
async fn a_timestamp_that_is_too_far_ahead_is_reported() {
    let server = Mqkv::start(&[]);
    let client = SdkClient::connect(server.port(), "guest");
    client.set("k", "v").await;
    let options = telemetry::receiver::OptionsBuilder::default().topic_pattern("time").build().unwrap();
    let mut receiver: telemetry::Receiver<Vec<u8>> =
        telemetry::Receiver::new(client.context.clone(), client.mqtt.clone(), options).unwrap();
    let from_the_future = later(&now(), TWO_MINUTES);
    let properties = PublishProperties {
        user_properties: vec![("__ts".to_owned(), from_the_future.to_string())],
        ..PublishProperties::default()
    };
    // Retained, so that the receiver gets it even if it subscribes later.
    let topic = TopicName::new("time").unwrap();
    within(client.mqtt.publish_qos1(topic, true, b"tick".as_slice(), properties).await.unwrap())
        .await
        .unwrap();
    within(receiver.recv()).await.unwrap().unwrap();
    assert!(mqkv_interop::order(&client.clock(), &from_the_future).is_gt());
    let ahead = client.set_with("k", "w", None, SetOptions::default()).await;
    assert_eq!(error_reply(ahead), "TimestampSkew");
    assert_eq!(client.get("k").await.unwrap(), b"v", "only SET needs a clock");
    within(receiver.shutdown()).await.unwrap();
    client.disconnect().await;
}

/// The SDK's client never sends malformed requests, so they go through the SDK's invoker.
#[tokio::test]
async fn error_replies_to_malformed_requests_are_known_to_the_sdk() {
    let server = Mqkv::start(&[]);
    let client = SdkClient::connect(server.port(), "guest");
    client.set("k", "v").await;
    let options = invoker::OptionsBuilder::default()
        .request_topic_pattern("statestore/v1/FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8/command/invoke")
        .response_topic_prefix(Some("raw/guest".into()))
        .command_name("invoke")
        .build()
        .unwrap();
    let raw: invoker::Invoker<Vec<u8>, Vec<u8>> =
        invoker::Invoker::new(client.context.clone(), client.mqtt.clone(), options).unwrap();
    let ask = async |payload: &[u8], fence: Option<&str>| {
        let mut request = invoker::RequestBuilder::default();
        request.payload(payload.to_vec()).unwrap().timeout(TIMEOUT);
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
        // The documentation has this text; the SDK has a variant for it but does not parse it.
        (b"*2\r\n$3\r\nGET\r\n$0\r\n\r\n", "Unknown(\"the key length is zero\")"),
    ] {
        assert_eq!(ask(payload, None).await, understood, "{}", payload.escape_ascii());
    }
    let del = b"*2\r\n$3\r\nDEL\r\n$1\r\nk\r\n";
    assert_eq!(ask(del, Some("yesterday")).await, "TimestampMalformed");
    assert_eq!(client.get("k").await.unwrap(), b"v");
    within(raw.shutdown()).await.unwrap();
    client.disconnect().await;
}

#[tokio::test]
async fn a_notification_from_another_client_is_not_delivered() {
    let server = Mqkv::start(&[]);
    let [client, forger] = ["guest", "forger"].map(|name| SdkClient::connect(server.port(), name));
    let mut observation = client.observe("k").await;
    // "guest" and "k" in hexadecimal digits.
    let topic = "clients/statestore/v1/FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8/6775657374/command/notify/6B";
    let properties = PublishProperties {
        user_properties: vec![("__ts".to_owned(), now().to_string())],
        ..PublishProperties::default()
    };
    let forged = b"*2\r\n$6\r\nNOTIFY\r\n$6\r\nDELETE\r\n".as_slice();
    let sent = forger.mqtt.publish_qos1(TopicName::new(topic).unwrap(), false, forged, properties).await;
    within(sent.unwrap()).await.unwrap();
    client.set("k", "v").await;
    let notification = SdkClient::notification(&mut observation).await;
    assert_eq!(notification.operation, Operation::Set(b"v".to_vec()));
    for client in [client, forger] {
        client.disconnect().await;
    }
}

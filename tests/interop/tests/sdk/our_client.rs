//! `mqkv` as the client of a store built from the SDK, behind Mosquitto.

use std::process::Output;
use std::time::Duration;

use azure_iot_operations_protocol::common::hybrid_logical_clock::HybridLogicalClock;
use mqkv_interop::{Mosquitto, Responder, SdkClient, order, run, within};

/// A store built from the SDK, and its broker.
struct SdkStore {
    broker: Mosquitto,
    store: SdkClient,
    responder: Responder,
}

impl SdkStore {
    /// Starts both and waits until a client of the SDK gets a response.
    async fn start() -> Self {
        let broker = Mosquitto::start();
        let store = SdkClient::connect(broker.port(), "store");
        let responder = Responder::start(&store);
        let client = SdkClient::connect(broker.port(), "client");
        while client.store.get("k".into(), Duration::from_secs(1)).await.is_err() {}
        client.disconnect().await;
        Self { broker, store, responder }
    }

    /// Runs `mqkv` and returns its output and its exit code.
    async fn mqkv(&self, words: &[&str]) -> (String, Option<i32>) {
        let Output { status, stdout, stderr } = self.output(words).await;
        let text = [stdout, stderr].concat();
        (String::from_utf8(text).unwrap(), status.code())
    }

    async fn output(&self, words: &[&str]) -> Output {
        let port = self.broker.port();
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        within(tokio::task::spawn_blocking(move || run(port, &words))).await.unwrap()
    }

    async fn end(self) {
        drop(self.responder);
        self.store.disconnect().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn set_get_del_and_vdel_work_with_the_sdks_store() {
    let sdk = SdkStore::start().await;
    let nothing = String::new;
    for (words, code) in [
        ("get k", 1),
        ("set k v", 0),
        ("set k w --nx", 1),
        ("set k w --nex", 1),
        ("set k v --nex", 0),
        ("vdel k w", 1),
        ("vdel k v", 0),
        ("vdel k v", 1),
        ("del k", 1),
        ("set k v --nx", 0),
        ("del k", 0),
        ("get k", 1),
    ] {
        let words_of: Vec<&str> = words.split(' ').collect();
        assert_eq!(sdk.mqkv(&[&words_of[..], &["-q"]].concat()).await, (nothing(), Some(code)), "{words}");
    }
    sdk.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn values_of_any_bytes_pass_through_the_sdk_unchanged() {
    let sdk = SdkStore::start().await;
    let every_byte: String = (0..=255).map(|byte: u8| format!("{byte:02x}")).collect();
    for hex in ["", "0d0a", &every_byte, &"76".repeat(65_000)] {
        assert_eq!(sdk.mqkv(&["set", "k", "--hex", hex]).await.1, Some(0));
        let got = sdk.output(&["get", "k"]).await;
        let stdout: String = got.stdout.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!((stdout.as_str(), got.status.code()), (hex, Some(0)));
    }
    sdk.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn versions_and_fencing_tokens_have_the_sdks_format() {
    let sdk = SdkStore::start().await;
    let (printed, code) = sdk.mqkv(&["set", "k", "v", "-j"]).await;
    assert_eq!(code, Some(0), "{printed}");
    let version = field(&printed, "version").unwrap();
    let token: HybridLogicalClock = version.parse().unwrap();
    assert_eq!(token.to_string(), version, "printed as the SDK prints it");
    assert_eq!(sdk.mqkv(&["set", "k", "w", "--fence", version]).await.1, Some(0));
    let (words, code) = sdk.mqkv(&["set", "k", "x"]).await;
    assert!(words.contains("a fencing token is required for this request") && code == Some(76), "{words}");
    let (words, code) = sdk.mqkv(&["del", "k", "--fence", "1:0:x"]).await;
    assert!(words.contains("lower version than the fencing token") && code == Some(76), "{words}");
    assert_eq!(sdk.mqkv(&["del", "k", "--fence", version]).await.1, Some(0));
    sdk.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_verb_that_the_store_does_not_know_is_reported() {
    let sdk = SdkStore::start().await;
    let (words, code) = sdk.mqkv(&["keys"]).await;
    assert!(words.contains("the store of this broker does not support SCAN") && code == Some(76), "{words}");
    let (words, code) = sdk.mqkv(&["raw", "PING", "k"]).await;
    assert!(words.contains("unknown command"), "{words} {code:?}");
    sdk.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_is_held_in_the_sdks_store_while_a_command_runs() {
    let sdk = SdkStore::start().await;
    let other = SdkClient::connect(sdk.broker.port(), "other");
    let lock = other.lock("lock");
    let (hour, timeout) = (Duration::from_secs(3_600), Duration::from_secs(10));
    let token = lock.lock(hour, timeout, None).await.unwrap();
    let run = ["lock", "lock", "--holder", "me", "-w", "0", "--", "sh", "-c", "echo $MQKV_LOCK_HOLDER"];
    let (words, code) = sdk.mqkv(&run).await;
    assert!(words.contains("lock is held by other") && code == Some(1), "{words}");
    lock.unlock(timeout).await.unwrap();
    assert_eq!(sdk.output(&run).await.stdout, b"me\n");
    // It has been released, and the next holder has a newer token.
    let newer = lock.lock(hour, timeout, None).await.unwrap();
    assert!(order(&token, &newer).is_lt());
    assert_eq!(sdk.output(&["holder", "lock"]).await.stdout.trim_ascii_end(), b"other");
    other.disconnect().await;
    sdk.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_time_to_live_reaches_the_sdks_store() {
    let sdk = SdkStore::start().await;
    assert_eq!(sdk.mqkv(&["set", "kept", "v", "--ttl", "1h"]).await.1, Some(0));
    assert_eq!(sdk.mqkv(&["set", "short", "v", "--ttl", "1ms"]).await.1, Some(0));
    // Starting a process takes longer than that.
    assert_eq!(sdk.mqkv(&["get", "short", "-q"]).await.1, Some(1));
    assert_eq!(sdk.mqkv(&["get", "kept", "-q"]).await.1, Some(0));
    sdk.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_of_many_requests_in_flight_gets_its_own_response() {
    let sdk = SdkStore::start().await;
    let lines: String = (0..200).map(|number| format!("set k{number} v{number}\nget k{number}\n")).collect();
    let port = sdk.broker.port();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), lines).unwrap();
    let words = ["batch".into(), file.path().as_os_str().to_owned()];
    let output = within(tokio::task::spawn_blocking(move || run(port, &words))).await.unwrap();
    assert!(output.status.success(), "{output:?}");
    let expected: String = (0..200).map(|number| format!("v{number}\n")).collect();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
    sdk.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn watch_receives_the_sdks_telemetry_as_notifications() {
    let sdk = SdkStore::start().await;
    let writer = SdkClient::connect(sdk.broker.port(), "writer");
    let port = sdk.broker.port();
    let watching = tokio::task::spawn_blocking(move || run(port, &["watch", "k", "-c", "5", "-j"]));
    // The test cannot know when the watch has begun, so it writes until the watch has seen enough.
    let mut number = 0;
    while !watching.is_finished() {
        writer.set("k", number.to_string()).await;
        writer.del("k").await;
        number += 1;
    }
    let watched = watching.await.unwrap();
    assert!(watched.status.success(), "{watched:?}");
    let printed = String::from_utf8(watched.stdout).unwrap();
    // The current value comes first; then the changes come without a gap.
    let mut lines = printed.lines();
    assert_eq!(lines.next().and_then(|line| field(line, "event")), Some("current"), "{printed}");
    let mut changes: Vec<_> = lines.map(|line| (field(line, "event"), field(line, "value"))).collect();
    assert_eq!(changes.len(), 5, "{printed}");
    if changes[0].0 == Some("delete") {
        changes.remove(0);
    }
    let first: usize = changes[0].1.unwrap().parse().unwrap();
    for (index, change) in changes.into_iter().enumerate() {
        let value = (first + index / 2).to_string();
        let expected =
            if index % 2 == 0 { (Some("set"), Some(value.as_str())) } else { (Some("delete"), None) };
        assert_eq!(change, expected, "{printed}");
    }
    writer.disconnect().await;
    sdk.end().await;
}

/// Returns a string member of a JSON object without escapes.
fn field<'a>(object: &'a str, name: &str) -> Option<&'a str> {
    object.split_once(&format!("\"{name}\":\""))?.1.split('"').next()
}

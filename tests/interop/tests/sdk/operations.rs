//! Every operation of the SDK's client.

use std::cmp::Ordering;
use std::sync::Arc;
use std::time::Duration;

use azure_iot_operations_services::state_store::{Operation, SetCondition, SetOptions};
use mqkv_interop::{Mqkv, SdkClient, later, now, order, within};

#[tokio::test]
async fn set_get_and_del_return_the_same_version() {
    let server = Mqkv::start(&[]);
    let client = SdkClient::connect(server.port(), "guest");
    let missing = client.get_with_version("k").await;
    assert_eq!((missing.response, missing.version), (None, None));
    let first = client.set("k", "v").await;
    let got = client.get_with_version("k").await;
    assert_eq!((got.response.as_deref(), got.version.as_ref()), (Some(b"v".as_slice()), Some(&first)));
    let second = client.set("k", "w").await;
    assert_eq!(order(&first, &second), Ordering::Less);
    let deleted = client.del("k").await;
    assert_eq!((deleted.response, deleted.version), (1, Some(second.clone())));
    let deleted = client.del("k").await;
    assert_eq!((deleted.response, deleted.version), (0, None));
    assert_eq!(client.get("k").await, None);
    let third = client.set("k", "x").await;
    assert_eq!(order(&second, &third), Ordering::Less);
    client.disconnect().await;
}

#[tokio::test]
async fn a_set_with_a_condition_is_applied_or_returns_the_stored_version() {
    use SetCondition::{OnlyIfDoesNotExist, OnlyIfEqualOrDoesNotExist, Unconditional};
    let server = Mqkv::start(&[]);
    let client = SdkClient::connect(server.port(), "guest");
    let mut stored = None;
    for (value, condition, is_applied) in [
        ("1", OnlyIfDoesNotExist, true),
        ("1", OnlyIfDoesNotExist, false),
        ("2", OnlyIfEqualOrDoesNotExist, false),
        ("1", OnlyIfEqualOrDoesNotExist, true),
        ("2", Unconditional, true),
        ("2", OnlyIfDoesNotExist, false),
    ] {
        let row = format!("{value} {condition:?}");
        let answer = client.set_if("k", value, condition).await;
        assert_eq!(answer.response, is_applied, "{row}");
        if is_applied {
            let newer = answer.version.unwrap();
            assert!(stored.is_none_or(|stored| order(&stored, &newer).is_lt()), "{row}");
            stored = Some(newer);
        } else {
            assert_eq!(answer.version, stored, "{row}");
        }
    }
    assert_eq!(client.get("k").await.unwrap(), b"2");
    assert!(client.set_if("other", "1", OnlyIfEqualOrDoesNotExist).await.response);
    client.disconnect().await;
}

#[tokio::test]
async fn vdel_deletes_only_the_given_value() {
    let server = Mqkv::start(&[]);
    let client = SdkClient::connect(server.port(), "guest");
    let version = client.set("k", "v").await;
    let differs = client.vdel("k", "w").await;
    assert_eq!((differs.response, differs.version), (-1, Some(version.clone())));
    assert_eq!(client.get("k").await.unwrap(), b"v");
    let deleted = client.vdel("k", "v").await;
    assert_eq!((deleted.response, deleted.version), (1, Some(version)));
    assert_eq!(client.vdel("k", "v").await.response, 0);
    client.disconnect().await;
}

#[tokio::test]
async fn a_key_expires_and_a_later_set_removes_the_expiry() {
    let server = Mqkv::start(&[]);
    let client = SdkClient::connect(server.port(), "guest");
    let mut short = client.observe("short").await;
    let version = client.set_for("short", "v", Duration::from_millis(300)).await;
    client.set_for("kept", "v", Duration::from_millis(200)).await;
    client.set("kept", "w").await;
    client.set_for("renewed", "v", Duration::from_millis(200)).await;
    client.set_for("renewed", "v", Duration::from_secs(3_600)).await;
    client.set_for("for 99 years", "v", Duration::from_secs(99 * 365 * 86_400)).await;
    let notification = SdkClient::notification(&mut short).await;
    assert_eq!(notification.operation, Operation::Set(b"v".to_vec()));
    let notification = SdkClient::notification(&mut short).await;
    assert_eq!((notification.operation, notification.version), (Operation::Del, version));
    // All keys with an earlier expiry have expired by now.
    let (keys, _) = client.keys("*").await;
    assert_eq!(keys, ["for 99 years", "kept", "renewed"]);
    assert_eq!(client.get("short").await, None);
    client.disconnect().await;
}

#[tokio::test]
async fn keys_and_values_of_any_bytes_are_returned_unchanged() {
    let server = Mqkv::start(&[]);
    let client = SdkClient::connect(server.port(), "guest");
    let every_byte: Vec<u8> = (0..=255).collect();
    let like_a_frame = b"$-1\r\n*2\r\n-ERR syntax error\r\n".to_vec();
    let long_key = [b"k".repeat(6_499), vec![0]].concat();
    let pairs = [
        (b"empty".to_vec(), Vec::new()),
        (b"long".to_vec(), b"v".repeat(65_000)),
        (b"longer".to_vec(), every_byte.repeat(4_000)),
        (b"bytes".to_vec(), every_byte.clone()),
        (b"frame".to_vec(), like_a_frame.clone()),
        (every_byte, b"a key of every byte".to_vec()),
        (like_a_frame, b"a key like a frame".to_vec()),
        (long_key, b"a key of 6,500 bytes".to_vec()),
    ];
    for (key, value) in &pairs {
        let mut observation = client.observe(key.clone()).await;
        client.set(key.clone(), value.clone()).await;
        let notification = SdkClient::notification(&mut observation).await;
        assert_eq!((&notification.key, notification.operation), (key, Operation::Set(value.clone())));
    }
    for (key, value) in pairs {
        assert_eq!(client.get(key.clone()).await, Some(value));
        assert_eq!(client.del(key).await.response, 1);
    }
    client.disconnect().await;
}

#[tokio::test]
async fn each_of_fifty_parallel_operations_gets_its_own_response() {
    let server = Mqkv::start(&[]);
    let client = Arc::new(SdkClient::connect(server.port(), "guest"));
    let tasks: Vec<_> = (0..50)
        .map(|number: u32| {
            let client = Arc::clone(&client);
            tokio::spawn(async move {
                let (key, value) = (format!("k{number}"), format!("v{number}").repeat(100));
                client.set(key.clone(), value.clone()).await;
                assert_eq!(client.get(key.clone()).await, Some(value.clone().into()));
                assert_eq!(client.vdel(&key, "another").await.response, -1);
                if number.is_multiple_of(2) {
                    assert_eq!(client.vdel(&key, &value).await.response, 1);
                }
            })
        })
        .collect();
    for task in tasks {
        within(task).await.unwrap();
    }
    assert_eq!(client.keys("k*").await.0.len(), 25);
    Arc::into_inner(client).unwrap().disconnect().await;
}

#[tokio::test]
async fn one_of_fifty_parallel_sets_of_an_absent_key_is_applied() {
    let server = Mqkv::start(&[]);
    let clients: Vec<_> = (0..5)
        .map(|number| Arc::new(SdkClient::connect(server.port(), &format!("client-{number}"))))
        .collect();
    let tasks: Vec<_> = (0..50)
        .map(|number: usize| {
            let client = Arc::clone(&clients[number % 5]);
            tokio::spawn(async move {
                client.set_if("k", &number.to_string(), SetCondition::OnlyIfDoesNotExist).await.response
            })
        })
        .collect();
    let mut winners = Vec::new();
    for (number, task) in tasks.into_iter().enumerate() {
        if within(task).await.unwrap() {
            winners.push(number.to_string().into_bytes());
        }
    }
    assert_eq!(winners.len(), 1);
    assert_eq!(clients[0].get("k").await.as_ref(), Some(&winners[0]));
    for client in clients {
        Arc::into_inner(client).unwrap().disconnect().await;
    }
}

#[tokio::test]
async fn each_key_is_listed_once_over_all_pages() {
    let server = Mqkv::start(&[]);
    let client = SdkClient::connect(server.port(), "guest");
    assert_eq!(client.keys("*").await.0, [""; 0]);
    let mut expected: Vec<String> = (0..250).map(|number| format!("line1/{number:03}")).collect();
    for key in &expected {
        client.set(key.as_str(), "v").await;
    }
    // Together they do not fit into one page.
    let mut long_ones: Vec<String> = (10..60).map(|number| format!("long/{number}").repeat(800)).collect();
    for key in &long_ones {
        client.set(key.as_str(), "v").await;
    }
    client.set("line2/000", "v").await;
    client.set("li[ne", "v").await;
    client.set([0xFF, 0xFE], "not UTF-8, so not listed").await;
    assert_eq!(client.keys("line1/*").await.0, expected);
    let (keys, pages) = client.keys("long/*").await;
    assert_eq!(keys, long_ones);
    assert!((2..=64).contains(&pages), "{pages} pages");
    for (pattern, found) in [
        ("line[!1]/*", vec!["line2/000"]),
        ("line?/000", vec!["line1/000", "line2/000"]),
        ("li[[]ne", vec!["li[ne"]),
        ("line1/24[0-1]", vec!["line1/240", "line1/241"]),
        ("none*", vec![]),
    ] {
        assert_eq!(client.keys(pattern).await.0, found, "{pattern}");
    }
    client.del("line1/000").await;
    client.del(long_ones.remove(0)).await;
    expected.remove(0);
    assert_eq!(client.keys("line1/*").await.0, expected);
    assert_eq!(client.keys("long/*").await.0, long_ones);
    client.disconnect().await;
}

#[tokio::test]
async fn a_fence_rejects_older_tokens_and_requests_without_one() {
    let server = Mqkv::start(&[]);
    let client = SdkClient::connect(server.port(), "guest");
    let older = now();
    let [token, newer] = [1, 2].map(|seconds| later(&older, Duration::from_secs(seconds)));
    let set = |fence| client.set_with("k", "v", fence, SetOptions::default());
    assert!(set(None).await.unwrap().response);
    assert!(set(Some(token.clone())).await.unwrap().response);
    set(None).await.unwrap_err();
    set(Some(older.clone())).await.unwrap_err();
    assert!(set(Some(token.clone())).await.unwrap().response);
    assert!(set(Some(newer.clone())).await.unwrap().response);
    set(Some(token.clone())).await.unwrap_err();
    let store = &client.store;
    let timeout = Duration::from_secs(10);
    store.del("k".into(), Some(token.clone()), timeout).await.unwrap_err();
    store.vdel("k".into(), "v".into(), None, timeout).await.unwrap_err();
    assert_eq!(client.get("k").await.unwrap(), b"v");
    let deleted = store.vdel("k".into(), "v".into(), Some(newer), timeout).await.unwrap();
    assert_eq!(deleted.response, 1);
    assert!(set(Some(older)).await.unwrap().response, "the fence is deleted with the key");
    client.disconnect().await;
}

#[tokio::test]
async fn a_set_with_persist_is_applied() {
    let server = Mqkv::start(&[]);
    let client = SdkClient::connect(server.port(), "guest");
    let options = SetOptions { persist: true, ..SetOptions::default() };
    assert!(client.set_with("k", "v", None, options).await.unwrap().response);
    assert_eq!(client.get("k").await.unwrap(), b"v");
    client.disconnect().await;
}

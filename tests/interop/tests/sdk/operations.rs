//! Every operation of the SDK's client of the store.

use std::cmp::Ordering;
use std::sync::Arc;
use std::time::Duration;

use azure_iot_operations_services::state_store::{Operation, SetCondition, SetOptions};
use mqkv_interop::{Guest, Mqkv, later, now, order, within};

#[tokio::test]
async fn set_get_and_del_tell_of_one_version() {
    let server = Mqkv::start(&[]);
    let guest = Guest::join(server.port(), "guest");
    let missing = guest.get_with_version("k").await;
    assert_eq!((missing.response, missing.version), (None, None));
    let first = guest.set("k", "v").await;
    let got = guest.get_with_version("k").await;
    assert_eq!((got.response.as_deref(), got.version.as_ref()), (Some(b"v".as_slice()), Some(&first)));
    let second = guest.set("k", "w").await;
    assert_eq!(order(&first, &second), Ordering::Less);
    let deleted = guest.del("k").await;
    assert_eq!((deleted.response, deleted.version), (1, Some(second.clone())));
    let deleted = guest.del("k").await;
    assert_eq!((deleted.response, deleted.version), (0, None));
    assert_eq!(guest.get("k").await, None);
    let third = guest.set("k", "x").await;
    assert_eq!(order(&second, &third), Ordering::Less);
    guest.leave().await;
}

#[tokio::test]
async fn every_condition_of_set_holds_or_tells_of_the_stored_version() {
    use SetCondition::{OnlyIfDoesNotExist, OnlyIfEqualOrDoesNotExist, Unconditional};
    let server = Mqkv::start(&[]);
    let guest = Guest::join(server.port(), "guest");
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
        let answer = guest.set_if("k", value, condition).await;
        assert_eq!(answer.response, is_applied, "{row}");
        if is_applied {
            let newer = answer.version.unwrap();
            assert!(stored.is_none_or(|stored| order(&stored, &newer).is_lt()), "{row}");
            stored = Some(newer);
        } else {
            assert_eq!(answer.version, stored, "{row}");
        }
    }
    assert_eq!(guest.get("k").await.unwrap(), b"2");
    assert!(guest.set_if("other", "1", OnlyIfEqualOrDoesNotExist).await.response);
    guest.leave().await;
}

#[tokio::test]
async fn vdel_deletes_only_what_it_names() {
    let server = Mqkv::start(&[]);
    let guest = Guest::join(server.port(), "guest");
    let version = guest.set("k", "v").await;
    let differs = guest.vdel("k", "w").await;
    assert_eq!((differs.response, differs.version), (-1, Some(version.clone())));
    assert_eq!(guest.get("k").await.unwrap(), b"v");
    let deleted = guest.vdel("k", "v").await;
    assert_eq!((deleted.response, deleted.version), (1, Some(version)));
    assert_eq!(guest.vdel("k", "v").await.response, 0);
    guest.leave().await;
}

#[tokio::test]
async fn a_key_expires_and_a_later_set_takes_the_expiry_away() {
    let server = Mqkv::start(&[]);
    let guest = Guest::join(server.port(), "guest");
    let mut short = guest.observe("short").await;
    let version = guest.set_for("short", "v", Duration::from_millis(300)).await;
    guest.set_for("kept", "v", Duration::from_millis(200)).await;
    guest.set("kept", "w").await;
    guest.set_for("renewed", "v", Duration::from_millis(200)).await;
    guest.set_for("renewed", "v", Duration::from_secs(3_600)).await;
    guest.set_for("for 99 years", "v", Duration::from_secs(99 * 365 * 86_400)).await;
    let told = Guest::notification(&mut short).await;
    assert_eq!(told.operation, Operation::Set(b"v".to_vec()));
    let told = Guest::notification(&mut short).await;
    assert_eq!((told.operation, told.version), (Operation::Del, version));
    // All that was to end before has ended by now.
    let (keys, _) = guest.keys("*").await;
    assert_eq!(keys, ["for 99 years", "kept", "renewed"]);
    assert_eq!(guest.get("short").await, None);
    guest.leave().await;
}

#[tokio::test]
async fn bytes_come_back_as_they_were() {
    let server = Mqkv::start(&[]);
    let guest = Guest::join(server.port(), "guest");
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
        let mut observation = guest.observe(key.clone()).await;
        guest.set(key.clone(), value.clone()).await;
        let told = Guest::notification(&mut observation).await;
        assert_eq!((&told.key, told.operation), (key, Operation::Set(value.clone())));
    }
    for (key, value) in pairs {
        assert_eq!(guest.get(key.clone()).await, Some(value));
        assert_eq!(guest.del(key).await.response, 1);
    }
    guest.leave().await;
}

#[tokio::test]
async fn fifty_operations_in_parallel_are_answered_each_with_its_own() {
    let server = Mqkv::start(&[]);
    let guest = Arc::new(Guest::join(server.port(), "guest"));
    let tasks: Vec<_> = (0..50)
        .map(|number: u32| {
            let guest = Arc::clone(&guest);
            tokio::spawn(async move {
                let (key, value) = (format!("k{number}"), format!("v{number}").repeat(100));
                guest.set(key.clone(), value.clone()).await;
                assert_eq!(guest.get(key.clone()).await, Some(value.clone().into()));
                assert_eq!(guest.vdel(&key, "another").await.response, -1);
                if number.is_multiple_of(2) {
                    assert_eq!(guest.vdel(&key, &value).await.response, 1);
                }
            })
        })
        .collect();
    for task in tasks {
        within(task).await.unwrap();
    }
    assert_eq!(guest.keys("k*").await.0.len(), 25);
    Arc::into_inner(guest).unwrap().leave().await;
}

#[tokio::test]
async fn one_of_fifty_wins_a_key_that_all_want() {
    let server = Mqkv::start(&[]);
    let guests: Vec<_> =
        (0..5).map(|number| Arc::new(Guest::join(server.port(), &format!("guest-{number}")))).collect();
    let tasks: Vec<_> = (0..50)
        .map(|number: usize| {
            let guest = Arc::clone(&guests[number % 5]);
            tokio::spawn(async move {
                guest.set_if("k", &number.to_string(), SetCondition::OnlyIfDoesNotExist).await.response
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
    assert_eq!(guests[0].get("k").await.as_ref(), Some(&winners[0]));
    for guest in guests {
        Arc::into_inner(guest).unwrap().leave().await;
    }
}

#[tokio::test]
async fn keys_are_listed_once_over_all_pages() {
    let server = Mqkv::start(&[]);
    let guest = Guest::join(server.port(), "guest");
    assert_eq!(guest.keys("*").await.0, [""; 0]);
    let mut expected: Vec<String> = (0..250).map(|number| format!("line1/{number:03}")).collect();
    for key in &expected {
        guest.set(key.as_str(), "v").await;
    }
    // Together they are more than fits one page.
    let mut long_ones: Vec<String> = (10..60).map(|number| format!("long/{number}").repeat(800)).collect();
    for key in &long_ones {
        guest.set(key.as_str(), "v").await;
    }
    guest.set("line2/000", "v").await;
    guest.set("li[ne", "v").await;
    guest.set([0xFF, 0xFE], "no UTF-8: not listed").await;
    assert_eq!(guest.keys("line1/*").await.0, expected);
    let (keys, pages) = guest.keys("long/*").await;
    assert_eq!(keys, long_ones);
    assert!((2..=64).contains(&pages), "{pages} pages");
    for (pattern, found) in [
        ("line[!1]/*", vec!["line2/000"]),
        ("line?/000", vec!["line1/000", "line2/000"]),
        ("li[[]ne", vec!["li[ne"]),
        ("line1/24[0-1]", vec!["line1/240", "line1/241"]),
        ("none*", vec![]),
    ] {
        assert_eq!(guest.keys(pattern).await.0, found, "{pattern}");
    }
    guest.del("line1/000").await;
    guest.del(long_ones.remove(0)).await;
    expected.remove(0);
    assert_eq!(guest.keys("line1/*").await.0, expected);
    assert_eq!(guest.keys("long/*").await.0, long_ones);
    guest.leave().await;
}

#[tokio::test]
async fn a_fence_lets_through_only_who_is_as_new() {
    let server = Mqkv::start(&[]);
    let guest = Guest::join(server.port(), "guest");
    let older = now();
    let [token, newer] = [1, 2].map(|seconds| later(&older, Duration::from_secs(seconds)));
    let set = |fence| guest.set_with("k", "v", fence, SetOptions::default());
    assert!(set(None).await.unwrap().response);
    assert!(set(Some(token.clone())).await.unwrap().response);
    set(None).await.unwrap_err();
    set(Some(older.clone())).await.unwrap_err();
    assert!(set(Some(token.clone())).await.unwrap().response);
    assert!(set(Some(newer.clone())).await.unwrap().response);
    set(Some(token.clone())).await.unwrap_err();
    let store = &guest.store;
    let patience = Duration::from_secs(10);
    store.del("k".into(), Some(token.clone()), patience).await.unwrap_err();
    store.vdel("k".into(), "v".into(), None, patience).await.unwrap_err();
    assert_eq!(guest.get("k").await.unwrap(), b"v");
    let deleted = store.vdel("k".into(), "v".into(), Some(newer), patience).await.unwrap();
    assert_eq!(deleted.response, 1);
    assert!(set(Some(older)).await.unwrap().response, "the fence went with the key");
    guest.leave().await;
}

#[tokio::test]
async fn a_value_that_shall_be_on_disk_is_taken() {
    let server = Mqkv::start(&[]);
    let guest = Guest::join(server.port(), "guest");
    let options = SetOptions { persist: true, ..SetOptions::default() };
    assert!(guest.set_with("k", "v", None, options).await.unwrap().response);
    assert_eq!(guest.get("k").await.unwrap(), b"v");
    guest.leave().await;
}

//! What becomes of the SDK's session when its line is cut.

use std::time::Duration;

use azure_iot_operations_services::state_store::{Operation, SetCondition, SetOptions};
use mqkv_interop::{Guest, Line, Mqkv, within};

#[tokio::test]
async fn a_cut_line_loses_the_observations_but_not_the_session() {
    let server = Mqkv::start(&[]);
    let line = Line::to(server.port()).await;
    let guest = Guest::join(line.port(), "guest");
    let other = Guest::join(server.port(), "other");
    let mut observation = guest.observe("k").await;
    other.set("k", "before").await;
    assert_eq!(Guest::notification(&mut observation).await.operation, Operation::Set(b"before".to_vec()));
    line.cut();
    let end = within(observation.recv_notification()).await;
    assert!(end.is_none(), "the SDK ends what it can no longer hear");
    other.set("k", "between").await;
    line.mend();
    assert_eq!(guest.get("k").await.unwrap(), b"between");
    assert_eq!(line.sessions_present(), [false, true]);
    let mut observation = guest.observe("k").await;
    other.set("k", "after").await;
    assert_eq!(
        Guest::notification(&mut observation).await.operation,
        Operation::Set(b"after".to_vec()),
        "who has to watch again is not told what it missed"
    );
    for guest in [guest, other] {
        guest.leave().await;
    }
}

#[tokio::test]
async fn a_session_outlives_many_cuts() {
    let server = Mqkv::start(&[]);
    let line = Line::to(server.port()).await;
    let guest = Guest::join(line.port(), "guest");
    for number in 0..10 {
        guest.set("k", number.to_string()).await;
        line.cut();
        line.mend();
        assert_eq!(guest.get("k").await.unwrap(), number.to_string().as_bytes());
    }
    let sessions_present = line.sessions_present();
    assert!(!sessions_present[0] && sessions_present[1..].iter().all(|is_present| *is_present));
    guest.leave().await;
}

#[tokio::test]
async fn a_write_whose_answer_is_lost_with_the_line_is_applied_once_and_answered() {
    let server = Mqkv::start(&[]);
    let line = Line::to(server.port()).await;
    let guest = Guest::join(line.port(), "guest");
    let other = Guest::join(server.port(), "other");
    guest.get("k").await;
    let mut observation = other.observe("k").await;
    line.lose_answers();
    let (answer, ()) = tokio::join!(guest.set_if("k", "v", SetCondition::OnlyIfDoesNotExist), async {
        within(line.has_lost()).await;
        line.cut();
        line.mend();
    });
    assert!(answer.response, "the second delivery is not a second request");
    assert_eq!(line.sessions_present().last(), Some(&true));
    other.set("k", "last").await;
    for value in ["v", "last"] {
        let told = Guest::notification(&mut observation).await;
        assert_eq!(told.operation, Operation::Set(value.into()));
    }
    for guest in [guest, other] {
        guest.leave().await;
    }
}

#[tokio::test]
async fn a_write_that_is_delivered_again_too_late_undoes_nobodys_work() {
    let server = Mqkv::start(&[]);
    let line = Line::to(server.port()).await;
    let guest = Guest::join(line.port(), "guest");
    let other = Guest::join(server.port(), "other");
    guest.get("k").await;
    line.lose_answers();
    // The SDK gives up when the request expires, and delivers it again all the same when the line is back.
    let expiry = Duration::from_secs(1);
    let answer = guest.store.set("k".into(), "old".into(), expiry, None, SetOptions::default()).await;
    assert!(answer.is_err(), "{answer:?}");
    within(line.has_lost()).await;
    line.cut();
    other.set("k", "new").await;
    line.mend();
    assert_eq!(guest.get("k").await.unwrap(), b"new");
    for guest in [guest, other] {
        guest.leave().await;
    }
}

#[tokio::test]
async fn operations_wait_for_the_line() {
    let server = Mqkv::start(&[]);
    let line = Line::to(server.port()).await;
    let guest = Guest::join(line.port(), "guest");
    guest.set("k", "v").await;
    line.cut();
    let (version, ()) = tokio::join!(guest.set("k", "w"), async {
        tokio::task::yield_now().await;
        line.mend();
    });
    let got = guest.get_with_version("k").await;
    assert_eq!((got.response.as_deref(), got.version), (Some(b"w".as_slice()), Some(version)));
    guest.leave().await;
}

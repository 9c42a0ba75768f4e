//! `mqkv serve --etcd`: one instance of the cluster answers, all others stand by.

use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::channel;
use std::thread::spawn;

use mqkv::client::{Client, Error, Outcome, SetOptions, Settings, Target};
use mqkv::protocol::{Key, Timestamp};
use nix::sys::signal::Signal;
use tokio::runtime::Builder;

use super::common::cluster::{Instance, ServedCluster};
use super::common::{Process, line_in, reserved_port, wait_until};
use crate::a_watchdog::bounded;

#[test]
#[ignore = "needs Debian's etcd-server"]
fn what_was_acknowledged_is_there_after_a_kill_of_the_owner() {
    let cluster = ServedCluster::new(3, &[]);
    let owner = cluster.start_owner("a");
    let _standby = cluster.start_standby("b");
    let lines: String = (0..300).map(|number| format!("set k/{number} {number}\n")).collect();
    let batch = cluster.place.run_at_with_input(&cluster.url(), &["batch", "-", "-q"], lines.as_bytes());
    assert!(batch.ends_with("--- exit 0\n"), "{batch}");
    cluster.set("last", "1");
    owner.kill();
    assert_eq!(cluster.get("last"), "1");
    assert_eq!(cluster.run(&["keys", "k/*", "--count"]), "--- stdout\n300\n--- exit 0\n");
    assert_eq!(cluster.get("k/299"), "299");
}

#[test]
#[ignore = "needs Debian's etcd-server"]
fn an_owner_that_is_ended_hands_over_and_loses_nothing() {
    let cluster = ServedCluster::new(1, &[]);
    let owner = cluster.start_owner("a");
    let standby = cluster.start_standby("b");
    let lines: String = (0..3_000).map(|number| format!("set k/{number} {number}\n")).collect();
    cluster.place.write("lines", lines);
    let batch = Process::start(cluster.place.command(&["batch", "lines", "-j", "-b", &cluster.url()]));
    wait_until("some are written", || {
        (cluster.run(&["keys", "k/*", "--count"]) != "--- stdout\n0\n--- exit 0\n").then_some(())
    });
    assert_eq!(owner.stop(), Some(0), "what it has received is answered");
    standby.log_line_with("listening on ");
    // The batch ends with its connection; what was acknowledged is there.
    let ended = batch.end();
    let acknowledged = ended.output.lines().filter(|line| line.contains("\"applied\":true")).count();
    assert!(acknowledged > 0, "{ended:?}");
    for line in ended.output.lines().filter(|line| line.contains("\"applied\":true")).step_by(97) {
        let (_, rest) = line.split_once("\"key\":\"").unwrap_or_else(|| panic!("{line}"));
        let key = rest.split('"').next().unwrap();
        assert_eq!(format!("k/{}", cluster.get(key)), key);
    }
    let count = cluster.run(&["keys", "k/*", "--count"]);
    let count: usize = count.lines().nth(1).unwrap().parse().unwrap();
    assert!(count >= acknowledged, "{count} of {acknowledged}");
}

#[test]
#[ignore = "needs Debian's etcd-server"]
fn a_standby_refuses_connections_and_is_not_healthy() {
    let cluster = ServedCluster::new(1, &[]);
    let owner = cluster.start_owner("a");
    let port = reserved_port();
    let listen = format!("127.0.0.1:{port}");
    let words = ["serve", "--listen", &listen];
    let standby = Instance::start(&cluster.place, &cluster.etcd, "b", &words);
    standby.log_line_with("standby");
    assert_eq!(owner.health().unwrap(), "200 ok");
    assert_eq!(standby.health().unwrap(), "503 standby: this instance does not own the store");
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
    owner.kill();
    standby.log_line_with("listening on ");
    assert_eq!(standby.health().unwrap(), "200 ok");
    assert!(TcpStream::connect(("127.0.0.1", port)).is_ok());
    assert_eq!(standby.stop(), Some(0));
}

#[test]
#[ignore = "needs Debian's etcd-server"]
fn an_instance_that_has_taken_over_waits_for_its_address_and_ends_if_it_stays_taken() {
    let cluster = ServedCluster::new(1, &[]);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = taken.local_addr().unwrap().to_string();
    let words = ["serve", "--listen", &listen];
    let ends = Instance::start(&cluster.place, &cluster.etcd, "a", &words);
    ends.log_line_with("cannot listen on 127.0.0.1:");
    ends.log_line_with("is the owner now");
    let (_, errors, code) = ends.process.end();
    assert!(errors.join("\n").contains("error: cannot listen on 127.0.0.1:"), "{errors:#?}");
    assert_eq!(code, Some(69));
    let waits = Instance::start(&cluster.place, &cluster.etcd, "b", &words);
    waits.log_line_with("is the owner now");
    drop(taken);
    waits.log_line_with("listening on ");
    assert_eq!(waits.stop(), Some(0));
}

#[test]
#[ignore = "needs Debian's etcd-server"]
fn a_standby_that_is_ended_exits_with_success() {
    let cluster = ServedCluster::new(1, &[]);
    let _owner = cluster.start_owner("a");
    assert_eq!(cluster.start_standby("b").stop(), Some(0));
    cluster.set("k", "v");
}

#[test]
#[ignore = "needs Debian's etcd-server"]
fn an_owner_that_was_paused_beyond_its_lease_answers_nothing_and_ends() {
    let cluster = ServedCluster::new(1, &[]);
    let owner = cluster.start_owner("a");
    cluster.set("k", "old");
    // On a port of its own: that of the paused owner is taken.
    let listen = format!("127.0.0.1:{}", reserved_port());
    let words = ["serve", "--listen", &listen];
    let standby = Instance::start(&cluster.place, &cluster.etcd, "b", &words);
    standby.log_line_with("standby");
    let (ready, is_ready) = channel();
    let (go, may_go) = channel();
    let port = cluster.port();
    let client = spawn(move || {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let target = Target::Tcp { host: "127.0.0.1".to_owned(), port };
            let client = Client::connect(Settings::new(target, "c".to_owned())).await.unwrap();
            let (key, value) = (Key::new("k").unwrap(), "false".into());
            // The response topic is subscribed to before the pause.
            client.get(&key).await.unwrap();
            ready.send(()).unwrap();
            may_go.recv().unwrap();
            tokio::join!(client.get(&key), client.set(&key, &value, SetOptions::default()))
        })
    });
    bounded(|| is_ready.recv()).unwrap();
    owner.process.signal(Signal::SIGSTOP);
    go.send(()).unwrap();
    standby.log_line_with("listening on ");
    let new = format!("mqtt://{listen}");
    assert_eq!(cluster.place.run_at(&new, &["set", "k", "new"]), "--- exit 0\n");
    owner.process.signal(Signal::SIGCONT);
    let (read, written) = bounded(|| client.join()).unwrap();
    assert!(matches!(read, Err(Error::Lost { .. })), "{read:?}");
    assert!(matches!(written, Err(Error::Lost { outcome: Outcome::Unknown, .. })), "{written:?}");
    let (_, errors, code) = owner.process.end();
    assert_eq!(code, Some(69), "{errors:#?}");
    let errors = errors.join("\n");
    assert!(errors.contains("error: this instance does not own the store any more"), "{errors}");
    assert_eq!(cluster.place.bytes_at(&new, &["get", "k"]), b"new");
}

#[test]
#[ignore = "needs Debian's etcd-server"]
fn versions_rise_over_owners_also_of_a_key_that_was_deleted() {
    let cluster = ServedCluster::new(1, &[]);
    let mut owner = cluster.start_owner("a");
    let mut versions = Vec::new();
    for name in ["b", "c"] {
        cluster.set("k", name);
        versions.push(cluster.version("k"));
        assert_eq!(cluster.run(&["del", "k", "-q"]), "--- exit 0\n");
        let standby = cluster.start_standby(name);
        owner.kill();
        owner = standby;
        owner.log_line_with("listening on ");
    }
    cluster.set("k", "v");
    versions.push(cluster.version("k"));
    let times: Vec<Timestamp> = versions.iter().map(|version| version.parse().unwrap()).collect();
    assert!(times.is_sorted_by(|one, next| one < next), "{versions:?}");
}

#[test]
#[ignore = "needs Debian's etcd-server"]
fn a_lock_is_held_over_a_takeover_and_its_fence_still_protects() {
    let cluster = ServedCluster::new(1, &[]);
    let owner = cluster.start_owner("a");
    let standby = cluster.start_standby("b");
    let url = cluster.url();
    let script = "echo $MQKV_FENCING_TOKEN > held; until [ -e go ]; do sleep 0.01; done";
    let words = ["-b", &url, "lock", "deploy", "--ttl", "30s", "--holder", "one", "--", "sh", "-c", script];
    let holder = Process::start(cluster.place.command(&words));
    let token = line_in(&cluster.place.path("held"));
    assert_eq!(cluster.run(&["set", "k", "1", "--fence", &token]), "--- exit 0\n");
    owner.kill();
    standby.log_line_with("listening on ");
    assert_eq!(cluster.run(&["holder", "deploy"]), "--- stdout\none\n--- exit 0\n");
    let other = ["lock", "deploy", "--holder", "two", "-w", "0", "--", "true"];
    assert!(cluster.run(&other).ends_with("--- exit 1\n"), "it is held");
    let without = cluster.run(&["set", "k", "2"]);
    assert!(without.contains("a fencing token is required"), "{without}");
    assert_eq!(cluster.run(&["set", "k", "2", "--fence", &token]), "--- exit 0\n");
    cluster.place.write("go", "");
    let ended = holder.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(cluster.run(&["lock", "deploy", "--holder", "two", "-w", "0", "--", "true"]), "--- exit 0\n");
}

#[test]
#[ignore = "needs Debian's etcd-server"]
fn a_takeover_ends_no_time_to_live_early_and_a_key_expires_at_the_next_owner() {
    let cluster = ServedCluster::new(1, &[]);
    let owner = cluster.start_owner("a");
    let standby = cluster.start_standby("b");
    assert_eq!(cluster.run(&["set", "long", "v", "--ttl", "1h"]), "--- exit 0\n");
    assert_eq!(cluster.run(&["set", "short", "v", "--ttl", "500ms"]), "--- exit 0\n");
    owner.kill();
    standby.log_line_with("listening on ");
    assert_eq!(cluster.get("long"), "v");
    wait_until("the key expires", || cluster.run(&["get", "short"]).ends_with("--- exit 1\n").then_some(()));
}

#[test]
#[ignore = "needs Debian's etcd-server"]
fn without_etcd_requests_get_no_answer_and_they_go_on_when_it_is_back() {
    let cluster = ServedCluster::new(1, &[]);
    let owner = cluster.start_owner("a");
    cluster.set("k", "1");
    cluster.etcd.pause(0);
    let url = cluster.url();
    let get = cluster.run(&["get", "k", "--timeout", "500ms"]);
    assert!(get.contains("no answer from") && get.ends_with("--- exit 124\n"), "{get}");
    let absent = cluster.run(&["get", "absent", "--timeout", "500ms"]);
    assert!(absent.ends_with("--- exit 124\n"), "no false answer: {absent}");
    let waiting = Process::start(cluster.place.command(&["set", "k", "2", "-b", &url, "--timeout", "60s"]));
    owner.log_line_with("etcd is unavailable");
    assert!(owner.health().unwrap().starts_with("503 etcd is unavailable"), "{:?}", owner.health());
    cluster.etcd.resume(0);
    owner.log_line_with("etcd is available again");
    let ended = waiting.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(cluster.get("k"), "2");
    assert_eq!(owner.health().unwrap(), "200 ok");
}

#[test]
#[ignore = "needs Debian's etcd-server"]
fn beyond_the_quota_of_etcd_writes_are_refused_and_keys_can_be_read_and_deleted() {
    let cluster = ServedCluster::new(1, &["--quota-backend-bytes", "4194304"]);
    let owner = cluster.start_owner("a");
    cluster.place.write("value", vec![b'x'; 500_000]);
    let mut unanswered = 0;
    let refused = (0..200).find_map(|number| {
        let shown = cluster.run(&["set", &format!("k/{number}"), "-f", "value", "-t", "2s"]);
        // The one for which etcd has no space gets no answer.
        unanswered += usize::from(shown.ends_with("--- exit 124\n"));
        (shown != "--- exit 0\n" && !shown.ends_with("--- exit 124\n")).then_some(shown)
    });
    assert!(unanswered <= 1, "{unanswered}");
    let refused = refused.unwrap();
    assert!(
        refused.contains("the quota has been exceeded") && refused.ends_with("--- exit 76\n"),
        "{refused}"
    );
    owner.log_line_with("etcd has reached its quota");
    assert_eq!(cluster.place.bytes_at(&cluster.url(), &["get", "k/0"]).len(), 500_000);
    assert_eq!(cluster.run(&["del", "k/0", "-q"]), "--- exit 0\n");
    assert_eq!(cluster.run(&["get", "k/0"]).lines().last(), Some("--- exit 1"));
}

#[test]
#[ignore = "needs Debian's etcd-server"]
fn state_of_another_format_ends_the_start_with_its_cause() {
    let cluster = ServedCluster::new(1, &[]);
    assert_eq!(cluster.start_owner("a").stop(), Some(0));
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let etcd = cluster.etcd.client().await;
        let txn = mqkv::ledger::etcd::operation::Txn {
            conditions: Vec::new(),
            operations: vec![super::etcd_requests::put("/mqkv/default/meta", "\u{63}other")],
            otherwise: Vec::new(),
        };
        etcd.txn(&txn).await.unwrap();
    });
    let urls = cluster.etcd.urls().join(",");
    let shown = cluster.place.run_bounded(&["serve", "--listen", "127.0.0.1:0", "--etcd", &urls]);
    assert!(shown.contains("error: incompatible state in etcd: "), "{shown}");
    assert!(shown.contains("hint: ") && shown.ends_with("--- exit 65\n"), "{shown}");
}

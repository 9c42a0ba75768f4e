//! `mqkv::testing`: a store inside the process of a test.

use std::io::{Read, Write, pipe};
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::LazyLock;
use std::thread;

use mqkv::testing::{Error, Store};

use super::common::{Place, RawClient, reserved_port, wire};
use crate::a_watchdog::bounded;

#[path = "../../examples/testing/rust.rs"]
mod example;

#[test]
fn any_bytes_are_set_read_and_deleted() {
    let store = Store::start().unwrap();
    let (key, value) = (b"\xff\0key", b"\0\xff\r\n");
    assert_eq!(store.get(key).unwrap(), None);
    store.set(key, value).unwrap();
    assert_eq!(store.get(key).unwrap().unwrap(), value);
    assert!(store.delete(key).unwrap());
    assert!(!store.delete(key).unwrap());
    assert_eq!(store.get(key).unwrap(), None);
}

#[test]
fn stores_are_independent_and_the_command_line_reaches_each() {
    let (place, one, other) = (Place::new(), Store::start().unwrap(), Store::start().unwrap());
    assert_ne!(one.port(), other.port());
    assert_eq!(place.run_at(&one.url(), &["set", "k", "1"]), "--- exit 0\n");
    assert_eq!(one.get("k").unwrap().unwrap(), b"1");
    assert_eq!(other.get("k").unwrap(), None);
    assert_eq!(other.url(), format!("mqtt://{}", other.address()));
}

#[test]
fn a_store_can_be_shared_by_all_tests_of_a_file() {
    static STORE: LazyLock<Store> = LazyLock::new(|| Store::start().unwrap());
    thread::scope(|scope| {
        for number in 0..4 {
            scope.spawn(move || STORE.set(format!("k{number}"), number.to_string()).unwrap());
        }
    });
    assert_eq!(STORE.get("k3").unwrap().unwrap(), b"3");
}

#[tokio::test]
async fn a_test_with_one_thread_may_start_use_and_drop_a_store() {
    let store = Store::start().unwrap();
    store.set("k", "v").unwrap();
    assert_eq!(store.get("k").unwrap().unwrap(), b"v");
}

#[test]
fn a_store_outlives_the_runtime_in_which_it_was_started() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let store = runtime.block_on(async { Store::start() }).unwrap();
    drop(runtime);
    store.set("k", "v").unwrap();
    assert_eq!(store.get("k").unwrap().unwrap(), b"v");
}

#[test]
fn a_dropped_store_disconnects_its_clients_and_frees_its_port() {
    let port = reserved_port();
    let store = Store::builder().port(port).start().unwrap();
    let mut client = RawClient::connect(port);
    client.send(&wire::connect("application"));
    assert_eq!(client.receive().map(|packet| packet.name()), Some("CONNACK"));
    drop(store);
    assert_eq!(client.receive().map(|packet| packet.name()), Some("DISCONNECT"));
    assert!(client.receive().is_none(), "the connection is closed");
    let store = Store::builder().port(port).start().unwrap();
    assert_eq!(store.port(), port);
    RawClient::connect(port);
}

#[test]
#[expect(unsafe_code, reason = "only `pre_exec` runs code between fork and exec")]
fn a_dropped_store_frees_its_port_and_folder_while_another_process_starts() {
    let (place, port) = (Place::new(), reserved_port());
    let start = || Store::builder().port(port).data(place.path("data")).start();
    let store = start().unwrap();
    let ((mut is_forked, mut forked), (mut may_run, mut run)) = (pipe().unwrap(), pipe().unwrap());
    let mut command = Command::new("true");
    // SAFETY: the closure only writes and reads a byte, which may be done after fork.
    unsafe {
        command.pre_exec(move || {
            forked.write_all(b"1")?;
            may_run.read_exact(&mut [0])
        })
    };
    thread::scope(|scope| {
        let process = scope.spawn(move || bounded(|| command.status()).unwrap());
        bounded(|| is_forked.read_exact(&mut [0])).unwrap();
        // It has a copy of each file and socket of the store until it runs its program.
        drop(store);
        let again = start().map(drop);
        run.write_all(b"1").unwrap();
        again.unwrap();
        assert!(bounded(|| process.join()).unwrap().success());
    });
}

#[test]
fn a_store_with_a_folder_continues_where_another_one_has_ended() {
    let place = Place::new();
    let start = || Store::builder().data(place.path("new/folder")).start();
    let store = start().unwrap();
    store.set("k", "v").unwrap();
    assert!(matches!(start(), Err(Error::Start(_))), "one store uses the folder at a time");
    drop(store);
    assert_eq!(start().unwrap().get("k").unwrap().unwrap(), b"v");
}

#[test]
fn a_seed_is_set_before_the_store_starts_and_checked_as_a_whole() {
    let place = Place::new();
    place.write("seed", "{\"key\":\"a\",\"value\":\"1\"}\n{\"key\":\"a\",\"value\":\"2\"}\n");
    let seeded = |name: &str| Store::builder().seed(place.path(name)).data(place.path("data")).start();
    let store = seeded("seed").unwrap();
    assert_eq!(store.get("a").unwrap().unwrap(), b"2");
    drop(store);
    place.write("invalid", "{\"key\":\"a\",\"value\":\"3\"}\n{\"key\":\"b\"}\n");
    let error = seeded("invalid").unwrap_err().to_string();
    assert!(error.contains("invalid:2: missing member \"value\""), "{error}");
    assert!(matches!(seeded("absent"), Err(Error::Seed(_))));
    let store = Store::builder().data(place.path("data")).start().unwrap();
    assert_eq!(store.get("a").unwrap().unwrap(), b"2", "nothing of an invalid seed is set");
}

#[test]
fn what_cannot_be_used_is_an_error_with_its_cause() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let error = Store::builder().port(address.port()).start().unwrap_err();
    assert!(matches!(error, Error::Start(_)), "{error:?}");
    assert!(error.to_string().starts_with(&format!("cannot listen on {address}: ")), "{error}");
    let store = Store::start().unwrap();
    assert!(matches!(store.set("", "v"), Err(Error::Key(_))));
    assert!(matches!(store.get(vec![b'k'; 65_536]), Err(Error::Key(_))));
}

#[test]
fn the_page_shows_the_example() {
    let file = |name: &str| {
        std::fs::read_to_string(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap()
    };
    let example = file("examples/testing/rust.rs");
    let (_, shown) = example.split_once("\n\n").unwrap();
    assert!(file("docs/testing.md").contains(&format!("```rust\n{shown}```\n")), "{shown}");
}

//! `data copy`: a copy of the files of a server while it writes, and what is refused.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use nix::sys::signal::Signal;

use super::common::exchange::Node;
use super::common::{Place, Process, Server, wait_until};
use crate::a_watchdog::bounded;

const WRITERS: usize = 2;
/// The keys of each writer.
const KEYS: u64 = 8;
/// A snapshot is due after 16 MiB.
const VALUE_BYTES: usize = 60_000;

/// A process that sets `wWRITER-0` to `wWRITER-7` in turn. Each value begins with the number of its line. Killed when dropped.
struct Writer {
    /// The number of lines that were sent, and of those that were answered.
    sent: Arc<AtomicU64>,
    answered: Arc<AtomicU64>,
    child: Child,
}

impl Writer {
    fn start(place: &Place, server: &Server, number: usize) -> Self {
        let words = ["-b", &server.url(), "batch", "-", "-j", "--inflight", "32"];
        let mut command = place.command(&words);
        let mut child = command.stdin(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
        let (mut input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let [sent, answered]: [Arc<AtomicU64>; 2] = Default::default();
        let (counted, filler) = (Arc::clone(&sent), "x".repeat(VALUE_BYTES));
        // Both threads end with the process.
        thread::spawn(move || {
            for line in 0.. {
                counted.store(line + 1, Ordering::SeqCst);
                if writeln!(input, "set w{number}-{} {line}-{filler}", line % KEYS).is_err() {
                    return;
                }
            }
        });
        let counted = Arc::clone(&answered);
        thread::spawn(move || {
            for answer in BufReader::new(output).lines().map_while(Result::ok) {
                assert!(answer.contains("\"applied\":true"), "{answer}");
                counted.fetch_add(1, Ordering::SeqCst);
            }
        });
        Self { sent, answered, child }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = bounded(|| self.child.wait());
    }
}

/// Returns the number with which the value of each key begins.
fn numbers(place: &Place, server: &Server) -> BTreeMap<String, u64> {
    let exported = place.bytes_at(&server.url(), &["export", "--no-version", "-q"]);
    let exported = String::from_utf8(exported).unwrap();
    let member = |line: &str, name: &str| {
        let (_, rest) = line.split_once(&format!("\"{name}\":\"")).unwrap();
        rest.split('"').next().unwrap().to_owned()
    };
    exported
        .lines()
        .map(|line| {
            let value = member(line, "value");
            let (number, filler) = value.split_once('-').unwrap();
            assert_eq!(filler.len(), VALUE_BYTES, "the value is whole");
            (member(line, "key"), number.parse().unwrap())
        })
        .collect()
}

/// Checks that the keys of a writer are those after one of its lines, from `answered` to `sent`.
fn check(writer: usize, found: &BTreeMap<String, u64>, answered: u64, sent: u64) {
    let of_writer = |key: u64| found.get(&format!("w{writer}-{key}")).copied();
    let lines = (0..KEYS).filter_map(of_writer).max().map_or(0, |last| last + 1);
    assert!((answered..=sent).contains(&lines), "writer {writer}: {answered} <= {lines} <= {sent}");
    for key in 0..KEYS {
        let last = (0..lines).rev().take(usize::try_from(KEYS).unwrap()).find(|line| line % KEYS == key);
        assert_eq!(of_writer(key), last, "w{writer}-{key} after {lines} lines");
    }
}

#[test]
fn a_copy_under_heavy_writes_and_snapshots_has_all_that_was_acknowledged_and_is_of_one_moment() {
    const COPIES: usize = 4;
    let (place, copies) = (Place::new(), Place::new());
    let server = Server::start(&place, &["-q", "--data", "kept"]);
    let writers: Vec<_> = (0..WRITERS).map(|number| Writer::start(&place, &server, number)).collect();
    let has_begun = |writer: &Writer| writer.answered.load(Ordering::SeqCst) > 0;
    wait_until("first answers", || writers.iter().all(has_begun).then_some(()));
    let from = place.path("kept");
    let from = from.to_str().unwrap();
    let mut snapshots = BTreeSet::new();
    for number in 0.. {
        let name = format!("copy-{number}");
        let read = |counter: fn(&Writer) -> &AtomicU64| {
            writers.iter().map(|writer| counter(writer).load(Ordering::SeqCst)).collect::<Vec<_>>()
        };
        let answered = read(|writer| &writer.answered);
        let shown = copies.run_bounded(&["data", "copy", from, &name]);
        let sent = read(|writer| &writer.sent);
        assert!(shown.ends_with("--- exit 0\n"), "{shown}");
        let files = fs::read_dir(copies.path(&name)).unwrap().map(|entry| entry.unwrap().file_name());
        snapshots.extend(files.filter(|file| file.to_str().unwrap().starts_with("snapshot-")));
        let restored = Server::start(&copies, &["-q", "--data", &name]);
        let found = numbers(&copies, &restored);
        for (writer, (answered, sent)) in answered.into_iter().zip(sent).enumerate() {
            check(writer, &found, answered, sent);
        }
        let set = copies.run_at(&restored.url(), &["set", "after", "v"]);
        assert_eq!(set, "--- exit 0\n", "the copy can be written to");
        drop(restored);
        fs::remove_dir_all(copies.path(&name)).unwrap();
        if number >= COPIES && snapshots.len() >= 3 {
            break;
        }
        assert!(number < 40 * COPIES, "no snapshots: {snapshots:?}");
    }
    // No writer was disturbed, and no copy is left.
    for writer in &writers {
        let before = writer.answered.load(Ordering::SeqCst);
        wait_until("more answers", || (writer.answered.load(Ordering::SeqCst) > before).then_some(()));
    }
    let left: Vec<_> =
        fs::read_dir(copies.folder()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["port"], "{left:?}");
}

#[test]
fn a_copy_has_values_versions_fencing_tokens_and_times_to_live_and_goes_on_above_them() {
    let place = Place::new();
    let mut server = Server::start(&place, &["-q", "--data", "kept"]);
    let token =
        String::from_utf8(place.bytes_at(&server.url(), &["lock", "gate", "--once", "--ttl", "1h"])).unwrap();
    let token = token.split_whitespace().next().unwrap();
    for words in [
        &["set", "a", "1"][..],
        &["set", "b", "2", "--ttl", "1h"],
        &["set", "c", "3", "--fence", token],
        &["del", "a"],
    ] {
        assert_eq!(place.run_at(&server.url(), words), "--- exit 0\n");
    }
    place.write("kept/users", "ann");
    let copied = place.run_bounded(&["data", "copy", "kept", "copy/"]);
    assert!(copied.starts_with("--- stderr\ncopied 3 keys to copy/ (snapshot 0 bytes, log "), "{copied}");
    assert!(copied.ends_with("\nnot copied, not files of the store: users\n--- exit 0\n"), "{copied}");
    let mode = |name: &str| fs::metadata(place.path(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("copy"), mode("copy/lock"), mode("copy/log-1")), (0o700, 0o600, 0o600));
    server.signal(Signal::SIGTERM);
    assert_eq!(server.end(), Some(0));
    let json = place.run_bounded(&["data", "copy", "kept", "later", "-j"]);
    assert!(
        json.contains("{\"v\":1,\"op\":\"copy\",\"file\":\"kept\",\"copied\":\"later\",\"file_bytes\":0,"),
        "{json}"
    );
    // A server at rest and one that runs give the same store: greatest version, fences, deadlines.
    let verified = |name: &str| {
        let shown = place.run_bounded(&["data", "verify", name, "-j"]);
        let (_, rest) = shown.split_once("\"condition\":").unwrap();
        rest.split(",\"written\"").next().unwrap().to_owned()
    };
    assert!(verified("kept").starts_with("\"intact\",\"keys\":3,"), "{}", verified("kept"));
    assert_eq!(verified("later"), verified("kept"));
    assert_eq!(verified("copy"), verified("kept"));
    let at = |words: &[&str]| place.run_bounded(&[&["--embedded=copy"], words].concat());
    assert!(
        at(&["get", "c", "-o", "text", "-v"]).contains("fence "),
        "{}",
        at(&["get", "c", "-o", "text", "-v"])
    );
    assert!(at(&["get", "b", "-o", "text", "-v"]).contains("expires in "), "the time to live goes on");
    assert!(at(&["set", "c", "4"]).contains("a fencing token is required"));
    assert_eq!(at(&["set", "a", "again"]), "--- exit 0\n");
}

#[test]
fn an_embedded_store_in_use_is_copied() {
    let place = Place::new();
    let mqkv = env!("CARGO_BIN_EXE_mqkv");
    let words = ["--embedded=kept", "lock", "job", "--", mqkv, "data", "copy", "kept", "copy"];
    let shown = place.run_bounded(&words);
    assert!(shown.contains("copied 1 key to copy (") && shown.ends_with("--- exit 0\n"), "{shown}");
    assert!(place.run_bounded(&["--embedded=copy", "holder", "job"]).ends_with("--- exit 0\n"));
}

#[test]
fn a_copy_of_a_node_belongs_to_its_exchange() {
    let place = Place::new();
    let root = Node::root(&place, &[]);
    root.set("recipe/a", "1");
    let copied = place.run_bounded(&["data", "copy", "root", "copy"]);
    assert!(copied.contains("copied 1 key to copy ("), "{copied}");
    let verified = place.run_bounded(&["data", "verify", "copy"]);
    assert!(verified.contains("of an exchange"), "{verified}");
    let refused = place.run_bounded(&["serve", "--listen", "127.0.0.1:0", "--data", "copy"]);
    assert!(refused.contains("error: copy belongs to the root of the exchange plant\n"), "{refused}");
}

#[test]
fn what_exists_or_cannot_be_replaced_is_refused_and_left_as_it_is() {
    let place = Place::new();
    assert_eq!(place.run_bounded(&["--embedded=kept", "set", "k", "v"]), "--- exit 0\n");
    place.write("file", "x");
    fs::create_dir_all(place.path("full/of")).unwrap();
    let copy = |from: &str, to: &str| place.run_bounded(&["data", "copy", from, to]);
    for to in ["file", "full", "kept"] {
        let expected = format!(
            "--- stderr\nerror: {to} exists already; nothing was written\nhint: move {to} away\n--- exit 74\n"
        );
        assert_eq!(copy("kept", to), expected);
    }
    let inside = "--- stderr\nerror: kept/copy is inside the directory to copy\n--- exit 2\n";
    assert_eq!(copy("kept", "kept/copy"), inside);
    assert_eq!(
        copy("kept", ".."),
        "--- stderr\nerror: .. cannot be replaced by the copy\nhint: name a new directory in it: ../NAME\n--- exit 2\n"
    );
    assert_eq!(
        copy("kept", "none/copy"),
        "--- stderr\nerror: cannot read none: No such file or directory (os error 2)\n--- exit 74\n"
    );
    let missing = copy("none", "copy");
    assert!(missing.starts_with("--- stderr\nerror: there is no store in none\n"), "{missing}");
    let missing = copy("full", "copy");
    assert!(missing.starts_with("--- stderr\nerror: there is no store in full\n"), "{missing}");
    // A limit of the system stands for a full disk.
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -f 1; exec \"$0\" data copy kept copy", env!("CARGO_BIN_EXE_mqkv")]);
    limited.current_dir(place.folder()).stderr(Stdio::piped());
    let limited = bounded(|| limited.output()).unwrap();
    let words = String::from_utf8(limited.stderr).unwrap();
    assert!(
        words.starts_with("error: cannot use copy: ")
            && words.ends_with("hint: use a disk with more space\n"),
        "{words}"
    );
    assert_eq!(limited.status.code(), Some(74));
    let mut left: Vec<_> =
        fs::read_dir(place.folder()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["file", "full", "kept"]);
    assert_eq!(
        place.run_bounded(&["--embedded=kept", "get", "k"]),
        "--- stdout\nv(no line feed)\n--- exit 0\n"
    );
}

#[test]
fn corrupt_files_are_not_copied() {
    let place = Place::new();
    let script = "set a 1\nset b 2\nset c 3\n";
    let words = ["--embedded=kept", "batch", "-", "-q", "--inflight", "1"];
    assert_eq!(place.run_with_input(&words, script.as_bytes()), "--- exit 0\n");
    let mut log = fs::read(place.path("kept/log-1")).unwrap();
    log[4096 + 60] ^= 1;
    place.write("kept/log-1", log);
    let shown = place.run_bounded(&["data", "copy", "kept", "copy"]);
    assert!(shown.starts_with("--- stderr\nerror: kept is corrupt: log-1, byte 4096: "), "{shown}");
    assert!(shown.ends_with("hint: restore all files of kept from one backup\n--- exit 74\n"), "{shown}");
    assert!(!place.path("copy").exists());
}

#[test]
fn a_signal_ends_the_copy_and_nothing_of_it_is_left() {
    let place = Place::new();
    assert_eq!(place.run_bounded(&["--embedded=kept", "set", "k", "v"]), "--- exit 0\n");
    // A hole that takes long to read.
    let log = fs::OpenOptions::new().write(true).open(place.path("kept/log-1")).unwrap();
    log.set_len(1 << 40).unwrap();
    let names =
        || fs::read_dir(place.folder()).unwrap().map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>();
    for signal in [Signal::SIGINT, Signal::SIGHUP] {
        let mut copy = Process::start(place.command(&["data", "copy", "kept", "copy"]));
        let has_begun = || {
            names().iter().any(|name| {
                let path = place.path(name.to_str().unwrap()).join("log-1");
                name != "kept" && path.exists()
            })
        };
        wait_until("the copy begins", || has_begun().then_some(()));
        copy.signal(signal);
        let exit = copy.end();
        assert_eq!((exit.signal, exit.errors), (Some(signal as i32), String::new()));
        assert_eq!(names(), ["kept"]);
    }
}

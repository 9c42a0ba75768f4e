//! `serve --data`: persistence with `--persist`, the offline verbs on its directory, and failing disks.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::common::{LoggedServer, Place, Server, StreamedProcess, line_in, make_fifo, wait_until};
use crate::a_watchdog::bounded;

const FILE: &str = "kept/log-1";

fn run(place: &Place, line: &str) -> String {
    place.run_bounded(&line.split_whitespace().collect::<Vec<_>>())
}

/// Serves the directory that most tests use.
const SERVE: &str = "serve --data kept --listen 127.0.0.1:0";
/// The verbs below `data`, each with its arguments after the directory.
const OFFLINE: [(&str, &str); 4] =
    [("verify", ""), ("recover", ""), ("clear-fence", "k"), ("lower-versions", "")];

/// A data directory with the keys `k10` to `k19`, each in a group of its own.
fn filled() -> Place {
    let place = Place::new();
    for number in 10..20 {
        assert_eq!(run(&place, &format!("--embedded=kept set k{number} value-of-k{number}")), "--- exit 0\n");
    }
    place
}

/// The data directory of a killed server with the keys `k10` to `k39`.
fn killed() -> Place {
    let place = Place::new();
    let server = Server::start(&place, &["-q", "--data", "kept"]);
    for number in 10..40 {
        let words = ["set", &format!("k{number}"), &format!("value-of-k{number}")];
        assert_eq!(place.run_at(&server.url(), &words), "--- exit 0\n");
    }
    drop(server);
    place
}

/// Returns the offsets of `of` in `bytes`; there is at least one.
fn offsets(bytes: &[u8], of: &[u8]) -> Vec<usize> {
    let found = bytes.windows(of.len()).enumerate().filter(|(_, window)| *window == of);
    let offsets: Vec<_> = found.map(|(at, _)| at).collect();
    assert!(!offsets.is_empty());
    offsets
}

/// Returns the text after `name:` in the output of a verification.
fn line<'a>(shown: &'a str, name: &str) -> &'a str {
    let found = shown.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    found.unwrap_or_else(|| panic!("no {name} in {shown}")).trim()
}

#[test]
fn persist_custom_persists_only_requested_keys() {
    let place = Place::new();
    let options = ["--data", "kept", "--persist", "custom"];
    let server = Server::start(&place, &[&["-q"], &options[..]].concat());
    let at = |words: &[&str]| place.run_at(&server.url(), words);
    assert_eq!(at(&["set", "kept", "v", "--persist"]), "--- exit 0\n");
    assert_eq!(at(&["set", "gone", "v", "--persist"]), "--- exit 0\n");
    assert_eq!(at(&["set", "passing", "v"]), "--- exit 0\n");
    assert_eq!(at(&["set", "kept", "w"]), "--- exit 0\n");
    assert_eq!(at(&["del", "gone"]), "--- exit 0\n");
    drop(server);
    let server = Server::start(&place, &[&["-q"], &options[..]].concat());
    assert_eq!(place.run_at(&server.url(), &["keys"]), "--- stdout\nkept\n--- exit 0\n");
    assert_eq!(place.bytes_at(&server.url(), &["get", "kept"]), b"w");
    drop(server);
    // A server that persists all keys reads the same directory.
    let server = Server::start(&place, &["-q", "--data", "kept"]);
    assert_eq!(place.run_at(&server.url(), &["set", "passing", "v"]), "--- exit 0\n");
    drop(server);
    let server = Server::start(&place, &[&["-q"], &options[..]].concat());
    assert_eq!(place.run_at(&server.url(), &["keys"]), "--- stdout\nkept\npassing\n--- exit 0\n");
}

#[test]
fn an_intact_folder_verifies_and_is_not_modified() {
    let place = Place::new();
    assert_eq!(run(&place, "--embedded=kept set k value --ttl 1h"), "--- exit 0\n");
    assert_eq!(run(&place, "--embedded=kept set fenced v --fence 2000:0:holder"), "--- exit 0\n");
    let before = fs::read(place.path(FILE)).unwrap();
    for verb in ["verify", "recover"] {
        let shown = run(&place, &format!("data {verb} kept"));
        assert!(shown.ends_with("--- exit 0\n"), "{shown}");
        let values = ["condition", "keys", "bytes", "fenced", "expiring"].map(|name| line(&shown, name));
        assert_eq!(values, ["intact", "2", "7 in keys, 6 in values", "1", "1, of which 0 have expired"]);
    }
    assert!(fs::read(place.path(FILE)).unwrap() == before);
    assert!(!place.path("kept/recovered").exists());
}

#[test]
fn recover_writes_the_records_of_the_groups_that_are_intact() {
    let place = filled();
    let mut bytes = fs::read(place.path(FILE)).unwrap();
    let offsets = offsets(&bytes, b"value-of-k15");
    offsets.into_iter().for_each(|at| bytes[at] = b'V');
    place.write(FILE, &bytes);
    let corrupt = "error: kept is corrupt: log-1, byte 20480: group 6 is damaged or missing, and group 10 is in log-1, byte 36864\n\
                   hint: restore all files of kept from one backup, or recover the readable keys: mqkv data recover kept\n\
                   --- exit 74\n";
    for line in [SERVE, "data verify kept", "data clear-fence kept k10"] {
        let shown = run(&place, line);
        assert!(shown.ends_with(corrupt), "{line}: {shown}");
    }
    let shown = run(&place, "data verify kept");
    assert!(line(&shown, "condition").starts_with("log-corrupt; the last writes cannot be read"), "{shown}");
    assert_eq!(line(&shown, "keys"), "9");
    let shown = run(&place, "data recover kept");
    let lost = "  continue with: mqkv serve --data kept/recovered\n\
                error: records may be missing: log-1, byte 20480: group 6 is damaged or missing, and group 10 is in log-1, byte 36864\n\
                hint: restore all files of kept from one backup, if there is one\n--- exit 65\n";
    assert!(shown.ends_with(lost), "{shown}");
    assert!(fs::read(place.path(FILE)).unwrap() == bytes, "the corrupt file is not modified");
    let again = run(&place, "data recover kept");
    assert!(
        again.contains("exists already; nothing was written") && again.ends_with("--- exit 74\n"),
        "{again}"
    );
    let server = Server::start(&place, &["-q", "--data", "kept/recovered"]);
    assert_eq!(place.bytes_at(&server.url(), &["get", "k19"]), b"value-of-k19");
    assert_eq!(
        place.run_at(&server.url(), &["get", "k15"]),
        "--- stderr\nerror: key not found: k15\n--- exit 1\n"
    );
}

#[test]
fn keys_of_a_truncated_file_are_recovered() {
    let place = filled();
    let good = fs::read(place.path(FILE)).unwrap();
    for (bad, keys, key) in [(&good[..5 * 4_096], "5", "k14"), (&good[4_096..], "9", "k19")] {
        place.write(FILE, bad);
        let shown = run(&place, "data verify kept");
        assert!(shown.ends_with("--- exit 74\n") && line(&shown, "keys") == keys, "{shown}");
        assert!(run(&place, "data recover kept").ends_with("--- exit 65\n"));
        let server = Server::start(&place, &["-q", "--data", "kept/recovered"]);
        assert_eq!(place.bytes_at(&server.url(), &["get", key]), format!("value-of-{key}").as_bytes());
        drop(server);
        fs::remove_dir_all(place.path("kept/recovered")).unwrap();
    }
    place.write(FILE, b"garbage");
    let shown = run(&place, "data recover kept");
    assert!(shown.contains("no key in it can be read") && shown.ends_with("--- exit 74\n"), "{shown}");
    assert!(!place.path("kept/recovered").exists());
}

#[test]
fn the_files_of_a_killed_server_are_intact_and_a_missing_one_is_refused() {
    let place = killed();
    let shown = run(&place, "data verify kept");
    assert_eq!([line(&shown, "condition"), line(&shown, "keys")], ["intact", "30"], "{shown}");
    assert!(line(&shown, "files").starts_with("kept, snapshot 0 bytes, log "), "{shown}");
    let log = fs::read(place.path(FILE)).unwrap();
    fs::remove_file(place.path(FILE)).unwrap();
    for line in [SERVE, "data verify kept"] {
        let shown = run(&place, line);
        assert!(
            shown.contains("error: kept is corrupt: log-1 is missing, and there is no snapshot\n"),
            "{shown}"
        );
        assert!(shown.ends_with("mqkv data recover kept\n--- exit 74\n"), "{shown}");
    }
    assert!(!place.path(FILE).exists(), "nothing is created");
    assert!(run(&place, "data verify kept -j").contains("\"condition\":\"snapshot-corrupt\""));
    place.write(FILE, &log);
    assert_eq!(run(&place, "--embedded=kept set k39 v --fence 2000:0:holder"), "--- exit 0\n");
    assert!(run(&place, "data verify kept").contains("intact"));
    assert_eq!(
        bounded(|| place.command(&["--embedded=kept", "get", "k38"]).output()).unwrap().stdout,
        b"value-of-k38"
    );
}

#[test]
fn offline_commands_print_one_json_object() {
    let place = filled();
    let object = |verb: &str, code: u8| -> Value {
        let shown = run(&place, &format!("data {verb} -j"));
        assert!(shown.ends_with(&format!("--- exit {code}\n")), "{shown}");
        let line = shown.strip_prefix("--- stdout\n").and_then(|rest| rest.lines().next());
        serde_json::from_str(line.unwrap_or_else(|| panic!("{shown}"))).unwrap()
    };
    let whole = object("verify kept", 0);
    let fields: Vec<_> = whole.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(
        fields.join(" "),
        "v op file file_bytes log_bytes condition keys key_bytes value_bytes fenced expiring expired version_min version_max \
         greatest written"
    );
    assert_eq!([&whole["v"], &whole["keys"], &whole["value_bytes"]], [1, 10, 12 * 10]);
    assert_eq!([&whole["op"], &whole["condition"]], ["verify", "intact"]);
    assert_eq!(whole["greatest"], whole["version_max"]);
    assert_eq!(object("recover kept", 0)["op"], "recover");
    let shown = |verb: &str| run(&place, &format!("data {verb} -j"));
    assert_eq!(
        shown("clear-fence kept k10"),
        "--- stdout\n{\"v\":1,\"op\":\"clear-fence\",\"key\":\"k10\",\"found\":true}\n--- exit 0\n"
    );
    assert_eq!(
        shown("clear-fence kept --key-hex ff"),
        "--- stdout\n{\"v\":1,\"op\":\"clear-fence\",\"key\":\"/w==\",\"key_encoding\":\"base64\",\
         \"found\":false}\n--- exit 1\n"
    );
    assert_eq!(run(&place, "--embedded=kept set fenced v --fence 2000:0:n"), "--- exit 0\n");
    assert_eq!(object("clear-fence kept fenced", 0)["cleared"], "000000000002000:00000:n");
    assert_eq!(
        shown("lower-versions kept"),
        "--- stdout\n{\"v\":1,\"op\":\"lower-versions\",\"keys\":0,\"fences\":0,\"floor\":false}\n--- exit 0\n"
    );
    assert_eq!(
        run(&place, "data lower-versions kept"),
        "--- stderr\nno version is more than 60 s ahead of the clock; nothing was changed\n--- exit 0\n"
    );
    let mut bytes = fs::read(place.path(FILE)).unwrap();
    for at in offsets(&bytes, b"value-of-k15") {
        bytes[at] = b'V';
    }
    place.write(FILE, &bytes);
    for (verb, code) in [("verify", 74), ("recover", 65)] {
        let damaged = object(&format!("{verb} kept"), code);
        assert_eq!([&damaged["condition"], &damaged["op"]], ["log-corrupt", verb], "{damaged}");
        // The key with a fence is one more.
        assert_eq!(damaged["keys"], 10, "{damaged}");
        assert!(damaged["corruption"].is_string(), "{damaged}");
        assert_eq!(damaged["recovered"].as_str(), (verb == "recover").then_some("kept/recovered"));
    }
    assert!(shown("verify kept").contains("--- stderr\n{\"v\":1,\"error\":{\"kind\":\"file\",\"code\":74,"));
}

#[test]
fn files_of_another_format_are_refused_and_not_modified() {
    let place = filled();
    place.write("kept/lock", b"mqkv store, format 77\n");
    fs::create_dir(place.path("old")).unwrap();
    place.write("old/store.redb", b"tables");
    let hint = |directory: &str| {
        format!(
            "hint: export the keys with the version of mqkv that wrote them, `mqkv --embedded={directory} export`, and import \
             them into another directory\n--- exit 74\n"
        )
    };
    let before = fs::read(place.path(FILE)).unwrap();
    for line in [SERVE, "data verify kept", "data recover kept", "data clear-fence kept k10"] {
        let error = "--- stderr\nerror: kept has format 77; this version reads and writes another one\n";
        assert_eq!(run(&place, line), format!("{error}{}", hint("kept")), "{line}");
        let error = "--- stderr\nerror: old has the files of an earlier version of mqkv\n";
        let line = line.replace("kept", "old");
        assert_eq!(run(&place, &line), format!("{error}{}", hint("old")), "{line}");
    }
    assert!(fs::read(place.path(FILE)).unwrap() == before);
    assert_eq!(fs::read(place.path("old/store.redb")).unwrap(), b"tables");
}

#[test]
fn a_stale_fencing_token_can_be_cleared() {
    let place = Place::new();
    assert_eq!(run(&place, "--embedded=kept set k v --fence 2000:0:holder"), "--- exit 0\n");
    let version = run(&place, "--embedded=kept get k -j");
    assert!(run(&place, "--embedded=kept set k w").contains("a fencing token is required"));
    let cleared = "--- stderr\nremoved the fencing token 000000000002000:00000:holder from k\n--- exit 0\n";
    assert_eq!(run(&place, "data clear-fence kept k"), cleared);
    let cleared = version.replace(",\"fence\":\"000000000002000:00000:holder\"", "");
    assert_ne!(cleared, version);
    assert_eq!(run(&place, "--embedded=kept get k -j"), cleared, "nothing else is changed");
    let unprotected = "--- stderr\nk has no fencing token; nothing was changed\n--- exit 0\n";
    assert_eq!(run(&place, "data clear-fence kept --key-hex 6b"), unprotected);
    assert_eq!(run(&place, "data clear-fence kept --key-base64 aw=="), unprotected);
    assert_eq!(run(&place, "--embedded=kept set k w"), "--- exit 0\n");
    let missing = "--- stderr\nerror: key not found: other\n--- exit 1\n";
    assert_eq!(run(&place, "data clear-fence kept other"), missing);
    let shown = run(&place, "data clear-fence kept");
    assert!(shown.contains("error: KEY is missing\n") && shown.ends_with("--- exit 2\n"), "{shown}");
    let shown = run(&place, "data clear-fence kept k --key-hex 6b");
    assert!(
        shown.contains("'[KEY]' cannot be used with '--key-hex <HEX>'") && shown.ends_with("--- exit 2\n"),
        "{shown}"
    );
}

#[test]
fn offline_commands_need_a_folder_that_no_server_uses() {
    let place = Place::new();
    for (verb, key) in OFFLINE {
        let shown = run(&place, &format!("data {verb}"));
        assert!(shown.starts_with("--- stderr\nerror: DIR "), "{shown}");
        assert!(shown.contains(" missing\n") && shown.ends_with("--- exit 2\n"), "{shown}");
        let shown = run(&place, &format!("data {verb} missing {key}"));
        assert!(
            shown.contains("there is no store in missing") && shown.ends_with("--- exit 74\n"),
            "{shown}"
        );
    }
    assert!(!place.path("missing").exists(), "nothing is created");
    let _server = Server::start(&place, &["-q", "--data", "kept"]);
    for (verb, key) in OFFLINE {
        let shown = run(&place, &format!("data {verb} kept {key}"));
        assert!(shown.contains("error: kept is in use by another process"), "{shown}");
        assert!(shown.ends_with("--- exit 74\n"), "{shown}");
    }
}

#[test]
fn a_file_that_is_not_regular_is_refused_at_once() {
    let place = Place::new();
    assert_eq!(run(&place, "--embedded=kept set k v"), "--- exit 0\n");
    let refused = "error: kept/log-1 is not a regular file\n\
                   hint: move it away, or use another directory\n--- exit 74\n";
    let make: [&dyn Fn(&str); 3] = [
        &|path| make_fifo(&place.path(path)),
        &|path| symlink("/dev/zero", place.path(path)).unwrap(),
        &|path| fs::create_dir(place.path(path)).unwrap(),
    ];
    fs::rename(place.path(FILE), place.path("kept/away")).unwrap();
    for (which, make) in make.iter().enumerate() {
        make(FILE);
        let kind = fs::symlink_metadata(place.path(FILE)).unwrap().file_type();
        for line in [SERVE, "data verify kept", "data recover kept", "data clear-fence kept k"] {
            let shown = run(&place, line);
            assert!(shown.contains(refused), "{which} {line}: {shown}");
        }
        assert!(
            fs::symlink_metadata(place.path(FILE)).unwrap().file_type() == kind,
            "the file is not modified"
        );
        let moved = place.path(&format!("kept/moved-{which}"));
        fs::rename(place.path(FILE), moved).unwrap();
    }
    fs::rename(place.path("kept/away"), place.path(FILE)).unwrap();
    assert!(run(&place, "data verify kept").contains("intact"));
}

/// A number that follows it would be beyond what the names can have, and a snapshot of a great number would count as the newest.
#[test]
fn a_file_of_an_absurd_number_is_refused_by_its_name_and_left_alone() {
    let place = filled();
    for name in
        ["log-18446744073709551615", "log-99999999999999999999", "log-0", "snapshot-9223372036854775807"]
    {
        place.write(&format!("kept/{name}"), b"");
        let refused = format!(
            "--- stderr\nerror: kept/{name} is no file of a store: its number is out of range\n\
             hint: move it away, or use another directory\n--- exit 74\n"
        );
        for line in [SERVE, "--embedded=kept get k10", "data verify kept", "data recover kept"] {
            assert_eq!(run(&place, line), refused, "{line}");
        }
        fs::remove_file(place.path(&format!("kept/{name}"))).unwrap();
    }
    assert!(run(&place, "data verify kept").contains("intact"));
}

#[test]
fn an_interrupted_start_leaves_nothing_that_counts() {
    let place = filled();
    // A crash during the creation of a file leaves the unfinished one, and one before the first write an empty lock file.
    place.write("kept/snapshot-2.new", b"unfinished");
    assert_eq!(
        bounded(|| place.command(&["--embedded=kept", "get", "k19"]).output()).unwrap().stdout,
        b"value-of-k19"
    );
    fs::remove_file(place.path(FILE)).unwrap();
    place.write("kept/lock", b"");
    assert_eq!(run(&place, "--embedded=kept get k19"), "--- stderr\nerror: key not found: k19\n--- exit 1\n");
    assert_eq!(run(&place, "--embedded=kept set k19 v"), "--- exit 0\n");
}

#[test]
fn an_empty_or_missing_file_of_a_store_is_refused_and_not_replaced() {
    let place = filled();
    for is_empty in [true, false] {
        if is_empty {
            place.write(FILE, b"");
        } else {
            fs::remove_file(place.path(FILE)).unwrap();
        }
        let what = if is_empty {
            "kept is corrupt: log-1: the first group is damaged or missing"
        } else {
            "the snapshot and the log of kept are missing"
        };
        let refused = format!("error: {what}\nhint: restore all files of kept from one backup");
        for line in [SERVE, "data verify kept", "data recover kept"] {
            let shown = run(&place, line);
            let is_refused = shown.contains(&refused) || shown.contains("no key in it can be read");
            assert!(is_refused && shown.ends_with("--- exit 74\n"), "{line}: {shown}");
        }
        assert_eq!(fs::metadata(place.path(FILE)).map(|file| file.len()).ok(), is_empty.then_some(0));
    }
}

/// A copy of the log that is older than the lock file: its writes since then are missing.
#[test]
fn a_log_of_an_earlier_time_is_refused_and_its_keys_are_recovered() {
    let place = filled();
    let older = fs::read(place.path(FILE)).unwrap();
    assert_eq!(run(&place, "--embedded=kept set k20 v"), "--- exit 0\n");
    place.write(FILE, &older);
    let refused = "error: kept is corrupt: the log ends with group 10, and group 11 was the last one at the last end\n\
                   hint: restore all files of kept from one backup, or recover the readable keys: mqkv data recover kept\n\
                   --- exit 74\n";
    for line in [SERVE, "data verify kept", "data clear-fence kept k10"] {
        let shown = run(&place, line);
        assert!(shown.ends_with(refused), "{line}: {shown}");
    }
    assert!(fs::read(place.path(FILE)).unwrap() == older, "the log is left as it was");
    assert!(run(&place, "data recover kept").ends_with("--- exit 65\n"));
    let server = Server::start(&place, &["-q", "--data", "kept/recovered"]);
    assert_eq!(place.bytes_at(&server.url(), &["get", "k19"]), b"value-of-k19");
}

/// A limit of the file size, which the server sees as a full disk, is set and then lifted.
#[test]
fn a_full_disk_refuses_persistent_writes_only_until_there_is_room() {
    let place = Place::new();
    let limited = "ulimit -S -f 4000; exec \"$0\" \"$@\"";
    let words =
        ["serve", "--data", "kept", "--persist", "custom", "--listen", "127.0.0.1:0", "--port-file", "port"];
    let mut command = place.command(&words);
    let binary = command.get_program().to_owned();
    let mut shell = Command::new("sh");
    shell.args(["-c", limited]).arg(&binary).args(command.get_args()).current_dir(place.folder());
    shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command = shell;
    let child = command.spawn().unwrap();
    let id = child.id().to_string();
    let server = StreamedProcess::read(child);
    let words = server.log_line();
    assert!(words.starts_with("listening on"), "{words}");
    let port = line_in(&place.path("port"));
    let url = format!("mqtt://127.0.0.1:{port}");
    place.write("large", "x".repeat(3_000_000));
    let at = |words: &[&str]| place.run_at(&url, words);
    assert_eq!(at(&["set", "k", "v", "--persist"]), "--- exit 0\n");
    let shown = at(&["set", "k", "-f", "large", "--persist"]);
    assert!(
        shown.contains("the change could not be persisted") && shown.ends_with("--- exit 76\n"),
        "{shown}"
    );
    let line = server.log_line();
    assert!(line.starts_with("persistent writes are refused until the disk works again: "), "{line}");
    assert_eq!(place.bytes_at(&url, &["get", "k"]), b"v");
    assert_eq!(at(&["set", "passing", "-f", "large"]), "--- exit 0\n");
    // A smaller record fitted all the time.
    assert_eq!(server.log_line(), "the disk works again: persistent writes are accepted");
    assert_eq!(at(&["set", "k", "w", "--persist"]), "--- exit 0\n");
    // The soft limit alone, which needs no privilege.
    let raised =
        bounded(|| Command::new("prlimit").args(["--pid", &id, "--fsize=1000000000:"]).status()).unwrap();
    assert!(raised.success());
    assert_eq!(at(&["set", "k", "-f", "large", "--persist"]), "--- exit 0\n");
    drop(server);
    let server = Server::start(&place, &["-q", "--data", "kept"]);
    assert_eq!(place.bytes_at(&server.url(), &["get", "k"]).len(), 3_000_000);
    assert_eq!(place.run_at(&server.url(), &["keys"]), "--- stdout\nk\n--- exit 0\n");
}

/// A small file system.
struct SmallDisk<'a>(&'a Place);

impl<'a> SmallDisk<'a> {
    fn mount(place: &'a Place, size: &str) -> Self {
        fs::create_dir(place.path("small")).unwrap();
        let disk = Self(place);
        assert!(disk.mounted(size), "the user may not mount a file system");
        disk
    }

    /// Has another program take all room.
    fn fill(&self) {
        let error = fs::write(self.0.path("small/full"), vec![0; 5_000_000]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StorageFull);
    }

    fn mounted(&self, options: &str) -> bool {
        let words = ["-t", "tmpfs", "-o", options, "tmpfs"];
        let mounted = bounded(|| Command::new("mount").args(words).arg(self.0.path("small")).output());
        mounted.is_ok_and(|output| output.status.success())
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        let _ = bounded(|| Command::new("umount").arg("--lazy").arg(self.0.path("small")).status());
    }
}

#[test]
#[ignore = "needs the right to mount a file system; .ci/run runs it"]
fn on_a_full_disk_a_large_value_does_not_block_small_ones() {
    let place = Place::new();
    let _disk = SmallDisk::mount(&place, "size=2500k");
    let options = ["--data", "small/kept"];
    let server = Server::start(&place, &[&["-q"], &options[..]].concat());
    place.write("large", "x".repeat(2_000_000));
    let at = |words: &[&str]| place.run_at(&server.url(), words);
    assert_eq!(at(&["set", "k", "v"]), "--- exit 0\n");
    fs::write(place.path("small/full"), vec![0; 1_400_000]).unwrap();
    let shown = at(&["set", "k", "-f", "large"]);
    assert!(
        shown.contains("the change could not be persisted") && shown.ends_with("--- exit 76\n"),
        "{shown}"
    );
    // The space that the large value took is released.
    wait_until("small values are accepted", || (at(&["set", "small", "v"]) == "--- exit 0\n").then_some(()));
    fs::remove_file(place.path("small/full")).unwrap();
    assert_eq!(at(&["get", "k"]), "--- stdout\nv(no line feed)\n--- exit 0\n");
    drop(server);
    let server = Server::start(&place, &[&["-q"], &options[..]].concat());
    assert_eq!(place.run_at(&server.url(), &["keys"]), "--- stdout\nk\nsmall\n--- exit 0\n");
}

#[test]
#[ignore = "needs the right to mount a file system; .ci/run runs it"]
fn on_a_disk_of_3_mb_that_others_fill_the_keys_of_a_small_store_can_be_deleted_and_set_again() {
    let place = Place::new();
    let disk = SmallDisk::mount(&place, "size=3m");
    let server = LoggedServer::start(&place, &["--listen", "127.0.0.1:0", "--data", "small/kept"]);
    let url = format!("mqtt://127.0.0.1:{}", server.port(0));
    let at = |words: &[&str]| place.run_at(&url, words);
    assert_eq!(at(&["set", "k", "v"]), "--- exit 0\n");
    wait_until("room is reserved", || place.path("small/kept/reserve").exists().then_some(()));
    // It is as long as it will be.
    let len = || fs::metadata(place.path("small/kept/reserve")).unwrap().len();
    wait_until("all room is reserved", || (len() > 700_000).then_some(()));
    disk.fill();
    let value = "x".repeat(1_000);
    let set = |number: &usize| at(&["set", &format!("k{number}"), &value]) == "--- exit 0\n";
    let count = (0..1_000).take_while(set).count();
    assert!(count < 1_000, "the disk is never full");
    for number in 0..count {
        assert_eq!(at(&["del", &format!("k{number}")]), "--- exit 0\n", "of {count}");
    }
    fs::remove_file(place.path("small/full")).unwrap();
    wait_until("writes are accepted", || (at(&["set", "again", "v"]) == "--- exit 0\n").then_some(()));
    assert_eq!(at(&["keys"]), "--- stdout\nk\nagain\n--- exit 0\n");
}

#[test]
#[ignore = "needs the right to mount a file system; .ci/run runs it"]
fn a_disk_without_room_for_the_reserve_is_reported_at_the_start() {
    let place = Place::new();
    let disk = SmallDisk::mount(&place, "size=3m");
    for number in 0..20 {
        assert_eq!(run(&place, &format!("--embedded=small/kept set k{number} v")), "--- exit 0\n");
    }
    disk.fill();
    let server = LoggedServer::start(&place, &["--listen", "127.0.0.1:0", "--data", "small/kept"]);
    server
        .log_line_with("refused until the disk works again: the disk is full, and keys can only be deleted");
    let url = format!("mqtt://127.0.0.1:{}", server.port(0));
    let at = |words: &[&str]| place.run_at(&url, words);
    assert!(at(&["set", "k", "v"]).ends_with("--- exit 76\n"));
    assert_eq!(at(&["del", "k3"]), "--- exit 0\n");
    fs::remove_file(place.path("small/full")).unwrap();
    server.log_line_with("the disk works again: persistent writes are accepted");
    assert_eq!(at(&["set", "k", "v"]), "--- exit 0\n");
}

#[test]
#[ignore = "needs the right to mount a file system; .ci/run runs it"]
fn a_read_only_folder_exits_with_74_and_can_be_verified() {
    let place = Place::new();
    let disk = SmallDisk::mount(&place, "size=2500k");
    assert_eq!(run(&place, "--embedded=small/kept set k v"), "--- exit 0\n");
    assert!(disk.mounted("remount,ro"));
    for folder in ["small/kept", "small/new"] {
        let refused = format!(
            "--- stderr\nerror: cannot use {folder}: Read-only file system (os error 30)\n\
             hint: use a directory that is writable\n--- exit 74\n"
        );
        for words in ["serve --listen 127.0.0.1:0 --data ", "get k --embedded="] {
            assert_eq!(run(&place, &format!("{words}{folder}")), refused, "{words}");
        }
    }
    let shown = run(&place, "data verify small/kept");
    assert_eq!([line(&shown, "condition"), line(&shown, "keys")], ["intact", "1"]);
    assert!(shown.ends_with("--- exit 0\n"), "{shown}");
}

#[test]
fn a_path_that_is_not_a_folder_exits_with_74() {
    let place = Place::new();
    place.write("file", "x");
    let shown = run(&place, "serve --listen 127.0.0.1:0 --data file");
    assert!(shown.contains("cannot use file: ") && shown.ends_with("--- exit 74\n"), "{shown}");
}

//! `serve --data`: persistence with `--persist`, the offline verbs on its directory, and failing disks.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};

use redb::TableDefinition;
use serde_json::Value;

use super::common::{Place, Server, StreamedProcess, line_in, wait_until};

const FILE: &str = "kept/store.redb";

fn run(place: &Place, line: &str) -> String {
    place.run_bounded(&line.split_whitespace().collect::<Vec<_>>())
}

/// Serves the directory that most tests use.
const SERVE: &str = "serve --data kept --listen 127.0.0.1:0";
/// The verbs below `data`, each with its arguments after the directory.
const OFFLINE: [(&str, &str); 4] =
    [("verify", ""), ("recover", ""), ("clear-fence", "k"), ("lower-versions", "")];

/// A data directory with the keys `k10` to `k99`.
fn filled() -> Place {
    let place = Place::new();
    let lines: String = (10..100).map(|number| format!("set k{number} value-of-k{number}\n")).collect();
    assert_eq!(place.run_with_input(&["--embedded=kept", "batch", "-"], lines.as_bytes()), "--- exit 0\n");
    place
}

/// The data directory of a killed server with the keys `k10` to `k39`; the last ones are in the log only.
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
fn recover_writes_the_readable_records_of_a_corrupt_file() {
    let place = filled();
    let mut bytes = fs::read(place.path(FILE)).unwrap();
    let offsets = offsets(&bytes, b"value-of-k55");
    offsets.into_iter().for_each(|at| bytes[at] = b'V');
    place.write(FILE, &bytes);
    let shown = run(&place, "serve --data kept --listen 127.0.0.1:0");
    assert!(shown.contains("kept/store.redb is corrupt or not a store"), "{shown}");
    assert!(
        shown.ends_with("or recover the readable keys: mqkv data recover kept\n--- exit 74\n"),
        "{shown}"
    );
    let shown = run(&place, "data verify kept");
    assert_eq!([line(&shown, "condition"), line(&shown, "keys")], ["corrupt; 1 key cannot be read", "89"]);
    assert!(
        shown.ends_with("or recover the readable keys: mqkv data recover kept\n--- exit 74\n"),
        "{shown}"
    );
    let shown = run(&place, "data recover kept");
    assert!(shown.ends_with("  continue with: mqkv serve --data kept/recovered\n--- exit 0\n"), "{shown}");
    assert!(fs::read(place.path(FILE)).unwrap() == bytes, "the corrupt file is not modified");
    let again = run(&place, "data recover kept");
    assert!(
        again.contains("exists already; nothing was written") && again.ends_with("--- exit 74\n"),
        "{again}"
    );
    let server = Server::start(&place, &["-q", "--data", "kept/recovered"]);
    assert_eq!(place.bytes_at(&server.url(), &["get", "k99"]), b"value-of-k99");
    assert_eq!(
        place.run_at(&server.url(), &["get", "k55"]),
        "--- stderr\nerror: key not found: k55\n--- exit 1\n"
    );
    assert_eq!(place.bytes_at(&server.url(), &["keys"]).split(|byte| *byte == b'\n').count(), 90);
}

#[test]
fn keys_of_a_truncated_file_are_recovered() {
    let place = filled();
    let good = fs::read(place.path(FILE)).unwrap();
    let last = good.windows(12).rposition(|window| window == b"value-of-k99").unwrap() + 12;
    for bad in [&good[..last], &good[4_096..]] {
        place.write(FILE, bad);
        let shown = run(&place, "data verify kept");
        assert!(
            line(&shown, "condition").starts_with("corrupt; keys can only be found one by one"),
            "{shown}"
        );
        assert!(shown.ends_with("--- exit 74\n"), "{shown}");
        assert!(run(&place, "data recover kept").ends_with("--- exit 0\n"));
        let server = Server::start(&place, &["-q", "--data", "kept/recovered"]);
        assert_eq!(place.bytes_at(&server.url(), &["get", "k99"]), b"value-of-k99");
        drop(server);
        fs::remove_dir_all(place.path("kept/recovered")).unwrap();
    }
    place.write(FILE, b"garbage");
    let shown = run(&place, "data recover kept");
    assert!(shown.contains("no key in it can be read") && shown.ends_with("--- exit 74\n"), "{shown}");
    assert!(!place.path("kept/recovered").exists());
}

/// After a kill the last writes are in the log only.
#[test]
fn a_folder_without_its_log_after_a_crash_is_refused_and_older_data_is_recovered() {
    let place = killed();
    let log = fs::read(place.path("kept/store.log")).unwrap();
    offsets(&log, b"value-of-k39");
    let shown = run(&place, "data verify kept");
    assert_eq!([line(&shown, "condition"), line(&shown, "keys")], ["intact", "30"], "{shown}");
    let tables_bytes = fs::metadata(place.path(FILE)).unwrap().len();
    let files = format!("{FILE}, {tables_bytes} bytes; store.log, {} bytes", log.len());
    assert_eq!(line(&shown, "file"), files);
    let shown = run(&place, "data verify kept -j");
    let bytes = format!("\"file_bytes\":{tables_bytes},\"log_bytes\":{},", log.len());
    assert!(shown.contains(&bytes), "{shown}");
    assert!(fs::read(place.path("kept/store.log")).unwrap() == log, "nothing is changed");
    let refused = |damage: &str| {
        let shown = run(&place, "serve --data kept --listen 127.0.0.1:0");
        let error = format!("--- stderr\nerror: kept is corrupt: {damage}");
        let hint = "\nhint: restore all files of kept from one backup, or ";
        assert!(shown.starts_with(&error) && shown.contains(hint), "{shown}");
        assert!(
            shown.ends_with("or recover the readable keys: mqkv data recover kept\n--- exit 74\n"),
            "{shown}"
        );
        let shown = run(&place, "data verify kept");
        assert!(line(&shown, "condition").starts_with("corrupt; the last writes cannot be read"), "{shown}");
        assert!(shown.contains(&error) && shown.contains(hint), "{shown}");
        assert!(
            shown.ends_with("or recover the readable keys: mqkv data recover kept\n--- exit 74\n"),
            "{shown}"
        );
        let keys = line(&shown, "keys").parse::<usize>().unwrap();
        assert!(run(&place, "data recover kept").ends_with("--- exit 0\n"));
        let server = Server::start(&place, &["-q", "--data", "kept/recovered"]);
        assert_eq!(place.bytes_at(&server.url(), &["get", "k10"]), b"value-of-k10");
        let found = place.bytes_at(&server.url(), &["keys"]).split(|byte| *byte == b'\n').count() - 1;
        drop(server);
        fs::remove_dir_all(place.path("kept/recovered")).unwrap();
        assert_eq!(found, keys);
        keys
    };
    let mut bad = log.clone();
    offsets(&log, b"value-of-k35").into_iter().for_each(|at| bad[at] = b'V');
    place.write("kept/store.log", &bad);
    assert_eq!(refused("store.log: group "), 29);
    fs::remove_file(place.path("kept/store.log")).unwrap();
    assert!((10..30).contains(&refused("store.log is missing")));
    let shown = run(&place, "data verify kept -j");
    assert!(shown.contains("\"condition\":\"late\",\"damage\":\"store.log is missing\""), "{shown}");
    assert!(
        !shown.contains("log_bytes") && line(&run(&place, "data verify kept"), "file").ends_with(" bytes")
    );
    // The tables are read even if the log cannot be read.
    fs::create_dir(place.path("kept/store.log")).unwrap();
    let shown = run(&place, "data verify kept");
    assert!(
        shown.contains("error: kept is corrupt: kept/store.log is not a regular file\n")
            && shown.ends_with("--- exit 74\n"),
        "{shown}"
    );
    assert!((10..30).contains(&line(&shown, "keys").parse::<usize>().unwrap()), "{shown}");
    fs::remove_dir(place.path("kept/store.log")).unwrap();
    // A fence is set on a key that only the log contains, and an orderly shutdown leaves one file.
    place.write("kept/store.log", &log);
    assert_eq!(run(&place, "--embedded=kept set k39 v --fence 2000:0:holder"), "--- exit 0\n");
    assert!(!place.path("kept/store.log").exists());
    assert!(run(&place, "data verify kept").contains("intact"));
    assert_eq!(place.command(&["--embedded=kept", "get", "k38"]).output().unwrap().stdout, b"value-of-k38");
}

#[test]
fn a_log_without_its_tables_is_refused_and_its_keys_are_recovered() {
    let place = killed();
    fs::remove_file(place.path(FILE)).unwrap();
    let shown = run(&place, "serve --data kept --listen 127.0.0.1:0");
    assert!(shown.contains("it is missing, and store.log is not\n"), "{shown}");
    assert!(
        shown.ends_with("mqkv data recover kept\n--- exit 74\n") && !place.path(FILE).exists(),
        "{shown}"
    );
    let shown = run(&place, "data verify kept");
    assert!(line(&shown, "condition").starts_with("corrupt; keys can only be found one by one"), "{shown}");
    assert!(run(&place, "data recover kept").ends_with("--- exit 0\n"));
    let server = Server::start(&place, &["-q", "--data", "kept/recovered"]);
    assert_eq!(place.bytes_at(&server.url(), &["get", "k39"]), b"value-of-k39");
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
        "v op file file_bytes condition keys key_bytes value_bytes fenced expiring expired version_min version_max \
         greatest written"
    );
    assert_eq!([&whole["v"], &whole["keys"], &whole["value_bytes"]], [1, 90, 12 * 90]);
    assert_eq!([&whole["op"], &whole["condition"]], ["verify", "whole"]);
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
    for at in offsets(&bytes, b"value-of-k55") {
        bytes[at] = b'V';
    }
    place.write(FILE, &bytes);
    for (verb, code) in [("verify", 74), ("recover", 0)] {
        let damaged = object(&format!("{verb} kept"), code);
        assert_eq!([&damaged["condition"], &damaged["op"]], ["gap", verb], "{damaged}");
        assert_eq!([&damaged["lost"], &damaged["doubtful"], &damaged["keys"]], [1, 0, 90], "{damaged}");
        assert!(damaged["damage"].is_string(), "{damaged}");
        assert_eq!(damaged["recovered"].as_str(), (code == 0).then_some("kept/recovered"));
    }
    assert!(shown("verify kept").contains("--- stderr\n{\"v\":1,\"error\":{\"kind\":\"file\",\"code\":74,"));
}

#[test]
fn a_file_of_another_format_is_refused_and_not_modified() {
    let place = filled();
    let database = redb::Database::open(place.path(FILE)).unwrap();
    let write = database.begin_write().unwrap();
    write.open_table(TableDefinition::<(), u64>::new("format")).unwrap().insert((), 77).unwrap();
    write.commit().unwrap();
    drop(database);
    let before = fs::read(place.path(FILE)).unwrap();
    for line in [SERVE, "data verify kept", "data recover kept", "data clear-fence kept k10"] {
        assert_eq!(
            run(&place, line),
            "--- stderr\nerror: kept/store.redb has format 77; this version reads and writes formats 4 and 5\n\
             hint: use another directory, or the version of mqkv that wrote it\n--- exit 74\n",
            "{line}"
        );
    }
    assert!(fs::read(place.path(FILE)).unwrap() == before);
}

#[test]
fn a_stale_fencing_token_can_be_cleared() {
    let place = Place::new();
    assert_eq!(run(&place, "--embedded=kept set k v --fence 2000:0:holder"), "--- exit 0\n");
    let version = run(&place, "--embedded=kept get k -j");
    assert!(run(&place, "--embedded=kept set k w").contains("a fencing token is required"));
    let cleared = "--- stderr\nremoved the fencing token 000000000002000:00000:holder from k\n--- exit 0\n";
    assert_eq!(run(&place, "data clear-fence kept k"), cleared);
    assert_eq!(run(&place, "--embedded=kept get k -j"), version, "nothing else is changed");
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
            shown.contains("cannot read missing/store.redb: No such file or directory (os error 2)")
                && shown.ends_with("--- exit 74\n"),
            "{shown}"
        );
    }
    assert!(!place.path("missing").exists(), "nothing is created");
    let _server = Server::start(&place, &["-q", "--data", "kept"]);
    for (verb, key) in OFFLINE {
        let shown = run(&place, &format!("data {verb} kept {key}"));
        assert!(shown.contains("kept/store.redb is in use by another process"), "{shown}");
        assert!(shown.ends_with("--- exit 74\n"), "{shown}");
    }
}

#[test]
fn a_file_that_is_not_regular_is_refused_at_once() {
    let place = Place::new();
    assert_eq!(run(&place, "--embedded=kept set k v"), "--- exit 0\n");
    let refused = "error: kept/store.redb is not a regular file\n\
                   hint: move it away, or use another directory\n--- exit 74\n";
    let make: [&dyn Fn(&str); 3] = [
        &|path| assert!(Command::new("mkfifo").arg(place.path(path)).status().unwrap().success()),
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

    // An invalid log does not prevent reading the tables, but it does prevent the start of a server.
    let place = killed();
    fs::remove_file(place.path("kept/store.log")).unwrap();
    assert!(Command::new("mkfifo").arg(place.path("kept/store.log")).status().unwrap().success());
    for line in [SERVE, "data clear-fence kept k10"] {
        let shown = run(&place, line);
        assert!(shown.contains("error: kept/store.log is not a regular file\n"), "{line}: {shown}");
        assert!(shown.ends_with("--- exit 74\n"), "{line}: {shown}");
    }
    let verify = |damage: &str| {
        let shown = run(&place, "data verify kept");
        assert!(shown.contains(damage) && shown.ends_with("--- exit 74\n"), "{shown}");
        line(&shown, "keys").parse::<usize>().unwrap()
    };
    let damage = "kept/store.log is not a regular file\n";
    assert!((10..30).contains(&verify(damage)));
    let mut bytes = fs::read(place.path(FILE)).unwrap();
    bytes.drain(..4_096);
    place.write(FILE, bytes);
    assert!((10..30).contains(&verify(damage)), "the same result without an index");
}

#[test]
fn an_interrupted_start_is_cleaned_up() {
    let place = filled();
    // A crash during the creation of a file leaves the unfinished one, and the empty lock file.
    place.write("kept/store.redb.new", b"unfinished");
    assert_eq!(place.command(&["--embedded=kept", "get", "k99"]).output().unwrap().stdout, b"value-of-k99");
    fs::remove_file(place.path(FILE)).unwrap();
    place.write("kept/store.lock", b"");
    assert_eq!(run(&place, "--embedded=kept get k99"), "--- stderr\nerror: key not found: k99\n--- exit 1\n");
    assert_eq!(run(&place, "--embedded=kept set k99 v"), "--- exit 0\n");
    assert!(!place.path("kept/store.redb.new").exists());
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
        let what =
            if is_empty { "is empty" } else { "is missing, although store.lock shows that it was there" };
        let error = format!(
            "--- stderr\nerror: kept/store.redb {what}\nhint: restore all files of kept from one backup"
        );
        let refused = format!("{error}, or remove kept to start without keys\n--- exit 74\n");
        for line in [SERVE, "data verify kept", "data recover kept"] {
            assert_eq!(run(&place, line), refused, "{line}");
        }
        assert_eq!(fs::metadata(place.path(FILE)).map(|file| file.len()).ok(), is_empty.then_some(0));
    }
}

/// A copy of the tables that is older than the log: `data recover` takes the newest record of each key.
#[test]
fn a_log_that_belongs_to_other_tables_is_refused_and_its_keys_are_recovered() {
    let place = filled();
    let older = fs::read(place.path(FILE)).unwrap();
    let mut server = Server::start(&place, &["-q", "--data", "kept"]);
    for number in 10..40 {
        let words = ["set", &format!("k{number}"), &format!("newer-{number}")];
        assert_eq!(place.run_at(&server.url(), &words), "--- exit 0\n");
    }
    server.kill();
    let log = fs::read(place.path("kept/store.log")).unwrap();
    place.write(FILE, &older);
    let refused = "error: kept is corrupt: store.log does not belong to store.redb\n\
                   hint: restore all files of kept from one backup, or recover the readable keys: mqkv data recover kept\n\
                   --- exit 74\n";
    for line in [SERVE, "data verify kept", "data clear-fence kept k10"] {
        let shown = run(&place, line);
        assert!(shown.ends_with(refused), "{line}: {shown}");
    }
    assert!(run(&place, "data verify kept -j").contains("\"condition\":\"late\""));
    assert!(fs::read(place.path("kept/store.log")).unwrap() == log, "the log is left as it was");
    assert!(run(&place, "data recover kept").ends_with("--- exit 0\n"));
    let server = Server::start(&place, &["-q", "--data", "kept/recovered"]);
    assert_eq!(place.bytes_at(&server.url(), &["get", "k39"]), b"newer-39");
    assert_eq!(place.bytes_at(&server.url(), &["get", "k40"]), b"value-of-k40");
}

/// A limit of the file size, which the server sees as a full disk, is set and then lifted.
#[test]
fn a_full_disk_refuses_persistent_writes_only_until_there_is_room() {
    let place = Place::new();
    let limited = "trap '' XFSZ; ulimit -S -f 4000; exec \"$0\" \"$@\"";
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
    let raised = Command::new("prlimit").args(["--pid", &id, "--fsize=1000000000:"]).status().unwrap();
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
    fn mount(place: &'a Place) -> Self {
        fs::create_dir(place.path("small")).unwrap();
        let disk = Self(place);
        assert!(disk.mounted("size=2500k"), "the user may not mount a file system");
        disk
    }

    fn mounted(&self, options: &str) -> bool {
        let words = ["-t", "tmpfs", "-o", options, "tmpfs"];
        let mounted = Command::new("mount").args(words).arg(self.0.path("small")).output();
        mounted.is_ok_and(|output| output.status.success())
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.0.path("small")).status();
    }
}

#[test]
#[ignore = "needs the right to mount a file system; .ci/run runs it"]
fn on_a_full_disk_a_large_value_does_not_block_small_ones() {
    let place = Place::new();
    let _disk = SmallDisk::mount(&place);
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
fn a_read_only_folder_exits_with_74_and_can_be_verified() {
    let place = Place::new();
    let disk = SmallDisk::mount(&place);
    assert_eq!(run(&place, "--embedded=small/kept set k v"), "--- exit 0\n");
    assert!(disk.mounted("remount,ro"));
    for (folder, file) in [("small/kept", "small/kept/store.redb"), ("small/new", "small/new/store.redb")] {
        let refused = format!(
            "--- stderr\nerror: cannot use {file}: Read-only file system (os error 30)\n\
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
    assert!(shown.contains("cannot use file/store.redb: ") && shown.ends_with("--- exit 74\n"), "{shown}");
}

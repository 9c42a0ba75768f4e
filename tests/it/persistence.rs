//! `serve --data`: what is kept with `--persist`, and what can be done with the folder while nobody serves it.

use std::fs;
use std::process::{Command, Stdio};

use super::common::{Place, Running, Server, line_in, until};

const FILE: &str = "kept/store.redb";

fn run(place: &Place, line: &str) -> String {
    place.run_bounded(&line.split_whitespace().collect::<Vec<_>>())
}

/// A folder with some keys in it; the last of them `k99`.
fn filled() -> Place {
    let place = Place::new();
    let lines: String = (10..100).map(|number| format!("set k{number} value-of-k{number}\n")).collect();
    assert_eq!(place.run_with_input(&["--embedded=kept", "batch", "-"], lines.as_bytes()), "--- exit 0\n");
    place
}

/// The words of a verification behind a name.
fn line<'a>(shown: &'a str, name: &str) -> &'a str {
    let found = shown.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    found.unwrap_or_else(|| panic!("no {name} in {shown}")).trim()
}

#[test]
fn only_what_was_asked_for_is_kept_with_persist_custom() {
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
    // A server that keeps everything takes it from there.
    let server = Server::start(&place, &["-q", "--data", "kept"]);
    assert_eq!(place.run_at(&server.url(), &["set", "passing", "v"]), "--- exit 0\n");
    drop(server);
    let server = Server::start(&place, &[&["-q"], &options[..]].concat());
    assert_eq!(place.run_at(&server.url(), &["keys"]), "--- stdout\nkept\npassing\n--- exit 0\n");
}

#[test]
fn a_folder_that_is_whole_verifies_and_is_not_changed() {
    let place = Place::new();
    assert_eq!(run(&place, "--embedded=kept set k value --ttl 1h"), "--- exit 0\n");
    assert_eq!(run(&place, "--embedded=kept set fenced v --fence 2000:0:holder"), "--- exit 0\n");
    let before = fs::read(place.path(FILE)).unwrap();
    for verb in ["--verify", "--salvage"] {
        let shown = run(&place, &format!("serve --data kept {verb}"));
        assert!(shown.ends_with("--- exit 0\n"), "{shown}");
        let said = ["condition", "keys", "bytes", "fenced", "expiring"].map(|name| line(&shown, name));
        assert_eq!(said, ["whole", "2", "7 in keys, 6 in values", "1", "1, of which 0 have expired"]);
    }
    assert!(fs::read(place.path(FILE)).unwrap() == before);
    assert!(!place.path("kept/salvaged").exists());
}

#[test]
fn what_can_be_read_of_a_damaged_file_is_saved_beside_it() {
    let place = filled();
    let mut bytes = fs::read(place.path(FILE)).unwrap();
    // One value, wherever the file has it.
    let places: Vec<_> =
        bytes.windows(12).enumerate().filter(|(_, window)| *window == b"value-of-k55").collect();
    let places: Vec<_> = places.into_iter().map(|(at, _)| at).collect();
    assert!(!places.is_empty());
    places.into_iter().for_each(|at| bytes[at] = b'V');
    place.write(FILE, &bytes);
    let shown = run(&place, "serve --data kept --listen 127.0.0.1:0");
    assert!(shown.contains("kept/store.redb is damaged or no store"), "{shown}");
    assert!(shown.ends_with("what `mqkv serve --data kept --verify` finds in it\n--- exit 74\n"), "{shown}");
    let shown = run(&place, "serve --data kept --verify");
    assert_eq!([line(&shown, "condition"), line(&shown, "keys")], ["damaged; 1 key cannot be read", "89"]);
    assert!(shown.ends_with("or `mqkv serve --data kept --salvage`\n--- exit 74\n"), "{shown}");
    let shown = run(&place, "serve --data kept --salvage");
    assert!(shown.ends_with("  go on with: mqkv serve --data kept/salvaged\n--- exit 0\n"), "{shown}");
    assert!(fs::read(place.path(FILE)).unwrap() == bytes, "the damaged file stays as it is");
    let again = run(&place, "serve --data kept --salvage");
    assert!(
        again.contains("is there already; nothing was written") && again.ends_with("--- exit 74\n"),
        "{again}"
    );
    let server = Server::start(&place, &["-q", "--data", "kept/salvaged"]);
    assert_eq!(place.bytes_at(&server.url(), &["get", "k99"]), b"value-of-k99");
    assert_eq!(place.run_at(&server.url(), &["get", "k55"]), "--- exit 1\n");
    assert_eq!(place.bytes_at(&server.url(), &["keys"]).split(|byte| *byte == b'\n').count(), 90);
}

#[test]
fn a_file_that_has_lost_its_end_or_its_beginning_still_gives_its_keys() {
    let place = filled();
    let good = fs::read(place.path(FILE)).unwrap();
    let last = good.windows(12).rposition(|window| window == b"value-of-k99").unwrap() + 12;
    for bad in [&good[..last], &good[4_096..]] {
        place.write(FILE, bad);
        let shown = run(&place, "serve --data kept --verify");
        assert!(line(&shown, "condition").starts_with("damaged; keys can be found one by one"), "{shown}");
        assert!(shown.ends_with("--- exit 74\n"), "{shown}");
        assert!(run(&place, "serve --data kept --salvage").ends_with("--- exit 0\n"));
        let server = Server::start(&place, &["-q", "--data", "kept/salvaged"]);
        assert_eq!(place.bytes_at(&server.url(), &["get", "k99"]), b"value-of-k99");
        drop(server);
        fs::remove_dir_all(place.path("kept/salvaged")).unwrap();
    }
    place.write(FILE, b"garbage");
    let shown = run(&place, "serve --data kept --salvage");
    assert!(shown.contains("no key in it can be read") && shown.ends_with("--- exit 74\n"), "{shown}");
    assert!(!place.path("kept/salvaged").exists());
}

#[test]
fn a_fence_that_nobody_holds_any_more_can_be_taken_away() {
    let place = Place::new();
    assert_eq!(run(&place, "--embedded=kept set k v --fence 2000:0:holder"), "--- exit 0\n");
    let version = run(&place, "--embedded=kept get k -j");
    assert!(run(&place, "--embedded=kept set k w").contains("a fencing token is required"));
    let cleared = "--- stderr\nk is protected by 000000000002000:00000:holder no more\n--- exit 0\n";
    assert_eq!(run(&place, "serve --data kept --clear-fence k"), cleared);
    assert_eq!(run(&place, "--embedded=kept get k -j"), version, "nothing else is changed");
    let unprotected = "--- stderr\nk is not protected; nothing was changed\n--- exit 0\n";
    assert_eq!(run(&place, "serve --data kept --clear-fence --key-hex 6b"), unprotected);
    assert_eq!(run(&place, "serve --data kept --clear-fence --key-base64 aw=="), unprotected);
    assert_eq!(run(&place, "--embedded=kept set k w"), "--- exit 0\n");
    let missing = "--- stderr\nno such key: other\n--- exit 1\n";
    assert_eq!(run(&place, "serve --data kept --clear-fence other"), missing);
    let shown = run(&place, "serve --data kept --clear-fence");
    assert!(shown.contains("which key?") && shown.ends_with("--- exit 2\n"), "{shown}");
    let shown = run(&place, "serve --data kept --clear-fence k --key-hex 6b");
    assert!(shown.contains("the key is given twice") && shown.ends_with("--- exit 2\n"), "{shown}");
}

#[test]
fn what_is_done_offline_needs_a_folder_and_nobody_in_it() {
    let place = Place::new();
    for verb in ["--verify", "--salvage", "--clear-fence k"] {
        let shown = run(&place, &format!("serve {verb}"));
        assert!(shown.contains("--data DIR is missing") && shown.ends_with("--- exit 2\n"), "{shown}");
        let shown = run(&place, &format!("serve --data missing {verb}"));
        assert!(
            shown.contains("there is no missing/store.redb") && shown.ends_with("--- exit 74\n"),
            "{shown}"
        );
    }
    assert!(!place.path("missing").exists(), "nothing is made");
    let _server = Server::start(&place, &["-q", "--data", "kept"]);
    for verb in ["--verify", "--salvage", "--clear-fence k"] {
        let shown = run(&place, &format!("serve --data kept {verb}"));
        assert!(shown.contains("kept/store.redb is in use by another process"), "{shown}");
        assert!(shown.ends_with("--- exit 74\n"), "{shown}");
    }
}

#[test]
fn what_stands_between_two_starts_is_put_in_order() {
    let place = filled();
    // A crash while a new file was being made leaves it; an empty file is none.
    place.write("kept/store.redb.new", b"unfinished");
    assert_eq!(place.command(&["--embedded=kept", "get", "k99"]).output().unwrap().stdout, b"value-of-k99");
    place.write(FILE, b"");
    assert_eq!(run(&place, "--embedded=kept get k99"), "--- exit 1\n");
    assert_eq!(run(&place, "--embedded=kept set k99 v"), "--- exit 0\n");
    assert!(!place.path("kept/store.redb.new").exists());
}

/// A file may not grow any more, which is what a full disk is to the server, and then it may.
#[test]
fn a_full_disk_refuses_what_must_be_kept_and_nothing_else_until_there_is_room() {
    let place = Place::new();
    let limited = "trap '' XFSZ; ulimit -f 4000; exec \"$0\" \"$@\"";
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
    let server = Running::read(child);
    let words = server.words();
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
    let told = server.words();
    assert!(told.starts_with("what must be kept is refused until the disk works again: "), "{told}");
    assert_eq!(place.bytes_at(&url, &["get", "k"]), b"v");
    assert_eq!(at(&["set", "passing", "-f", "large"]), "--- exit 0\n");
    // There was room for something smaller all the time.
    assert_eq!(server.words(), "the disk works again: what must be kept is taken again");
    assert_eq!(at(&["set", "k", "w", "--persist"]), "--- exit 0\n");
    let raised = Command::new("prlimit").args(["--pid", &id, "--fsize=unlimited"]).status();
    if !raised.is_ok_and(|status| status.success()) {
        println!("not shown: room that comes back, for there is no prlimit, or it may not");
        return;
    }
    assert_eq!(at(&["set", "k", "-f", "large", "--persist"]), "--- exit 0\n");
    drop(server);
    let server = Server::start(&place, &["-q", "--data", "kept"]);
    assert_eq!(place.bytes_at(&server.url(), &["get", "k"]).len(), 3_000_000);
    assert_eq!(place.run_at(&server.url(), &["keys"]), "--- stdout\nk\n--- exit 0\n");
}

/// A small disk of its own, for whoever may mount one.
struct SmallDisk<'a>(&'a Place);

impl<'a> SmallDisk<'a> {
    fn mount(place: &'a Place) -> Option<Self> {
        fs::create_dir(place.path("small")).unwrap();
        let words = ["-t", "tmpfs", "-o", "size=2500k", "tmpfs"];
        let mounted = Command::new("mount").args(words).arg(place.path("small")).output();
        mounted.is_ok_and(|output| output.status.success()).then_some(Self(place))
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.0.path("small")).status();
    }
}

#[test]
fn on_a_disk_without_room_a_large_value_does_not_keep_small_ones_out() {
    let place = Place::new();
    let Some(_disk) = SmallDisk::mount(&place) else {
        println!("not shown: a small disk, for nobody but root may mount one");
        return;
    };
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
    // What the large one has taken is given back.
    until("small values are taken", || (at(&["set", "small", "v"]) == "--- exit 0\n").then_some(()));
    fs::remove_file(place.path("small/full")).unwrap();
    assert_eq!(at(&["get", "k"]), "--- stdout\nv(no line feed)\n--- exit 0\n");
    drop(server);
    let server = Server::start(&place, &[&["-q"], &options[..]].concat());
    assert_eq!(place.run_at(&server.url(), &["keys"]), "--- stdout\nk\nsmall\n--- exit 0\n");
}

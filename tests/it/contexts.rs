//! Contexts: adding, listing, changing, testing, and read-only contexts.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use nix::sys::signal::Signal;

use super::common::{CTRL_C, Place, Server, StreamedProcess, Terminal, is_running, wait_until};

const FILE: &str = ".config/mqkv/config.toml";

fn file(place: &Place) -> String {
    fs::read_to_string(place.path(FILE)).unwrap()
}

fn write(place: &Place, text: &str) {
    fs::create_dir_all(place.path(".config/mqkv")).unwrap();
    place.write(FILE, text);
}

#[track_caller]
fn assert_done(place: &Place, words: &[&str]) {
    assert_eq!(place.run(words), "--- exit 0\n", "{words:?}");
}

fn shown(place: &Place, words: &[&str]) -> String {
    place.run(words).replace(&format!("{}/", place.folder().display()), "")
}

#[test]
fn a_new_context_stores_exactly_the_options_that_were_typed() {
    let place = Place::new();
    assert_done(&place, &["context", "add", "lab", "-b", "mqtt://lab:1884", "-t", "30s", "-j", "-q"][..7]);
    assert_eq!(
        file(&place),
        "default_context = \"lab\"\n\n[context.lab]\nbroker = \"mqtt://lab:1884\"\ntimeout = \"30s\"\n"
    );
    let mode = |name: &str| fs::metadata(place.path(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(FILE), mode(".config/mqkv")), (0o600, 0o700));
    let words = ["context", "add", "prod", "-n", "aio", "-T", "ca.crt", "--sat-file", "/sat", "--read-only"];
    assert_done(&place, &[&words[..], &["--prompt-color", "bright_red"]].concat());
    let added = shown(&place, &["context", "show", "prod"]);
    let expected =
        "hostname\taio\ncafile\tca.crt\nsat_file\t/sat\nread_only\ttrue\nprompt_color\tbright red\n";
    assert_eq!(added, format!("--- stdout\n{expected}--- exit 0\n"));
}

#[test]
fn a_file_of_another_system_and_a_link_to_a_file_that_does_not_exist_are_changed() {
    let place = Place::new();
    write(&place, "\u{FEFF}# mine\r\n[context.lab]\r\nbroker = \"mqtt://lab\"\r\n");
    assert_done(&place, &["context", "add", "own", "-b", "mqtt://own"]);
    let listed = shown(&place, &["context", "ls"]);
    assert_eq!(listed, "--- stdout\nlab\tmqtt://lab:1883\nown\tmqtt://own:1883\n--- exit 0\n");
    assert!(file(&place).starts_with("# mine"), "{}", file(&place));
    place.write(FILE, b"\xFF\xFE[\0");
    let refused = shown(&place, &["context", "ls"]);
    let words = "error: .config/mqkv/config.toml is encoded in UTF-16; UTF-8 is required\n";
    let hint = "hint: convert it: iconv -f UTF-16 -t UTF-8\n";
    assert_eq!(refused, format!("--- stderr\n{words}{hint}--- exit 78\n"));
    fs::remove_file(place.path(FILE)).unwrap();
    std::os::unix::fs::symlink("../../dotfile", place.path(FILE)).unwrap();
    assert_done(&place, &["context", "add", "lab", "-b", "mqtt://lab"]);
    assert!(place.path(FILE).is_symlink() && place.path("dotfile").is_file());
}

#[test]
fn contexts_are_listed_selected_shown_and_removed() {
    let place = Place::new();
    let none = "--- stderr\nno contexts; add one with: mqkv context add NAME -b URL\n--- exit 0\n";
    assert_eq!(place.run(&["context", "ls"]), none);
    assert_eq!(place.run(&["context", "show"]), "--- stderr\nno context is in use\n--- exit 1\n");
    assert_done(&place, &["context", "add", "lab", "-b", "mqtt://lab"]);
    assert_done(&place, &["context", "add", "own", "--embedded=store"]);
    assert_eq!(
        shown(&place, &["context", "ls"]),
        "--- stdout\nlab\tmqtt://lab:1883\tdefault\nown\tembedded in store\n--- exit 0\n"
    );
    assert_eq!(
        shown(&place, &["context", "ls", "-j"]).lines().nth(1).unwrap(),
        "{\"v\":1,\"op\":\"context\",\"context\":\"lab\",\"broker\":\"mqtt://lab:1883\",\"default\":true,\"read_only\":false}"
    );
    assert_eq!(place.run(&["context", "show"]), "--- stdout\nbroker\tmqtt://lab\n--- exit 0\n");
    let refused = place.run(&["context", "rm", "lab"]);
    assert_eq!(
        refused,
        "--- stderr\nerror: lab is the default context\nhint: mqkv context use OTHER\n\
         hint: mqkv context use --none\n--- exit 78\n"
    );
    assert_done(&place, &["context", "use", "--none"]);
    assert_done(&place, &["context", "rm", "lab"]);
    assert_eq!(shown(&place, &["context", "ls"]), "--- stdout\nown\tembedded in store\n--- exit 0\n");
    assert!(place.run(&["context", "rm", "lab"]).contains("unknown context lab"));
}

#[test]
fn the_first_context_is_reported_as_the_default_and_the_only_one_can_be_removed() {
    let place = Place::new();
    let added = place.run(&["context", "add", "lab", "-b", "mqtt://lab:1883", "-o", "text"]);
    assert!(added.contains("it is the default: verbs use it from now on"), "{added}");
    let added = place.run(&["context", "add", "own", "--embedded=store", "-o", "text"]);
    assert!(!added.contains("default"), "{added}");
    assert_done(&place, &["context", "rm", "own"]);
    assert_done(&place, &["context", "rm", "lab"]);
    assert!(!file(&place).contains("default_context"), "{}", file(&place));
}

#[test]
fn comments_and_order_of_the_file_are_preserved() {
    let place = Place::new();
    let text = "# Ours.\ndefault_context = 'a' # for now\n\n# The desk.\n[context.a]\nport = 1 # odd\n\n[context.b]\nport = 2\n";
    write(&place, text);
    fs::set_permissions(place.path(FILE), fs::Permissions::from_mode(0o640)).unwrap();
    assert_done(&place, &["context", "use", "b"]);
    assert_eq!(file(&place), text.replace("'a' #", "\"b\" #"));
    assert_done(&place, &["context", "add", "c", "-p", "3"]);
    assert_eq!(file(&place), text.replace("'a' #", "\"b\" #") + "\n[context.c]\nport = 3\n");
    let mode = fs::metadata(place.path(FILE)).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o640, "the mode of the file is preserved");
}

#[test]
fn a_context_is_overwritten_only_with_force_and_checked_before_it_is_stored() {
    let place = Place::new();
    assert_done(&place, &["context", "add", "lab", "-b", "mqtt://lab"]);
    assert_eq!(
        shown(&place, &["context", "add", "lab", "-b", "mqtt://other"]),
        format!(
            "--- stderr\nerror: context lab exists already in {FILE}\nhint: --force replaces it\n--- exit 78\n"
        )
    );
    assert_done(&place, &["context", "add", "lab", "-b", "mqtt://other", "--force"]);
    let expected = "default_context = \"lab\"\n\n[context.lab]\nbroker = \"mqtt://other\"\n";
    assert_eq!(file(&place), expected);
    for words in [
        &["x"][..],
        &["a b", "-b", "mqtt://h"],
        &["x", "-b", "http://h"],
        &["x", "-n", "h", "-C", "c"],
        &["x", "-b", "mqtt://h", "--prompt-color", "reddish"],
        &["x", "-x", "lab"],
    ] {
        let shown = place.run(&[&["context", "add"], words].concat());
        assert!(shown.ends_with("--- exit 2\n"), "{words:?}: {shown}");
    }
    let expected = "default_context = \"lab\"\n\n[context.lab]\nbroker = \"mqtt://other\"\n";
    assert_eq!(file(&place), expected);
}

#[test]
fn context_test_connects_to_the_broker_of_a_context() {
    let servers = Place::new();
    let server = Server::start(&servers, &[]);
    let place = Place::new();
    assert_done(&place, &["context", "add", "here", "-b", &server.url()]);
    assert_done(&place, &["context", "add", "gone", "-b", "mqtt://127.0.0.1:1"]);
    let tried = place.run(&["context", "test", "here"]);
    assert!(
        tried.contains(&format!("127.0.0.1:{}", server.port())) && tried.ends_with("--- exit 0\n"),
        "{tried}"
    );
    assert!(place.run(&["context", "test", "gone"]).ends_with("--- exit 69\n"));
    assert_done(&place, &["context", "use", "--none"]);
    assert_eq!(
        place.run(&["context", "test"]),
        "--- stderr\nerror: no context is in use\nhint: mqkv context test NAME\nhint: mqkv context use NAME\n--- exit 78\n"
    );
    assert_done(&place, &["context", "use", "here"]);
    assert!(place.run(&["context", "test", "-j"]).contains("\"op\":\"ping\""));
}

#[test]
fn an_edited_file_is_stored_only_if_it_is_valid() {
    let edit = |place: Place, editor: &str| {
        let place = place.with_variable("EDITOR", editor);
        let shown = shown(&place, &["context", "edit", "-o", "text"]);
        (place, shown)
    };
    let (place, message) = edit(Place::new(), "printf '[context.a]\\nport = 1\\n' >");
    assert_eq!(message, format!("--- stdout\nchanged {FILE}\n--- exit 0\n"));
    assert_eq!(file(&place), "[context.a]\nport = 1\n");
    let (place, message) = edit(place, "true");
    assert_eq!(message, format!("--- stdout\n{FILE} is unchanged\n--- exit 0\n"));
    let (place, message) = edit(place, "echo read_onyl = true >>");
    assert_eq!(
        message,
        format!(
            "--- stderr\nerror: .config/mqkv/config.broken.toml:3: unknown setting read_onyl\n  \
             {FILE} is unchanged\n  your changes are in .config/mqkv/config.broken.toml\n\
             hint: read_only\n--- exit 78\n"
        )
    );
    assert_eq!(file(&place), "[context.a]\nport = 1\n");
    let broken = fs::read_to_string(place.path(".config/mqkv/config.broken.toml")).unwrap();
    assert_eq!(broken, "[context.a]\nport = 1\nread_onyl = true\n");
    let (place, message) = edit(place, "false");
    assert!(
        message.contains("the editor failed: exit status 1") && message.ends_with("--- exit 74\n"),
        "{message}"
    );
    // An invalid file can be repaired.
    write(&place, "nonsense");
    let (place, _) = edit(place, "echo '[context.b]' >");
    assert_eq!(file(&place), "[context.b]\n");
    assert_eq!(fs::read_dir(place.path(".config/mqkv")).unwrap().count(), 2, "the file and the broken one");
}

#[test]
fn ctrl_c_in_the_editor_does_not_end_context_edit() {
    const EDITOR: &str =
        "trap 'echo interrupted' INT; echo open; until read line; do :; done; printf '[context.a]\\n' >";
    let place = Place::new().with_variable("EDITOR", EDITOR);
    let mut terminal = Terminal::start(place.command(&["context", "edit"]));
    terminal.shows("open");
    terminal.keys(CTRL_C);
    terminal.shows("interrupted");
    terminal.line("");
    assert_eq!(terminal.end(), Some(0), "{}", terminal.screen());
    assert_eq!(file(&place), "[context.a]\n");
}

#[test]
fn a_signal_that_ends_context_edit_ends_the_editor() {
    let place = Place::new().with_variable("EDITOR", "echo $$; exec sleep 60; :");
    let running = StreamedProcess::start(&mut place.command(&["context", "edit"]));
    let editor = running.line();
    running.signal(Signal::SIGTERM);
    assert_eq!(running.end(), (vec![], vec![], None));
    wait_until("the editor ends", || (!is_running(&editor)).then_some(()));
}

#[test]
fn no_verb_writes_in_a_read_only_context() {
    let servers = Place::new();
    let server = Server::start(&servers, &[]);
    let place = Place::new();
    write(&place, &format!("[context.prod]\nbroker = '{}'\nread_only = true\n", server.url()));
    place.write("keys.jsonl", "{\"key\":\"k\",\"value\":\"v\"}\n");
    let refused = format!(
        "--- stderr\nerror: the context prod is read-only\n  {FILE}:3: read_only = true\n  nothing was changed\n\
         hint: --force-write\n--- exit 78\n"
    );
    for words in [
        &["set", "k", "v"][..],
        &["del", "k"],
        &["del", "--pattern", "*", "--yes"],
        &["vdel", "k", "v"],
        &["lock", "k", "true"],
        &["lock", "k", "--once"],
        &["unlock", "k", "--holder", "me"],
        &["import", "keys.jsonl"],
        &["raw", "SET", "k", "v"],
        &["raw", "nonsense"],
    ] {
        assert_eq!(shown(&place, &[&["-x", "prod"], words].concat()), refused, "{words:?}");
    }
    let reads = [&["get", "k"][..], &["keys"], &["raw", "GET", "k"], &["ping"], &["holder", "k"]];
    for words in [&reads[..], &[&["del", "--pattern", "*", "--dry-run"]]].concat() {
        let shown = place.run(&[&["-x", "prod"], words].concat());
        assert!(!shown.contains("read-only"), "{words:?}: {shown}");
    }
    place.write("lines", "get k\nset k v\nset l v\n");
    let batch = shown(&place, &["batch", "lines", "-x", "prod"]);
    assert!(
        batch.contains("error: lines:2: the context prod is read-only\n") && batch.ends_with("--- exit 78\n"),
        "{batch}"
    );
    assert_done(&place, &["import", "keys.jsonl", "-x", "prod", "--dry-run", "-q"]);
    assert_eq!(place.run(&["set", "k", "w", "-x", "prod", "--force-write"]), "--- exit 0\n");
    assert_eq!(
        place.run(&["batch", "lines", "-x", "prod", "--force-write", "-q"]),
        "--- stdout\nw\n--- exit 0\n"
    );
}

#[test]
fn a_context_sets_the_output_format() {
    let servers = Place::new();
    let server = Server::start(&servers, &[]);
    let place = Place::new();
    write(
        &place,
        &format!("default_context = 'a'\n[context.a]\nbroker = '{}'\noutput = 'hex'\n", server.url()),
    );
    assert_done(&place, &["set", "k", "v"]);
    assert_eq!(place.run(&["get", "k"]), "--- stdout\n76\n--- exit 0\n");
    assert_eq!(place.run(&["get", "k", "-o", "base64"]), "--- stdout\ndg==\n--- exit 0\n");
}

#[test]
fn a_context_is_changed_and_renamed_with_its_other_settings() {
    let place = Place::new();
    assert_done(&place, &["context", "add", "lab", "-b", "mqtt://lab", "-u", "ann", "--password-file", "/p"]);
    assert_done(&place, &["context", "set", "lab", "-n", "other", "--notls", "--read-only"]);
    let expected = "hostname\tother\nnotls\ttrue\nusername\tann\npassword_file\t/p\nread_only\ttrue\n";
    assert_eq!(place.run(&["context", "show", "lab"]), format!("--- stdout\n{expected}--- exit 0\n"));
    assert_done(&place, &["context", "set", "lab", "--sat-file", "/sat", "--read-only=false"]);
    let expected = "hostname\tother\nnotls\ttrue\nsat_file\t/sat\nread_only\tfalse\n";
    assert_eq!(place.run(&["context", "show", "lab"]), format!("--- stdout\n{expected}--- exit 0\n"));
    assert_done(&place, &["context", "rename", "lab", "plant"]);
    assert_eq!(place.run(&["context", "show", "plant"]), format!("--- stdout\n{expected}--- exit 0\n"));
    assert!(file(&place).starts_with("default_context = \"plant\"\n"), "the default follows");
    assert_done(&place, &["context", "add", "lab", "-b", "mqtt://lab"]);
    let refused = place.run(&["context", "rename", "lab", "plant"]);
    assert!(
        refused.contains("context plant exists already") && refused.ends_with("--- exit 78\n"),
        "{refused}"
    );
    assert!(place.run(&["context", "rename", "gone", "x"]).ends_with("--- exit 78\n"));
    assert!(place.run(&["context", "set", "lab"]).ends_with("--- exit 2\n"));
    assert!(place.run(&["context", "set", "gone", "-b", "mqtt://h"]).ends_with("--- exit 78\n"));
}

#[test]
fn a_variable_that_overrides_the_default_context_is_reported() {
    let place = Place::new().with_variable("MQKV_BROKER", "mqtt://other:1");
    let hint = "hint: MQKV_BROKER overrides the default context lab: unset it, or use -x lab\n";
    let with_hint = |exit: u8| format!("--- stderr\n{hint}--- exit {exit}\n");
    assert_eq!(place.run(&["context", "add", "lab", "-b", "mqtt://lab"]), with_hint(0));
    assert_eq!(place.run(&["context", "use", "lab"]), with_hint(0));
    let show = place.run(&["context", "show"]);
    assert_eq!(show, format!("--- stderr\nno context is in use\n{hint}--- exit 1\n"));
    let test = place.run(&["context", "test"]);
    let test_hint = "hint: mqkv context test NAME\n";
    assert_eq!(test, format!("--- stderr\nerror: no context is in use\n{test_hint}{hint}--- exit 78\n"));
    assert_eq!(place.run(&["context", "use", "lab", "-q"]), "--- exit 0\n");
    let place = Place::new();
    assert_done(&place, &["context", "add", "lab", "-b", "mqtt://lab"]);
    assert_done(&place, &["context", "use", "lab"]);
}

#[test]
fn a_context_is_added_and_used_although_a_variable_names_one_that_does_not_exist() {
    let place = Place::new().with_variable("MQKV_CONTEXT", "prod");
    let hint = "hint: MQKV_CONTEXT names prod, a context that does not exist: unset it, or use -x staging\n";
    let done = format!("--- stderr\n{hint}--- exit 0\n");
    assert_eq!(place.run(&["context", "add", "staging", "-b", "mqtt://h"]), done);
    assert_eq!(place.run(&["context", "use", "staging"]), done);
    let changed = place.run(&["context", "add", "lab", "-b", "mqtt://h", "-j"]);
    assert!(changed.contains("\"context\":\"lab\"") && changed.ends_with("--- exit 0\n"), "{changed}");
}

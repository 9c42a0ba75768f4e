//! `edit`: the value of a key in an editor.

use std::fs;

use nix::sys::signal::Signal;

use super::common::bounded::normalized;
use super::common::{Place, Server, StreamedProcess, Terminal, wait_until};

const UNCHANGED: &str = "--- exit 0\n";

/// Returns a place whose editor is this shell script; the file is `$file`, the binary `$mqkv`.
fn place(script: &str) -> Place {
    let place = Place::new();
    place.write("editor", format!("shift\nfile=$1\n{script}\n"));
    let editor = format!("sh {} --wait", place.path("editor").display());
    place.with_variable("EDITOR", &editor).with_variable("mqkv", env!("CARGO_BIN_EXE_mqkv"))
}

/// Returns the directories of edited files that were not removed.
fn drafts(place: &Place) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(place.folder()).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.to_string_lossy().contains("mqkv-edit-")).collect()
}

/// Returns the text of the only file that was not removed.
fn kept(place: &Place) -> String {
    let drafts = drafts(place);
    assert_eq!(drafts.len(), 1);
    let files: Vec<_> = fs::read_dir(&drafts[0]).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files.len(), 1);
    fs::read_to_string(&files[0]).unwrap()
}

#[test]
fn the_edited_value_is_stored_and_the_file_is_removed() {
    let place = place("sed -i s/1/2/ $file");
    let server = Server::start(&place, &["-q"]);
    let at = |words: &[&str]| place.run_at(&server.url(), words);
    at(&["set", "line1/temp", "21.5"]);
    assert_eq!(
        at(&["edit", "line1/temp", "-o", "text"]),
        "--- stdout\nstored line1/temp (4 bytes, no time to live)\n--- exit 0\n"
    );
    assert_eq!(place.bytes_at(&server.url(), &["get", "line1/temp"]), b"22.5");
    assert!(
        at(&["edit", "line1/temp", "-j"])
            .contains("{\"v\":1,\"op\":\"edit\",\"key\":\"line1/temp\",\"changed\":false,\"applied\":false}")
    );
    assert_eq!(drafts(&place).len(), 0);
}

#[test]
fn an_unchanged_value_is_not_written() {
    let place = place("echo >> $file");
    let server = Server::start(&place, &["-q"]);
    let at = |words: &[&str]| place.run_at(&server.url(), words);
    at(&["set", "k", "21.5", "--ttl", "1h"]);
    // The version is that of the last write.
    let version = || at(&["get", "k", "-j"]).split(",\"ttl_ms\":").next().unwrap().to_owned();
    let before = version();
    // Editors add a line feed to a last line without one.
    assert_eq!(at(&["edit", "k", "-o", "text"]), "--- stdout\nno change: k\n--- exit 0\n");
    assert_eq!(version(), before);
    // A key that does not exist begins empty, and an empty file does not create it.
    assert_eq!(at(&["edit", "none"]), UNCHANGED);
    assert_eq!(at(&["get", "none", "-q"]), "--- exit 1\n");
}

#[test]
fn line_feeds_at_the_end_of_a_value_stay() {
    let place = place("printf 'b\\n' >> $file");
    let server = Server::start(&place, &["-q"]);
    place.run_at(&server.url(), &["set", "k", "a\n"]);
    assert_eq!(place.run_at(&server.url(), &["edit", "k"]), UNCHANGED);
    assert_eq!(place.bytes_at(&server.url(), &["get", "k"]), b"a\nb\n");
    // A new key gets what was written without the last line feed, as a value on the command line.
    assert_eq!(place.run_at(&server.url(), &["edit", "new"]), UNCHANGED);
    assert_eq!(place.bytes_at(&server.url(), &["get", "new"]), b"b");
}

#[test]
fn a_key_that_was_changed_meanwhile_is_not_overwritten_and_the_text_is_kept() {
    for (before, meanwhile) in
        [("set k before", "set k theirs"), ("set k before", "del k"), ("keys", "set k theirs")]
    {
        let place = place(&format!("printf mine > $file\n$mqkv -b $url {meanwhile}"));
        let server = Server::start(&place, &["-q"]);
        let place = place.with_variable("url", &server.url());
        place.run_at(&server.url(), &before.split(' ').collect::<Vec<_>>());
        let shown = place.run_at(&server.url(), &["edit", "k", "-q"]);
        assert!(
            shown.starts_with(
                "--- stderr\nerror: not stored: k was changed meanwhile\n  the edited text is in /"
            ),
            "{shown}"
        );
        assert!(shown.ends_with("/k\n--- exit 1\n"), "{shown}");
        assert_eq!(kept(&place), "mine");
        let stored = place.run_at(&server.url(), &["get", "k", "--default", "none"]);
        let expected = if meanwhile == "del k" { "none" } else { "theirs" };
        assert_eq!(stored, format!("--- stdout\n{expected}(no line feed)\n--- exit 0\n"));
    }
}

#[test]
fn the_text_is_kept_if_the_write_fails() {
    let place = place("printf mine > $file");
    let server = Server::start(&place, &["-q"]);
    let token = "000000000000001:00000:me";
    place.run_at(&server.url(), &["set", "k", "v", "--fence", token]);
    let shown = place.run_at(&server.url(), &["edit", "k"]);
    assert!(shown.contains("a fencing token is required for this request\n"), "{shown}");
    assert!(shown.contains("\n  the edited text is in /") && shown.ends_with("--- exit 76\n"), "{shown}");
    assert_eq!(kept(&place), "mine");
    assert_eq!(place.run_at(&server.url(), &["edit", "k", "--fence", token]), UNCHANGED);
    assert_eq!(place.bytes_at(&server.url(), &["get", "k"]), b"mine");
}

#[test]
fn nothing_is_written_if_the_editor_fails() {
    for (script, error, is_kept) in [
        ("exit 3", "error: the editor failed: exit status 3\n--- exit 74\n", false),
        ("printf mine > $file; exit 3", "\n  the edited text is in /", true),
        ("rm $file", "--- stderr\nerror: the editor has removed the file\n--- exit 74\n", false),
        (
            "nosuch-editor $file",
            "error: the editor failed: exit status 127\nhint: VISUAL or EDITOR sets the editor\n",
            false,
        ),
    ] {
        let place = place(script);
        let server = Server::start(&place, &["-q"]);
        place.run_at(&server.url(), &["set", "k", "v"]);
        let shown = place.run_at(&server.url(), &["edit", "k"]);
        assert!(shown.contains(error) && shown.ends_with("--- exit 74\n"), "{shown}");
        assert_eq!(place.bytes_at(&server.url(), &["get", "k"]), b"v");
        assert_eq!(drafts(&place).len(), usize::from(is_kept), "{script}");
    }
}

#[test]
fn a_value_that_is_not_utf_8_is_not_edited() {
    let place = place("printf mine > $file");
    let server = Server::start(&place, &["-q"]);
    place.run_at(&server.url(), &["set", "k", "--hex", "ff"]);
    assert_eq!(
        place.run_at(&server.url(), &["edit", "k"]),
        "--- stderr\nerror: cannot edit k: the value is not UTF-8\n\
         hint: mqkv get KEY -f FILE writes it to a file, mqkv set KEY -f FILE reads it\n--- exit 65\n"
    );
    assert_eq!(drafts(&place).len(), 0);
}

#[test]
fn visual_comes_before_editor_and_the_write_can_set_a_time_to_live() {
    let place = place("printf editor > $file").with_variable("VISUAL", "sed -i 's/v/vis ual/'");
    let server = Server::start(&place, &["-q"]);
    place.run_at(&server.url(), &["set", "k", "v"]);
    let shown = place.run_at(&server.url(), &["edit", "k", "--ttl", "1h", "-j"]);
    assert_eq!(
        normalized(&shown),
        "--- stdout\n{\"v\":1,\"op\":\"edit\",\"key\":\"k\",\"changed\":true,\"applied\":true,\"ttl_ms\":3600000,\
         \"version\":\"VERSION\"}\n--- exit 0\n"
    );
    assert_eq!(place.bytes_at(&server.url(), &["get", "k"]), b"vis ual");
}

#[test]
fn a_signal_ends_the_editor_and_changed_text_is_kept() {
    for (script, is_kept) in [("", false), ("printf mine > $file", true)] {
        let place = place(&format!("{script}\necho ready >&2\nexec sleep 60"));
        let server = Server::start(&place, &["-q"]);
        let running = StreamedProcess::start(&mut place.command(&["edit", "k", "-b", &server.url()]));
        assert_eq!(running.error_line(), "ready");
        // Ctrl-C belongs to the editor: it is passed on, and the editor decides.
        running.signal(Signal::SIGTERM);
        let (_, words, code) = running.end();
        assert_eq!(
            (words.len(), code),
            (if is_kept { 2 } else { 0 }, if is_kept { None } else { Some(143) }),
            "{words:?}"
        );
        wait_until("the file is removed", || (drafts(&place).len() == usize::from(is_kept)).then_some(()));
        assert_eq!(place.run_at(&server.url(), &["get", "k", "-q"]), "--- exit 1\n");
    }
}

#[test]
fn ctrl_z_in_the_editor_stops_the_verb_and_fg_continues_both() {
    let place = place("echo begun; kill -TSTP 0; echo continued; read text; printf \"$text\" > $file");
    let server = Server::start(&place, &["-q"]);
    let url = server.url();
    for is_prompt in [false, true] {
        let verb = ["edit", "k", "-b", &url];
        let prompt = ["shell", "-b", &url];
        let bash = ["bash", "--norc", "--noprofile", "-i"];
        let terminal = Terminal::in_shell(&bash, &place, if is_prompt { &prompt } else { &verb });
        if is_prompt {
            terminal.shows("127.0.0.1:");
            terminal.line("edit k");
        }
        terminal.shows("begun");
        terminal.ends_with("$");
        // In the background the editor must not continue: it would be stopped by its next access to the terminal.
        terminal.line("bg; sleep 0.5");
        terminal.ends_with("$");
        assert!(!terminal.screen().contains("continued"));
        terminal.line("fg");
        terminal.shows("continued");
        terminal.line(if is_prompt { "second" } else { "first" });
        terminal.shows("stored k");
        assert_eq!(
            place.bytes_at(&url, &["get", "k"]),
            if is_prompt { &b"second"[..] } else { &b"first"[..] }
        );
    }
}

#[test]
fn a_watch_of_the_prompt_prints_after_the_editor_has_ended() {
    let place = place("$mqkv -b $url set w 1; sleep 0.5; echo the editor ends; printf mine > $file");
    let server = Server::start(&place, &["-q"]);
    let place = place.with_variable("url", &server.url());
    let mut terminal = Terminal::start(place.command(&["shell", "-b", &server.url()]));
    terminal.shows("127.0.0.1:");
    terminal.line("watch w");
    terminal.shows("CURRENT  w");
    terminal.line("edit k");
    terminal.shows("SET      w  1");
    let screen = terminal.screen();
    assert!(screen.find("the editor ends") < screen.find("SET      w  1"), "{screen}");
    terminal.line("\\q");
    assert_eq!(terminal.end(), Some(0));
}

#[test]
fn the_prompt_edits_too_and_continues() {
    let place = place("printf 'from the editor' > $file");
    let server = Server::start(&place, &["-q"]);
    let mut terminal = Terminal::start(place.command(&["shell", "-b", &server.url()]));
    terminal.shows("127.0.0.1:");
    terminal.line("edit k");
    terminal.shows("stored k (15 bytes, no time to live)");
    terminal.line("get k");
    terminal.shows("get k\nfrom the editor\n");
    terminal.line("\\q");
    assert_eq!(terminal.end(), Some(0));
}

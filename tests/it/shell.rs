//! The prompt in a terminal: keystrokes in, screen contents out.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use mqkv::clock::monotonic;
use nix::sys::signal::Signal;

use super::common::{
    CTRL_C, ENTER, HOME, LoggedServer, Place, RIGHT, Server, TAB, Terminal, UP, reserved_port,
};

/// Starts a prompt on an embedded store.
fn embedded(place: &Place) -> Terminal {
    let terminal = Terminal::start(place.command(&["--embedded"]));
    terminal.ends_with("embedded>");
    terminal
}

/// Starts a prompt that is connected to `server`.
fn at(place: &Place, server: &Server) -> Terminal {
    let terminal = Terminal::start(place.command(&["shell", "-b", &server.url()]));
    terminal.ends_with(&prompt(server));
    terminal
}

fn prompt(server: &Server) -> String {
    format!("127.0.0.1:{}>", server.port())
}

fn history(place: &Place) -> String {
    fs::read_to_string(place.path(".local/state/mqkv/history")).unwrap()
}

#[test]
fn the_first_screen_shows_the_broker_and_how_to_get_help_and_exit() {
    let place = Place::new();
    let mut terminal = embedded(&place);
    let screen = terminal.screen();
    let lines: Vec<_> = screen.lines().collect();
    assert!(lines[0].starts_with("embedded store in memory: its data is lost at exit"), "{screen}");
    assert!(lines[1].contains("\\? lists the commands"), "{screen}");
    assert!(lines[2].contains("Ctrl-D or \\q exits"), "{screen}");
    assert_eq!(lines.len(), 4, "{screen}");
    terminal.press_ctrl_d();
    assert_eq!(terminal.end(), Some(0));
}

#[test]
fn verbs_are_those_of_the_command_line_in_any_case() {
    let place = Place::new();
    let mut terminal = embedded(&place);
    terminal.line("SET k v NX PX 500000");
    terminal.shows("stored k (1 byte, expires in 8m 20s)");
    terminal.line("Get k");
    terminal.shows("Get k\nv\nembedded>");
    terminal.line("set k w --nx");
    terminal.shows("not stored: k exists");
    terminal.line("get k -j");
    terminal.shows("{\"v\":1,\"op\":\"get\",\"key\":\"k\"");
    terminal.line("\\q");
    assert_eq!(terminal.end(), Some(0));
}

#[test]
fn lines_are_edited_at_the_cursor() {
    let place = Place::new();
    let terminal = embedded(&place);
    terminal.keys(&format!("t k{HOME}se{RIGHT}"));
    terminal.wait_for("the typed text", |screen| {
        screen.lines().last().is_some_and(|row| row.starts_with("embedded> set k"))
    });
    terminal.keys("\x05 v\x17w");
    terminal.keys(ENTER);
    terminal.shows("stored k");
    terminal.line("get k");
    terminal.shows("get k\nw\nembedded>");
}

#[test]
fn history_is_private_and_has_no_values() {
    let place = Place::new();
    let mut terminal = embedded(&place);
    terminal.line("set k secret --ttl 5m");
    terminal.shows("stored k");
    terminal.line(" get hidden");
    terminal.shows("key not found: hidden");
    terminal.line("get k");
    terminal.shows("get k\nsecret\n");
    // Within the session the history has the value, so that the line can be corrected.
    terminal.keys(&format!("{UP}{UP}"));
    terminal.ends_with("embedded> set k secret --ttl 5m");
    terminal.clear("embedded>");
    terminal.line("get k; set k SECRET8");
    terminal.shows("error: ; is not supported in a line");
    terminal.line("get k --vlaue SECRET8");
    terminal.shows("--vlaue");
    terminal.line("\\c mqtt://user:SECRET8@h");
    terminal.shows("hint: \\c! URL");
    terminal.line("\\c! mqtt://user:SECRET8@h");
    terminal.shows("a password in the URL is not accepted");
    terminal.shows("hint: \\c mqtt://USER@HOST asks for the password");
    terminal.press_ctrl_d();
    assert_eq!(terminal.end(), Some(0));
    assert_eq!(history(&place), "set k --ttl 5m\nget k\n");
    let file = fs::metadata(place.path(".local/state/mqkv/history")).unwrap();
    assert_eq!(file.permissions().mode() & 0o777, 0o600);

    let terminal = embedded(&place);
    terminal.keys(&format!("{UP}{UP}"));
    terminal.ends_with("embedded> set k --ttl 5m");
    terminal.keys(ENTER);
    terminal.shows("VALUE is missing");
}

#[test]
fn tab_lists_keys_of_the_store_and_a_server_that_hangs_does_not_block_it() {
    let place = Place::new();
    let server = Server::start(&place, &[]);
    assert_eq!(place.run_at(&server.url(), &["set", "line7/pressure", "1"]), "--- exit 0\n");
    let terminal = at(&place, &server);
    terminal.keys(&format!("get line7/{TAB}"));
    terminal.shows("get line7/pressure ");
    terminal.clear(&prompt(&server));
    server.freeze();
    let begun = monotonic();
    // Each would wait 300 ms for the store: 12 s in all.
    terminal.keys(&format!("get line7/{}x", TAB.repeat(40)));
    terminal.shows("get line7/x");
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
    server.signal(Signal::SIGCONT);
}

#[test]
fn tab_completes_verbs_options_keys_and_files() {
    let place = Place::new();
    place.write("value.json", "from a file");
    let terminal = embedded(&place);
    terminal.keys(&format!("vd{TAB}"));
    terminal.shows("embedded> vdel ");
    terminal.clear("embedded>");
    terminal.line("set line1/temp 21.5");
    terminal.shows("stored line1/temp");
    terminal.keys(&format!("get li{TAB}"));
    terminal.shows("embedded> get line1/temp ");
    terminal.clear("embedded>");
    terminal.keys(&format!("set other -f val{TAB}"));
    terminal.shows("set other -f value.json");
    terminal.keys(ENTER);
    terminal.shows("stored other (11 bytes)");
    terminal.keys(&format!("set k v --pers{TAB}{ENTER}"));
    terminal.shows("stored k (1 byte)");
    terminal.keys(&format!("\\tim{TAB}{ENTER}"));
    terminal.shows("timing is on");
    terminal.line("get other");
    terminal.wait_for("the elapsed time", |screen| screen.contains("\ntook ") && screen.contains(" ms\n"));
}

#[test]
fn hints_show_usage_then_history() {
    let place = Place::new();
    let terminal = embedded(&place);
    terminal.keys("set");
    terminal.shows("embedded> set KEY VALUE [--ttl DURATION]");
    terminal.clear("embedded>");
    terminal.line("get line1/temp");
    terminal.shows("key not found");
    terminal.keys("get l");
    terminal.ends_with("embedded> get line1/temp");
    // The hint makes the row look like this from the second keystroke on.
    terminal.wait_for("the cursor after the typed text", |_| terminal.cursor() == 15);
    terminal.keys(&format!("{RIGHT}2{ENTER}"));
    terminal.shows("key not found: line1/temp2");
}

#[test]
fn watch_events_appear_above_a_half_typed_line() {
    let place = Place::new();
    let server = Server::start(&place, &[]);
    let terminal = at(&place, &server);
    terminal.line("watch k other");
    terminal.shows("CURRENT  k      (key not found)");
    let half = format!("127.0.0.1:{} [1 watch]> raw GET ot", server.port());
    terminal.keys("raw GET ot");
    terminal.ends_with(&half);
    for value in ["one", "two"] {
        assert_eq!(place.run(&["set", "k", value, "-b", &server.url(), "-q"]), "--- exit 0\n");
    }
    let screen = terminal.shows("SET      k      two");
    assert!(screen.contains("SET      k      one"), "{screen}");
    terminal.ends_with(&half);
    terminal.keys("her -o hex\r");
    terminal.shows("242d310d0a");
    terminal.line("\\watches");
    terminal.shows("  1  watch k other  (4 records)");
    terminal.line("\\unwatch 1");
    terminal.shows("watch 1 stopped");
    terminal.ends_with(&prompt(&server));
    place.run(&["set", "k", "three", "-b", &server.url()]);
    terminal.line("get k");
    let screen = terminal.shows("get k\nthree\n");
    assert!(!screen.contains("SET      k  three"), "{screen}");
}

#[test]
fn a_watch_that_reached_its_condition_reports_it() {
    let place = Place::new();
    let terminal = embedded(&place);
    terminal.line("watch k --until set --no-initial");
    terminal.shows("watch 1 runs in the background");
    terminal.line("set k v");
    terminal.shows("watch 1 finished");
    terminal.ends_with("embedded>");
}

#[test]
fn a_burst_of_changes_ends_with_the_last_value_of_each_key() {
    let place = Place::new();
    let terminal = embedded(&place);
    terminal.line("watch k other -q");
    terminal.shows("watch 1 runs");
    terminal.shows("CURRENT  other");
    // Separate commands would be too slow to exceed the limit on a loaded machine.
    let entry = |at: u32| {
        let key = if at == 300 { "other" } else { "k" };
        format!("{{\"key\":\"{key}\",\"value\":\"{at}\"}}\n")
    };
    place.write("entries", (0..400).map(entry).collect::<String>());
    terminal.line("import entries");
    terminal.has_shown("more changes; the last of each key:");
    let screen = terminal.shows("SET      k      399\n");
    assert!(screen.contains("SET      other  300\n"), "{screen}");
}

#[test]
fn output_is_redirected_to_commands_and_files() {
    let place = Place::new();
    place.write("kept", "as it was");
    let terminal = embedded(&place);
    terminal.line(r#"set k "a\x00b" "#);
    terminal.shows("stored k (3 bytes)");
    terminal.line("get k | od -An -tx1");
    terminal.shows("61 00 62");
    terminal.line("get k > out");
    terminal.shows("wrote 3 bytes to out");
    assert_eq!(fs::read(place.path("out")).unwrap(), b"a\0b");
    terminal.line("get nothing > kept");
    terminal.shows("kept was not changed");
    assert_eq!(fs::read(place.path("kept")).unwrap(), b"as it was");
    // A command whose output has no line feed, and one that closes its input early.
    terminal.line("set k v");
    terminal.line("get k | cat");
    terminal.shows("get k | cat\nv\nembedded>");
    terminal.line("\\? | head -n 1 && echo enough");
    terminal.line("help exit-codes | head -n 1; echo enough");
    terminal.shows("every output format.\nenough\nembedded>");
    terminal.line("\\! echo to the system; exit 3");
    terminal.shows("to the system\nexit code 3\nembedded>");
}

#[test]
fn invalid_input_is_reported_and_the_prompt_continues() {
    let place = Place::new();
    let terminal = embedded(&place);
    terminal.line("gte k");
    terminal.shows("unknown command 'gte'\nhint: did you mean 'get'?\n");
    terminal.line("set k v --tll 5s");
    terminal.shows("unexpected argument '--tll'");
    terminal.line("get k -b mqtt://localhost");
    terminal.shows("--broker is not available at the prompt");
    terminal.line("\\tim");
    terminal.shows("unknown command: \\tim\nhint: \\timing\n");
    terminal.keys("set k 'v");
    terminal.shows("open quote");
    terminal.clear("embedded>");
    terminal.line("get k");
    terminal.shows("key not found: k\nembedded>");
    terminal.line("set k -");
    terminal.shows("standard input");
    terminal.ends_with("embedded>");
}

#[test]
fn a_backslash_that_escapes_nothing_is_kept() {
    let place = Place::new();
    let terminal = embedded(&place);
    for line in [r"set k C:\temp", r#"set k "C:\Windows""#, r"set k 'C:\temp'"] {
        terminal.line(line);
        terminal.shows("stored k");
        let value = line.trim_start_matches("set k ").trim_matches(['"', '\'']);
        terminal.line("get k");
        let screen = terminal.shows(&format!("get k\n{value}\nembedded>"));
        assert!(!screen.contains("note: "), "{screen}");
        terminal.keys("\x0c");
        terminal.wait_for("a clear screen", |screen| screen == "embedded>");
    }
    terminal.line(r#"set k "C:\temp""#);
    terminal.shows(
        "note: double quotes interpret \\t and \\n; single quotes keep a backslash\nstored k (6 bytes)",
    );
    terminal.line(r#"set k "\x4""#);
    terminal.shows("invalid escape at column 8: \\x in double quotes requires two hexadecimal");
}

#[test]
fn the_help_fits_in_eighty_columns() {
    let place = Place::new();
    let terminal = Terminal::of_size(place.command(&["--embedded"]), 70, 160);
    terminal.ends_with("embedded>");
    terminal.line("\\?");
    let screen = terminal.shows("contain a password.");
    assert!(screen.lines().all(|row| row.chars().count() <= 80), "{screen}");
}

#[test]
fn a_value_may_have_many_lines() {
    let place = Place::new();
    let terminal = embedded(&place);
    terminal.keys("set k 'one\r");
    terminal.shows("set k 'one\n");
    terminal.keys("two'\r");
    terminal.shows("stored k (7 bytes)");
    terminal.line("get k > out");
    terminal.shows("wrote 7 bytes");
    assert_eq!(fs::read(place.path("out")).unwrap(), b"one\ntwo");
}

#[test]
fn a_paste_may_be_wide_and_may_be_many_lines() {
    let place = Place::new();
    let terminal = embedded(&place);
    let value = "0123456789".repeat(20);
    terminal.paste(&format!("set k {value}"));
    terminal.shows(&value[..60]);
    terminal.keys(ENTER);
    terminal.shows("stored k (200 bytes)");
    terminal.paste("set a 1\nset b 2\n# don't\nset c 'x\ny'\n");
    terminal.keys(ENTER);
    let screen = terminal.shows("stored c (3 bytes)");
    assert!(screen.contains("stored a (1 byte)\nstored b (1 byte)\n"), "{screen}");
    // Without bracketed paste every line feed is an Enter, and no input is lost.
    terminal.keys("set d 4\rset e 5\rget d\rget e\r");
    terminal.shows("get d\n4\nembedded> get e\n5\nembedded>");
}

#[test]
fn the_prompt_works_in_forty_columns() {
    let place = Place::new();
    let server = Server::start(&place, &[]);
    let mut terminal = Terminal::of_size(place.command(&["-b", &server.url()]), 20, 40);
    terminal.ends_with(&prompt(&server));
    terminal.keys("set");
    let screen = terminal.wait_for("a hint that is cut", |screen| screen.ends_with('…'));
    assert!(screen.lines().last().unwrap().chars().count() < 40, "{screen}");
    terminal.keys(&format!(" line1/temperature {} --ttl 5m\r", "7".repeat(60)));
    terminal.shows("stored line1/temperature");
    terminal.line("watch k");
    terminal.shows("CURRENT");
    terminal.keys("get line1/te");
    terminal.shows("> get line1/te");
    place.run(&["set", "k", &"v".repeat(70), "-b", &server.url()]);
    terminal.shows("vvvvvvv");
    terminal.resize(20, 60);
    terminal.keys("mperature\r");
    terminal.shows(&format!("\n{}\n", "7".repeat(60)));
    terminal.ends_with(&format!("127.0.0.1:{} 1w>", server.port()));
    terminal.press_ctrl_d();
    assert_eq!(terminal.end(), Some(0));
}

#[test]
fn ctrl_c_cancels_a_slow_request_and_never_exits() {
    let place = Place::new();
    let server = Server::start(&place, &[]);
    let terminal = at(&place, &server);
    terminal.line("set k v");
    terminal.shows("stored k");
    server.freeze();
    terminal.start_command("get k");
    terminal.keys(CTRL_C);
    terminal.shows("\ncanceled");
    terminal.ends_with(&prompt(&server));
    terminal.start_command("set k w");
    terminal.keys(CTRL_C);
    terminal.wait_for("the write to be stopped", |screen| screen.matches("\ncanceled").count() == 2);
    terminal.ends_with(&prompt(&server));
    server.signal(Signal::SIGCONT);
    terminal.keys("half a line");
    terminal.shows("> half a line");
    terminal.clear(&prompt(&server));
    terminal.clear(&prompt(&server));
    terminal.line("set k x");
    terminal.shows("set k x\nstored k");
    // Ctrl-C is sent after the first output of `tail`: before that the shell may still receive the signal.
    place.write("words", "begun\n");
    terminal.line("\\! tail -f words");
    terminal.ends_with("begun");
    terminal.keys(CTRL_C);
    terminal.wait_for("the prompt", |screen| {
        screen.contains("begun\n^C\n") && screen.ends_with(&prompt(&server))
    });
    terminal.line("get k -j");
    terminal.shows("\"value\":\"x\"");
}

#[test]
fn switching_to_another_broker_changes_nothing_if_it_fails() {
    let place = Place::new();
    let (one, other) = (Server::start(&place, &[]), Server::start(&place, &[]));
    let terminal = at(&place, &one);
    terminal.line("set k of-one");
    terminal.shows("stored k");
    terminal.line("watch k");
    terminal.shows("CURRENT  k  of-one");
    terminal.line("\\c mqtt://127.0.0.1:1");
    let still = format!("connection refused: 127.0.0.1:1\n  still using 127.0.0.1:{}\nhint: ", one.port());
    terminal.shows(&still);
    terminal.line(&format!("\\c {}", other.url()));
    let screen = terminal.shows(&format!("connected to 127.0.0.1:{}", other.port()));
    assert!(screen.contains("1 watch stopped"), "{screen}");
    terminal.line("get k");
    terminal.shows("key not found: k");
    terminal.line("\\conninfo");
    terminal.shows("watches: 0, locks: 0");
    terminal.ends_with(&prompt(&other));
}

#[test]
fn the_lines_of_a_file_run_until_the_first_error() {
    let place = Place::new();
    place.write("lines", "set a 1\n# a note\nset b 'x\ny'\nget nothing\n\\timing on\nste c 3\nset d 4\n");
    let terminal = embedded(&place);
    terminal.line("\\i lines");
    let screen = terminal.shows("error: lines:7: unknown command 'ste'");
    assert!(screen.contains("stored b (3 bytes)") && !screen.contains("stored d"), "{screen}");
    place.write("itself", "\\i itself");
    terminal.line("\\i itself");
    terminal.shows("error: itself:1: itself: \\i is nested more than 8 deep");
}

#[test]
fn a_format_can_be_set_for_all_lines() {
    let place = Place::new();
    let terminal = embedded(&place);
    terminal.line("\\o json");
    terminal.line("set k v");
    terminal.shows("{\"v\":1,\"op\":\"set\",\"key\":\"k\",\"applied\":true");
    terminal.line("\\o hex");
    terminal.line("get k");
    terminal.shows("get k\n76\nembedded>");
    terminal.line("\\o raw");
    terminal.line("get k");
    terminal.shows("get k\nv\nembedded>");
    terminal.line("\\o auto");
    terminal.line("\\o");
    terminal.shows("the format is auto");
}

#[test]
fn without_a_terminal_there_is_no_prompt() {
    let place = Place::new();
    let shown = place.run(&[]);
    assert!(shown.contains("a verb is missing") && shown.ends_with("--- exit 2\n"), "{shown}");
}

#[test]
fn lines_from_a_file_or_a_pipe_run_as_a_batch() {
    let place = Place::new();
    for words in [&["--embedded"][..], &["--embedded", "batch"], &["--embedded", "shell"]] {
        let shown = place.run_with_input(words, b"set k v\nget k\n");
        assert_eq!(shown, "--- stdout\nv\n--- exit 0\n", "{words:?}");
    }
}

#[test]
fn exit_and_quit_end_the_prompt() {
    for word in ["exit", "QUIT"] {
        let place = Place::new();
        let mut terminal = embedded(&place);
        terminal.line("set exit quit");
        terminal.shows("stored exit");
        terminal.line(word);
        assert_eq!(terminal.end(), Some(0), "{word}");
    }
}

#[test]
fn without_a_broker_that_answers_the_prompt_shows_what_leads_to_one_and_the_next_line_connects() {
    let place = Place::new();
    let broker = format!("127.0.0.1:{}", reserved_port());
    let mut terminal = Terminal::start(place.command(&["-b", &format!("mqtt://{broker}")]));
    let screen = terminal.ends_with("not connected>");
    assert!(screen.starts_with(&format!("error: connection refused: {broker}\nnot connected; ")), "{screen}");
    for line in ["\\c kube:  ", "\\c HOST:1883  ", "mqkv serve  "] {
        assert!(screen.contains(&format!("\n  {line}")), "{screen}");
    }
    terminal.line("get k");
    terminal.wait_for("the second error", |screen| screen.matches("connection refused").count() == 2);
    terminal.line("\\conninfo");
    terminal.wait_for("the state", |screen| screen.matches("\\c kube:").count() == 2);
    terminal.line("decode hlc 001696374425000:00001:StateStore");
    terminal.shows("2023-10-03");
    let _server = LoggedServer::start(&place, &["--listen", &format!("mqtt://{broker}")]);
    terminal.line("set k v");
    terminal.shows(&format!("connected to {broker} in "));
    terminal.shows("stored k");
    terminal.ends_with(&format!("{broker}>"));
    terminal.press_ctrl_d();
    assert_eq!(terminal.end(), Some(0));
}

#[test]
fn a_broker_that_refuses_the_client_ends_the_prompt() {
    let place = Place::new();
    place.write("tokens", "me token\n");
    let server = LoggedServer::start(&place, &["--listen", "mqtt://127.0.0.1:0", "--sat-tokens", "tokens"]);
    let url = format!("mqtt://127.0.0.1:{}", server.port(0));
    let mut terminal = Terminal::start(place.command(&["-b", &url]));
    assert_eq!(terminal.end(), Some(77));
}

#[test]
fn an_ended_monitor_unsubscribes() {
    let place = Place::new();
    let server = Server::start(&place, &[]);
    let terminal = at(&place, &server);
    terminal.line("monitor -c 1");
    terminal.shows("listening at");
    let url = server.url();
    place.run(&["-b", &url, "set", "other", "1"]);
    terminal.shows("REQUEST");
    terminal.line("watch k");
    terminal.shows("CURRENT  k  (key not found)");
    place.run(&["-b", &url, "set", "other", "2"]);
    place.run(&["-b", &url, "set", "k", "1"]);
    terminal.shows("SET      k  1");
    let screen = terminal.screen();
    assert!(!screen.contains("skipped"), "{screen}");
}

#[test]
fn a_hint_about_a_pattern_is_a_line_of_the_prompt() {
    let place = Place::new();
    let terminal = embedded(&place);
    terminal.line("keys line1/");
    terminal.shows("for a prefix: keys 'line1/*'\n");
    terminal.line("watch 'k/*'");
    terminal.shows("for a prefix: watch --prefix 'k/'\n");
}

#[test]
fn a_verb_that_reads_standard_input_is_refused_with_a_hint() {
    let place = Place::new();
    let terminal = embedded(&place);
    terminal.line("set k -");
    terminal.shows("standard input cannot be read from here\nhint: -f FILE\n");
    terminal.line("import -");
    terminal.shows("standard input cannot be read from here\nhint: the name of a file in place of -\n");
    terminal.line("set k");
    terminal.shows("hint: set KEY VALUE\nhint: '' is the empty value\n");
}

#[test]
fn long_help_at_the_prompt_is_shown_in_the_pager() {
    let place = Place::new();
    let mut command = place.command(&["--embedded"]);
    command.current_dir(place.folder()).env("PATH", "/usr/bin:/bin").env("PAGER", "cat > paged; echo shown");
    let terminal = Terminal::of_size(command, 24, 80);
    terminal.ends_with("embedded>");
    terminal.line("help set");
    terminal.shows("shown");
    terminal.ends_with("embedded>");
    assert!(fs::read_to_string(place.path("paged")).unwrap().contains("Usage: "));
    terminal.line("get -h");
    terminal.shows("Get the value");
}

#[test]
fn help_at_the_prompt_is_shown_without_a_pager_that_cannot_be_run() {
    let place = Place::new();
    let mut command = place.command(&["--embedded"]);
    command.current_dir(place.folder()).env("PATH", "/usr/bin:/bin").env("PAGER", "no-such-pager");
    let terminal = Terminal::of_size(command, 24, 80);
    terminal.ends_with("embedded>");
    terminal.line("help set");
    terminal.shows("Exit status:");
    terminal.ends_with("embedded>");
}

#[test]
fn lines_that_fail_are_reported_although_their_errors_go_to_a_file() {
    let place = Place::new();
    place.write("bad.txt", "set\n");
    place.write("all.txt", "batch bad.txt --keep-going\nset k v\n");
    let terminal = embedded(&place);
    terminal.line("batch bad.txt --keep-going -j > out");
    terminal.shows("error: 1 of 1 lines failed");
    terminal.line("\\i all.txt");
    terminal.shows("error: all.txt:1: 1 of 1 lines failed");
}

#[test]
fn an_operator_of_a_shell_has_a_hint() {
    let place = Place::new();
    let terminal = embedded(&place);
    terminal.line("set a b &");
    terminal.shows("error: & is not supported in a line");
    terminal.shows("as text: '&'");
    terminal.line("set a '&'");
    terminal.shows("stored a (1 byte)");
}

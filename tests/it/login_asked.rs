//! A password that is asked for at the terminal: who sees it, and what signals do during the question and behind it.

use std::fs;
use std::process::{Command, Stdio};

use nix::sys::signal::Signal;

use super::common::bounded::bounded_transcript;
use super::common::fake_broker::FakeBroker;
use super::common::{CTRL_C, CTRL_D, Place, Server, Terminal, wait_until};
use super::login::{SECRET, hearing, password, refusing};

/// A terminal in which somebody is asked for a password.
fn asked(place: &Place, url: &str, words: &[&str]) -> Terminal {
    let words = [&["-b", url, "-u", "ann", "--ask-password"], words].concat();
    let terminal = Terminal::start(place.command(&words));
    terminal.shows("password of ann:");
    wait_until_dark(&terminal);
    terminal
}

fn wait_until_dark(terminal: &Terminal) {
    wait_until("the terminal is dark", || (!terminal.is_cooked()).then_some(()));
}

#[test]
fn a_password_is_asked_for_where_nobody_sees_it() {
    let place = Place::new();
    let broker = hearing();
    let mut terminal = asked(&place, &broker.url(), &["get", "k"]);
    terminal.line(SECRET);
    assert_eq!(terminal.end(), Some(1));
    let connect = broker.end();
    assert_eq!((connect.username, connect.password), password("ann", SECRET.as_bytes()));
    let screen = terminal.shows("no such key: k");
    assert!(!screen.contains(SECRET), "{screen}");
    assert!(terminal.is_cooked());
}

#[test]
fn a_signal_in_the_middle_of_the_question_leaves_the_terminal_as_it_was() {
    let place = Place::new();
    let broker = refusing(0x86);
    for verb in [&["get", "k"][..], &["watch", "k"], &["lock", "k"], &["keys"], &["shell"]] {
        let mut terminal = asked(&place, &broker.url(), verb);
        terminal.keys("half");
        terminal.keys(CTRL_C);
        assert_eq!(terminal.end(), Some(130), "{verb:?}");
        assert!(terminal.is_cooked(), "{verb:?}");
        let mut terminal = asked(&place, &broker.url(), verb);
        terminal.keys("half");
        terminal.signal(Signal::SIGTERM);
        assert_eq!(terminal.end(), Some(143), "{verb:?}");
        assert!(terminal.is_cooked(), "{verb:?}");
    }
    assert_eq!(broker.count(), 0);
}

#[test]
fn a_signal_in_the_middle_of_a_new_password_leaves_the_terminal_as_it_was() {
    let place = Place::new();
    for (is_second, keys, code) in [(false, true, 130), (true, true, 130), (false, false, 143)] {
        let mut terminal = Terminal::start(place.command(&["serve", "user", "add", "users", "ann"]));
        terminal.shows("Password for ann:");
        wait_until_dark(&terminal);
        if is_second {
            terminal.line(SECRET);
            terminal.shows("Once more:");
            wait_until_dark(&terminal);
        }
        if keys {
            terminal.keys(CTRL_C)
        } else {
            terminal.signal(Signal::SIGTERM)
        }
        assert_eq!(terminal.end(), Some(code));
        assert!(terminal.is_cooked() && !place.path("users").exists());
    }
}

#[test]
fn a_question_that_is_left_without_an_answer_is_a_usage_error() {
    let place = Place::new();
    for (keys, said) in [(CTRL_D, "error: no password was entered"), ("\r", "error: the password is empty")] {
        let mut terminal = asked(&place, "mqtt://127.0.0.1:1", &["get", "k"]);
        terminal.keys(keys);
        assert_eq!(terminal.end(), Some(2));
        terminal.shows(said);
        assert!(terminal.is_cooked());
    }
}

#[test]
fn whoever_hangs_after_the_question_can_still_be_stopped() {
    let place = Place::new();
    let broker = FakeBroker::start(|connection| {
        connection.expect("CONNECT");
        connection.listen();
    });
    let mut terminal = asked(&place, &broker.url(), &["get", "k", "--connect-timeout", "1h", "--trace"]);
    terminal.line(SECRET);
    terminal.shows("CONNECT");
    terminal.keys(CTRL_C);
    assert_eq!(terminal.end(), Some(130));
    broker.end();
}

#[test]
fn without_a_terminal_nobody_can_be_asked() {
    let place = Place::new();
    let plain = place.command(&["get", "k", "-u", "ann", "--ask-password"]);
    let mut command = Command::new("setsid");
    command.arg("--wait").arg(plain.get_program()).args(plain.get_args()).current_dir(place.folder());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    assert_eq!(
        bounded_transcript(&mut command),
        "--- stderr\nerror: there is no terminal to ask for the password\n\
         hint: --password-file FILE, or - for standard input\n--- exit 2\n"
    );
}

#[test]
fn whoever_hangs_up_during_the_question_of_a_write_leaves_the_terminal_as_it_was() {
    let place = Place::new();
    let mut terminal = asked(&place, "mqtt://127.0.0.1:1", &["set", "k", "v"]);
    terminal.hang_up();
    assert_eq!(terminal.end(), Some(129));
    assert!(terminal.is_cooked());
}

/// A store that lets in who knows the password.
fn guarded(place: &Place) -> Server {
    let add = ["serve", "user", "add", "users", "ann", "-q"];
    assert_eq!(place.run_with_input(&add, SECRET.as_bytes()), "--- exit 0\n");
    Server::start(place, &["-q", "--users", "users"])
}

#[test]
fn signals_after_the_question_are_the_command_s_under_a_lock() {
    let place = Place::new();
    let server = guarded(&place);
    let script = "trap 'echo >> told' TERM; echo > held; until [ -e go ]; do sleep 0.01; done; exit 7";
    let mut terminal = asked(&place, &server.url(), &["lock", "deploy", "--", "sh", "-c", script]);
    terminal.line(SECRET);
    wait_until("the command runs", || place.path("held").exists().then_some(()));
    for count in 1..=2 {
        terminal.signal(Signal::SIGTERM);
        wait_until("the command is told", || {
            fs::read(place.path("told")).is_ok_and(|told| told.len() == count).then_some(())
        });
    }
    place.write("go", "");
    assert_eq!(terminal.end(), Some(7));
    place.write("password", SECRET);
    let holder = ["holder", "deploy", "-b", &server.url(), "-u", "ann", "--password-file", "password"];
    assert_eq!(place.run(&holder), "--- stderr\ndeploy is free\n--- exit 1\n");
}

#[test]
fn ctrl_c_after_the_question_ends_what_runs_at_the_prompt_and_not_the_prompt() {
    let place = Place::new();
    let server = guarded(&place);
    let mut terminal = asked(&place, &server.url(), &["shell"]);
    terminal.line(SECRET);
    let prompt = format!("127.0.0.1:{}>", server.port());
    terminal.ends_with(&prompt);
    for count in 1..=2 {
        terminal.start_command(&format!("\\! echo {count} > ready; exec sleep 1000"));
        wait_until("it runs", || {
            fs::read_to_string(place.path("ready"))
                .is_ok_and(|ready| ready == format!("{count}\n"))
                .then_some(())
        });
        terminal.keys(CTRL_C);
        terminal.ends_with(&prompt);
    }
    terminal.line("get k");
    terminal.shows("no such key: k");
    terminal.press_ctrl_d();
    assert_eq!(terminal.end(), Some(0));
}

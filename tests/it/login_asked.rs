//! Password prompts on a terminal: echo, and signals during and after the prompt.

use std::fs;
use std::process::{Command, Stdio};

use nix::sys::signal::Signal;

use super::common::bounded::bounded_transcript;
use super::common::fake_broker::FakeBroker;
use super::common::{CTRL_C, CTRL_D, Place, Server, Terminal, wait_until};
use super::login::{SECRET, password, recording, rejecting};

/// Starts a verb on a terminal and waits for its password prompt.
fn at_password_prompt(place: &Place, url: &str, words: &[&str]) -> Terminal {
    let words = [&["-b", url, "-u", "ann", "--ask-password"], words].concat();
    let terminal = Terminal::start(place.command(&words));
    terminal.shows("password of ann:");
    wait_until_no_echo(&terminal);
    terminal
}

fn wait_until_no_echo(terminal: &Terminal) {
    wait_until("the terminal has no echo", || (!terminal.is_cooked()).then_some(()));
}

#[test]
fn a_password_is_entered_without_echo() {
    let place = Place::new();
    let broker = recording();
    let mut terminal = at_password_prompt(&place, &broker.url(), &["get", "k"]);
    terminal.line(SECRET);
    assert_eq!(terminal.end(), Some(1));
    let connect = broker.end();
    assert_eq!((connect.username, connect.password), password("ann", SECRET.as_bytes()));
    let screen = terminal.shows("key not found: k");
    assert!(!screen.contains(SECRET), "{screen}");
    assert!(terminal.is_cooked());
}

#[test]
fn a_signal_during_the_password_prompt_restores_the_terminal() {
    let place = Place::new();
    let broker = rejecting(0x86);
    for verb in [&["get", "k"][..], &["watch", "k"], &["lock", "k"], &["keys"], &["shell"]] {
        let mut terminal = at_password_prompt(&place, &broker.url(), verb);
        terminal.keys("half");
        terminal.keys(CTRL_C);
        assert_eq!(terminal.end(), Some(130), "{verb:?}");
        assert!(terminal.is_cooked(), "{verb:?}");
        let mut terminal = at_password_prompt(&place, &broker.url(), verb);
        terminal.keys("half");
        terminal.signal(Signal::SIGTERM);
        assert_eq!(terminal.end(), Some(143), "{verb:?}");
        assert!(terminal.is_cooked(), "{verb:?}");
    }
    assert_eq!(broker.count(), 0);
}

#[test]
fn a_signal_during_the_prompt_for_a_new_password_restores_the_terminal() {
    let place = Place::new();
    for (is_second, keys, code) in [(false, true, 130), (true, true, 130), (false, false, 143)] {
        let mut terminal = Terminal::start(place.command(&["serve", "user", "add", "users", "ann"]));
        terminal.shows("Password for ann:");
        wait_until_no_echo(&terminal);
        if is_second {
            terminal.line(SECRET);
            terminal.shows("Repeat the password:");
            wait_until_no_echo(&terminal);
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
fn a_password_prompt_without_input_is_a_usage_error() {
    let place = Place::new();
    for (keys, message) in
        [(CTRL_D, "error: no password was entered"), ("\r", "error: the password is empty")]
    {
        let mut terminal = at_password_prompt(&place, "mqtt://127.0.0.1:1", &["get", "k"]);
        terminal.keys(keys);
        assert_eq!(terminal.end(), Some(2));
        terminal.shows(message);
        assert!(terminal.is_cooked());
    }
}

#[test]
fn a_connection_that_hangs_after_the_password_prompt_can_be_interrupted() {
    let place = Place::new();
    let broker = FakeBroker::start(|connection| {
        connection.expect("CONNECT");
        connection.listen();
    });
    let mut terminal =
        at_password_prompt(&place, &broker.url(), &["get", "k", "--connect-timeout", "1h", "--trace"]);
    terminal.line(SECRET);
    terminal.shows("CONNECT");
    terminal.keys(CTRL_C);
    assert_eq!(terminal.end(), Some(130));
    broker.end();
}

#[test]
fn asking_for_a_password_without_a_terminal_is_a_usage_error() {
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
fn a_hangup_during_the_password_prompt_of_a_write_restores_the_terminal() {
    let place = Place::new();
    let mut terminal = at_password_prompt(&place, "mqtt://127.0.0.1:1", &["set", "k", "v"]);
    terminal.hang_up();
    assert_eq!(terminal.end(), Some(129));
    assert!(terminal.is_cooked());
}

/// A store that requires the password.
fn server_with_password(place: &Place) -> Server {
    let add = ["serve", "user", "add", "users", "ann", "-q"];
    assert_eq!(place.run_with_input(&add, SECRET.as_bytes()), "--- exit 0\n");
    Server::start(place, &["-q", "--users", "users"])
}

#[test]
fn signals_after_the_password_prompt_go_to_the_command_of_a_lock() {
    let place = Place::new();
    let server = server_with_password(&place);
    let script = "trap 'echo >> sigterm' TERM; echo > held; until [ -e go ]; do sleep 0.01; done; exit 7";
    let mut terminal =
        at_password_prompt(&place, &server.url(), &["lock", "deploy", "--", "sh", "-c", script]);
    terminal.line(SECRET);
    wait_until("the command runs", || place.path("held").exists().then_some(()));
    for count in 1..=2 {
        terminal.signal(Signal::SIGTERM);
        wait_until("the command gets SIGTERM", || {
            fs::read(place.path("sigterm")).is_ok_and(|bytes| bytes.len() == count).then_some(())
        });
    }
    place.write("go", "");
    assert_eq!(terminal.end(), Some(7));
    place.write("password", SECRET);
    let holder = ["holder", "deploy", "-b", &server.url(), "-u", "ann", "--password-file", "password"];
    assert_eq!(place.run(&holder), "--- stderr\nerror: deploy is free\n--- exit 1\n");
}

#[test]
fn ctrl_c_after_the_password_prompt_ends_the_shell_command_and_not_the_prompt() {
    let place = Place::new();
    let server = server_with_password(&place);
    let mut terminal = at_password_prompt(&place, &server.url(), &["shell"]);
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
    terminal.shows("key not found: k");
    terminal.press_ctrl_d();
    assert_eq!(terminal.end(), Some(0));
}

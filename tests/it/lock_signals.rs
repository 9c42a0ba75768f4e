//! Signals to verbs that run a command or hold a lock: forwarded, ignored, or an end in order.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::libc;
use nix::sys::signal::Signal;

use super::common::{RequestRecorder, StreamedProcess, wait_until, wait_until_stopped};
use super::lock::Bench;

/// A command that prints a line and runs until a signal ends it.
const UP: [&str; 4] = ["--", "sh", "-c", "echo up; exec sleep 60"];

/// What a signal does to a verb.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It reaches the command, or ends the verb in order: the exit status is 128 and its number.
    Ends,
    Ignored,
    /// The process stops, as it should without a lock.
    Stops,
}

/// Returns the signals that a process can get, and what they do to a process that neither holds a lock nor has a command.
/// Without SIGKILL, SIGSTOP, those of faults, and the two numbers that belong to the C library.
fn signals() -> Vec<(i32, Fate)> {
    use libc::{
        SIGABRT, SIGBUS, SIGCHLD, SIGCONT, SIGFPE, SIGILL, SIGKILL, SIGPIPE, SIGRTMAX, SIGRTMIN, SIGSEGV,
        SIGSTOP, SIGSYS, SIGTRAP, SIGTSTP, SIGTTIN, SIGTTOU, SIGURG, SIGWINCH, SIGXFSZ,
    };
    let fate = |number| match number {
        SIGABRT | SIGBUS | SIGFPE | SIGILL | SIGKILL | SIGSEGV | SIGSTOP | SIGSYS | SIGTRAP => None,
        SIGTSTP | SIGTTIN | SIGTTOU => Some((number, Fate::Stops)),
        SIGCHLD | SIGCONT | SIGPIPE | SIGURG | SIGWINCH | SIGXFSZ => Some((number, Fate::Ignored)),
        _ => Some((number, Fate::Ends)),
    };
    // The real-time signals differ in nothing but their numbers.
    (1..32).chain([SIGRTMIN(), SIGRTMIN() + 1, SIGRTMAX()]).filter_map(fate).collect()
}

#[expect(unsafe_code, reason = "nix has no function for real-time signals")]
fn send(process: &StreamedProcess, number: i32) {
    // SAFETY: the call has no preconditions.
    assert_eq!(unsafe { libc::kill(process.id().cast_signed(), number) }, 0);
}

/// Starts a process for each signal, waits until all are ready, and sends each its signal.
fn play(
    bench: &Bench,
    words: impl Fn(i32) -> Vec<String>,
    ready: fn(&StreamedProcess) -> bool,
    holds: fn(i32) -> bool,
) {
    let start = |(number, fate): (i32, Fate)| {
        let words = words(number);
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        let process = StreamedProcess::start(&mut bench.place.command(&words));
        let fate = if fate == Fate::Stops && holds(number) { Fate::Ignored } else { fate };
        (process, number, fate)
    };
    let started: Vec<_> =
        signals().into_iter().map(start).filter(|(.., fate)| *fate != Fate::Stops).collect();
    for (process, number, fate) in &started {
        assert!(ready(process), "{number}");
        send(process, *number);
        if *fate == Fate::Ignored {
            send(process, libc::SIGTERM);
        }
    }
    for (process, number, fate) in started {
        let (output, errors, code) = process.end();
        let expected = if fate == Fate::Ignored { libc::SIGTERM } else { number };
        assert_eq!(code, Some(128 + expected), "signal {number}: {output:?} {errors:?}");
    }
    let left: Vec<_> =
        fs::read_dir(bench.place.folder()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["port"], "a file is left in the folder for temporary files");
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

#[test]
fn each_signal_ends_a_command_under_a_lock_or_is_ignored_and_the_lock_is_released() {
    let bench = Bench::new();
    let lock =
        |number: i32| words(&[&["-b", &bench.server.url(), "lock", &format!("k{number}")], &UP[..]].concat());
    play(&bench, lock, |process| process.line() == "up", |_| true);
    assert_eq!(bench.run(&["keys"]), "--- exit 0\n");
}

#[test]
fn each_signal_ends_a_lock_without_a_command_or_is_ignored_and_the_lock_is_released() {
    let bench = Bench::new();
    let lock = |number: i32| words(&["-b", &bench.server.url(), "lock", &format!("k{number}")]);
    play(&bench, lock, |process| process.line().ends_with(":StateStore"), |_| true);
    assert_eq!(bench.run(&["keys"]), "--- exit 0\n");
}

#[test]
fn each_signal_ends_a_lock_that_is_waited_for_or_is_ignored() {
    let bench = Bench::new();
    bench.run(&["set", "k", "other"]);
    let lock = |_| words(&[&["-b", &bench.server.url(), "lock", "k"], &UP[..]].concat());
    play(&bench, lock, |process| process.error_line() == "waiting for k, held by other", |_| false);
    assert_eq!(bench.run(&["get", "k"]), "--- stdout\nother(no line feed)\n--- exit 0\n");
}

#[test]
fn each_signal_ends_the_command_of_a_server_or_is_ignored() {
    let bench = Bench::new();
    let serve = |_| words(&[&["serve", "--exec"], &UP[..]].concat());
    play(&bench, serve, |process| process.line() == "up", |number| number != libc::SIGTSTP);
}

#[test]
fn each_signal_ends_a_watch_and_its_command_or_is_ignored() {
    let bench = Bench::new();
    let watch =
        |_| words(&[&["-b", &bench.server.url(), "watch", "k", "--exec-on", "initial"], &UP[..]].concat());
    play(&bench, watch, |process| process.line() == "up", |_| false);
}

#[test]
fn a_lock_process_that_is_asked_to_suspend_continues_with_its_command_whatever_standard_input_is() {
    let bench = Bench::new();
    let script = "echo up; until [ -e go ]; do sleep 0.01; done";
    let words = ["-b", &bench.server.url(), "lock", "k", "--", "sh", "-c", script];
    let process = StreamedProcess::start(&mut bench.place.command(&words));
    assert_eq!(process.line(), "up");
    process.signal(Signal::SIGTSTP);
    assert_eq!(process.error_line(), "warning: the command continues after Ctrl-Z: it holds the lock k");
    assert_eq!(process.error_line(), "hint: Ctrl-C ends it");
    bench.touch("go");
    assert_eq!(process.end(), (vec![], vec![], Some(0)));
}

#[test]
fn a_lock_without_a_command_continues_when_it_is_asked_to_suspend() {
    let bench = Bench::new();
    let process = StreamedProcess::start(&mut bench.place.command(&["-b", &bench.server.url(), "lock", "k"]));
    assert!(process.line().ends_with(":StateStore"));
    process.signal(Signal::SIGTSTP);
    assert_eq!(process.error_line(), "warning: mqkv continues after Ctrl-Z: it holds the lock k");
    process.signal(Signal::SIGTERM);
    assert_eq!(process.end().2, Some(143));
}

#[test]
fn a_server_and_its_command_stop_and_continue_together_whatever_standard_input_is() {
    let bench = Bench::new();
    let words = ["serve", "--exec", "--", "sh", "-c", "echo $$; exec sleep 60"];
    let process = StreamedProcess::start(&mut in_a_session(bench.place.command(&words)));
    let command: u32 = process.line().parse().unwrap();
    process.signal(Signal::SIGTSTP);
    wait_until_stopped(command);
    wait_until_stopped(process.id());
    process.signal(Signal::SIGCONT);
    process.signal(Signal::SIGTERM);
    assert_eq!(process.end(), (vec![], vec![], Some(143)));
}

/// Puts the process into a group of its own, whose parent is in the same session: the system does not stop others.
fn in_a_session(mut command: Command) -> Command {
    command.process_group(0);
    command
}

/// The regular renewal comes after more than three minutes.
const RENEWED_LATE: [&str; 6] = ["lock", "k", "--holder", "me", "--ttl", "10m"];

#[test]
fn a_lock_is_renewed_at_once_after_a_stop_of_its_process() {
    let bench = Bench::new();
    let wire = RequestRecorder::start(bench.server.port());
    let url = wire.url();
    let words = [&["-b", &url], &RENEWED_LATE[..], &UP[..]].concat();
    let process = StreamedProcess::start(&mut bench.place.command(&words));
    assert_eq!((process.line().as_str(), wire.count("SET k")), ("up", 1));
    process.signal(Signal::SIGSTOP);
    wait_until_stopped(process.id());
    process.signal(Signal::SIGCONT);
    wait_until("it is renewed", || (wire.count("SET k") == 2).then_some(()));
}

#[test]
fn a_lock_is_renewed_at_once_after_a_restart_of_the_store() {
    let mut bench = Bench::new();
    let url = bench.server.url();
    let words = [&["-b", &url], &RENEWED_LATE[..], &UP[..]].concat();
    let process = StreamedProcess::start(&mut bench.place.command(&words));
    assert_eq!(process.line(), "up");
    bench.server.kill();
    bench.server.start_again(&bench.place, &["-q"]);
    let is_held = || (bench.run(&["holder", "k"]) == "--- stdout\nme\n--- exit 0\n").then_some(());
    wait_until("it is held in the restarted store", is_held);
}

#[test]
fn orphans_of_a_command_that_have_ended_do_not_stay_as_zombies() {
    let bench = Bench::new();
    // In the group of the command, and in groups and sessions of their own.
    let script = "for start in sh 'setsid sh' 'timeout 60 sh'; do \
                  ($start -c 'echo $$ >> orphans; exit 3' &); done; \
                  until [ \"$(wc -l < orphans)\" = 3 ]; do sleep 0.01; done; echo up; until [ -e go ]; do sleep 0.01; done";
    for words in [&["-b", &bench.server.url(), "lock", "k"][..], &["serve", "--exec"]] {
        let words = [words, &["--", "sh", "-c", script]].concat();
        let process = StreamedProcess::start(&mut bench.place.command(&words));
        assert_eq!(process.line(), "up");
        let parent = process.id();
        wait_until("only the command is left", || (children_of(parent) == 1).then_some(()));
        bench.touch("go");
        assert_eq!(process.end().2, Some(0));
        fs::remove_file(bench.place.path("orphans")).unwrap();
        fs::remove_file(bench.place.path("go")).unwrap();
    }
}

/// Returns the number of children that run, or have ended and were not waited for.
fn children_of(parent: u32) -> usize {
    let parent = parent.to_string();
    let stats = fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| fs::read_to_string(entry.ok()?.path().join("stat")).ok());
    let is_child =
        |stat: &String| stat.rsplit(')').next().unwrap().split_whitespace().nth(1) == Some(&parent);
    stats.filter(is_child).count()
}

#[test]
fn a_wait_without_a_limit_and_a_terminal_reports_that_the_value_may_be_no_lock() {
    let bench = Bench::new();
    bench.run(&["set", "k", "21.5"]);
    let process =
        StreamedProcess::start(&mut bench.place.command(&["-b", &bench.server.url(), "lock", "k", "true"]));
    assert_eq!(process.error_line(), "waiting for k, held by 21.5");
    assert_eq!(
        process.error_line(),
        "warning: still waiting for k, held by 21.5: the wait has no limit, and the value may be no lock"
    );
    assert_eq!(process.error_line(), "hint: -w 10m limits the wait");
    process.signal(Signal::SIGTERM);
    assert_eq!(process.end().2, Some(143));
}

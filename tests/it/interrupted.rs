//! A signal during a write: the report of its outcome.

use std::io::{BufRead, BufReader, Write, pipe};
use std::iter;
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::sync::mpsc::{Receiver, channel};

use nix::sys::signal::Signal;

use super::common::fake_broker::{Connection, FakeBroker};
use super::common::wire::Publish;
use super::common::{CTRL_C, Exit, Place, Process, Server, Terminal, bounded, wait_until};
use crate::a_watchdog::bounded;

/// A broker that answers `answered` requests and then leaves `unanswered` requests without an answer. The receiver
/// is notified once all have arrived.
fn silent_after(answered: usize, unanswered: usize) -> (FakeBroker<()>, Receiver<()>) {
    let (sender, silent) = channel();
    let broker = FakeBroker::start(move |connection: &mut Connection| {
        connection.accept_client();
        connection.subscribe(1);
        for number in 0..answered + unanswered {
            let request =
                iter::from_fn(|| connection.next()).find(|packet| packet.name() == "PUBLISH").unwrap();
            if number < answered {
                connection.answer(&Publish::decode(&request), "+OK\r\n", &[]);
            }
        }
        sender.send(()).unwrap();
        connection.listen();
    });
    (broker, silent)
}

/// Runs a verb until the broker has received its requests, and then sends it a signal.
fn end_with(signal: Signal, (answered, unanswered): (usize, usize), words: &[&str], place: &Place) -> Exit {
    let (broker, silent) = silent_after(answered, unanswered);
    let mut run = Process::start(place.command(&[&["-b", &broker.url()], words].concat()));
    bounded(|| silent.recv()).unwrap();
    run.signal(signal);
    let exit = run.end();
    broker.end();
    exit
}

#[test]
fn a_write_that_a_signal_interrupts_reports_an_unknown_outcome() {
    let place = Place::new();
    let signals = [(Signal::SIGINT, "SIGINT"), (Signal::SIGTERM, "SIGTERM")];
    for words in [&["set", "k", "v"][..], &["del", "k"], &["vdel", "k", "v"], &["raw", "SET", "k", "v"]] {
        for (signal, name) in signals {
            let exit = end_with(signal, (0, 1), words, &place);
            let expected = format!(
                "error: interrupted before the answer: {name}\n  the write may or may not have happened\n\
                 hint: check the value: mqkv get KEY\n"
            );
            assert_eq!((exit.errors, exit.output), (expected, String::new()), "{words:?}");
            // The process ends by the signal, so that a shell sees 130 or 143 and ends a loop around it.
            assert_eq!((exit.signal, exit.code), (Some(signal as i32), None), "{words:?}");
        }
    }
    let exit = end_with(Signal::SIGTERM, (0, 1), &["set", "k", "v", "-j"], &place);
    assert!(exit.errors.starts_with("{\"v\":1,\"error\":{\"kind\":\"terminated\",\"code\":143,"), "{exit:?}");
    assert!(exit.errors.contains("\"outcome\":\"unknown\""), "{exit:?}");
    assert_eq!(exit.signal, Some(15));
}

#[test]
fn at_the_prompt_ctrl_c_during_a_write_reports_an_unknown_outcome() {
    let place = Place::new();
    let (broker, silent) = silent_after(0, 1);
    let terminal = Terminal::start(place.command(&["shell", "-b", &broker.url()]));
    let prompt = format!("{}>", broker.url().trim_start_matches("mqtt://"));
    terminal.ends_with(&prompt);
    terminal.start_command("del k -j");
    bounded(|| silent.recv()).unwrap();
    terminal.keys(CTRL_C);
    terminal.shows("{\"v\":1,\"error\":{\"kind\":\"interrupted\",\"code\":130,");
    terminal.shows("\"outcome\":\"unknown\"");
    terminal.ends_with(&prompt);
    terminal.press_ctrl_d();
    broker.end();
}

#[test]
fn a_read_that_a_signal_interrupts_prints_nothing() {
    let exit = end_with(Signal::SIGINT, (0, 1), &["get", "k"], &Place::new());
    assert_eq!((exit.errors.as_str(), exit.signal), ("", Some(2)));
}

#[test]
fn an_interrupted_delete_lists_the_keys_without_an_answer() {
    let exit = end_with(Signal::SIGINT, (0, 3), &["del", "a", "b", "c"], &Place::new());
    assert!(
        exit.errors.contains("  3 of 3 keys failed: a, b, c\n  the write may or may not have happened\n"),
        "{exit:?}"
    );
    assert_eq!(exit.signal, Some(2));
}

#[test]
fn an_interrupt_before_a_write_was_sent_reports_that_nothing_changed() {
    let place = Place::new();
    let (sender, connected) = channel();
    let broker = FakeBroker::start(move |connection: &mut Connection| {
        connection.expect("CONNECT");
        sender.send(()).unwrap();
        connection.listen();
    });
    let mut run = Process::start(place.command(&["set", "k", "v", "-b", &broker.url()]));
    bounded(|| connected.recv()).unwrap();
    run.signal(Signal::SIGINT);
    let exit = run.end();
    assert_eq!(exit.errors, "error: interrupted before the answer: SIGINT\n  nothing was changed\n");
    assert_eq!(exit.signal, Some(2));
    broker.end();
}

#[test]
fn a_signal_during_a_batch_or_an_import_reports_the_lines_in_flight() {
    let place = Place::new();
    place.write("lines", "set a 1\nset b 2\nset c 3\n");
    let exit = end_with(Signal::SIGINT, (2, 1), &["batch", "lines", "--inflight", "1"], &place);
    assert_eq!(exit.signal, Some(2));
    assert!(exit.errors.contains("error: interrupted before the answer: SIGINT\n  lines:3: "), "{exit:?}");
    assert!(exit.errors.ends_with("  the write may or may not have happened\n"), "{exit:?}");
    let entries: String = (0..200).map(|at| format!("{{\"key\":\"{at}\",\"value\":\"v\"}}\n")).collect();
    place.write("entries", entries);
    // The window is full: no further lines are read.
    let exit = end_with(Signal::SIGTERM, (0, 64), &["import", "entries", "--keep-going", "-j"], &place);
    assert_eq!(exit.signal, Some(15));
    let last = exit.errors.lines().last().unwrap();
    assert!(last.starts_with("{\"v\":1,\"error\":{\"kind\":\"terminated\",\"code\":143,"), "{exit:?}");
    assert!(last.contains("\"outcome\":\"unknown\""), "{exit:?}");
}

#[test]
fn an_import_that_stops_reports_what_it_has_written_and_where_to_continue() {
    let place = Place::new();
    let entries: String = (0..9).map(|at| format!("{{\"key\":\"{at}\",\"value\":\"v\"}}\n\n")).collect();
    place.write("entries", entries);
    let import = |options: &[&str]| {
        let words = [&["import", "entries", "--inflight", "1"], options].concat();
        end_with(Signal::SIGINT, (2, 1), &words, &place)
    };
    let exit = import(&[]);
    assert!(
        exit.errors.starts_with("wrote 2 keys; 1 failed (with new versions, without times to live)\n"),
        "{exit:?}"
    );
    let hint = "hint: continue from line 5: mqkv help import\n";
    assert!(exit.errors.ends_with(hint), "{exit:?}");
    let exit = import(&["--keep-going"]);
    assert!(exit.errors.ends_with(hint), "{exit:?}");
    let exit = import(&["--keep-going", "-j"]);
    let summary = "{\"v\":1,\"op\":\"import\",\"written\":2,\"with_ttl\":0,\"left\":0,\"expired\":0,\"failed\":1,\"dry_run\":false,\"next_line\":5}\n";
    assert!(exit.output.ends_with(summary), "{exit:?}");

    // The broker is lost, and does not return.
    let broker = FakeBroker::start(|connection| {
        let request = connection.serve();
        connection.answer(&request, "+OK\r\n", &[]);
        iter::from_fn(|| connection.next()).find(|packet| packet.name() == "PUBLISH").unwrap();
    });
    let words = ["import", "entries", "--inflight", "1", "-b", &broker.url(), "--timeout", "1s"];
    let run = Process::start(place.command(&words));
    let exit = run.end();
    broker.end();
    assert!(
        exit.errors.contains("wrote 1 key; 1 failed (with new versions, without times to live)\n"),
        "{exit:?}"
    );
    assert!(exit.errors.ends_with("hint: continue from line 3: mqkv help import\n"), "{exit:?}");
}

#[test]
fn at_the_prompt_ctrl_c_during_an_import_reports_how_many_lines_are_done() {
    let place = Place::new();
    let entries: String = (0..9).map(|at| format!("{{\"key\":\"{at}\",\"value\":\"v\"}}\n")).collect();
    place.write("entries", entries);
    let (broker, silent) = silent_after(2, 1);
    let mut command = place.command(&["shell", "-b", &broker.url()]);
    command.current_dir(place.folder());
    let terminal = Terminal::start(command);
    let prompt = format!("{}>", broker.url().trim_start_matches("mqtt://"));
    terminal.ends_with(&prompt);
    terminal.start_command("import entries --inflight 1");
    bounded(|| silent.recv()).unwrap();
    terminal.keys(CTRL_C);
    terminal.shows("canceled after 2 keys; the outcome of a write that was sent is unknown");
    terminal.ends_with(&prompt);
    terminal.press_ctrl_d();
    broker.end();
}

#[test]
fn a_signal_after_all_answers_of_a_batch_reports_no_unknown_outcome() {
    let place = Place::new();
    let server = Server::start(&place, &[]);
    let mut command = place.command(&["batch", "-", "-b", &server.url()]);
    command.stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    input.write_all(b"set k v\nget k\n").unwrap();
    let mut answer = String::new();
    bounded(|| output.read_line(&mut answer)).unwrap();
    assert_eq!(answer, "v\n");
    bounded::signal(&child, "INT");
    wait_until("the batch ends", || child.try_wait().unwrap());
    let exit = bounded(|| child.wait_with_output()).unwrap();
    assert_eq!(
        String::from_utf8_lossy(&exit.stderr),
        "error: interrupted before the answer: SIGINT\n  all requests sent until then were answered\n"
    );
    drop(input);
}

#[test]
fn a_blocked_standard_output_does_not_delay_a_signal() {
    let place = Place::new();
    let server = Server::start(&place, &[]);
    place.write("lines", "get k\nset batch yes\n");
    let (_unread, mut full) = pipe().unwrap();
    // The pipe is full, so that each write to it blocks.
    full.write_all(&[0; 65_536]).unwrap();
    let start = |words: &[&str]| {
        let mut command = place.command(&[&["-b", &server.url(), "-j"], words].concat());
        command.stdout(full.try_clone().unwrap()).spawn().unwrap()
    };
    let mut children =
        [start(&["batch", "lines"]), start(&["set", "set", "yes"]), start(&["raw", "SET", "raw", "yes"])];
    for key in ["batch", "set", "raw"] {
        wait_until("it is done", || {
            place.run(&["get", key, "-b", &server.url()]).contains("yes").then_some(())
        });
    }
    for child in &children {
        bounded::signal(child, "TERM");
    }
    for child in &mut children {
        let status = wait_until("it ends", || child.try_wait().unwrap());
        assert_eq!(status.signal(), Some(15));
    }
}

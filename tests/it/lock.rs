//! `lock`, `unlock` and `holder` with real commands.

use std::fs;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use mqkv::protocol::{Request as RequestCommand, Timestamp};
use nix::sys::signal::Signal;

use super::common::fake_broker::{Connection, FakeBroker};
use super::common::wire::{self, Publish};
use super::common::{
    CTRL_D, CTRL_Z, Exit, Place, Process, RequestRecorder, Server, Terminal, is_running, line_in, wait_until,
};
use crate::a_watchdog::bounded;

/// A store and a directory for its clients.
pub struct Bench {
    pub server: Server,
    pub place: Place,
}

impl Bench {
    pub fn new() -> Self {
        let place = Place::new().with_variable("MQKV", env!("CARGO_BIN_EXE_mqkv"));
        let server = Server::start(&place, &["-q"]);
        let url = server.url();
        Self { server, place: place.with_variable("URL", &url) }
    }

    /// Runs a verb to its end.
    pub fn run(&self, words: &[&str]) -> String {
        self.place.run(&[words, &["-b", &self.server.url()]].concat())
    }

    /// Starts a verb. The broker precedes it, because a command may follow it.
    pub fn start(&self, words: &[&str]) -> Process {
        Process::start(self.place.command(&[&["-b", &self.server.url()], words].concat()))
    }

    pub fn start_over(&self, wire: &RequestRecorder, words: &[&str]) -> Process {
        Process::start(self.place.command(&[&["-b", &wire.url()], words].concat()))
    }

    pub fn line_in(&self, file: &str) -> String {
        line_in(&self.place.path(file))
    }

    pub fn touch(&self, file: &str) {
        self.place.write(file, "\n");
    }

    /// Starts a lock whose command writes the file `held` and ends once the file `go` exists.
    pub fn hold(&self, options: &[&str]) -> Process {
        let command = ["--", "sh", "-c", "echo > held; until [ -e go ]; do sleep 0.01; done"];
        let holder = self.start(&[&["lock", "deploy"], options, &command].concat());
        self.line_in("held");
        holder
    }
}

const FREE: &str = "--- stderr\nerror: deploy is free\n--- exit 1\n";

#[test]
fn twenty_processes_increment_a_file_without_a_lost_update() {
    const PROCESSES: usize = 20;
    let bench = Bench::new();
    let wire = RequestRecorder::start(bench.server.port());
    bench.place.write("count", "0\n");
    let holder = bench.hold(&["--holder", "first"]);
    let increment = "n=$(cat count); sleep 0.01; echo $((n + 1)) > count";
    let waiters: Vec<_> = (0..PROCESSES)
        .map(|_| bench.start_over(&wire, &["lock", "deploy", "-w", "1h", "--", "sh", "-c", increment]))
        .collect();
    wait_until("all wait", || (wire.count("GET deploy") == PROCESSES).then_some(()));
    let before = wire.requests().len();
    assert_eq!(before, 3 * PROCESSES, "SET, KEYNOTIFY and GET of each: {:?}", wire.requests());
    // Waiting processes must not poll: no request may follow for a while, in which each would retry several times.
    sleep(Duration::from_millis(500));
    assert_eq!(wire.requests().len(), before, "a waiting process polls");
    bench.touch("go");
    for waiter in waiters {
        let exit = waiter.end();
        assert_eq!((exit.code, exit.errors.as_str()), (Some(0), "waiting for deploy, held by first\n"));
    }
    assert_eq!(holder.end().code, Some(0));
    assert_eq!(fs::read_to_string(bench.place.path("count")).unwrap(), "20\n");
    assert_eq!(bench.run(&["holder", "deploy"]), FREE);
    assert_eq!(wire.count("VDEL deploy"), PROCESSES);
}

/// Runs `lock deploy` with a script to its end.
fn lock(bench: &Bench, options: &[&str], script: &str) -> Exit {
    bench.start(&[&["lock", "deploy"], options, &["--", "sh", "-c", script]].concat()).end()
}

#[test]
fn the_command_gets_its_lock_in_variables_and_its_exit_code_is_passed_on() {
    let bench = Bench::new();
    let script = "echo $MQKV_LOCK_KEY $MQKV_LOCK_HOLDER; \
                  [ $MQKV_FENCING_TOKEN = $(cat $MQKV_FENCING_TOKEN_FILE) ] && \
                  [ $($MQKV -b $URL holder $MQKV_LOCK_KEY) = $MQKV_LOCK_HOLDER ] && exit 7";
    let exit = lock(&bench, &["--holder", "me"], script);
    assert_eq!((exit.code, exit.output.as_str(), exit.errors.as_str()), (Some(7), "deploy me\n", ""));
    let exit = lock(&bench, &[], "echo $MQKV_FENCING_TOKEN_FILE; kill -9 $$");
    assert_eq!(exit.code, Some(128 + 9));
    assert!(!fs::exists(exit.output.trim_end()).unwrap(), "the file ends with the lock");
    assert_eq!(bench.run(&["holder", "deploy"]), FREE);
}

#[test]
fn the_command_gets_its_own_options_and_standard_input() {
    let bench = Bench::new();
    let mut command = bench.place.command(&["-b", &bench.server.url(), "lock", "deploy", "cat", "-n", "-"]);
    fs::write(bench.place.path("input"), "one\n").unwrap();
    command.stdin(Stdio::from(fs::File::open(bench.place.path("input")).unwrap()));
    let exit = Process::start(command).end();
    assert_eq!((exit.code, exit.output.as_str()), (Some(0), "     1\tone\n"));
}

#[test]
fn a_command_that_cannot_be_run_exits_with_126_or_127_and_leaves_no_lock() {
    let bench = Bench::new();
    let code = |command: &str| bench.start(&["lock", "deploy", "--", command]).end();
    let missing = code("/no/such/command");
    assert_eq!(missing.code, Some(127));
    assert!(missing.errors.starts_with("error: cannot run /no/such/command: "), "{}", missing.errors);
    bench.touch("plain");
    assert_eq!(code("./plain").code, Some(126));
    assert_eq!(bench.run(&["holder", "deploy"]), FREE);
}

#[test]
fn a_lock_that_does_not_wait_prints_the_holder() {
    let bench = Bench::new();
    let _holder = bench.hold(&["--holder", "connector-0"]);
    assert_eq!(
        bench.run(&["lock", "deploy", "-w", "0"]),
        "--- stderr\nerror: deploy is held by connector-0\n--- exit 1\n"
    );
    let exit = bench.start(&["lock", "deploy", "-w", "0", "-E", "9", "--", "touch", "ran"]).end();
    assert_eq!(exit.code, Some(9));
    assert!(!bench.place.path("ran").exists());
    assert_eq!(
        bench.run(&["lock", "deploy", "-w", "300ms", "-j"]),
        "--- stdout\n{\"v\":1,\"op\":\"lock\",\"key\":\"deploy\",\"acquired\":false,\"holder\":\"connector-0\"}\n\
         --- stderr\n{\"v\":1,\"note\":{\"kind\":\"lock-waiting\",\"key\":\"deploy\",\
         \"message\":\"waiting for deploy, held by connector-0\"}}\n--- exit 1\n"
    );
}

/// Answers the attempts to acquire a lock except the first `silent` ones, until the client closes the connection. Returns
/// the verbs of the requests.
fn serve_late(connection: &mut Connection, silent: usize) -> Vec<String> {
    connection.accept_client();
    let mut verbs = Vec::new();
    while let Some(packet) = connection.next() {
        match packet.name() {
            "SUBSCRIBE" => connection.send(&wire::suback(packet.packet_id(), 1)),
            "PUBLISH" => {
                let publish = Publish::decode(&packet);
                let request = RequestCommand::decode(&publish.payload.clone().into()).unwrap();
                verbs.push(request.verb().to_owned());
                let version = Timestamp::of_store(mqkv::clock::wall_ms(), 0).to_string();
                match request.verb() {
                    "SET" if verbs.len() <= silent => connection.send(&wire::puback(publish.packet_id, 0)),
                    "SET" => connection.answer(&publish, "+OK\r\n", &[("__ts", &version)]),
                    _ => connection.answer(&publish, ":1\r\n", &[]),
                }
            }
            _ => connection.send(&[0xD0, 0]),
        }
    }
    verbs
}

#[test]
fn an_unanswered_attempt_is_repeated_while_the_lock_is_waited_for() {
    let fake = FakeBroker::start(|connection| serve_late(connection, 2));
    let place = Place::new();
    let words = ["lock", "deploy", "-t", "200ms", "--", "echo", "locked"];
    let exit = Process::start(place.command(&[&["-b", &fake.url()], &words[..]].concat())).end();
    assert_eq!((exit.code, exit.output.as_str()), (Some(0), "locked\n"), "{exit:?}");
    let target = fake.url().replace("mqtt://", "");
    let cause = format!("no answer from {target} within 200ms");
    assert_eq!(exit.errors, format!("warning: no answer, still waiting for deploy: {cause}\n"));
    assert_eq!(fake.end(), ["SET", "SET", "SET", "VDEL"]);
}

#[test]
fn a_lock_that_nothing_answers_ends_with_its_waiting_time() {
    for (wait, attempts) in [("0", 1), ("600ms", 1), ("900ms", 2)] {
        let fake = FakeBroker::start(|connection| serve_late(connection, usize::MAX));
        let place = Place::new();
        let words = ["lock", "deploy", "-t", "200ms", "-w", wait, "-q", "--", "true"];
        let exit = Process::start(place.command(&[&["-b", &fake.url()], &words[..]].concat())).end();
        assert_eq!(exit.code, Some(124), "{wait}: {exit:?}");
        assert!(exit.errors.starts_with("error: no answer from "), "{wait}: {exit:?}");
        let verbs = fake.end();
        assert_eq!(verbs.iter().filter(|verb| *verb == "SET").count(), attempts, "{wait}: {verbs:?}");
        assert_eq!(verbs.last().map(String::as_str), Some("VDEL"), "an attempt may have succeeded");
    }
}

#[test]
fn processes_left_in_the_group_of_a_command_are_ended_before_the_release() {
    let bench = Bench::new();
    let script = "sh -c 'trap \"\" TERM; echo $$ > stubborn; while :; do sleep 0.05; done' & \
                  sleep 1000 & echo $! > polite; until [ -s stubborn ]; do sleep 0.01; done; exit 4";
    let exit = lock(&bench, &["--kill-after", "200ms"], script);
    assert_eq!((exit.code, exit.errors.as_str()), (Some(4), ""));
    for file in ["stubborn", "polite"] {
        assert!(!is_running(&bench.line_in(file)), "{file}");
    }
    assert_eq!(bench.run(&["holder", "deploy"]), FREE);
}

#[test]
fn a_signal_while_holding_goes_to_the_command_and_the_release_follows() {
    let bench = Bench::new();
    let script = "trap '$MQKV -b $URL holder deploy > during; exit 5' TERM; echo > held; \
                  while :; do sleep 0.01; done";
    let mut process = bench.start(&["lock", "deploy", "--holder", "me", "--", "sh", "-c", script]);
    bench.line_in("held");
    process.signal(Signal::SIGTERM);
    let exit = process.end();
    assert_eq!(exit.code, Some(5), "{exit:?}");
    assert_eq!(bench.line_in("during"), "me");
    assert_eq!(bench.run(&["holder", "deploy"]), FREE);
}

#[test]
fn a_command_that_a_signal_ends_exits_with_128_plus_its_number() {
    let bench = Bench::new();
    let mut process = bench.start(&["lock", "deploy", "--", "sh", "-c", "echo > held; exec sleep 1000"]);
    bench.line_in("held");
    process.signal(Signal::SIGTERM);
    assert_eq!(process.end().code, Some(143));
}

#[test]
fn a_signal_while_waiting_leaves_no_watch_and_no_lease() {
    let bench = Bench::new();
    let wire = RequestRecorder::start(bench.server.port());
    let holder = bench.hold(&["--holder", "first"]);
    let mut waiter = bench.start_over(&wire, &["lock", "deploy", "-v", "--", "touch", "ran"]);
    assert_eq!(waiter.error_line(), "waiting for deploy, held by first");
    waiter.signal(Signal::SIGTERM);
    assert_eq!(waiter.end().code, Some(143));
    let requests = wire.requests();
    assert_eq!(requests.len(), 4, "{requests:?}");
    assert!(requests[0].starts_with("SET deploy mqkv-"), "{requests:?}");
    assert_eq!(requests[1..], ["KEYNOTIFY deploy", "GET deploy", "KEYNOTIFY deploy STOP"]);
    bench.touch("go");
    assert_eq!(holder.end().code, Some(0));
    assert_eq!(bench.run(&["holder", "deploy"]), FREE);
    assert!(!bench.place.path("ran").exists());
}

#[test]
fn a_lock_without_a_command_is_held_until_the_end_of_input_if_asked_to() {
    let bench = Bench::new();
    let mut command =
        bench.place.command(&["-b", &bench.server.url(), "lock", "deploy", "--until-eof", "--holder", "me"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut process = command.spawn().unwrap();
    let held = || (bench.run(&["holder", "deploy"]) == "--- stdout\nme\n--- exit 0\n").then_some(());
    wait_until("it is held", held);
    drop(process.stdin.take());
    let output = bounded(|| process.wait_with_output()).unwrap();
    assert_eq!(output.status.code(), Some(0));
    let token = String::from_utf8(output.stdout).unwrap();
    assert!(token.ends_with(":StateStore\n") && token.lines().count() == 1, "{token}");
    assert_eq!(bench.run(&["holder", "deploy"]), FREE);
}

#[test]
fn a_lock_without_a_command_stays_held_though_the_input_ended_before_it_began() {
    let bench = Bench::new();
    let wire = RequestRecorder::start(bench.server.port());
    let mut command = bench.place.command(&["-b", &wire.url(), "lock", "deploy", "--ttl", "600ms"]);
    command.stdin(Stdio::null());
    let mut process = Process::start(command);
    wait_until("it is renewed", || (wire.count("SET deploy") >= 4).then_some(()));
    process.signal(Signal::SIGTERM);
    let exit = process.end();
    assert_eq!((exit.code, exit.output.lines().count()), (Some(143), 1), "{exit:?}");
    assert_eq!(bench.run(&["holder", "deploy"]), FREE);
}

#[test]
fn a_lock_is_released_if_no_thread_can_be_started_to_read_standard_input() {
    let bench = Bench::new();
    // Enough memory for the stack of the connection's thread, and for no other.
    let script = "ulimit -v 1500000 && exec \"$MQKV\" lock deploy --until-eof -b \"$URL\"";
    let mut command = Command::new("sh");
    command.args(["-c", script]).env("RUST_MIN_STACK", "1000000000").stdin(Stdio::null());
    command.env("MQKV", env!("CARGO_BIN_EXE_mqkv")).env("URL", bench.server.url());
    let exit = Process::start(command).end();
    let cause = "Resource temporarily unavailable (os error 11)";
    let hint = "raise the limit of threads: `ulimit -u`, or TasksMax of the service";
    assert_eq!(exit.errors, format!("error: cannot start a thread: {cause}\nhint: {hint}\n"));
    assert!(exit.code == Some(70) && exit.output.ends_with(":StateStore\n"), "{exit:?}");
    assert_eq!(bench.run(&["holder", "deploy"]), FREE);
}

#[test]
fn a_lock_without_a_command_is_released_at_a_signal() {
    let bench = Bench::new();
    let mut command =
        bench.place.command(&["-b", &bench.server.url(), "lock", "deploy", "-j", "--token-file", "token"]);
    command.stdin(Stdio::piped());
    let mut process = Process::start(command);
    bench.line_in("token");
    process.signal(Signal::SIGTERM);
    let exit = process.end();
    assert_eq!((exit.code, exit.errors.as_str()), (Some(143), ""));
    assert!(
        exit.output.starts_with("{\"v\":1,\"op\":\"lock\",\"key\":\"deploy\",\"acquired\":true,"),
        "{exit:?}"
    );
    assert_eq!(bench.run(&["holder", "deploy"]), FREE);
}

#[test]
fn unlock_releases_a_lock_of_once_by_its_holder() {
    let bench = Bench::new();
    let taken = bench.run(&["lock", "deploy", "--once", "--holder", "ci 17", "--token-file", "token"]);
    let token = fs::read_to_string(bench.place.path("token")).unwrap();
    assert_eq!(taken, format!("--- stdout\n{}\tci 17\n--- exit 0\n", token.trim_end()));
    assert_eq!(bench.run(&["holder", "deploy"]), "--- stdout\nci 17\n--- exit 0\n");
    assert_eq!(
        bench.run(&["unlock", "deploy", "--holder", "ci 18"]),
        "--- stderr\nerror: not released: deploy is not held by ci 18\n--- exit 1\n"
    );
    assert_eq!(bench.run(&["unlock", "deploy", "--holder", "ci 17"]), "--- exit 0\n");
    assert_eq!(bench.run(&["holder", "deploy"]), FREE);
    assert_eq!(
        bench.run(&["unlock", "deploy", "--holder", "ci 17", "-j"]),
        "--- stdout\n{\"v\":1,\"op\":\"unlock\",\"key\":\"deploy\",\"holder\":\"ci 17\",\"released\":false,\
         \"reason\":\"free\"}\n--- exit 1\n"
    );
}

#[test]
fn a_lock_of_once_stays_held_after_its_process_has_ended() {
    let bench = Bench::new();
    for n in 0..40 {
        let (key, holder) = (format!("deploy{n}"), format!("ci {n}"));
        let words = ["-b", &bench.server.url(), "lock", &key, "--once", "--holder", &holder];
        // Without a pipe to write to the process ends as soon as possible.
        let taken =
            bounded(|| bench.place.command(&words).stdin(Stdio::null()).stdout(Stdio::null()).status());
        assert_eq!(taken.unwrap().code(), Some(0));
        assert_eq!(bench.run(&["holder", &key]), format!("--- stdout\n{holder}\n--- exit 0\n"));
    }
}

#[test]
fn unlock_takes_the_holder_from_the_environment() {
    let bench = Bench::new();
    let exit = lock(&bench, &[], "$MQKV -b $URL unlock deploy && exit 3");
    assert_eq!(exit.code, Some(125), "unlock inside the command loses the lock");
    assert_eq!(
        exit.errors.lines().take(2).collect::<Vec<_>>(),
        [
            "error: lock lost: deploy: the store reports that it has another holder or none",
            "  the command had ended by itself; its exit status is 3"
        ]
    );
}

#[test]
fn a_wait_for_an_ordinary_value_reports_that_it_may_be_no_lock() {
    let bench = Bench::new();
    bench.run(&["set", "deploy", "21.5"]);
    let shown = bench.run(&["lock", "deploy", "--ttl", "300ms", "-w", "900ms"]);
    assert!(shown.starts_with("--- stderr\nwaiting for deploy, held by 21.5\n"), "{shown}");
    assert!(shown.contains("\nerror: deploy is held by 21.5\n  not renewed for "), "{shown}");
    assert!(shown.ends_with(": the key may be an ordinary value, not a lock\n--- exit 1\n"), "{shown}");
    assert_eq!(bench.run(&["get", "deploy"]), "--- stdout\n21.5(no line feed)\n--- exit 0\n");
}

#[test]
fn a_key_with_a_fencing_token_cannot_be_a_lock() {
    let bench = Bench::new();
    bench.run(&["set", "deploy", "21.5", "--fence", "1:0:n"]);
    assert_eq!(
        bench.run(&["lock", "deploy"]),
        "--- stderr\nerror: cannot use deploy as a lock: it was written with a fencing token\n  \
         a lock is acquired without a token, because tokens come from locks\n  nothing was changed\n\
         hint: lock another key, and write this one under that lock with --fence-env\n\
         hint: delete the key to remove its fence: mqkv del KEY --fence TOKEN\n--- exit 76\n"
    );
}

#[test]
fn an_invalid_command_line_is_reported_without_a_connection() {
    let place = Place::new();
    assert_eq!(
        place.run(&["lock", "deploy", "--ttl", "5s", "--renew", "2s", "--kill-after", "5s", "--", "true"]),
        "--- stderr\nerror: --ttl 5s is too short\n  2s until the renewal (--renew) + \
         5s to stop the command (--kill-after) + 1s of grace = 8s, which must be less than --ttl\n\
         hint: use --ttl 9s or longer, or a shorter --kill-after or --renew\n--- exit 2\n"
    );
    for (words, error) in [
        (&["lock", "deploy", "--holder", ""][..], "invalid holder: the name is empty"),
        (&["lock", "deploy", "--once", "true"], "--once cannot run a command"),
        (
            &["lock", "--key-hex", "00", "--", "true"],
            "invalid key for a command: MQKV_LOCK_KEY cannot contain a NUL byte",
        ),
        (&["unlock", "deploy"], "no holder: --holder is missing, and MQKV_LOCK_HOLDER is not set"),
        (&["lock"], "KEY is missing"),
        (&["lock", "deploy", "-w", "5"], "invalid value '5' for '--wait <0|DURATION|forever>'"),
    ] {
        let shown = place.run(words);
        assert!(shown.starts_with(&format!("--- stderr\nerror: {error}")), "{words:?}: {shown}");
        assert!(shown.ends_with("--- exit 2\n"), "{words:?}: {shown}");
    }
}

#[test]
fn after_ctrl_z_the_command_continues_under_its_lock_and_the_reason_is_printed_once() {
    let bench = Bench::new();
    let bash = ["bash", "--norc", "--noprofile", "-i"];
    let url = bench.server.url();
    bench.place.write("script", "echo begun; exec cat");
    let words = ["lock", "k", "-b", &url, "--", "sh", "script"];
    let terminal = Terminal::in_shell(&bash, &bench.place, &words);
    terminal.shows("begun");
    terminal.keys(CTRL_Z);
    terminal.shows("warning: the command continues after Ctrl-Z: it holds the lock k\nhint: Ctrl-C ends it");
    for text in ["two", "three"] {
        terminal.keys(CTRL_Z);
        terminal.line(text);
        terminal.shows(&format!("{text}\n{text}"));
    }
    assert_eq!(terminal.screen().matches("continues after").count(), 1);
    terminal.keys(CTRL_D);
    terminal.ends_with("$");
    assert!(bench.run(&["holder", "k"]).ends_with("--- exit 1\n"));
}

//! Locks that are renewed, and locks that are lost: killed holders, stopped stores, stopped `lock` processes.

use std::collections::BTreeSet;
use std::fs;

use mqkv::protocol::Timestamp;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use super::common::{is_running, wait_until};
use super::lock::Bench;

/// Reads the token in a file, which must be replaced atomically.
fn token_in(bench: &Bench, file: &str) -> Option<Timestamp> {
    let text = fs::read_to_string(bench.place.path(file)).ok()?;
    assert!(text.ends_with('\n'), "half a token: {text:?}");
    Some(text.trim_end().parse().unwrap())
}

#[test]
fn a_renewal_returns_a_newer_token_and_replaces_the_file_atomically() {
    const RENEWALS: usize = 5;
    let bench = Bench::new();
    let options = ["--ttl", "4s", "--renew", "100ms", "--kill-after", "0", "--token-file", "token"];
    let holder = bench.hold(&options);
    let mut tokens = BTreeSet::new();
    let mut last = None;
    wait_until("renewals", || {
        let token = token_in(&bench, "token").unwrap();
        assert!(last.as_ref() <= Some(&token), "{last:?} {token:?}");
        tokens.insert(token.to_string());
        last = Some(token);
        (tokens.len() > RENEWALS).then_some(())
    });
    bench.touch("go");
    assert_eq!(holder.end().code, Some(0));
    assert!(!bench.place.path("token").exists());
}

#[test]
fn the_lock_of_a_killed_holder_is_free_as_soon_as_its_lease_ends() {
    const TTL_MS: u64 = 2_000;
    let bench = Bench::new();
    let script = "echo $$ > child; exec sleep 1000";
    let mut holder = bench.start(&[
        "lock",
        "deploy",
        "--ttl",
        "2s",
        "--kill-after",
        "200ms",
        "--token-file",
        "token",
        "--",
        "sh",
        "-c",
        script,
    ]);
    let child = bench.line_in("child");
    let mut next =
        bench.start(&["lock", "deploy", "-v", "--", "sh", "-c", "echo $MQKV_FENCING_TOKEN > next"]);
    assert!(next.error_line().starts_with("waiting for deploy"));
    // Right after a renewal the file has the newest token: no further renewal is under way.
    let first = token_in(&bench, "token");
    wait_until("a renewal", || (token_in(&bench, "token") != first).then_some(()));
    holder.signal(Signal::SIGKILL);
    let last = token_in(&bench, "token").unwrap();
    wait_until("the command ends with its lock process", || (!is_running(&child)).then_some(()));
    let exit = next.end();
    assert_eq!(exit.code, Some(0), "{exit:?}");
    // A token contains the store's time of the grant, which is the beginning of the lease.
    let got_ms = token_in(&bench, "next").unwrap().ms;
    let late_ms = got_ms.checked_sub(last.ms + TTL_MS).expect("the lease had not ended");
    // One that does not notice the end tries again after the time of a lease.
    assert!(late_ms < TTL_MS, "{late_ms} ms after the lease's end");
}

/// A command that writes the time again and again and ignores SIGTERM.
const STUBBORN: &str = "trap 'echo > sigterm' TERM; echo $$ > child; \
    while :; do date +%s%3N > beat.new; mv beat.new beat; sleep 0.01; done";

#[test]
fn a_command_is_killed_before_the_lease_ends_if_the_store_is_stopped() {
    const TTL_MS: u64 = 3_000;
    let bench = Bench::new();
    let mut holder = bench.start(&[
        "lock",
        "deploy",
        "--ttl",
        "3s",
        "--renew",
        "300ms",
        "--kill-after",
        "500ms",
        "--token-file",
        "token",
        "--",
        "sh",
        "-c",
        STUBBORN,
    ]);
    let child = bench.line_in("child");
    bench.line_in("beat");
    bench.server.signal(Signal::SIGSTOP);
    // The last renewal may still be under way. The lock process deletes the file when it ends.
    let mut last = token_in(&bench, "token").unwrap();
    wait_until("the lock process ends", || {
        last = token_in(&bench, "token").unwrap_or(last.clone());
        (!holder.runs()).then_some(())
    });
    assert!(!is_running(&child));
    let exit = holder.end();
    assert_eq!(exit.code, Some(125));
    assert!(
        exit.errors.contains(
            "error: lock lost: deploy: the lease could not be renewed in time\n  \
             the command was stopped; its exit status is 137\n"
        ),
        "{}",
        exit.errors
    );
    bench.line_in("sigterm");
    let beat_ms: u64 = bench.line_in("beat").parse().unwrap();
    let end_ms = last.ms + TTL_MS;
    assert!(beat_ms < end_ms, "{} ms after the lease's end", beat_ms.saturating_sub(end_ms));
    bench.server.signal(Signal::SIGCONT);
}

#[test]
fn a_lock_that_is_lost_without_a_connection_reports_why_there_is_none() {
    let mut bench = Bench::new();
    let words = ["lock", "deploy", "--ttl", "3s", "--kill-after", "500ms", "--", "sh", "-c"];
    let holder = bench.start(&[&words[..], &["echo up > up; sleep 60"]].concat());
    bench.line_in("up");
    bench.server.kill();
    let exit = holder.end();
    assert_eq!(exit.code, Some(125));
    let cause = format!("\n  lost the connection to 127.0.0.1:{}: connection refused", bench.server.port());
    assert!(exit.errors.contains(&cause), "{exit:?}");
}

#[test]
fn a_command_that_ends_on_sigterm_is_not_killed() {
    let bench = Bench::new();
    let script = "trap 'echo > sigterm; exit 6' TERM; echo > held; while :; do sleep 0.01; done";
    let options = ["--ttl", "2s", "--renew", "300ms", "--kill-after", "500ms"];
    let holder = bench.start(&[&["lock", "deploy"], &options[..], &["--", "sh", "-c", script]].concat());
    bench.line_in("held");
    bench.server.signal(Signal::SIGSTOP);
    let exit = holder.end();
    assert_eq!(exit.code, Some(125));
    assert!(exit.errors.contains("\n  the command was stopped; its exit status is 6\n"), "{}", exit.errors);
    bench.line_in("sigterm");
    bench.server.signal(Signal::SIGCONT);
    // An unread renewal in the stopped store must not extend the lease of the ended holder.
    let next = bench.start(&["lock", "deploy", "-w", "10s", "--", "true"]).end();
    assert_eq!(next.code, Some(0), "{next:?}");
}

#[test]
fn a_process_that_was_stopped_detects_the_loss_at_once_and_fenced_writes_are_refused() {
    let bench = Bench::new();
    bench.run(&["set", "line1/recipe", "6"]);
    let script = "echo $$ > child; until [ -e go ]; do sleep 0.01; done; \
                  $MQKV -b $URL set line1/recipe 7 --fence-env 2> refusal; echo $? > code; exec sleep 1000";
    let options = ["--ttl", "2s", "--kill-after", "300ms"];
    let mut stopped = bench.start(&[&["lock", "line1"], &options[..], &["--", "sh", "-c", script]].concat());
    let child = bench.line_in("child");
    stopped.signal(Signal::SIGSTOP);
    let next = ["lock", "line1", "--", "sh", "-c", "$MQKV -b $URL set line1/recipe 8 --fence-env"];
    assert_eq!(bench.start(&next).end().code, Some(0));
    bench.touch("go");
    assert_eq!(bench.line_in("code"), "76");
    let refusal = fs::read_to_string(bench.place.path("refusal")).unwrap();
    assert!(refusal.contains("lower version"), "{refusal}");
    assert!(is_running(&child), "it is still running");
    stopped.signal(Signal::SIGCONT);
    let exit = stopped.end();
    assert_eq!(exit.code, Some(125), "{exit:?}");
    assert!(exit.errors.contains("\n  the command was stopped; its exit status is 137\n"), "{exit:?}");
    assert!(!is_running(&child));
    assert!(bench.run(&["get", "line1/recipe"]).starts_with("--- stdout\n8(no line feed)"));
}

#[test]
fn a_command_that_wakes_after_the_end_of_the_lease_is_killed_without_sigterm() {
    let bench = Bench::new();
    let options = ["--ttl", "1500ms", "--kill-after", "500ms"];
    let mut holder =
        bench.start(&[&["lock", "deploy"], &options[..], &["--", "sh", "-c", STUBBORN]].concat());
    let child = bench.line_in("child");
    bench.line_in("beat");
    let group = Pid::from_raw(child.parse().unwrap());
    holder.signal(Signal::SIGSTOP);
    killpg(group, Signal::SIGSTOP).unwrap();
    assert_eq!(bench.start(&["lock", "deploy", "--", "true"]).end().code, Some(0));
    holder.signal(Signal::SIGCONT);
    // It fails if the holder has killed the group already.
    let _ = killpg(group, Signal::SIGCONT);
    let exit = holder.end();
    assert_eq!(exit.code, Some(125), "{exit:?}");
    assert!(exit.errors.contains("\n  the command was stopped; its exit status is 137\n"), "{exit:?}");
    assert!(!bench.place.path("sigterm").exists(), "the command ran on until it was killed");
    assert!(!is_running(&child));
}

#[test]
fn a_lock_that_was_overwritten_is_detected_at_the_next_renewal() {
    let bench = Bench::new();
    let options = ["--ttl", "9s", "--renew", "200ms", "--kill-after", "200ms"];
    let holder = bench.hold(&options);
    // With a fence on the key, the store rejects the renewal because it has no fencing token. Without one, it answers that the
    // value differs: tests/it/lock.rs.
    bench.run(&["set", "deploy", "another holder", "--fence", "1:0:n"]);
    let exit = holder.end();
    assert_eq!(exit.code, Some(125));
    let expected = "error: lock lost: deploy: the store reports that it has another holder or none\n  \
                the command was stopped; its exit status is 143\n";
    assert!(exit.errors.contains(expected), "{}", exit.errors);
    assert_eq!(bench.run(&["holder", "deploy"]), "--- stdout\nanother holder\n--- exit 0\n");
}

#[test]
fn a_lock_lost_by_a_session_takeover_reports_the_takeover() {
    let bench = Bench::new();
    let mine = ["-i", "me", "--ttl", "2s", "--renew", "300ms", "--kill-after", "500ms"];
    let mut holder = bench.hold(&mine);
    let mut waiter = bench.start(&["lock", "deploy", "-i", "you", "-v"]);
    assert!(waiter.error_line().starts_with("waiting for deploy"));
    let reports_takeover = |errors: &str| {
        errors.contains("the broker ended the connection: session taken over (0x8E)")
            && errors.contains("\nhint: use a unique client id with -i, or omit -i")
    };
    bench.run(&["ping", "-i", "you"]);
    let exit = waiter.end();
    assert!(exit.code == Some(69) && reports_takeover(&exit.errors), "{exit:?}");
    assert!(holder.runs());
    bench.run(&["ping", "-i", "me"]);
    let exit = holder.end();
    assert_eq!(exit.code, Some(125));
    assert!(
        exit.errors.starts_with("error: lock lost: deploy: the lease could not be renewed in time\n"),
        "{exit:?}"
    );
    assert!(reports_takeover(&exit.errors), "{exit:?}");
}

#[test]
fn with_no_kill_the_loss_is_reported_and_the_command_runs_on() {
    let bench = Bench::new();
    let mut holder = bench.hold(&["--renew", "200ms", "--no-kill"]);
    bench.run(&["set", "deploy", "another holder"]);
    assert_eq!(
        holder.error_line(),
        "warning: lock lost: deploy: the store reports that it has another holder or none; the command keeps running"
    );
    assert!(holder.runs());
    bench.touch("go");
    let exit = holder.end();
    assert_eq!(exit.code, Some(125));
    assert!(
        exit.errors.contains("\n  the command was not stopped (--no-kill); its exit status is 0\n"),
        "{exit:?}"
    );
}

#[test]
fn a_release_without_an_answer_keeps_the_exit_code_of_the_command() {
    let bench = Bench::new();
    let script = "echo > held; until [ -e go ]; do sleep 0.01; done; exit 3";
    let holder = bench.start(&["lock", "deploy", "-t", "300ms", "--", "sh", "-c", script]);
    bench.line_in("held");
    bench.server.signal(Signal::SIGSTOP);
    bench.touch("go");
    let exit = holder.end();
    assert_eq!(exit.code, Some(3));
    let expected = "warning: release of deploy not confirmed, it becomes free within 30s: no answer from ";
    assert!(exit.errors.contains(expected), "{}", exit.errors);
    bench.server.signal(Signal::SIGCONT);
}

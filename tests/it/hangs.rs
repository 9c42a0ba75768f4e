//! The limits of waits in tests, by tests that hang on purpose: in a test program of their own, with a short limit.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output, Stdio};
use std::{env, thread};

use super::a_watchdog::{bounded, watch};

/// Runs the calling test again, in a program of its own in which a wait may take 200 ms, and returns its output; `None` in that program.
#[expect(clippy::disallowed_methods, reason = "the variable is for this test, not for the program")]
fn in_own_program() -> Option<Output> {
    const LIMIT: &str = "MQKV_TEST_LIMIT_MS";
    if env::var_os(LIMIT).is_some() {
        return None;
    }
    let mut program = Command::new(env::current_exe().unwrap());
    program.args(["--exact", thread::current().name().unwrap()]).env(LIMIT, "200");
    Some(bounded(|| program.stdin(Stdio::null()).output().unwrap()))
}

#[track_caller]
fn assert_aborted(output: &Output, message: &str) {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains(message), "{errors}");
    const SIGABRT: i32 = 6;
    assert_eq!(output.status.signal(), Some(SIGABRT), "{errors}");
}

#[test]
fn a_program_in_which_no_test_ends_is_aborted_with_the_names_of_its_threads() {
    let Some(output) = in_own_program() else {
        watch();
        loop {
            thread::park();
        }
    };
    assert_aborted(&output, "watchdog: no test has ended for 400ms; the threads: hangs::a_progra, ");
}

#[test]
fn a_wait_for_a_process_that_does_not_end_fails_the_test_alone_and_ends_the_process() {
    let Some(output) = in_own_program() else {
        bounded(|| Command::new("sleep").arg("1000").status().unwrap());
        return;
    };
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(shown.contains("waited in vain at tests/it/hangs.rs:"), "{shown}");
    assert_eq!(output.status.code(), Some(101), "{shown}");
}

#[test]
fn a_wait_for_what_is_no_process_aborts_the_program_with_the_name_of_the_test() {
    let Some(output) = in_own_program() else {
        return bounded(|| {
            loop {
                thread::park()
            }
        });
    };
    let name = thread::current().name().unwrap().to_owned();
    assert_aborted(&output, &format!("watchdog: {name} has waited for 200ms at tests/it/hangs.rs:"));
}

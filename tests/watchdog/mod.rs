//! Limits of waits in tests: [`bounded`] for a wait that blocks, and a watchdog that ends the test program if tests hang.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::panic::Location;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Once;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;
use std::{env, fs, io, process, thread};

/// Returns the limit of a wait. It ends a hang and measures nothing: no step of a test takes so long on a busy machine.
#[expect(
    clippy::disallowed_methods,
    reason = "the variable is for the test of the watchdog, not for the program"
)]
fn limit() -> Duration {
    let millis = env::var("MQKV_TEST_LIMIT_MS").ok().and_then(|text| text.parse().ok());
    Duration::from_millis(millis.unwrap_or(60_000))
}

/// Does what may block: waits for a process, a thread or a message, reads a pipe or a socket, opens a FIFO.
///
/// After a minute the processes that the calling thread has started are killed, which ends most waits, and the test fails. If the wait
/// still goes on after another minute, the test program is aborted.
#[track_caller]
#[allow(dead_code, reason = "not each test program needs it")]
pub fn bounded<T>(wait: impl FnOnce() -> T) -> T {
    let place = Location::caller();
    let test = thread::current().name().unwrap_or("a thread of a test").to_owned();
    let task = fs::read_link("/proc/thread-self").unwrap_or_default();
    let (done, is_done) = channel::<()>();
    let watcher = thread::spawn(move || {
        let ends = || is_done.recv_timeout(limit()) == Err(RecvTimeoutError::Disconnected);
        if ends() {
            return true;
        }
        report(&format!("{test} has waited for {:?} at {place}", limit()));
        kill_children([PathBuf::from("/proc").join(task)]);
        if !ends() {
            report(&format!("{test} waits at {place}"));
            abort();
        }
        false
    });
    let value = wait();
    drop(done);
    let is_in_time = watcher.join().unwrap();
    assert!(is_in_time || thread::panicking(), "waited in vain at {place}");
    value
}

/// Aborts the program if no test ends for two minutes. The harness has printed the names of the tests that run then: it names each test
/// after a minute.
pub fn watch() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        thread::spawn(|| {
            let (mut last, mut idle) = (wake_ups(), 0);
            while last.is_some() && idle < 120 {
                thread::sleep(limit() / 60);
                let now = wake_ups();
                idle = if now == last { idle + 1 } else { 0 };
                last = now;
            }
            if idle > 0 {
                report(&format!("no test has ended for {:?}; the threads: {}", limit() * 2, threads()));
                abort();
            }
        });
    });
}

/// Returns how often the main thread was woken: the harness wakes it when a test ends, and when a test has run for a minute.
fn wake_ups() -> Option<String> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    status.lines().find(|line| line.starts_with("voluntary_ctxt_switches:")).map(str::to_owned)
}

fn tasks() -> impl Iterator<Item = PathBuf> {
    fs::read_dir("/proc/self/task").into_iter().flatten().flatten().map(|task| task.path())
}

/// Returns the names of all threads, which have the first 15 bytes of the names of their tests.
fn threads() -> String {
    let names = tasks().filter_map(|task| fs::read_to_string(task.join("comm")).ok());
    names
        .map(|name| name.trim().to_owned())
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect::<Vec<_>>()
        .join(", ")
}

fn kill_children(tasks: impl IntoIterator<Item = PathBuf>) {
    let children = tasks.into_iter().filter_map(|task| fs::read_to_string(task.join("children")).ok());
    let kill = format!("kill -9 {}", children.collect::<String>());
    let _ = Command::new("sh").args(["-c", &kill]).stderr(Stdio::null()).spawn();
}

fn abort() -> ! {
    kill_children(tasks());
    process::abort();
}

/// Prints what the harness does not capture.
fn report(message: &str) {
    let _ = writeln!(io::stderr(), "\nwatchdog: {message}");
}

/// The harness starts tests in the order of their names. With a filter that leaves this one out there is no watchdog.
#[test]
fn a_watchdog_is_started() {
    watch();
}

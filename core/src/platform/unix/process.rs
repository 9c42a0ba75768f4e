//! Threads and descriptors of this process.

use std::io;
use std::os::unix::net::UnixStream;

/// What is added to the nice value for work that others should not wait for. 19 would leave it too little of a busy
/// processor.
#[cfg(target_os = "linux")]
const NICE: i32 = 10;

/// Whether the state can be kept in etcd. Windows: no, which was never tried.
pub const SUPPORTS_ETCD: bool = true;

/// Lets other threads have the processors first, as `nice -n 10`. Does nothing where a nice value is that of the whole process, as on
/// all systems but Linux.
pub fn lower_thread_priority() {
    #[cfg(target_os = "linux")]
    // A container may forbid it: then the work is done as before.
    let _ = rustix::process::nice(NICE);
}

/// Opens and closes as many descriptors as the first tokio runtime of a process opens: it panics if only some of them can be opened.
///
/// # Errors
/// The process has too many open files.
pub fn reserve_runtime_descriptors() -> io::Result<()> {
    let pairs: io::Result<Vec<_>> = (0..3).map(|_| UnixStream::pair()).collect();
    pairs.map(drop)
}

#[cfg(target_os = "linux")]
#[cfg(test)]
mod tests {
    use super::*;
    use crate::a_watchdog::bounded;

    #[test]
    fn a_lower_priority_is_that_of_the_calling_thread_alone() {
        let priority = || rustix::process::getpriority_process(None).unwrap();
        let before = priority();
        let lowered = std::thread::spawn(move || {
            lower_thread_priority();
            priority()
        });
        assert_eq!(bounded(|| lowered.join()).unwrap(), (before + NICE).min(19));
        assert_eq!(priority(), before);
    }
}

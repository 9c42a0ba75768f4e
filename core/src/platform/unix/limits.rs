//! Limits of this process: open files and sockets, memory.

use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit, setrlimit};

/// Raises the soft limit on open files to the hard limit and returns the new soft limit, if it is known. The default soft limit is
/// often 1,024, for the sake of programs that use `select`: fewer than a server's connections.
#[must_use]
pub fn raise_open_files_limit() -> Option<u64> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
    let raised = soft < hard && setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok();
    Some(if raised { hard } else { soft })
}

/// Returns the limit on memory in bytes, if there is one.
#[must_use]
pub fn memory_limit() -> Option<u64> {
    getrlimit(Resource::RLIMIT_AS).ok().map(|(soft, _)| soft).filter(|soft| *soft != RLIM_INFINITY)
}

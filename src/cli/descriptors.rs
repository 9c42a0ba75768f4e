//! Limit on the open files and sockets of this process.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Raises the soft limit to the hard limit and returns the new soft limit, if it is known. The default soft limit is
/// often 1,024, for the sake of programs that use `select`: fewer than a server's connections.
pub fn raise_limit() -> Option<u64> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
    let raised = soft < hard && setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok();
    Some(if raised { hard } else { soft })
}

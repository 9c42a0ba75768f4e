//! How many files and sockets this process may have open.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Takes as many as the system gives for the asking: what it gives unasked, often 1,024, is for programs that use
/// `select`, and is fewer than a server has connections. Says how many there may be now, where that is known.
pub fn raise_limit() -> Option<u64> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
    let raised = soft < hard && setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok();
    Some(if raised { hard } else { soft })
}

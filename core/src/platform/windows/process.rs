//! Threads and descriptors of this process.

use std::io;

use windows_sys::Win32::System::Threading::{
    GetCurrentThread, SetThreadPriority, THREAD_PRIORITY_BELOW_NORMAL,
};

pub const SUPPORTS_ETCD: bool = false;

#[expect(unsafe_code, reason = "no safe function sets the priority of a thread")]
pub fn lower_thread_priority() {
    // SAFETY: the handle is that of the calling thread. If it fails, the work is done as before.
    let _ = unsafe { SetThreadPriority(GetCurrentThread(), THREAD_PRIORITY_BELOW_NORMAL) };
}

pub fn reserve_runtime_descriptors() -> io::Result<()> {
    Ok(())
}

//! Turns panics of the storage crate into errors.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::sync::Once;

use super::error::StorageErrorKind;

thread_local! {
    static IS_GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Runs `action`; a panic in it becomes [`StorageErrorKind::Corrupt`].
///
/// The storage crate trusts the pages that it reads: corruption that its checksums do not cover ends in a panic. The
/// panic hook is silenced for this thread meanwhile, because the caller reports the error.
pub fn catch_panics<T>(action: impl FnOnce() -> Result<T, StorageErrorKind>) -> Result<T, StorageErrorKind> {
    static SET_HOOK: Once = Once::new();
    SET_HOOK.call_once(|| {
        let report = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if !IS_GUARDED.get() {
                report(panic);
            }
        }));
    });
    let was_guarded = IS_GUARDED.replace(true);
    let caught = catch_unwind(AssertUnwindSafe(action));
    IS_GUARDED.set(was_guarded);
    caught.unwrap_or_else(|_| Err(StorageErrorKind::Corrupt("a page is malformed".to_owned())))
}

//! Panics of the storage crate, made errors.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::sync::Once;

use super::error::StorageErrorKind;

thread_local! {
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Damage that the storage crate does not see coming is a panic of its. It becomes an error, and is told as one.
pub fn guarded<T>(action: impl FnOnce() -> Result<T, StorageErrorKind>) -> Result<T, StorageErrorKind> {
    static HUSHED: Once = Once::new();
    HUSHED.call_once(|| {
        let tell = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if !GUARDED.get() {
                tell(panic);
            }
        }));
    });
    let was_guarded = GUARDED.replace(true);
    let caught = catch_unwind(AssertUnwindSafe(action));
    GUARDED.set(was_guarded);
    caught.unwrap_or_else(|_| Err(StorageErrorKind::Corrupt("a page makes no sense".to_owned())))
}

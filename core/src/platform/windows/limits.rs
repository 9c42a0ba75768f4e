//! Limits of this process, which this system does not have.

#[must_use]
pub fn raise_open_files_limit() -> Option<u64> {
    None
}

#[must_use]
pub fn memory_limit() -> Option<u64> {
    None
}

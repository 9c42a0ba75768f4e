//! The only source of randomness: pure code has random numbers as an argument.

use std::hash::{BuildHasher, RandomState};

/// Returns a random number for names that must not collide; not for secrets.
#[must_use]
pub fn u64() -> u64 {
    // A system without a source of random numbers still has the seed of the hash tables.
    getrandom::u64().unwrap_or_else(|_| RandomState::new().hash_one(0))
}

/// Returns random bytes, fit for a secret.
///
/// # Errors
/// The system has no source of random numbers.
pub fn bytes<const N: usize>() -> std::io::Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(std::io::Error::other)?;
    Ok(bytes)
}

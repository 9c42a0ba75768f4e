//! The only source of randomness: what is pure takes it as an argument.

use std::hash::{BuildHasher, RandomState};

/// A random number, fit for names that must not collide; not for secrets.
#[must_use]
pub fn u64() -> u64 {
    // A system without random numbers still has those that keep hash tables apart.
    getrandom::u64().unwrap_or_else(|_| RandomState::new().hash_one(0))
}

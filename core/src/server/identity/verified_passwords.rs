//! Passwords that have been verified: a client that logs in again need not wait for its turn.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use argon2::{Algorithm, Argon2, Params, Version};
use hashbrown::HashMap;
use subtle::ConstantTimeEq;

use super::users::{PasswordHash, Users};
use crate::net::Secret;
use crate::random;

/// Memory of a digest, in KiB. It takes microseconds: less than a request.
const DIGEST_MEMORY_KIB: u32 = 64;

type Digest = [u8; 32];
/// The digest of each user, with the hash that the password was checked against.
type Digests = HashMap<String, (Arc<PasswordHash>, Digest)>;

/// A digest of the last verified password of each user, in memory only.
///
/// Digests are cheap to compute, so that a flood of wrong passwords cannot lock out a client that has been here before. A
/// guess costs an attacker the full check all the same, because a wrong digest leads to it. The key differs with each
/// process, so digests cannot be compared with anything outside of it.
pub struct VerifiedPasswords {
    key: Secret,
    users: Mutex<Digests>,
}

impl Default for VerifiedPasswords {
    fn default() -> Self {
        let [high, low] = [random::u64(), random::u64()];
        let key = (u128::from(high) << 64 | u128::from(low)).to_be_bytes();
        Self { key: Secret::new(key.to_vec()), users: Mutex::default() }
    }
}

impl fmt::Debug for VerifiedPasswords {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("VerifiedPasswords").finish_non_exhaustive()
    }
}

impl VerifiedPasswords {
    /// Whether this is the password that was verified last for this user, with the hash that the file still has.
    ///
    /// Takes the same time for each user, known or not.
    pub fn contains(&self, users: &Users, name: &str, password: &Secret) -> bool {
        let digest = self.digest(name, password);
        let verified = self.lock();
        verified.get(name).is_some_and(|(hash, known)| {
            users.hash(name) == Some(hash) && digest.is_some_and(|digest| known.ct_eq(&digest).into())
        })
    }

    /// Notes a verified password, and forgets users that the file no longer has once there are more than it has.
    pub fn insert(&self, users: &Users, name: &str, password: &Secret) {
        if let (Some(hash), Some(digest)) = (users.hash(name), self.digest(name, password)) {
            let mut verified = self.lock();
            verified.insert(name.to_owned(), (Arc::clone(hash), digest));
            if verified.len() > users.len() {
                verified.retain(|name, (hash, _)| users.hash(name) == Some(hash));
            }
        }
    }

    fn digest(&self, name: &str, password: &Secret) -> Option<Digest> {
        let params = Params::new(DIGEST_MEMORY_KIB, 1, 1, None).ok()?;
        let salt = [self.key.bytes(), name.as_bytes()].concat();
        let mut digest = Digest::default();
        let argon2 = Argon2::new(Algorithm::Argon2id, Version::default(), params);
        argon2.hash_password_into(password.bytes(), &salt, &mut digest).is_ok().then_some(digest)
    }

    fn lock(&self) -> MutexGuard<'_, Digests> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "$argon2id$v=19$m=16,t=2,p=1$c2FsdHNhbHQ$NdgbF781BvForgQq/MBkGA\n";

    fn users(text: &str) -> Users {
        Users::parse(text.replace("HASH\n", LINE).as_bytes()).unwrap()
    }

    #[test]
    fn a_verified_password_is_known_until_its_line_of_the_file_changes() {
        let both = users("ann:HASH\nbob:HASH\n");
        let verified = VerifiedPasswords::default();
        let secret = |text: &str| Secret::new(text.as_bytes().to_vec());
        assert!(!verified.contains(&both, "ann", &secret("p")));
        verified.insert(&both, "ann", &secret("p"));
        assert!(verified.contains(&both, "ann", &secret("p")));
        assert!(!verified.contains(&both, "ann", &secret("q")));
        assert!(!verified.contains(&both, "bob", &secret("p")));
        assert!(!verified.contains(&users("bob:HASH\n"), "ann", &secret("p")), "removed");
        let changed = users(&"ann:HASH\n".replace("HASH\n", &LINE.replace("c2FsdHNhbHQ", "c2FsdHNhbHU")));
        assert!(!verified.contains(&changed, "ann", &secret("p")), "another hash");
        verified.insert(&users("bob:HASH\n"), "bob", &secret("p"));
        assert_eq!(verified.lock().len(), 1, "no more than the file has");
    }
}

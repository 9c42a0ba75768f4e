//! A lock that is held while other verbs run: what a prompt has in its background.

use std::time::Instant;

use super::Wanted;
use super::lease::{Lease, LeaseEvent, Released};
use super::token_file::TokenFile;
use crate::client::lock::{LockEvent, LossReason};
use crate::commands::error::CommandError;
use crate::commands::lock::supervisor;
use crate::protocol::{Key, Timestamp, Value};

/// A lock that is held, and renewed by itself. Once it is dropped the lock is given back, some time later.
#[derive(Debug)]
pub struct Holding {
    key: Key,
    holder: Value,
    token: Timestamp,
    ttl_ms: u64,
    token_file: Option<TokenFile>,
    lease: Lease,
    now: fn() -> Instant,
}

impl Holding {
    pub(super) fn new(
        wanted: Wanted,
        holder: Value,
        token: Timestamp,
        lease: Lease,
        now: fn() -> Instant,
    ) -> Result<Self, CommandError> {
        let Wanted { key, ttl_ms, token_file, .. } = wanted;
        let token_file = token_file.map(|path| TokenFile::create(path, &token)).transpose()?;
        Ok(Self { key, holder, token, ttl_ms, token_file, lease, now })
    }

    /// The lock's key.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// In whose name it is held.
    #[must_use]
    pub fn holder(&self) -> &Value {
        &self.holder
    }

    /// The newest fencing token.
    #[must_use]
    pub fn token(&self) -> &Timestamp {
        &self.token
    }

    /// How long the lease lasts, in milliseconds.
    #[must_use]
    pub fn ttl_ms(&self) -> u64 {
        self.ttl_ms
    }

    /// Waits for the next renewal; with `Some`, the lock is lost. May be dropped at any time.
    ///
    /// # Errors
    /// The file for the token cannot be written.
    pub async fn next(&mut self) -> Result<Option<LossReason>, CommandError> {
        match self.lease.next().await {
            LeaseEvent::Lock(LockEvent::Renewed { token, .. }) => {
                if let Some(file) = &self.token_file {
                    file.trouble().map_or(Ok(()), Err)?;
                    file.replace(token.clone());
                }
                self.token = token;
                Ok(None)
            }
            event => Ok(Some(supervisor::loss(event, self.now).reason)),
        }
    }

    /// Gives the lock back.
    pub async fn release(self) -> Released {
        self.lease.release().await
    }

    /// The same for whoever cannot wait.
    pub async fn abandon(self) -> Released {
        self.lease.abandon().await
    }
}

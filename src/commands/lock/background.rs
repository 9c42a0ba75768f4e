//! A lock in the background of a prompt.

use super::lease::{Lease, LeaseEvent, Released};
use super::request::LockRequest;
use super::supervisor;
use super::token_file::TokenFile;
use crate::client::lock::{LockEvent, LossReason};
use crate::commands::error::CommandError;
use crate::protocol::{Key, Timestamp, Value};

/// A lock that is held and renewed while other verbs run. Dropping it releases the lock.
#[derive(Debug)]
pub struct BackgroundLock {
    key: Key,
    holder: Value,
    token: Timestamp,
    ttl_ms: u64,
    token_file: Option<TokenFile>,
    lease: Lease,
}

impl BackgroundLock {
    pub(super) fn new(
        request: LockRequest,
        holder: Value,
        token: Timestamp,
        lease: Lease,
    ) -> Result<Self, CommandError> {
        let LockRequest { key, ttl_ms, token_file, .. } = request;
        let token_file = token_file.map(|path| TokenFile::create(path, &token)).transpose()?;
        Ok(Self { key, holder, token, ttl_ms, token_file, lease })
    }

    /// Returns the lock's key.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Returns the holder's name.
    #[must_use]
    pub fn holder(&self) -> &Value {
        &self.holder
    }

    /// Returns the newest fencing token.
    #[must_use]
    pub fn token(&self) -> &Timestamp {
        &self.token
    }

    /// Returns the duration of the lease in milliseconds.
    #[must_use]
    pub fn ttl_ms(&self) -> u64 {
        self.ttl_ms
    }

    /// Waits for the next renewal and returns None, or returns the reason why the lock is lost. Cancel-safe.
    ///
    /// # Errors
    /// The token file cannot be written.
    pub async fn next(&mut self) -> Result<Option<LossReason>, CommandError> {
        match self.lease.next().await {
            LeaseEvent::Lock(LockEvent::Renewed { token, .. }) => {
                if let Some(file) = &self.token_file {
                    file.error().map_or(Ok(()), Err)?;
                    file.replace(token.clone());
                }
                self.token = token;
                Ok(None)
            }
            event => Ok(Some(supervisor::loss(event).reason)),
        }
    }

    pub async fn release(self) -> Released {
        self.lease.release().await
    }

    /// Releases the lock and waits only briefly for the answer.
    pub async fn abandon(self) -> Released {
        self.lease.abandon().await
    }
}

//! A service account token in memory, which another task renews.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{Notify, watch};

use crate::clock;
use crate::net::secret::Secret;

/// The client's side of a token. Clones share it. It is never printed.
#[derive(Clone)]
pub struct SharedToken {
    /// The account that it is for, for messages.
    account: Arc<str>,
    current: watch::Receiver<Current>,
    wanted: Arc<Notify>,
}

/// The side that renews the token.
pub struct TokenRenewer {
    current: watch::Sender<Current>,
    wanted: Arc<Notify>,
}

struct Current {
    secret: Secret,
    expires: Option<Expiry>,
    /// Why it has not been renewed.
    failure: Option<String>,
}

/// The end of a token, by two clocks of this machine: one stops while the machine sleeps on some systems, the other one can be set.
#[derive(Clone, Copy)]
struct Expiry {
    monotonic: Instant,
    wall_ms: u64,
}

impl Expiry {
    fn after(lifetime: Duration) -> Option<Self> {
        let wall_ms = clock::wall_ms().checked_add(u64::try_from(lifetime.as_millis()).ok()?)?;
        Some(Self { monotonic: clock::boottime().checked_add(lifetime)?, wall_ms })
    }

    fn is_over(self) -> bool {
        self.monotonic <= clock::boottime() || self.wall_ms <= clock::wall_ms()
    }
}

impl SharedToken {
    /// Creates both sides of a token of `account` that is valid for `lifetime` from now on, if that is known.
    #[must_use]
    pub fn new(account: &str, secret: Secret, lifetime: Option<Duration>) -> (TokenRenewer, Self) {
        let current = Current { secret, expires: lifetime.and_then(Expiry::after), failure: None };
        let (sender, current) = watch::channel(current);
        let wanted = Arc::new(Notify::new());
        let renewer = TokenRenewer { current: sender, wanted: Arc::clone(&wanted) };
        (renewer, Self { account: account.into(), current, wanted })
    }

    /// Returns the account that the token is for.
    #[must_use]
    pub fn account(&self) -> &str {
        &self.account
    }

    /// Returns the token, and waits for a new one if it has expired: the machine may have slept.
    pub(super) async fn valid(&self) -> Option<Secret> {
        let is_valid = |current: &Current| current.expires.is_none_or(|expires| !expires.is_over());
        if !is_valid(&self.current.borrow()) {
            self.wanted.notify_one();
        }
        let mut current = self.current.clone();
        current.wait_for(is_valid).await.ok().map(|current| current.secret.clone())
    }

    /// Returns why the token has not been renewed.
    pub(super) fn failure(&self) -> String {
        let failure = self.current.borrow().failure.clone();
        failure.unwrap_or_else(|| format!("the token of {} has expired", self.account))
    }

    /// Waits for another token than this one. Cancel safe.
    pub(super) async fn other_than(&mut self, sent: &Secret) -> Secret {
        let other = self.current.wait_for(|current| current.secret != *sent).await;
        match other.ok().map(|current| current.secret.clone()) {
            Some(other) => other,
            // It is not renewed any more.
            None => std::future::pending().await,
        }
    }
}

impl TokenRenewer {
    /// Replaces the token by one that is valid for `lifetime` from now on, if that is known.
    pub fn renew(&self, secret: Secret, lifetime: Option<Duration>) {
        let expires = lifetime.and_then(Expiry::after);
        self.current.send_replace(Current { secret, expires, failure: None });
    }

    /// Sets why the token could not be renewed.
    pub fn fail(&self, failure: String) {
        self.current.send_modify(|current| current.failure = Some(failure));
    }

    /// Waits until a client needs another token because the current one has expired. Cancel safe.
    pub async fn wanted(&self) {
        self.wanted.notified().await;
    }
}

impl PartialEq for SharedToken {
    fn eq(&self, other: &Self) -> bool {
        self.current.same_channel(&other.current)
    }
}

impl Eq for SharedToken {}

impl fmt::Debug for SharedToken {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "SharedToken({})", self.account)
    }
}

impl fmt::Debug for TokenRenewer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("TokenRenewer")
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    async fn in_time<T>(future: impl Future<Output = T>) -> T {
        timeout(Duration::from_secs(60), future).await.unwrap()
    }

    fn secret(text: &str) -> Secret {
        Secret::new(text.into())
    }

    #[tokio::test]
    async fn an_expired_token_is_asked_for_and_awaited() {
        let (renewer, token) = SharedToken::new("a", secret("one"), Some(Duration::ZERO));
        let waiting = tokio::spawn({
            let token = token.clone();
            async move { token.valid().await }
        });
        in_time(renewer.wanted()).await;
        renewer.fail("forbidden".to_owned());
        assert_eq!(token.failure(), "forbidden");
        renewer.renew(secret("two"), Some(Duration::from_secs(3600)));
        assert_eq!(in_time(waiting).await.unwrap().unwrap().bytes(), b"two");
        assert_eq!(token.failure(), "the token of a has expired");
    }

    #[test]
    fn a_token_is_not_printed() {
        let (renewer, token) = SharedToken::new("the account", secret("hunter2"), None);
        let shown = format!("{renewer:?} {token:?}");
        assert!(shown.contains("the account") && !shown.contains("hunter2"), "{shown}");
    }
}

//! A SCAN of the service, in steps between which other requests are handled.

use std::fmt;
use std::sync::Arc;

use super::commit_thread::commit_after_turn;
use super::scan_token::ScanToken;
use super::shared::Shared;
use super::state::State;
use crate::broker::{Broker, Continuation, Peer, Verdict};
use crate::protocol::{ErrorReply, Reply, message};
use crate::server::authorization::ClientPermissions;
use crate::server::delivery::{BrokerPublisher, Publisher, ReplyTo, Response};
use crate::server::metrics::Metrics;
use crate::store::Scan;

/// The most steps that a scan leaves out in turn for other requests: about a millisecond, so that it ends under any load.
pub(super) const SKIPPED_MAX: u32 = 1_000;

/// A SCAN that has not been answered yet.
pub(in crate::server) struct RunningScan {
    shared: Arc<Shared>,
    metrics: Arc<Metrics>,
    /// See [`ScanToken::life`].
    life: u64,
    from: Peer,
    /// The page so far, and where its reply goes.
    page: Option<(Scan, ReplyTo)>,
    /// Number of failed commits at the start: a failed one undoes changes that the page may show.
    failures: u64,
    /// How often the instance of a cluster had lost its ownership at the start: then another one answers.
    losses: u64,
    /// Number of steps that were left out in turn, because other requests waited.
    skipped: u32,
}

impl RunningScan {
    /// Returns the page that a token stands for, the first one without.
    ///
    /// # Errors
    /// The reply to a malformed request, or to one whose scan cannot go on.
    pub(super) fn begin(state: &State, pattern: &[u8], token: Option<&[u8]>) -> Result<Scan, ErrorReply> {
        let Some(token) = token else { return Scan::new(pattern, None) };
        let token = ScanToken::decode(token).ok_or(ErrorReply::SyntaxError)?;
        let scan = Scan::new(pattern, Some(&token.position))?;
        (token.life == state.life()).then_some(scan).ok_or(ErrorReply::ScanInterrupted)
    }

    pub(super) fn new(
        (shared, metrics): (Arc<Shared>, Arc<Metrics>),
        state: &State,
        from: Peer,
        page: (Scan, ReplyTo),
    ) -> Self {
        let (failures, losses, life) = (state.commit_queue.failures(), state.cluster.losses, state.life());
        Self { shared, metrics, life, from, page: Some(page), failures, losses, skipped: 0 }
    }

    /// Makes the token of the next page opaque.
    fn with_token(&self, reply: Reply) -> Reply {
        let Reply::Keys { keys, token } = reply else { return reply };
        let token = token.map(|position| ScanToken { life: self.life, position }.encode());
        Reply::Keys { keys, token }
    }

    /// Looks at some keys. Sends the reply and returns true once the page is complete.
    pub(in crate::server) fn advance(&mut self, publisher: &dyn Publisher) -> bool {
        let Some((mut scan, mut reply_to)) = self.page.take() else { return true };
        let now = self.shared.now();
        let mut state = match self.shared.lock_for_step() {
            None if self.skipped < SKIPPED_MAX => {
                self.skipped = self.skipped.saturating_add(1);
                self.page = Some((scan, reply_to));
                return false;
            }
            state => state.unwrap_or_else(|| self.shared.lock()),
        };
        self.skipped = 0;
        state.store.scan(&mut scan, now);
        drop(state);
        // The rules may have many patterns, so they are applied without the lock.
        let permissions = ClientPermissions::key_permissions_of(&self.from);
        scan.retain_readable(permissions.as_ref().map(|permissions| &permissions.read));
        if !scan.is_complete() {
            self.page = Some((scan, reply_to));
            return false;
        }
        if let Some(details) = reply_to.details.as_mut().filter(|_| scan.is_limited()) {
            details.push(message::LIMITED, "true");
        }
        let reply = self.with_token(scan.into_reply());
        let mut state = self.shared.lock();
        if state.cluster.losses != self.losses {
            return true;
        }
        let has_failed = state.commit_queue.failures() != self.failures;
        let reply = if has_failed { Reply::Error(ErrorReply::NotPersisted) } else { reply };
        state.send_page(publisher, reply_to, Response::new(&reply, None));
        commit_after_turn(&self.shared, state);
        true
    }
}

impl Continuation for RunningScan {
    fn step(&mut self, broker: &Broker) -> Option<Verdict> {
        let metrics = Arc::clone(&self.metrics);
        self.advance(&BrokerPublisher { broker, metrics: &*metrics }).then_some(Verdict::Consumed)
    }
}

impl fmt::Debug for RunningScan {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("RunningScan").field("page", &self.page).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::super::Persistence;
    use super::super::tests::{TestService, get, peer, set};
    use super::*;
    use crate::clock;
    use crate::server::metrics::Verb;
    use crate::store::Version;

    /// More than one step looks at.
    const KEYS: usize = 3_000;

    fn filled(persistence: Persistence) -> TestService {
        let test = TestService::new(persistence);
        for number in 0..KEYS {
            test.request(&set(&format!("k{number:04}"), "v"));
        }
        test
    }

    fn start(test: &TestService, pattern: &str) -> RunningScan {
        let (verb, received) = (Verb::Scan, clock::monotonic());
        let (response_topic, correlation) = ("r".to_owned(), "c".into());
        let reply_to = ReplyTo { response_topic, correlation, verb, received, details: None };
        let page = (Scan::new(pattern.as_bytes(), None).unwrap(), reply_to);
        let shared = (Arc::clone(&test.service.shared), Arc::clone(test.service.metrics()));
        RunningScan::new(shared, &test.service.shared.lock(), peer(1), page)
    }

    #[test]
    fn other_requests_are_answered_between_the_steps_of_a_scan() {
        let test = filled(Persistence::None);
        let mut scan = start(&test, "k29*");
        assert!(!scan.advance(&test.sent_messages));
        assert_eq!(test.reply(&get("k0000")), Reply::Value("v".into()));
        while !scan.advance(&test.sent_messages) {}
        let Some(Reply::Keys { keys, token: None }) = test.sent_messages.replies().pop() else { panic!() };
        assert_eq!(keys.len(), 100);
    }

    #[test]
    fn a_scan_that_saw_changes_whose_commit_failed_is_answered_with_an_error() {
        let home = TempDir::new().unwrap();
        for fails in [false, true] {
            let test = filled(Persistence::All(home.path().join(fails.to_string())));
            let mut scan = start(&test, "k29*");
            assert!(!scan.advance(&test.sent_messages));
            test.sent_messages.take();
            let mut state = test.service.shared.lock();
            if fails {
                state.handle_commit_failure(&test.sent_messages, test.service.shared.now());
            } else {
                let ceiling = Version { ms: u64::MAX, counter: 0 };
                while state.handle_commit(KEYS as u64, ceiling, &test.sent_messages) {}
            }
            drop(state);
            test.sent_messages.take();
            while !scan.advance(&test.sent_messages) {}
            let reply = test.sent_messages.replies().pop().unwrap();
            assert_eq!(reply == Reply::Error(ErrorReply::NotPersisted), fails, "{reply:?}");
        }
    }
}

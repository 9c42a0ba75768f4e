//! Re-authentication by a session: sends the tokens, with a timeout (pure).

use super::event::Event;
use super::{Session, Timer};
use crate::client::packet::Outgoing;
use crate::clock::Reading;
use crate::net::secret::Secret;

impl<T> Session<T> {
    /// Re-authenticates with a new token. Without a connection it does nothing: the next CONNECT has the new token.
    pub fn authenticate(&mut self, token: Secret, now: Reading) {
        if self.connection.is_some() {
            let token = self.reauthentication.handle_token(token);
            self.send_token(token, now);
        }
    }

    fn send_token(&mut self, token: Option<Secret>, now: Reading) {
        if let Some(token) = token {
            self.outgoing.push_back(Outgoing::Authenticate { token });
            self.start_timer(0, Timer::Authentication, self.config.request_timeout, now);
        }
    }

    /// Ends a re-authentication, and starts the next one if there has been another token meanwhile.
    pub(super) fn end_authentication(&mut self, is_confirmed: bool, now: Reading) {
        if self.reauthentication.is_under_way() {
            self.timers.retain(|(_, _, timer)| *timer != Timer::Authentication);
            self.events.push_back(Event::Authenticated { is_confirmed });
            let next = self.reauthentication.handle_end();
            self.send_token(next, now);
        }
    }
}

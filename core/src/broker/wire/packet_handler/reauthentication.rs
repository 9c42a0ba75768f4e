//! Re-authentication of a connected client (MQTT 5, 4.12.1).

use std::sync::Arc;

use super::authentication::{Authentication, Reauthentication};
use super::{PacketHandler, protocol_error};
use crate::broker::authentication::{Authenticated, Denial};
use crate::broker::event::Event;
use crate::broker::session::connection_handle::CloseReason;
use crate::mqtt::{ReasonCode, encode};
use crate::net::Secret;

impl PacketHandler {
    /// Returns the method and the data of an AUTH that must be checked now; the result goes to
    /// [`PacketHandler::handle_checked`]. The client may send other packets meanwhile.
    pub fn poll_authentication(&mut self) -> Option<(&str, Option<Secret>)> {
        let Authentication { method, reauthentication } = self.authentication.as_mut()?;
        if !matches!(reauthentication, Reauthentication::Requested(_)) {
            return None;
        }
        match std::mem::replace(reauthentication, Reauthentication::Checking) {
            Reauthentication::Requested(data) => Some((method, data)),
            Reauthentication::None | Reauthentication::Checking => None,
        }
    }

    /// Handles the result of a check, and answers with an AUTH.
    ///
    /// # Errors
    ///
    /// Why the client is disconnected.
    pub fn handle_checked(&mut self, checked: Result<Authenticated, Denial>) -> Result<(), Denial> {
        let Authenticated { user, credential } = checked?;
        // The session has the permissions of its owner, so a token of another user is no re-authentication.
        if self.peer.principal.user.as_deref() != Some(&*user) {
            return Err(Denial {
                reason: ReasonCode::NotAuthorized,
                reason_string: "the token belongs to another user",
                log_text: format!("the new token belongs to {user}"),
            });
        }
        self.broker.set_credential(&self.handle, Some(credential));
        if let Some(authentication) = &mut self.authentication {
            authentication.reauthentication = Reauthentication::None;
            encode::auth(&authentication.method, &mut self.output);
        }
        self.broker.report([Event::Reauthenticated { client_id: Arc::clone(&self.peer.client_id) }]);
        Ok(())
    }

    pub(super) fn handle_auth(
        &mut self,
        is_reauthentication: bool,
        method: Option<&str>,
        data: Option<Secret>,
    ) -> Result<(), CloseReason> {
        let Some(authentication) = &mut self.authentication else {
            return Err(protocol_error("an AUTH after a CONNECT without an authentication method"));
        };
        if method != Some(&authentication.method) {
            return Err(protocol_error("an AUTH with another method than the CONNECT"));
        }
        if !is_reauthentication {
            return Err(protocol_error("an AUTH that continues no authentication"));
        }
        if !matches!(authentication.reauthentication, Reauthentication::None) {
            return Err(protocol_error("an AUTH before the last one was answered"));
        }
        authentication.reauthentication = Reauthentication::Requested(data);
        Ok(())
    }
}

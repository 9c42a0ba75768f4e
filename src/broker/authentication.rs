//! Decides who may come in, by what is said in CONNECT, the certificate that was shown, and the door.

use std::sync::Arc;

use super::Broker;
use super::packet::Connect;
use super::reason::Reason;
use crate::client::authentication::K8S_SAT;
use crate::net::Secret;
use crate::server::identity::{Denial, Identities, Principal};
use crate::server::settings::EventSink;

/// How a connection came in.
#[derive(Clone, Debug)]
pub struct Entrance {
    /// Where from, for the operator.
    pub remote: String,
    /// What the certificate that was shown says of whose it is, if one was.
    pub certificate: Option<Principal>,
    /// Whether the door is open to those who say nothing of who they are.
    pub is_anonymous: bool,
    /// Whether no rules are for it: it is this process's own.
    pub is_above_rules: bool,
    /// Whether the stream keeps what the socket does not take at once, and must be flushed behind what is written.
    pub holds_back: bool,
}

impl Entrance {
    /// Through a door that is open to everybody, on a stream that holds nothing back.
    #[must_use]
    pub fn anonymous(remote: &str) -> Self {
        Self {
            remote: remote.to_owned(),
            certificate: None,
            is_anonymous: true,
            is_above_rules: false,
            holds_back: false,
        }
    }
}

/// Finds out who has sent a CONNECT. Secrets are taken out of it; what is left has none.
///
/// A name and password that are sent are checked, whatever else the client has shown. Where no users are known they say
/// nothing, as with Mosquitto; nor does a password without a name, which MQTT 5 allows.
///
/// # Errors
/// Why it may not come in.
pub async fn admit(broker: &Broker, connect: &mut Connect, entrance: &Entrance) -> Result<Principal, Denial> {
    let identities = &broker.settings().identities;
    let events = &broker.settings().events;
    let (name, password) = (connect.username.take(), connect.password.take());
    let token = connect.authentication_data.take();
    let certificate = entrance.certificate.clone().unwrap_or_default();
    let is_known = entrance.certificate.is_some() || entrance.is_anonymous;
    let principal = |user| Principal { user, ..certificate };
    match (connect.authentication_method.as_deref(), name) {
        (Some(K8S_SAT), None) if identities.has_tokens() => {
            Ok(principal(Some(check_token(Arc::clone(identities), token, Arc::clone(events)).await?)))
        }
        (Some(K8S_SAT), Some(_)) if identities.has_tokens() => Err(denial(
            Reason::BadUserNameOrPassword,
            "a user name beside a token",
            "it sent a user name beside a token",
        )),
        (Some(_), _) => Err(denial(
            Reason::BadAuthenticationMethod,
            "this authentication method is not known here",
            "it asked for an authentication method that is not known here",
        )),
        (None, _) if token.is_some() => Err(denial(
            Reason::ProtocolError,
            "authentication data without a method",
            "it sent authentication data without a method",
        )),
        (None, Some(name)) if identities.has_users() => {
            let Some(password) = password else {
                let told = "a user name without a password";
                return Err(Denial {
                    reason: Reason::BadUserNameOrPassword,
                    told,
                    logged: format!("no password for the user {name}"),
                });
            };
            let checked = identities.check_password(name, password, Arc::clone(events));
            Ok(principal(Some(checked.await?)))
        }
        (None, Some(_) | None) if is_known => Ok(principal(None)),
        (None, Some(name)) => Err(Denial {
            reason: Reason::BadUserNameOrPassword,
            told: "users are not known here",
            logged: format!("there are no users here, so no {name}"),
        }),
        (None, None) => Err(denial(
            Reason::NotAuthorized,
            "nobody comes in here without saying who it is",
            "it said nothing of who it is",
        )),
    }
}

/// Finds out who bears a token.
///
/// # Errors
/// Nobody that is known here.
pub async fn check_token(
    identities: Arc<Identities>,
    token: Option<Secret>,
    events: EventSink,
) -> Result<Arc<str>, Denial> {
    let Some(token) = token else {
        return Err(denial(Reason::NotAuthorized, "no token", "it sent no token"));
    };
    identities.check_token(token, events).await
}

fn denial(reason: Reason, told: &'static str, logged: &str) -> Denial {
    Denial { reason, told, logged: logged.to_owned() }
}

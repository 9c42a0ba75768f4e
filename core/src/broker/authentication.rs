//! Authentication: checks what a client presents in CONNECT, and its certificate.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use super::principal::Principal;
use crate::mqtt::ReasonCode;
use crate::mqtt::packet::{Connect, Sensitive};
use crate::net::Secret;
use crate::platform::Socket;

/// Why authentication failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    pub reason: ReasonCode,
    /// For the client: nothing that helps to guess a user or a password.
    pub reason_string: &'static str,
    /// For the operator's log; contains no secret, not escaped.
    pub log_text: String,
}

/// What a client has authenticated with. It may become invalid while the client is connected.
pub trait Credential: fmt::Debug + Send + Sync {
    fn is_valid(&self) -> bool;
}

/// The user of a credential that was valid when it was checked.
#[derive(Clone, Debug)]
pub struct Authenticated {
    pub user: Arc<str>,
    pub credential: Arc<dyn Credential>,
}

/// A check that is in progress.
pub type PendingCheck = Pin<Box<dyn Future<Output = Result<Authenticated, Denial>> + Send>>;

/// The identity of a client, and the credential of its user.
#[derive(Clone, Debug, Default)]
pub struct ClientIdentity {
    pub principal: Principal,
    /// None without a user.
    pub credential: Option<Arc<dyn Credential>>,
}

/// Knows the users of a broker. A check may take long; the broker limits its time.
pub trait Authenticator: Send + Sync {
    /// Whether user names and passwords are checked. If not, they are ignored.
    fn has_users(&self) -> bool;

    /// Whether a method of enhanced authentication (MQTT 5, 4.12) is supported.
    fn supports_method(&self, method: &str) -> bool;

    /// Checks a password of a client at the address `remote`.
    fn check_password(&self, remote: &str, username: String, password: Secret) -> PendingCheck;

    /// Checks the authentication data of a method that is supported.
    fn check_data(&self, method: &str, data: Secret) -> PendingCheck;
}

/// Knows no user: every client is anonymous, unless it has a certificate.
impl Authenticator for () {
    fn has_users(&self) -> bool {
        false
    }

    fn supports_method(&self, _: &str) -> bool {
        false
    }

    fn check_password(&self, _: &str, _: String, _: Secret) -> PendingCheck {
        Box::pin(async { Err(unknown_method()) })
    }

    fn check_data(&self, _: &str, _: Secret) -> PendingCheck {
        Box::pin(async { Err(unknown_method()) })
    }
}

/// What is known of a connection before its CONNECT.
#[derive(Clone, Debug)]
pub struct ConnectionInfo {
    /// The client's address, for the operator.
    pub remote: String,
    /// The identity in the client's certificate, if it has presented one.
    pub certificate: Option<Principal>,
    /// The last second of the validity of this certificate, in seconds since 1970.
    pub certificate_expiry_s: Option<u64>,
    /// Whether the listener accepts anonymous clients.
    pub is_anonymous: bool,
    /// Whether the connection is the process's own, which needs no permissions.
    pub bypasses_permissions: bool,
    /// Whether the stream buffers output, so that it must be flushed after a write.
    pub buffers_output: bool,
    /// The socket below the stream. None: a connection in memory.
    pub socket: Option<Socket>,
}

impl ConnectionInfo {
    /// Returns the information about a connection to a listener that accepts anonymous clients, on an unbuffered stream.
    #[must_use]
    pub fn anonymous(remote: &str) -> Self {
        Self {
            remote: remote.to_owned(),
            certificate: None,
            certificate_expiry_s: None,
            is_anonymous: true,
            bypasses_permissions: false,
            buffers_output: false,
            socket: None,
        }
    }
}

/// Authentication did not finish in time: too many clients are authenticated at the same time, or a file cannot be read.
#[must_use]
pub fn too_slow() -> Denial {
    Denial {
        reason: ReasonCode::ServerBusy,
        reason_string: "too many clients are being authenticated",
        log_text: "authentication timed out".to_owned(),
    }
}

/// Authenticates the client that has sent a CONNECT, and removes the secrets from the packet.
///
/// A user name and a password are checked whatever else the client presents. Without a list of users they are ignored,
/// as in Mosquitto; so is a password without a user name, which MQTT 5 allows (3.1.2.9).
///
/// # Errors
///
/// Why the client is rejected.
pub async fn authenticate(
    authenticator: &dyn Authenticator,
    connect: &mut Connect,
    info: &ConnectionInfo,
) -> Result<ClientIdentity, Denial> {
    let secret = |bytes: Sensitive| Secret::new(bytes.into_bytes());
    let (username, password) = (connect.username.take(), connect.password.take().map(secret));
    let data = connect.authentication_data.take().map(secret);
    let certificate = info.certificate.clone().unwrap_or_default();
    let needs_no_user = info.certificate.is_some() || info.is_anonymous;
    let identity = |authenticated: Option<Authenticated>| {
        let (user, credential) = authenticated.map(|of| (of.user, of.credential)).unzip();
        ClientIdentity { principal: Principal { user, ..certificate }, credential }
    };
    match (connect.authentication_method.as_deref(), username) {
        (Some(method), None) if authenticator.supports_method(method) => {
            Ok(identity(Some(check_data(authenticator, method, data).await?)))
        }
        (Some(method), Some(_)) if authenticator.supports_method(method) => Err(denial(
            ReasonCode::BadUserNameOrPassword,
            "user name together with a token",
            "user name together with a token",
        )),
        (Some(_), _) => Err(unknown_method()),
        (None, _) if data.is_some() => Err(denial(
            ReasonCode::ProtocolError,
            "authentication data without a method",
            "authentication data without a method",
        )),
        (None, Some(username)) if authenticator.has_users() => {
            let Some(password) = password else {
                return Err(Denial {
                    reason: ReasonCode::BadUserNameOrPassword,
                    reason_string: "a user name without a password",
                    log_text: format!("no password for the user {username}"),
                });
            };
            let checked = authenticator.check_password(&info.remote, username, password).await?;
            Ok(identity(Some(checked)))
        }
        (None, Some(_) | None) if needs_no_user => Ok(identity(None)),
        (None, Some(username)) => Err(Denial {
            reason: ReasonCode::BadUserNameOrPassword,
            reason_string: "user names are not accepted here",
            log_text: format!("unknown user {username}: the server has no users"),
        }),
        (None, None) => Err(denial(ReasonCode::NotAuthorized, "authentication required", "no credentials")),
    }
}

/// Checks the authentication data of a CONNECT or an AUTH.
pub fn check_data(authenticator: &dyn Authenticator, method: &str, data: Option<Secret>) -> PendingCheck {
    match data {
        Some(data) => authenticator.check_data(method, data),
        None => Box::pin(async { Err(denial(ReasonCode::NotAuthorized, "no token", "no token")) }),
    }
}

fn unknown_method() -> Denial {
    denial(
        ReasonCode::BadAuthenticationMethod,
        "unknown authentication method",
        "unknown authentication method",
    )
}

fn denial(reason: ReasonCode, reason_string: &'static str, log_text: &str) -> Denial {
    Denial { reason, reason_string, log_text: log_text.to_owned() }
}

impl fmt::Display for Denial {
    /// Writes the text for the operator.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.reason, self.log_text)
    }
}

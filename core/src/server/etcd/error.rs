//! Errors of the client: what etcd states, what leaves the fate of an operation open, and why no connection was made.

use std::error::Error as _;
use std::fmt;
use std::time::Duration;

use tonic::{Code, Status};

use super::channel::{Address, DialError};
use crate::ledger::etcd::operation::EtcdError;
use crate::net::tls::{TlsError, TlsSetupError};
use crate::server::error::ClusterErrorKind;

/// What etcd states about a user or its token that it does not accept.
const ABOUT_USER: &[&str] = &[
    "invalid auth token",
    "revision of auth store is old",
    "user name is empty",
    "user name not found",
    "authentication failed, invalid user ID or password",
    "authentication is not enabled",
];

/// How one attempt at one endpoint failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The answer leaves open whether the operation was applied.
    Unknown(String),
    TimedOut(Duration),
    /// etcd has not accepted the user or its token. The operation was not applied; after a new authentication it may be.
    Unauthenticated(String),
    /// The answer is not one of etcd, or the connection was lost.
    Foreign(String),
    NoSpace,
    Compacted,
    Refused(String),
    /// The answer is larger than the client accepts.
    TooLarge,
}

impl Failure {
    /// Classifies an error of the client's crate.
    ///
    /// Only an answer that etcd itself has written, and only one that it gives before it applies a transaction, is more
    /// certain than [`Failure::Unknown`]: a proxy in between may answer with the same codes at any time.
    pub(super) fn new(error: &etcd_client::Error) -> Self {
        match error {
            etcd_client::Error::GRpcStatus(status) => Self::of_status(status),
            other => Self::Unknown(other.to_string()),
        }
    }

    /// Returns `None` if etcd refuses this answer to the user. Versions 3.5.28 to 3.5.30, and 3.6 before the fix of
    /// etcd-io/etcd#21663, report their status only to users with the role `root`.
    pub(super) fn unless_refused<T>(
        answer: Result<T, etcd_client::Error>,
    ) -> Result<Option<T>, etcd_client::Error> {
        match answer {
            Err(error) if matches!(Self::new(&error), Self::Refused(_)) => Ok(None),
            other => other.map(Some),
        }
    }

    fn of_status(status: &Status) -> Self {
        let message = status.message();
        let stated = message.strip_prefix("etcdserver: ");
        match (status.code(), stated) {
            (Code::OutOfRange, None) if message.contains("decoded message length too large") => {
                Self::TooLarge
            }
            (Code::ResourceExhausted, None) if message.contains("received message larger than max") => {
                Self::Refused("the request is too large".to_owned())
            }
            (_, None) => Self::Foreign(innermost_text(status)),
            (Code::ResourceExhausted, Some("mvcc: database space exceeded")) => Self::NoSpace,
            (Code::OutOfRange, Some("mvcc: required revision has been compacted")) => Self::Compacted,
            (_, Some(stated)) if is_about_user(stated) => Self::Unauthenticated(stated.to_owned()),
            (
                Code::InvalidArgument
                | Code::PermissionDenied
                | Code::FailedPrecondition
                | Code::OutOfRange
                | Code::NotFound,
                Some(stated),
            ) => Self::Refused(stated.to_owned()),
            (_, Some(stated)) => Self::Unknown(stated.to_owned()),
        }
    }

    /// Returns whether the member has not applied the revision of a read yet.
    pub(super) fn is_lag(&self) -> bool {
        matches!(self, Self::Refused(reason) if reason == "mvcc: required revision is a future revision")
    }

    /// Returns whether the operation must be asked for again, at the next endpoint.
    pub(super) fn is_uncertain(&self) -> bool {
        matches!(self, Self::Unknown(_) | Self::TimedOut(_) | Self::Unauthenticated(_) | Self::Foreign(_))
    }

    /// Returns the error of an operation at this endpoint. `revision` is that of a read or of a compaction.
    pub(super) fn into_error(self, address: &Address, dialed: Option<DialError>, revision: u64) -> EtcdError {
        let at = |reason: String| format!("etcd at {address}: {reason}");
        let reason = match (self, dialed) {
            (Self::NoSpace, _) => return EtcdError::NoSpace,
            (Self::Compacted, _) => return EtcdError::Compacted { revision },
            (Self::Refused(reason), _) => return EtcdError::Refused { reason: at(reason) },
            (Self::TooLarge, _) => {
                return EtcdError::Refused { reason: at("the answer is too large".to_owned()) };
            }
            // Around the transport's own texts, this is the cause.
            (Self::Foreign(_) | Self::TimedOut(_), Some(dialed)) => dialed.text(address),
            (Self::TimedOut(after), None) => at(format!("no answer after {after:?}")),
            (Self::Unknown(reason) | Self::Unauthenticated(reason) | Self::Foreign(reason), _) => at(reason),
        };
        EtcdError::Unknown { reason }
    }
}

/// Returns whether etcd refuses a request because of the user or of its token. All of these are checked before the request
/// is applied; none of them is about permissions.
fn is_about_user(stated: &str) -> bool {
    ABOUT_USER.contains(&stated)
}

/// Returns whether etcd has refused an operation, for this reason, because of the user or of its permissions.
#[must_use]
pub fn is_access_refusal(reason: &str) -> bool {
    ABOUT_USER.iter().chain(&["permission denied"]).any(|stated| reason.ends_with(stated))
}

/// Returns the text of the innermost cause: those around it only repeat that the transport has failed.
fn innermost_text(status: &Status) -> String {
    let mut text = status.message().to_owned();
    let mut cause = status.source();
    while let Some(error) = cause {
        text = error.to_string();
        cause = error.source();
    }
    text
}

/// Why etcd cannot be used, at the first connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConnectError {
    /// The settings contradict each other or are malformed.
    Settings(String),
    /// A file of the TLS settings cannot be used.
    TlsFiles(TlsSetupError),
    /// There is no connection, or no answer, or no leader.
    Unreachable {
        message: String,
    },
    /// The TLS handshake failed.
    Tls {
        message: String,
        cause: TlsError,
    },
    /// etcd has not accepted the user.
    Authentication {
        endpoint: String,
        cause: String,
    },
    /// The endpoint does not answer as etcd does.
    NotEtcd {
        endpoint: String,
        cause: String,
    },
    TooOld {
        endpoint: String,
        version: String,
    },
}

impl ConnectError {
    pub(super) fn new(address: &Address, failure: Failure, dialed: Option<DialError>) -> Self {
        let endpoint = address.to_string();
        if let Some(dialed) = dialed {
            let message = dialed.text(address);
            return match dialed {
                DialError::Tls(cause) => Self::Tls { message, cause },
                _ => Self::Unreachable { message },
            };
        }
        match failure {
            Failure::Unauthenticated(cause) => Self::Authentication { endpoint, cause },
            Failure::Foreign(cause) => Self::NotEtcd { endpoint, cause },
            other => Self::Unreachable { message: other.into_error(address, None, 0).to_string() },
        }
    }

    #[must_use]
    pub fn kind(&self) -> ClusterErrorKind {
        match self {
            Self::Settings(_) => ClusterErrorKind::Settings,
            Self::TlsFiles(_) => ClusterErrorKind::Files,
            Self::Authentication { .. } => ClusterErrorKind::Authentication,
            _ => ClusterErrorKind::Unavailable,
        }
    }

    /// Returns what to do about it.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        Some(match self {
            Self::Settings(_) | Self::TlsFiles(_) => return None,
            Self::Unreachable { .. } => {
                "check that a majority of the members of etcd runs, and its client URLs"
            }
            Self::Tls { cause, .. } => match cause {
                TlsError::UnknownCa { .. } => "trust the CA that signed it: --etcd-ca FILE",
                TlsError::WrongName { .. } => "use a name of the certificate in the URL",
                TlsError::ClientCertificateRequired => {
                    "give a client certificate: --etcd-cert FILE and --etcd-key FILE"
                }
                TlsError::ClientCertificateRejected { .. } => {
                    "use a client certificate that the CA of etcd's --trusted-ca-file has signed"
                }
                TlsError::NotTls | TlsError::Interrupted(_) => {
                    "use http:// in the URL if this endpoint has no TLS"
                }
                _ => "check the certificates of etcd and of this client",
            },
            Self::Authentication { cause, .. } if cause == "authentication is not enabled" => {
                "connect without a user, or enable authentication: etcdctl auth enable"
            }
            Self::Authentication { cause, .. } if cause == "user name is empty" => {
                "give a user and its password, or a client certificate with the user as common name"
            }
            Self::Authentication { .. } => "check user and password: etcdctl user get USER",
            Self::NotEtcd { .. } => {
                "use a client URL of etcd (port 2379 by default), with https:// if it requires TLS"
            }
            Self::TooOld { .. } => "upgrade etcd: 3.4 or later is required, 3.5.28 or 3.6.9 advised",
        })
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Settings(message) | Self::Unreachable { message } | Self::Tls { message, .. } => {
                out.write_str(message)
            }
            Self::TlsFiles(error) => write!(out, "{error}"),
            Self::Authentication { endpoint, cause } => {
                write!(out, "etcd at {endpoint} refused the authentication: {cause}")
            }
            Self::NotEtcd { endpoint, cause } => write!(out, "no etcd at {endpoint}: {cause}"),
            Self::TooOld { endpoint, version } => {
                write!(out, "etcd at {endpoint} has version {version}, which is not supported")
            }
        }
    }
}

impl std::error::Error for ConnectError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(code: Code, message: &str) -> Failure {
        Failure::new(&Status::new(code, message).into())
    }

    #[test]
    fn only_what_etcd_states_before_it_applies_a_transaction_is_certain() {
        let text = |stated: &str| stated.to_owned();
        for (code, message, failure) in [
            (Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded", Failure::NoSpace),
            (Code::OutOfRange, "etcdserver: mvcc: required revision has been compacted", Failure::Compacted),
            (
                Code::PermissionDenied,
                "etcdserver: permission denied",
                Failure::Refused(text("permission denied")),
            ),
            (
                Code::InvalidArgument,
                "etcdserver: too many operations in txn request",
                Failure::Refused(text("too many operations in txn request")),
            ),
            (
                Code::InvalidArgument,
                "etcdserver: revision of auth store is old",
                Failure::Unauthenticated(text("revision of auth store is old")),
            ),
            (
                Code::Unauthenticated,
                "etcdserver: invalid auth token",
                Failure::Unauthenticated(text("invalid auth token")),
            ),
        ] {
            assert_eq!(of(code, message), failure, "{message}");
        }
        for (code, message) in [
            (Code::Unavailable, "etcdserver: request timed out"),
            (Code::Unavailable, "etcdserver: leader changed"),
            (Code::Unavailable, "etcdserver: no leader"),
            (Code::Unknown, "etcdserver: request timed out, possibly due to previous leader failure"),
            (Code::ResourceExhausted, "etcdserver: too many requests"),
            (Code::DataLoss, "etcdserver: corrupt cluster"),
            (Code::DeadlineExceeded, "context deadline exceeded"),
            (Code::Cancelled, "operation was canceled"),
            (Code::Internal, "h2 protocol error: error reading a body from connection"),
            // Answers of a proxy.
            (Code::PermissionDenied, "RBAC: access denied"),
            (Code::ResourceExhausted, "mvcc: database space exceeded"),
            (Code::InvalidArgument, "upstream reset"),
        ] {
            let failure = of(code, message);
            assert!(failure.is_uncertain(), "{code:?} {message}");
            let address = Address::parse("http://etcd:1").unwrap();
            assert!(
                matches!(failure.into_error(&address, None, 0), EtcdError::Unknown { .. }),
                "{code:?} {message}"
            );
        }
    }

    #[test]
    fn a_refusal_of_the_user_or_for_lack_of_a_permission_is_one_of_access() {
        let address = Address::parse("http://etcd:1").unwrap();
        let is_access = |failure: Failure| {
            let EtcdError::Refused { reason } = failure.into_error(&address, None, 0) else { panic!() };
            is_access_refusal(&reason)
        };
        assert!(is_access(Failure::Refused("permission denied".to_owned())));
        assert!(is_access(Failure::Refused("user name is empty".to_owned())));
        assert!(!is_access(Failure::Refused("too many operations in txn request".to_owned())));
    }

    #[test]
    fn a_hint_is_about_its_cause() {
        let error =
            |cause: &str| ConnectError::Authentication { endpoint: String::new(), cause: cause.to_owned() };
        assert!(error("authentication is not enabled").hint().unwrap().contains("without a user"));
        assert!(error("user name is empty").hint().unwrap().contains("give a user"));
        let tls = ConnectError::Tls { message: String::new(), cause: TlsError::UnknownCa { cafile: None } };
        assert!(tls.hint().unwrap().contains("--etcd-ca"));
    }
}

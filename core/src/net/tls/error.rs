//! TLS errors, and the conversion of the crate's errors to them.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio_rustls::rustls::pki_types::UnixTime;
use tokio_rustls::rustls::{AlertDescription, CertificateError, Error as RustlsError};

/// The cause of a failed TLS connection with a broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TlsError {
    /// The broker's certificate has expired.
    Expired {
        /// Whole days since then, if known.
        days: Option<u64>,
    },
    /// The broker's certificate is not valid yet.
    NotValidYet {
        /// Whole days until it is, if known.
        days: Option<u64>,
    },
    /// No trusted CA signed the broker's certificate.
    UnknownCa {
        /// The file of the trusted CAs; `None` for those of the platform.
        cafile: Option<PathBuf>,
    },
    /// The broker's certificate is for other hosts.
    WrongName {
        /// The name that was expected, if known.
        expected: Option<String>,
        /// The names in the certificate, escaped; empty if unknown.
        names: Vec<String>,
    },
    /// The broker's certificate is one of a CA, and not among the trusted ones itself.
    CaCertificate,
    /// The broker's certificate is invalid for another cause.
    Certificate(String),
    /// The broker requires a client certificate, and none is configured.
    ClientCertificateRequired,
    /// The broker rejected the client certificate.
    ClientCertificateRejected {
        alert: String,
        /// The file of the certificate.
        certfile: Option<PathBuf>,
    },
    /// The broker ended the handshake with this alert.
    HandshakeRefused(String),
    /// The broker requires TLS, and the client used none.
    Required,
    /// The other side does not speak TLS.
    NotTls,
    /// The connection was lost during the handshake.
    Interrupted(String),
    /// The handshake did not end within this time.
    TimedOut(Duration),
    Other(String),
}

/// The cause of an invalid TLS configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TlsSetupError {
    /// A file cannot be read.
    Unreadable {
        path: PathBuf,
        cause: String,
    },
    /// The content of a file is invalid.
    Invalid {
        path: PathBuf,
        /// A predicate: it follows the path in the message.
        what: String,
        /// A command to type, or an option to use.
        hint: Option<String>,
    },
    /// The platform has no trusted CA certificates.
    NoRoots,
    /// Not a name that a certificate can have.
    Name(String),
    Other(String),
}

impl TlsError {
    /// Writes the message, with `target` as `host:port`.
    pub(crate) fn write(&self, out: &mut fmt::Formatter<'_>, target: &str) -> fmt::Result {
        match self {
            Self::Expired { days: None } => write!(out, "the certificate of {target} has expired"),
            Self::Expired { days: Some(days) } => {
                write!(out, "the certificate of {target} expired {} ago", days_text(*days))
            }
            Self::NotValidYet { days: None } => write!(out, "the certificate of {target} is not valid yet"),
            Self::NotValidYet { days: Some(days) } => {
                write!(
                    out,
                    "the certificate of {target} is not valid yet: it becomes valid in {}",
                    days_text(*days)
                )
            }
            Self::UnknownCa { cafile: Some(file) } => write!(
                out,
                "the certificate of {target} is from an unknown CA: no CA in {} has signed it",
                file.display()
            ),
            Self::UnknownCa { cafile: None } => {
                write!(
                    out,
                    "the certificate of {target} is from an unknown CA: no CA of this machine has signed it"
                )
            }
            Self::WrongName { expected, names } => {
                write!(out, "the certificate of {target} is ")?;
                match (names.as_slice(), expected) {
                    ([], Some(_)) => out.write_str("for no host (it has no subjectAltName), ")?,
                    ([], None) => {}
                    _ => write!(out, "for {}, ", names.join(" and "))?,
                }
                write!(out, "not for {}", expected.as_deref().unwrap_or("this host"))
            }
            Self::CaCertificate => {
                write!(out, "the certificate of {target} is one of a CA, and not itself trusted")
            }
            Self::Certificate(cause) => write!(out, "the certificate of {target} cannot be used: {cause}"),
            Self::ClientCertificateRequired => write!(out, "{target} requires a client certificate"),
            Self::ClientCertificateRejected { alert, certfile } => {
                write!(out, "{target} rejected the client certificate: {alert}")?;
                certfile.as_ref().map_or(Ok(()), |file| write!(out, " ({})", file.display()))
            }
            Self::HandshakeRefused(alert) => write!(out, "{target} refused the TLS handshake: {alert}"),
            Self::Required => write!(out, "{target} requires TLS"),
            Self::NotTls => write!(out, "{target} does not speak TLS"),
            Self::Interrupted(cause) | Self::Other(cause) => {
                write!(out, "TLS handshake with {target} failed: {cause}")
            }
            Self::TimedOut(after) => write!(out, "TLS handshake with {target} timed out after {after:?}"),
        }
    }
}

impl From<&CertificateError> for TlsError {
    fn from(error: &CertificateError) -> Self {
        match error {
            CertificateError::Expired => Self::Expired { days: None },
            CertificateError::ExpiredContext { time, not_after } => {
                Self::Expired { days: Some(days_between(*not_after, *time)) }
            }
            CertificateError::NotValidYet => Self::NotValidYet { days: None },
            CertificateError::NotValidYetContext { time, not_before } => {
                Self::NotValidYet { days: Some(days_between(*time, *not_before)) }
            }
            // A certificate of a CA with a trusted name but another key has a bad signature: that CA is unknown, too.
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                Self::UnknownCa { cafile: None }
            }
            CertificateError::NotValidForName => Self::WrongName { expected: None, names: Vec::new() },
            CertificateError::NotValidForNameContext { expected, presented } => Self::WrongName {
                expected: Some(expected.to_str().into_owned()),
                names: presented.iter().map(|name| bare_name(name)).collect(),
            },
            other if is_ca_certificate(other) => Self::CaCertificate,
            other => Self::Certificate(match format!("{other:?}") {
                text if text.contains("UnsupportedCertVersion") => {
                    "it is older than X.509 version 3".to_owned()
                }
                _ => other.to_string(),
            }),
        }
    }
}

/// Returns whether the error is that the certificate is one of a CA. Like that of an old version, it has no variant in the crate, only
/// a text.
pub(super) fn is_ca_certificate(error: &CertificateError) -> bool {
    format!("{error:?}").contains("CaUsedAsEndEntity")
}

fn days_between(from: UnixTime, to: UnixTime) -> u64 {
    const DAY_S: u64 = 24 * 60 * 60;
    to.as_secs().saturating_sub(from.as_secs()) / DAY_S
}

/// Returns the name in `DnsName("a.example")`, the crate's notation.
fn bare_name(name: &str) -> String {
    let inner = name.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')')).unwrap_or(name);
    inner.trim_matches('"').escape_debug().to_string()
}

fn days_text(days: u64) -> String {
    match days {
        0 => "less than a day".to_owned(),
        1 => "1 day".to_owned(),
        days => format!("{days} days"),
    }
}

/// Returns the alert in words.
pub(super) fn alert_text(alert: AlertDescription) -> String {
    use AlertDescription as Alert;
    let text = match alert {
        Alert::BadCertificate => "bad certificate",
        Alert::UnsupportedCertificate => "unsupported certificate",
        Alert::CertificateRevoked => "certificate revoked",
        Alert::CertificateExpired => "certificate expired",
        Alert::CertificateUnknown => "certificate unknown",
        Alert::UnknownCA => "unknown CA",
        Alert::AccessDenied => "access denied",
        Alert::HandshakeFailure => "handshake failure",
        Alert::ProtocolVersion => "no common TLS version",
        Alert::CertificateRequired => "certificate required",
        Alert::UnrecognisedName => "unrecognized name",
        other => return words(&format!("{other:?}")),
    };
    text.to_owned()
}

/// Returns the text of an error of the crate, which names some causes by its own identifiers.
pub(super) fn text_of(error: &RustlsError) -> String {
    match error {
        RustlsError::AlertReceived(alert) => alert_text(*alert),
        RustlsError::PeerIncompatible(why) => {
            format!("no common TLS parameters: {}", words(&format!("{why:?}")))
        }
        RustlsError::PeerMisbehaved(why) => format!("protocol violation: {}", words(&format!("{why:?}"))),
        RustlsError::InappropriateMessage { .. } | RustlsError::InappropriateHandshakeMessage { .. } => {
            "unexpected message".to_owned()
        }
        other => other.to_string(),
    }
}

/// Returns an identifier such as `NoCipherSuitesInCommon` in words.
fn words(identifier: &str) -> String {
    let mut words = String::new();
    let mut is_within_word = false;
    for char in identifier.chars() {
        if char.is_uppercase() && is_within_word {
            words.push(' ');
        }
        is_within_word = char.is_lowercase() || char.is_numeric();
        words.extend(char.to_lowercase());
    }
    words
}

impl TlsSetupError {
    /// Returns an [`TlsSetupError::Invalid`]. `FILE` in the hint is replaced by the path, so that the hint can be typed as
    /// it is.
    pub(super) fn invalid(path: &Path, what: &str, hint: Option<&str>) -> Self {
        let hint = hint.map(|hint| hint.replace("FILE", &path.display().to_string()));
        Self::Invalid { path: path.to_owned(), what: what.to_owned(), hint }
    }

    /// Converts the error of a configuration with a certificate and a key that were read without error.
    pub(super) fn of_pair(error: &RustlsError, certfile: &Path, keyfile: &Path) -> Self {
        match error {
            RustlsError::InconsistentKeys(_) => {
                Self::invalid(keyfile, "contains a key that does not match the certificate", None)
            }
            RustlsError::InvalidCertificate(_) => {
                Self::invalid(certfile, "contains an invalid certificate", None)
            }
            _ => Self::invalid(keyfile, "contains a key that is not supported", None),
        }
    }

    /// Returns the message with the hint on the same line.
    #[must_use]
    pub fn with_hint(&self) -> String {
        match self {
            Self::Invalid { hint: Some(hint), .. } => format!("{self} (try: {hint})"),
            _ => self.to_string(),
        }
    }
}

impl fmt::Display for TlsSetupError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { path, cause } => write!(out, "cannot read {}: {cause}", path.display()),
            Self::Invalid { path, what, .. } => write!(out, "{} {what}", path.display()),
            Self::NoRoots => out.write_str("this machine has no trusted CA certificates"),
            Self::Name(name) => write!(out, "invalid server name: {}", name.escape_debug()),
            Self::Other(cause) => out.write_str(cause),
        }
    }
}

impl std::error::Error for TlsSetupError {}

#[cfg(test)]
mod tests {
    use tokio_rustls::rustls::PeerIncompatible;

    use super::*;

    #[test]
    fn causes_are_words_not_identifiers() {
        assert_eq!(alert_text(AlertDescription::DecryptError), "decrypt error");
        assert_eq!(alert_text(AlertDescription::InternalError), "internal error");
        assert_eq!(text_of(&RustlsError::AlertReceived(AlertDescription::DecodeError)), "decode error");
        let incompatible = RustlsError::PeerIncompatible(PeerIncompatible::NoCipherSuitesInCommon);
        assert_eq!(text_of(&incompatible), "no common TLS parameters: no cipher suites in common");
        assert_eq!(text_of(&RustlsError::DecryptError), "cannot decrypt peer's message");
    }
}

//! What a verb fails with: a kind (one exit code each), words, and what to try next.

use std::io;
use std::path::Path;

use crate::client::{CredentialError, Error, Outcome, ReasonCode, TlsError, TlsSetupError, WebSocketError};
use crate::protocol::ErrorReply;

/// What kind of failure it is; each has one exit code, and they stand in the order of the codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The command line makes no sense.
    Usage,
    /// The input data is bad.
    Data,
    /// The broker or the store cannot be reached.
    Unavailable,
    /// A bug of ours.
    Bug,
    /// A local file cannot be read or written.
    File,
    /// The store refused, or its answer makes no sense.
    Refused,
    /// The client may not connect, or not do this.
    Authorization,
    /// The configuration makes no sense.
    Configuration,
    /// No answer came in time.
    Timeout,
    /// The lock was lost while the command under it ran.
    LockLost,
    /// The command to run cannot be executed.
    NotExecutable,
    /// The command to run is not found.
    NotFound,
    /// SIGINT came before it was done.
    Interrupted,
    /// SIGTERM came before it was done.
    Terminated,
}

impl Kind {
    /// The exit code; what a code means never changes.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Usage => 2,
            Self::Data => 65,
            Self::Unavailable => 69,
            Self::Bug => 70,
            Self::File => 74,
            Self::Refused => 76,
            Self::Authorization => 77,
            Self::Configuration => 78,
            Self::Timeout => 124,
            Self::LockLost => 125,
            Self::NotExecutable => 126,
            Self::NotFound => 127,
            Self::Interrupted => 130,
            Self::Terminated => 143,
        }
    }

    /// The kind's name in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Usage => "usage",
            Self::Data => "data",
            Self::Unavailable => "unavailable",
            Self::Bug => "bug",
            Self::File => "file",
            Self::Refused => "refused",
            Self::Authorization => "authorization",
            Self::Configuration => "configuration",
            Self::Timeout => "timeout",
            Self::LockLost => "lock-lost",
            Self::NotExecutable => "not-executable",
            Self::NotFound => "not-found",
            Self::Interrupted => "interrupted",
            Self::Terminated => "terminated",
        }
    }
}

/// Why a verb did not do what it was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandError {
    /// What kind of failure it is.
    pub kind: Kind,
    /// One sentence, not yet escaped for a terminal.
    pub message: String,
    /// What else is known, a line each.
    pub causes: Vec<String>,
    /// What to try next, a line each.
    pub hints: Vec<String>,
    /// What is known of a write; none for what only reads.
    pub outcome: Option<Outcome>,
}

impl CommandError {
    /// A failure of a kind.
    #[must_use]
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), causes: Vec::new(), hints: Vec::new(), outcome: None }
    }

    /// A command line that makes no sense.
    #[must_use]
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Kind::Usage, message)
    }

    /// A file that cannot be read or written; `what` is a verb.
    #[must_use]
    pub fn file(what: &str, path: &Path, cause: &io::Error) -> Self {
        Self::new(Kind::File, format!("cannot {what} {}: {cause}", path.display()))
    }

    /// A watch that failed: the words in which it is refused are those of a store that is full.
    #[must_use]
    pub fn of_watch(error: Error) -> Self {
        let is_quota = error == Error::Refused(ErrorReply::QuotaExceeded);
        let failure = Self::from(error);
        if is_quota { Self { hints: vec![WATCH_LESS.to_owned()], ..failure } } else { failure }
    }

    /// What the system has not let this process do; `what` begins with a verb.
    #[must_use]
    pub fn system(what: &str, cause: &io::Error) -> Self {
        let hints = more_of(cause).map(str::to_owned).into_iter().collect();
        Self { hints, ..Self::new(Kind::Bug, format!("cannot {what}: {cause}")) }
    }

    /// Names the line of the input that it is about.
    #[must_use]
    pub fn at_line(self, line: u64) -> Self {
        Self { message: format!("line {line}: {}", self.message), ..self }
    }

    /// Adds a line of what else is known.
    #[must_use]
    pub fn cause(mut self, cause: impl Into<String>) -> Self {
        self.causes.push(cause.into());
        self
    }

    /// Adds a line of what to try next.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// Whether the same command may succeed later, unchanged.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self.kind, Kind::Unavailable | Kind::Timeout)
    }
}

/// Standard output that cannot be written to.
impl From<io::Error> for CommandError {
    fn from(error: io::Error) -> Self {
        Self::new(Kind::File, format!("cannot write to standard output: {error}"))
    }
}

impl From<Error> for CommandError {
    fn from(error: Error) -> Self {
        Self {
            outcome: Some(outcome(&error)),
            hints: hints(&error),
            ..Self::new(kind(&error), error.to_string())
        }
    }
}

impl From<TlsSetupError> for CommandError {
    fn from(error: TlsSetupError) -> Self {
        let kind = match &error {
            TlsSetupError::Unreadable { .. } => Kind::File,
            TlsSetupError::Invalid { .. } | TlsSetupError::NoRoots => Kind::Configuration,
            TlsSetupError::Name(_) => Kind::Usage,
            TlsSetupError::Other(_) => Kind::Bug,
        };
        let message = error.to_string();
        let hint = match error {
            TlsSetupError::Invalid { hint, .. } => hint,
            TlsSetupError::NoRoots => Some("-T FILE with the certificate of the broker's CA".to_owned()),
            _ => None,
        };
        Self { hints: hint.into_iter().collect(), ..Self::new(kind, message) }
    }
}

fn kind(error: &Error) -> Kind {
    match error {
        Error::Credentials { cause: CredentialError::Unreadable(_), .. } => Kind::File,
        Error::Credentials { .. } => Kind::Configuration,
        Error::Tls { cause: TlsError::TimedOut(_), .. } => Kind::Timeout,
        Error::WebSocket { cause: WebSocketError::TimedOut(_), .. } => Kind::Timeout,
        Error::WebSocket { cause: WebSocketError::Status(401 | 403), .. } => Kind::Authorization,
        Error::Tls { .. } | Error::WebSocket { .. } => Kind::Unavailable,
        Error::Resolve { .. }
        | Error::Connect { .. }
        | Error::Lost { .. }
        | Error::NoStore { .. }
        | Error::Closed => Kind::Unavailable,
        Error::NoConnack { .. } | Error::Timeout { .. } => Kind::Timeout,
        Error::Rejected { reason, .. }
        | Error::PublishRefused { reason }
        | Error::SubscribeRefused { reason, .. }
            if reason.is_authorization() =>
        {
            Kind::Authorization
        }
        Error::Rejected { .. } => Kind::Unavailable,
        Error::Refused(ErrorReply::NotAuthorized) => Kind::Authorization,
        Error::PublishRefused { .. }
        | Error::SubscribeRefused { .. }
        | Error::NotMqtt { .. }
        | Error::Refused(_)
        | Error::MalformedReply { .. }
        | Error::ClockSkew { .. } => Kind::Refused,
        Error::TooLarge { .. } => Kind::Data,
        Error::EmptyPattern => Kind::Usage,
    }
}

fn outcome(error: &Error) -> Outcome {
    match error {
        Error::Lost { outcome, .. }
        | Error::Timeout { outcome, .. }
        | Error::NoStore { outcome, .. }
        | Error::MalformedReply { outcome, .. }
        | Error::ClockSkew { outcome, .. } => *outcome,
        // A disk that has failed may have kept what it was given.
        Error::Refused(ErrorReply::NotPersisted) => Outcome::Unknown,
        _ => Outcome::Unchanged,
    }
}

/// What looks at the whole way.
pub(super) const DOCTOR: &str = "mqkv doctor";

/// The next things to try.
fn hints(error: &Error) -> Vec<String> {
    let looks = matches!(error, Error::Timeout { .. }).then(|| DOCTOR.to_owned());
    looks.into_iter().chain(hint(error)).collect()
}

/// The next thing to try, where there is one.
fn hint(error: &Error) -> Option<String> {
    let hint = match error {
        Error::Resolve { .. } => "check the spelling of the host: -b mqtt://HOST or -n HOST",
        Error::Connect { target, cause } if is_local(target) && cause == Error::CONNECTION_REFUSED => {
            "`mqkv serve` in another terminal, or --embedded for a store inside this process"
        }
        Error::Connect { .. } => {
            "check host and port, what is spoken there (mqtts:// with TLS, ws:// in WebSockets), and that no firewall \
             is between"
        }
        Error::Tls {
            cause: TlsError::NotTls | TlsError::Interrupted(_) | TlsError::TimedOut(_),
            in_web_socket: true,
            ..
        } => "check the port; for one without TLS, -b ws://HOST:PORT",
        Error::Tls { cause, .. } => return hint_of_tls(cause).map(str::to_owned),
        Error::WebSocket { cause, .. } => return hint_of_web_socket(cause).map(str::to_owned),
        Error::Lost { cause, .. } if cause.is_takeover() => {
            "-i with a client id that nobody else uses, or without -i: each run has one of its own then"
        }
        Error::NoConnack { .. } => "a port that speaks TLS says nothing to plain MQTT: check the port",
        Error::NotMqtt { .. } => "check the port: 1883 is the usual one for MQTT without TLS",
        Error::NoStore { .. } => "is this the broker of Azure IoT Operations, or one of `mqkv serve`?",
        Error::Timeout { .. } => "a longer --timeout",
        Error::Credentials { .. } => "a file with the secret in it: --password-file or --sat-file",
        Error::Rejected { reason, .. } if reason.code == ReasonCode::BAD_LOGIN => {
            "check the name (-u) and the password (--password-file or --ask-password)"
        }
        Error::Rejected { reason, .. } if reason.code == ReasonCode::BAD_METHOD => {
            "another way to log in, for this broker does not know that one: -u with --password-file, or -C and -K"
        }
        Error::Rejected { reason, .. } if reason.code == ReasonCode::BAD_CLIENT_ID => {
            "another client id: -i ID"
        }
        Error::Rejected { reason, .. } if reason.is_transient() => {
            "again later; --retries N does so by itself"
        }
        Error::Rejected { reason, .. } if reason.is_authorization() => {
            "-u NAME with --password-file FILE, --sat-file FILE, or -C and -K, whatever the broker knows you by"
        }
        Error::PublishRefused { reason } | Error::SubscribeRefused { reason, .. }
            if reason.is_authorization() =>
        {
            "ask for the right to use the broker's state store with this client id (-i)"
        }
        Error::Refused(refusal) => return hint_of_refusal(refusal).map(str::to_owned),
        Error::ClockSkew { .. } => SYNCHRONISE,
        Error::TooLarge { .. } => "a smaller value, or several keys",
        Error::EmptyPattern => "'*' matches every key",
        _ => return None,
    };
    Some(hint.to_owned())
}

fn hint_of_tls(cause: &TlsError) -> Option<&'static str> {
    match cause {
        TlsError::Expired { .. } | TlsError::NotValidYet { .. } => {
            Some("a new certificate for the broker, or the right time for this machine's clock")
        }
        TlsError::UnknownCa => {
            Some("-T FILE, or MQKV_CAFILE=FILE, with the certificate of the CA that signed it")
        }
        TlsError::WrongName { .. } => Some("-n with a name that the certificate has, or --server-name NAME"),
        TlsError::ClientCertificateRequired => {
            Some("-C FILE with the client's certificate, -K FILE with its key")
        }
        TlsError::ClientCertificateRejected(_) => {
            Some("a certificate from a CA that the broker trusts: -C and -K")
        }
        TlsError::HandshakeRefused(_) => Some("-C and -K, if the broker requires a client certificate"),
        TlsError::Required => Some("-b mqtts://HOST:PORT, or -n without --notls"),
        TlsError::NotTls | TlsError::Interrupted(_) | TlsError::TimedOut(_) => {
            Some("check the port; for one without TLS, -b mqtt://HOST:PORT or --notls")
        }
        TlsError::Certificate(_) => {
            Some("a certificate for the broker that is a server's, in X.509 version 3, from a CA")
        }
        TlsError::Other(_) => None,
    }
}

fn hint_of_web_socket(cause: &WebSocketError) -> Option<&'static str> {
    match cause {
        WebSocketError::Status(_) => Some("check the path: -b ws://HOST:PORT/PATH; without one it is /mqtt"),
        WebSocketError::NoSubprotocol => Some("check the port and the path: -b ws://HOST:PORT/PATH"),
        WebSocketError::NotHttp | WebSocketError::Interrupted(_) | WebSocketError::TimedOut(_) => {
            Some("check the port: wss:// for one with TLS, mqtt:// for one without WebSockets")
        }
        WebSocketError::Other(_) => None,
    }
}

/// What gives this process more of what the system refuses it, if that is what it has run out of.
#[must_use]
pub fn more_of(cause: &io::Error) -> Option<&'static str> {
    /// The same numbers on every Unix: the files that the system has, and those of one process.
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    match cause.raw_os_error() {
        Some(ENFILE | EMFILE) => Some("more open files: `ulimit -n`, or LimitNOFILE of its service"),
        _ if cause.kind() == io::ErrorKind::WouldBlock => {
            Some("more threads: `ulimit -u`, or TasksMax of its service")
        }
        _ => None,
    }
}

const WATCH_LESS: &str = "fewer keys at once; `mqkv serve --watches-max N` lets a client watch more";

pub(super) const SYNCHRONISE: &str = "synchronise this machine's clock and the broker's with NTP";

fn hint_of_refusal(refusal: &ErrorReply) -> Option<&'static str> {
    match refusal {
        ErrorReply::TimestampTooFarAhead => Some(SYNCHRONISE),
        ErrorReply::FenceTooFarAhead => {
            Some("a token that the store gave out; and synchronise the clocks with NTP")
        }
        ErrorReply::FenceRequired => {
            Some("--fence TOKEN, with the token of whoever holds the lock on this key")
        }
        ErrorReply::FenceTooOld => {
            Some("take the lock again: somebody else has had it since this token was given out")
        }
        ErrorReply::QuotaExceeded => Some("delete keys that are not needed, or let them expire (--ttl)"),
        ErrorReply::ValueTooLong => Some("a smaller value, or several keys"),
        ErrorReply::NotPersisted => Some("look at what the store says: its disk is full, or does not work"),
        ErrorReply::NotAuthorized => Some("ask for the right to this key for this client id (-i)"),
        ErrorReply::UnknownCommand => {
            Some("upper case: the store knows GET, SET, DEL, VDEL, KEYNOTIFY, SCAN")
        }
        _ => None,
    }
}

fn is_local(target: &str) -> bool {
    ["localhost:", "127.0.0.1:", "[::1]:"].iter().any(|host| target.starts_with(host))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::ReasonCode;

    fn reason(code: u8) -> ReasonCode {
        ReasonCode { code, text: None }
    }

    #[test]
    fn who_the_client_is_decides_between_77_and_the_rest() {
        let rejected = |code| Error::Rejected { target: "h:1".into(), reason: reason(code) };
        assert_eq!(CommandError::from(rejected(0x87)).kind, Kind::Authorization);
        assert_eq!(CommandError::from(rejected(0x86)).kind, Kind::Authorization);
        assert_eq!(CommandError::from(rejected(0x89)).kind, Kind::Unavailable);
        let publish = |code| Error::PublishRefused { reason: reason(code) };
        assert_eq!(CommandError::from(publish(0x87)).kind, Kind::Authorization);
        assert_eq!(CommandError::from(publish(0x97)).kind, Kind::Refused);
        let refused = |refusal| CommandError::from(Error::Refused(refusal)).kind;
        assert_eq!(refused(ErrorReply::NotAuthorized), Kind::Authorization);
        assert_eq!(refused(ErrorReply::QuotaExceeded), Kind::Refused);
    }

    #[test]
    fn a_refused_write_changed_nothing_and_a_lost_one_is_unknown() {
        let refused = CommandError::from(Error::Refused(ErrorReply::FenceRequired));
        assert_eq!(refused.outcome, Some(Outcome::Unchanged));
        assert!(refused.hints[0].contains("--fence"));
        let lost = CommandError::from(Error::Lost {
            target: "h:1".into(),
            cause: "reset".to_owned().into(),
            outcome: Outcome::Unknown,
        });
        assert_eq!((lost.kind, lost.outcome), (Kind::Unavailable, Some(Outcome::Unknown)));
        assert!(lost.is_retryable());
    }

    #[test]
    fn what_the_system_does_not_give_names_the_limit_in_the_way() {
        let hints = |cause: io::Error| CommandError::system("start a thread", &cause).hints;
        let threads = hints(io::ErrorKind::WouldBlock.into());
        assert_eq!(threads, ["more threads: `ulimit -u`, or TasksMax of its service"]);
        assert!(hints(io::ErrorKind::PermissionDenied.into()).is_empty());
    }

    #[test]
    fn nothing_listening_here_suggests_a_store_of_ones_own() {
        let suggests = |target: &str, cause: &str| {
            let error = Error::Connect { target: target.into(), cause: cause.into() };
            CommandError::from(error).hints[0].contains("mqkv serve")
        };
        assert!(suggests("localhost:1883", Error::CONNECTION_REFUSED));
        assert!(!suggests("localhost:1883", "connection closed by the other side"));
        assert!(!suggests("plant.example:1883", Error::CONNECTION_REFUSED));
    }
}

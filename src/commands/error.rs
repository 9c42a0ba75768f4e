//! Errors of the verbs: kind (which decides the exit status), message, causes, hints.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use super::token_text;
use crate::client::{
    CredentialError, Denial, Error, Outcome, ReasonCode, TlsError, TlsSetupError, UnsuitableCause,
    WebSocketError,
};
use crate::protocol::{ErrorReply, topic};

/// The kind of an error, in the order of the exit statuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The command line is invalid.
    Usage,
    /// The input data is invalid.
    Data,
    /// The broker or the store is unavailable.
    Unavailable,
    /// An internal error.
    Bug,
    /// A local file cannot be read or written.
    File,
    /// The store refused the request, or its reply is malformed.
    Refused,
    /// Authentication or authorization failed.
    Authorization,
    /// The configuration is invalid.
    Configuration,
    /// A timeout; the outcome of a write may be unknown.
    Timeout,
    /// The lock was lost while the command ran.
    LockLost,
    /// The command to run is not executable.
    NotExecutable,
    /// The command to run does not exist.
    NotFound,
    /// Interrupted by SIGINT.
    Interrupted,
    /// Terminated by SIGTERM.
    Terminated,
}

impl Kind {
    /// Returns the exit status. The meaning of a status never changes.
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

    /// Returns the name in JSON.
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

/// A line of an input file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// As the user wrote it: `-` is standard input.
    pub file: Arc<Path>,
    /// Counts from 1.
    pub line: u64,
}

/// `FILE:LINE`, as compilers and editors have it.
impl fmt::Display for Place {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.file {
            file if file == Path::new("-") => write!(out, "standard input:{}", self.line),
            file => write!(out, "{}:{}", file.display(), self.line),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandError {
    pub kind: Kind,
    /// The line of the input that the error is about.
    pub place: Option<Place>,
    /// One line, not escaped for a terminal.
    pub message: String,
    /// Further details, one line each.
    pub causes: Vec<String>,
    /// What to do next, one line each.
    pub hints: Vec<String>,
    /// The outcome of a write; None for a read.
    pub outcome: Option<Outcome>,
    /// Whether it summarizes a single error that has been printed already. The JSON record is printed all the same.
    pub is_repetition: bool,
    /// Whether the same command may succeed later, although the server has refused it.
    pub is_passing: bool,
}

impl CommandError {
    /// Creates an error.
    #[must_use]
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self {
            kind,
            place: None,
            message: message.into(),
            causes: Vec::new(),
            hints: Vec::new(),
            outcome: None,
            is_repetition: false,
            is_passing: false,
        }
    }

    /// Creates an error of the command line.
    #[must_use]
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Kind::Usage, message)
    }

    /// Creates an error of a file; `what` is a verb, as in "cannot read FILE".
    #[must_use]
    pub fn file(what: &str, path: &Path, cause: &io::Error) -> Self {
        Self::new(Kind::File, format!("cannot {what} {}: {cause}", path.display()))
    }

    /// Creates the error of a file that does not exist.
    #[must_use]
    pub fn missing_file(path: &Path) -> Self {
        // ENOENT is 2 on every Unix.
        Self::file("read", path, &io::Error::from_raw_os_error(2))
    }

    /// Converts the error of a watch. Its quota has the same error reply as that of the keys, but another hint.
    #[must_use]
    pub fn of_watch(error: Error) -> Self {
        let is_quota = error == Error::Refused(ErrorReply::QuotaExceeded);
        let failure = Self::from(error);
        if is_quota { Self { hints: vec![WATCH_LIMIT_HINT.to_owned()], ..failure } } else { failure }
    }

    /// Creates an error of a system call; `what` begins with a verb, as in "cannot start a thread".
    #[must_use]
    pub fn system(what: &str, cause: &io::Error) -> Self {
        let hints = limit_hint(cause).map(str::to_owned).into_iter().collect();
        Self { hints, ..Self::new(Kind::Bug, format!("cannot {what}: {cause}")) }
    }

    /// Adds the line of the input.
    #[must_use]
    pub fn with_place(self, place: Place) -> Self {
        Self { place: Some(place), ..self }
    }

    /// Returns the message after its place, `FILE:LINE: MESSAGE`.
    #[must_use]
    pub fn placed_message(&self) -> String {
        match &self.place {
            Some(place) => format!("{place}: {}", self.message),
            None => self.message.clone(),
        }
    }

    /// Adds a detail.
    #[must_use]
    pub fn cause(mut self, cause: impl Into<String>) -> Self {
        self.causes.push(cause.into());
        self
    }

    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// Returns whether the same command may succeed later.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        self.is_passing || matches!(self.kind, Kind::Unavailable | Kind::Timeout)
    }
}

/// An I/O error of standard output: all others are converted where the file is known.
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
            // The disk works again, or has room again.
            is_passing: matches!(error, Error::Refused(ErrorReply::NotPersisted | ErrorReply::DiskFull)),
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
            TlsSetupError::NoRoots => Some("trust the CA of the broker: -T FILE".to_owned()),
            _ => None,
        };
        Self { hints: hint.into_iter().collect(), ..Self::new(kind, message) }
    }
}

fn kind(error: &Error) -> Kind {
    match error {
        Error::Credentials { cause: CredentialError::Unreadable(_), .. } => Kind::File,
        Error::Credentials { .. } | Error::TlsFiles { .. } => Kind::Configuration,
        Error::Tls { cause: TlsError::TimedOut(_), .. } => Kind::Timeout,
        Error::WebSocket { cause: WebSocketError::TimedOut(_), .. } => Kind::Timeout,
        Error::WebSocket { cause: WebSocketError::Status(401 | 403), .. } => Kind::Authorization,
        Error::Tls { .. } | Error::WebSocket { .. } => Kind::Unavailable,
        Error::Resolve { .. }
        | Error::NoToken { .. }
        | Error::NotForwarded { .. }
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
        Error::Refused(ErrorReply::NotAuthorized) | Error::Denied(_) => Kind::Authorization,
        Error::Refused(ErrorReply::ScanInterrupted) => Kind::Unavailable,
        Error::PublishRefused { .. }
        | Error::SubscribeRefused { .. }
        | Error::QosTooLow { .. }
        | Error::NotMqtt { .. }
        | Error::Unsuitable { .. }
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
        | Error::MalformedReply { outcome, .. }
        | Error::ClockSkew { outcome, .. } => *outcome,
        // A failing disk may have written the data all the same. One without room has not.
        Error::Refused(ErrorReply::NotPersisted) => Outcome::Unknown,
        _ => Outcome::Unchanged,
    }
}

/// The hint to check the connection.
pub(super) const DOCTOR_HINT: &str = "mqkv doctor";

fn hints(error: &Error) -> Vec<String> {
    // Also for an unknown CA: it shows the issuer.
    let doctor =
        matches!(error, Error::Timeout { .. } | Error::Tls { cause: TlsError::UnknownCa { .. }, .. });
    let doctor = doctor.then(|| DOCTOR_HINT.to_owned());
    match error {
        Error::Rejected { reason, token: Some(token), .. } if reason.is_about_credentials() => {
            token_text::hints(token)
        }
        _ => doctor.into_iter().chain(hint(error)).collect(),
    }
}

/// Returns the specific hint.
fn hint(error: &Error) -> Option<String> {
    let hint = match error {
        Error::Resolve { .. } => "check the spelling of the host: -b mqtt://HOST or -n HOST",
        Error::Connect { target, scheme, cause }
            if is_local(target) && cause == Error::CONNECTION_REFUSED =>
        {
            return Some(match (*scheme, target.rsplit_once(':')) {
                ("mqtt", Some((_, "1883"))) => {
                    "start a broker with `mqkv serve`, or use --embedded for a store inside this process"
                        .to_owned()
                }
                // `mqkv serve` without certificates does not listen for TLS, nor on its default port.
                ("mqtts", _) | ("mqtt", Some((_, "8883"))) => {
                    "check the port; without TLS: -b mqtt://HOST[:PORT] or --notls".to_owned()
                }
                ("wss", _) => "check the port; without TLS: -b ws://HOST:PORT".to_owned(),
                ("ws", _) => {
                    format!("check the port, or start a broker with `mqkv serve --listen ws://{target}`")
                }
                _ => format!("check the port, or start a broker with `mqkv serve --listen {target}`"),
            });
        }
        Error::Connect { cause, .. } if Error::CONNECTION_ENDED.contains(&&**cause) => {
            "check port and protocol (mqtts:// for TLS, ws:// for WebSockets); the broker must support MQTT 5"
        }
        Error::Connect { .. } => {
            "check host, port, protocol (mqtts:// for TLS, ws:// for WebSockets) and firewalls"
        }
        Error::Tls { cause: TlsError::NotTls | TlsError::Interrupted(_), in_web_socket: true, .. } => {
            "check the port; without TLS: -b ws://HOST:PORT"
        }
        Error::Tls { cause: TlsError::TimedOut(_), in_web_socket: true, .. } => {
            "the server is stopped or overloaded, or the port is wrong; without TLS: -b ws://HOST:PORT"
        }
        Error::Tls { cause, .. } => return hint_of_tls(cause).map(str::to_owned),
        Error::WebSocket { cause, .. } => return hint_of_web_socket(cause).map(str::to_owned),
        Error::Lost { cause, .. } if cause.is_takeover() => "use a unique client id with -i, or omit -i",
        Error::NoConnack { .. } => {
            "the server is stopped or overloaded, or the port is wrong: a TLS port does not answer plain MQTT, and a broker \
             without MQTT 5 may not answer"
        }
        Error::Unsuitable { cause: UnsuitableCause::Version, .. } => {
            "connect to a broker with MQTT 5: Azure IoT Operations, or `mqkv serve`"
        }
        Error::Unsuitable { cause: UnsuitableCause::Qos, .. } => {
            "use a broker or a listener that supports QoS 1"
        }
        Error::Rejected { reason, .. } if reason.code == ReasonCode::UNSUPPORTED_VERSION => {
            "connect to a broker with MQTT 5: Azure IoT Operations, or `mqkv serve`"
        }
        Error::NotMqtt { .. } => "check the port: 1883 is the default for MQTT without TLS",
        Error::NoStore { .. } => {
            "connect to Azure IoT Operations or to `mqkv serve`, or connect a store to this broker: mqkv store -b URL"
        }
        Error::Timeout { .. } => "increase --timeout",
        Error::Credentials { .. } => "use a file with the secret: --password-file or --sat-file",
        Error::Rejected { reason, .. } if reason.code == ReasonCode::BAD_LOGIN => {
            "check the user name (-u) and the password (--password-file or --ask-password)"
        }
        Error::Rejected { reason, .. } if reason.code == ReasonCode::BAD_METHOD => {
            "use an authentication method that the broker supports: -u with --password-file, or -C and -K"
        }
        Error::Rejected { reason, .. } if reason.code == ReasonCode::BAD_CLIENT_ID => {
            "use another client id: -i ID"
        }
        Error::Rejected { reason, .. } if reason.names_server() => {
            "connect to the server that the broker names: -b mqtt://HOST:PORT"
        }
        Error::Rejected { reason, .. } if reason.is_about_connections() => {
            "close connections that are not needed, or raise `mqkv serve --connections-max N`"
        }
        Error::Rejected { reason, .. } if reason.code == ReasonCode::QUOTA_EXCEEDED => {
            "close other connections of this client, or raise the limits of the broker"
        }
        Error::Rejected { reason, .. } if reason.is_transient() => "try again later, or use --retries N",
        Error::Rejected { reason, identity: Some(identity), .. }
            if reason.code == ReasonCode::NOT_AUTHORIZED =>
        {
            return Some(if reason.is_by_rules() {
                format!("the rules of the broker need one with the method Connect for {identity}")
            } else {
                format!(
                    "check the credentials, and whether the rules of the broker allow {identity} to connect"
                )
            });
        }
        Error::Rejected { reason, .. } if reason.is_authorization() => {
            "authenticate with -u NAME and --password-file FILE, with --sat-file FILE, or with -C and -K"
        }
        Error::PublishRefused { reason } if reason.is_authorization() => {
            return Some(format!(
                "the rules of the broker must allow this user (-u) or client id (-i) to publish to {}, and to receive \
                 the response on {}",
                topic::REQUEST,
                topic::response("CLIENT-ID")
            ));
        }
        Error::SubscribeRefused { reason, .. } if reason.is_authorization() => {
            "the rules of the broker must allow this user (-u) or client id (-i) to subscribe to that topic"
        }
        Error::Denied(denial) => return Some(hint_of_denial(denial)),
        Error::Refused(refusal) => return hint_of_refusal(refusal).map(str::to_owned),
        Error::ClockSkew { .. } => CLOCK_HINT,
        Error::TooLarge { .. } => "use a smaller value, or several keys",
        Error::EmptyPattern => "use '*' to match every key",
        _ => return None,
    };
    Some(hint.to_owned())
}

fn hint_of_tls(cause: &TlsError) -> Option<&'static str> {
    match cause {
        TlsError::Expired { .. } | TlsError::NotValidYet { .. } => {
            Some("renew the broker's certificate, or correct the clock of this machine")
        }
        TlsError::UnknownCa { .. } => Some("trust the CA that signed it: -T FILE, or MQKV_CAFILE=FILE"),
        TlsError::WrongName { .. } => Some("use a name of the certificate: -n NAME, or --server-name NAME"),
        TlsError::ClientCertificateRequired => {
            Some("use a client certificate: -C FILE with the certificate, -K FILE with its key")
        }
        TlsError::ClientCertificateRejected { .. } => {
            Some("use a valid certificate of a CA that the broker trusts: -C and -K")
        }
        TlsError::HandshakeRefused(_) => Some("if the broker requires a client certificate: -C and -K"),
        TlsError::Required => Some("use TLS: -b mqtts://HOST:PORT, or -n without --notls"),
        TlsError::NotTls | TlsError::Interrupted(_) => {
            Some("check the port; without TLS: -b mqtt://HOST:PORT or --notls")
        }
        TlsError::TimedOut(_) => Some(
            "the server is stopped or overloaded, or the port is wrong; without TLS: -b mqtt://HOST:PORT or --notls",
        ),
        TlsError::CaCertificate => Some("trust this certificate itself: -T FILE, or MQKV_CAFILE=FILE"),
        TlsError::Certificate(_) => Some("the broker needs a certificate in X.509 version 3"),
        TlsError::Other(_) => None,
    }
}

fn hint_of_web_socket(cause: &WebSocketError) -> Option<&'static str> {
    match cause {
        WebSocketError::Status(_) => Some("check the path: -b ws://HOST:PORT/PATH; the default is /mqtt"),
        WebSocketError::NoSubprotocol => Some("check the port and the path: -b ws://HOST:PORT/PATH"),
        WebSocketError::NotHttp | WebSocketError::Interrupted(_) => {
            Some("check the port; with TLS: wss://, without WebSockets: mqtt://")
        }
        WebSocketError::TimedOut(_) => Some(
            "the server is stopped or overloaded, or the port is wrong; with TLS: wss://, without WebSockets: mqtt://",
        ),
        WebSocketError::Other(_) => None,
    }
}

/// Returns how to raise the limit of the system that an error is about.
#[must_use]
pub fn limit_hint(cause: &io::Error) -> Option<&'static str> {
    // These numbers are the same on every Unix.
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    match cause.raw_os_error() {
        Some(ENFILE | EMFILE) => {
            Some("raise the limit of open files: `ulimit -n`, or LimitNOFILE of the service")
        }
        _ if cause.kind() == io::ErrorKind::WouldBlock => {
            Some("raise the limit of threads: `ulimit -u`, or TasksMax of the service")
        }
        _ => None,
    }
}

const WATCH_LIMIT_HINT: &str = "watch fewer keys at once, or raise `mqkv serve --watches-max N`";

/// The hint for clocks that differ.
pub(super) const CLOCK_HINT: &str = "synchronize the clocks of this machine and of the broker with NTP";

fn hint_of_denial(denial: &Denial) -> String {
    let Denial { identity, method, .. } = denial;
    match method {
        Some(method) => {
            format!("the rules of the store need one with the method {method} for {identity} and this key")
        }
        None => format!("the rules of the store need one for {identity}"),
    }
}

fn hint_of_refusal(refusal: &ErrorReply) -> Option<&'static str> {
    match refusal {
        ErrorReply::TimestampTooFarAhead => Some(CLOCK_HINT),
        ErrorReply::FenceTooFarAhead => Some("use a token of the store, and synchronize the clocks with NTP"),
        ErrorReply::FenceRequired => Some("use the token of the lock's holder: --fence TOKEN"),
        ErrorReply::FenceTooOld => {
            Some("acquire the lock again: another client has held it since this token")
        }
        ErrorReply::QuotaExceeded => Some("delete unused keys, or let them expire (--ttl)"),
        ErrorReply::ValueTooLong => Some("use a smaller value, or several keys"),
        ErrorReply::RootOnly => Some("change it at the root, or let leaves change it by a rule of the root"),
        ErrorReply::NotJoined => Some(
            "wait until it is linked (mqkv exchange status --wait 30s), or set before_join = \"accept\" in its file",
        ),
        ErrorReply::NotReplicated => {
            Some("use a key that takes no part in the exchange; `mqkv exchange key KEY` shows its rule")
        }
        ErrorReply::NotPersisted => Some("see the log of the store: its disk is full or has failed"),
        ErrorReply::DiskFull => Some("delete keys, or make room on the disk of the store"),
        ErrorReply::ScanInterrupted => Some("run the command again: keys have other positions now"),
        ErrorReply::NotAuthorized => {
            Some("no rule of the store permits it: check the user (-u), the client id (-i) and the key")
        }
        ErrorReply::UnknownCommand => {
            Some("commands are GET, SET, DEL, VDEL, KEYNOTIFY, SCAN, in upper case")
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
    fn authentication_and_authorization_errors_exit_with_77() {
        let rejected = |code| Error::Rejected {
            target: "h:1".into(),
            reason: reason(code),
            identity: None,
            token: None,
        };
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
    fn a_refused_connection_to_the_port_of_tls_does_not_suggest_a_server_without_tls() {
        let hint = |scheme, target: &str| {
            let (target, cause) = (target.into(), Error::CONNECTION_REFUSED.into());
            hint(&Error::Connect { target, scheme, cause }).unwrap()
        };
        let without_tls = "check the port; without TLS: -b mqtt://HOST[:PORT] or --notls";
        assert_eq!(hint("mqtts", "localhost:8883"), without_tls);
        assert_eq!(hint("mqtts", "localhost:8884"), without_tls);
        assert_eq!(hint("mqtt", "localhost:8883"), without_tls);
        assert!(hint("mqtt", "localhost:8884").contains("`mqkv serve --listen localhost:8884`"));
        assert!(hint("ws", "localhost:8884").contains("`mqkv serve --listen ws://localhost:8884`"));
        assert_eq!(hint("wss", "localhost:8884"), "check the port; without TLS: -b ws://HOST:PORT");
    }

    #[test]
    fn a_client_that_has_authenticated_is_not_asked_to_authenticate() {
        let hint = |text: &str, identity: Option<&str>| {
            let reason = ReasonCode { code: ReasonCode::NOT_AUTHORIZED, text: Some(text.to_owned()) };
            let identity = identity.map(Into::into);
            let error =
                CommandError::from(Error::Rejected { target: "h:1".into(), reason, identity, token: None });
            error.hints.concat()
        };
        assert!(hint("authentication required", None).starts_with("authenticate with -u NAME"));
        let ann = Some("user ann");
        assert_eq!(
            hint("no rule permits this client to connect", ann),
            "the rules of the broker need one with the method Connect for user ann"
        );
        assert!(hint("unknown token", ann).starts_with("check the credentials, and whether"));
    }

    #[test]
    fn a_refused_write_has_no_effect_and_a_lost_one_an_unknown_outcome() {
        let refused = CommandError::from(Error::Refused(ErrorReply::FenceRequired));
        assert_eq!(refused.outcome, Some(Outcome::Unchanged));
        assert!(refused.hints[0].contains("--fence"));
        let lost = CommandError::from(Error::Lost {
            target: "h:1".into(),
            cause: "reset".to_owned().into(),
            outcome: Outcome::Unknown,
        });
        assert_eq!((lost.kind, lost.outcome), (Kind::Unavailable, Some(Outcome::Unknown)));
        assert!(lost.is_retryable() && !refused.is_retryable());
        for (refusal, outcome) in
            [(ErrorReply::NotPersisted, Outcome::Unknown), (ErrorReply::DiskFull, Outcome::Unchanged)]
        {
            let disk = CommandError::from(Error::Refused(refusal));
            assert_eq!((disk.kind, disk.outcome), (Kind::Refused, Some(outcome)));
            assert!(disk.is_retryable());
        }
    }

    #[test]
    fn an_exhausted_limit_of_the_system_has_a_hint() {
        let hints = |cause: io::Error| CommandError::system("start a thread", &cause).hints;
        let threads = hints(io::ErrorKind::WouldBlock.into());
        assert_eq!(threads, ["raise the limit of threads: `ulimit -u`, or TasksMax of the service"]);
        assert!(hints(io::ErrorKind::PermissionDenied.into()).is_empty());
    }

    #[test]
    fn a_refused_connection_to_this_machine_suggests_serve() {
        let suggests = |target: &str, cause: &str| {
            let error = Error::Connect { target: target.into(), scheme: "mqtt", cause: cause.into() };
            CommandError::from(error).hints[0].contains("mqkv serve")
        };
        assert!(suggests("localhost:1883", Error::CONNECTION_REFUSED));
        assert!(!suggests("localhost:1883", "connection closed by the other side"));
        assert!(!suggests("plant.example:1883", Error::CONNECTION_REFUSED));
    }
}

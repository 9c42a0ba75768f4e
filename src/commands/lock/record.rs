//! Records of `lock`.

use std::time::Duration;

use serde::Serialize;

use crate::client::lock::LossReason;
use crate::commands::duration;
use crate::protocol::{Key, Timestamp, Value};
use crate::render::escape::escape;
use crate::render::json::{self, Json};
use crate::render::{Format, Record, Rendered, Style, Widths, hint, name, negative, notice, warning};

/// The lock is acquired. Not emitted if a command runs under it.
#[derive(Debug, Serialize)]
#[serde(tag = "op", rename = "lock")]
pub struct Locked {
    #[serde(flatten, serialize_with = "json::key")]
    pub key: Key,
    pub acquired: bool,
    #[serde(flatten, serialize_with = "json::holder")]
    pub holder: Value,
    #[serde(serialize_with = "json::display")]
    pub token: Timestamp,
    pub ttl_ms: u64,
    #[serde(skip)]
    pub held_until: HeldUntil,
}

/// What ends a lock that `lock` holds without a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeldUntil {
    /// The end of the lease, which is not renewed, or `unlock`.
    LeaseEnd,
    /// The end of input, or a signal.
    InputEnd,
    Signal,
}

/// Another client holds the lock, which is waited for.
#[derive(Debug)]
pub struct LockWaiting {
    pub key: Key,
    pub holder: Value,
    /// The time since the last renewal, if it is longer than a lease lasts.
    pub unrenewed: Option<Duration>,
}

/// The lock is not acquired.
#[derive(Debug, Serialize)]
#[serde(tag = "op", rename = "lock")]
pub struct LockHeld {
    #[serde(flatten, serialize_with = "json::key")]
    pub key: Key,
    pub acquired: bool,
    /// None if the lock has become free since.
    #[serde(flatten, serialize_with = "json::holder")]
    pub holder: Option<Value>,
    /// As for [`LockWaiting`].
    #[serde(rename = "unrenewed_ms", skip_serializing_if = "Option::is_none", serialize_with = "json::ms")]
    pub unrenewed: Option<Duration>,
}

/// A warning of `lock`.
#[derive(Debug)]
pub struct LockNote {
    pub key: Key,
    pub cause: NoteCause,
}

/// The cause of a warning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoteCause {
    /// The lock was lost while the command keeps running (`--no-kill`).
    Lost { reason: LossReason },
    /// The file does not contain the newest fencing token.
    TokenFile { cause: String },
    /// The store has not answered the first attempt to acquire the lock; more attempts follow.
    Unanswered { cause: String },
    /// The wait for the lock has lasted a while, and has no limit.
    NoLimit { holder: Value },
    /// The command, or this process without one, was asked to suspend (Ctrl-Z), and continues.
    NotSuspended { has_command: bool },
    /// The store has not confirmed the release.
    Unconfirmed {
        cause: String,
        /// The time after which the lease has ended, in milliseconds.
        ttl_ms: u64,
    },
}

impl Record for Locked {
    fn json(&self, json: &Json<'_>) -> Rendered {
        json.data(self)
    }

    fn text(&self, style: &Style, _: &mut Widths) -> Rendered {
        let (key, holder, token) =
            (name(&self.key), escape(&self.holder), escape(self.token.to_text().as_bytes()));
        if style.format != Format::Text {
            let is_lease = self.held_until == HeldUntil::LeaseEnd;
            return Rendered::stdout(if is_lease {
                format!("{token}\t{holder}\n")
            } else {
                format!("{token}\n")
            });
        }
        let (lease, release) = match self.held_until {
            HeldUntil::LeaseEnd => (
                format!(" for {}", duration::of_ms(self.ttl_ms)),
                format!(": mqkv unlock {key} --holder {holder}"),
            ),
            HeldUntil::InputEnd => (String::new(), " the end of input (Ctrl-D) or a signal".to_owned()),
            HeldUntil::Signal => (String::new(), " a signal".to_owned()),
        };
        Rendered::stdout(format!(
            "locked {key}{lease} as {holder}, token {token}\nrelease it with{release}\n"
        ))
    }

    fn key(&self) -> Option<&Key> {
        Some(&self.key)
    }
}

impl LockWaiting {
    fn message(&self) -> String {
        format!("waiting for {}, held by {}", name(&self.key), escape(&self.holder))
    }
}

impl Record for LockWaiting {
    fn json(&self, json: &Json<'_>) -> Rendered {
        json.message(&Note::new("lock-waiting", &self.key, self.message()))
    }

    fn text(&self, style: &Style, _: &mut Widths) -> Rendered {
        let message = self.message();
        match self.unrenewed {
            None => notice(&message, style),
            Some(unrenewed) => notice(&format!("still {message}\n{}", overdue(unrenewed)), style),
        }
    }
}

impl Record for LockHeld {
    fn json(&self, json: &Json<'_>) -> Rendered {
        json.data(self)
    }

    fn text(&self, style: &Style, _: &mut Widths) -> Rendered {
        let key = name(&self.key);
        let first = match &self.holder {
            Some(holder) => format!("{key} is held by {}", escape(holder)),
            None => format!("{key} was held by another client until now"),
        };
        let rest = match self.unrenewed {
            Some(unrenewed) => format!("\n{}", overdue(unrenewed)),
            None if style.verbose && self.holder.is_some() => {
                "\n  the end of the lease is unknown: the protocol has no request for it".to_owned()
            }
            None => String::new(),
        };
        negative(&format!("{first}{rest}"), style)
    }

    fn key(&self) -> Option<&Key> {
        Some(&self.key)
    }
}

fn overdue(unrenewed: Duration) -> String {
    let unrenewed = duration::of_ms(unrenewed.as_secs().max(1).saturating_mul(1000));
    format!("  not renewed for {unrenewed}: the key may be an ordinary value, not a lock")
}

impl LockNote {
    fn kind(&self) -> &'static str {
        match self.cause {
            NoteCause::Lost { .. } => "lock-lost",
            NoteCause::TokenFile { .. } => "token-file",
            NoteCause::Unanswered { .. } => "lock-unanswered",
            NoteCause::NoLimit { .. } => "lock-wait-unlimited",
            NoteCause::NotSuspended { .. } => "lock-not-suspended",
            NoteCause::Unconfirmed { .. } => "release-unconfirmed",
        }
    }

    fn message(&self) -> String {
        let key = name(&self.key);
        match &self.cause {
            NoteCause::Lost { reason: LossReason::NotRenewed } => {
                format!("lock lost: {key}: the lease could not be renewed; the command keeps running")
            }
            NoteCause::Lost { reason: LossReason::Taken } => {
                format!(
                    "lock lost: {key}: the store reports that it has another holder or none; the command keeps running"
                )
            }
            NoteCause::TokenFile { cause } => {
                format!("token file not updated: {}", escape(cause.as_bytes()))
            }
            NoteCause::Unanswered { cause } => {
                format!("no answer, still waiting for {key}: {}", escape(cause.as_bytes()))
            }
            NoteCause::NoLimit { holder } => format!(
                "still waiting for {key}, held by {}: the wait has no limit, and the value may be no lock",
                escape(holder)
            ),
            NoteCause::NotSuspended { has_command } => {
                let what = if *has_command { "the command" } else { "mqkv" };
                format!("{what} continues after Ctrl-Z: it holds the lock {key}")
            }
            NoteCause::Unconfirmed { cause, ttl_ms } => format!(
                "release of {key} not confirmed, it becomes free within {}: {}",
                duration::of_ms(*ttl_ms),
                escape(cause.as_bytes())
            ),
        }
    }
}

impl Record for LockNote {
    fn json(&self, json: &Json<'_>) -> Rendered {
        json.warning(&Note::new(self.kind(), &self.key, self.message()))
    }

    fn text(&self, style: &Style, _: &mut Widths) -> Rendered {
        let mut rendered = warning(&self.message(), style);
        let what_to_do = match self.cause {
            NoteCause::NotSuspended { .. } => Some("Ctrl-C ends it"),
            NoteCause::NoLimit { .. } => Some("-w 10m limits the wait"),
            _ => None,
        };
        if let Some(text) = what_to_do {
            rendered.stderr.push_str(&hint(text, style).stderr);
        }
        rendered
    }
}

/// The JSON object of a message about a lock.
#[derive(Serialize)]
struct Note<'a> {
    note: Members<'a>,
}

#[derive(Serialize)]
struct Members<'a> {
    kind: &'static str,
    #[serde(flatten, serialize_with = "json::key")]
    key: &'a Key,
    message: String,
}

impl<'a> Note<'a> {
    fn new(kind: &'static str, key: &'a Key, message: String) -> Self {
        Self { note: Members { kind, key, message } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::shown;

    fn key() -> Key {
        Key::new("deploy").unwrap()
    }

    fn locked(held_until: HeldUntil) -> Locked {
        let (holder, token) = ("ci 17".into(), Timestamp::of_store(5, 1));
        Locked { key: key(), acquired: true, holder, token, ttl_ms: 30_000, held_until }
    }

    #[test]
    fn waiting_is_reported_unless_quiet() {
        let waiting = LockWaiting { key: key(), holder: "connector-0".into(), unrenewed: None };
        let message = |style: &Style| shown(&waiting, style).1;
        assert_eq!(message(&Style::PLAIN), "waiting for deploy, held by connector-0\n");
        assert_eq!(message(&Style::LINES), "waiting for deploy, held by connector-0\n");
        assert_eq!(message(&Style::QUIET), "");
        let silent = LockWaiting { unrenewed: Some(Duration::from_secs(31)), ..waiting };
        assert_eq!(
            shown(&silent, &Style::PLAIN).1,
            "still waiting for deploy, held by connector-0\n  not renewed for 31s: the key may be an ordinary value, not a lock\n"
        );
    }

    #[test]
    fn a_holder_that_is_not_renewed_may_be_an_ordinary_value() {
        let unrenewed = Some(Duration::from_millis(30_400));
        let held = LockHeld { key: key(), acquired: false, holder: Some("21.5\x1b[2J".into()), unrenewed };
        assert_eq!(
            shown(&held, &Style::PLAIN).1,
            "error: deploy is held by 21.5\\x1B[2J\n  not renewed for 30s: the key may be an ordinary value, not a lock\n"
        );
    }

    #[test]
    fn the_token_is_the_first_column_in_a_pipe() {
        let line = |held_until| shown(&locked(held_until), &Style::LINES).0;
        assert_eq!(line(HeldUntil::Signal), "000000000000005:00001:StateStore\n");
        assert_eq!(line(HeldUntil::LeaseEnd), "000000000000005:00001:StateStore\tci 17\n");
    }

    #[test]
    fn a_lock_is_acquired_or_has_another_holder() {
        assert_eq!(
            shown(&locked(HeldUntil::Signal), &Style::JSON).0,
            "{\"v\":1,\"op\":\"lock\",\"key\":\"deploy\",\"acquired\":true,\"holder\":\"ci 17\",\
             \"token\":\"000000000000005:00001:StateStore\",\"ttl_ms\":30000}\n"
        );
        let held = LockHeld { key: key(), acquired: false, holder: Some("ci".into()), unrenewed: None };
        assert_eq!(
            shown(&held, &Style::JSON).0,
            "{\"v\":1,\"op\":\"lock\",\"key\":\"deploy\",\"acquired\":false,\"holder\":\"ci\"}\n"
        );
    }

    #[test]
    fn warnings_go_to_standard_error() {
        let cause = NoteCause::Unconfirmed { cause: "no answer".into(), ttl_ms: 30_000 };
        let (stdout, stderr) = shown(&LockNote { key: key(), cause }, &Style::JSON);
        assert_eq!(stdout, "");
        assert_eq!(
            stderr,
            "{\"v\":1,\"note\":{\"kind\":\"release-unconfirmed\",\"key\":\"deploy\",\
             \"message\":\"release of deploy not confirmed, it becomes free within 30s: no answer\"}}\n"
        );
    }
}

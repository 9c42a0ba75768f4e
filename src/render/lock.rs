//! Records of the verbs of locks as text.

use std::time::Duration;

use super::escape::escape;
use super::style::{Paint, paint};
use super::{Rendered, Style};
use crate::commands::duration;
use crate::commands::output::{DeleteOutcome, HeldUntil, LockNote, LossReason, VersionedValue};
use crate::protocol::{Key, Timestamp, Value};

/// Formats an acquired lock for a terminal.
pub fn locked(key: &Key, holder: &Value, token: &Timestamp, ttl_ms: u64, held_until: HeldUntil) -> Rendered {
    let (key, holder, token) = (name(key), escape(holder), escape(token.to_string().as_bytes()));
    let (lease, release) = match held_until {
        HeldUntil::LeaseEnd => {
            (format!(" for {}", duration::of_ms(ttl_ms)), format!(": mqkv unlock {key} --holder {holder}"))
        }
        HeldUntil::InputEnd => (String::new(), " the end of input (Ctrl-D) or a signal".to_owned()),
        HeldUntil::Signal => (String::new(), " a signal".to_owned()),
    };
    Rendered::stdout(format!("locked {key}{lease} as {holder}, token {token}\nrelease it with{release}\n"))
}

/// Formats an acquired lock for a pipe.
pub fn locked_line(holder: &Value, token: &Timestamp, held_until: HeldUntil) -> Rendered {
    let token = escape(token.to_string().as_bytes());
    let is_lease = held_until == HeldUntil::LeaseEnd;
    Rendered::stdout(if is_lease { format!("{token}\t{}\n", escape(holder)) } else { format!("{token}\n") })
}

/// Formats the holder of a lock that is waited for.
pub fn waiting(key: &Key, holder: &Value, unrenewed: Option<Duration>, style: &Style) -> Rendered {
    if style.quiet {
        return Rendered::default();
    }
    let text = waiting_text(key, holder);
    Rendered::stderr(match unrenewed {
        None => format!("{text}\n"),
        Some(unrenewed) => format!("still {text}\n{}", overdue_text(unrenewed)),
    })
}

/// Returns the text about a lock that is waited for.
pub fn waiting_text(key: &Key, holder: &Value) -> String {
    format!("waiting for {}, held by {}", name(key), escape(holder))
}

/// Formats the holder of a lock that was not acquired.
pub fn held(key: &Key, holder: Option<&Value>, unrenewed: Option<Duration>, style: &Style) -> Rendered {
    if style.quiet {
        return Rendered::default();
    }
    let key = name(key);
    let first = match holder {
        Some(holder) => format!("{key} is held by {}", escape(holder)),
        None => format!("{key} was held by another client until now"),
    };
    let rest = match unrenewed {
        Some(unrenewed) => overdue_text(unrenewed),
        None if style.verbose && holder.is_some() => {
            "  the end of the lease is unknown: the protocol has no request for it\n".to_owned()
        }
        None => String::new(),
    };
    Rendered::stderr(format!("{} {first}\n{rest}", paint("error:", Paint::Error, style.color_stderr)))
}

fn overdue_text(unrenewed: Duration) -> String {
    let unrenewed = duration::of_ms(unrenewed.as_secs().max(1).saturating_mul(1000));
    format!("  not renewed for {unrenewed}: the key may be an ordinary value, not a lock\n")
}

/// Formats a warning.
pub fn note(key: &Key, note: &LockNote, style: &Style) -> Rendered {
    if style.quiet {
        return Rendered::default();
    }
    let label = paint("warning:", Paint::Warning, style.color_stderr);
    Rendered::stderr(format!("{label} {}\n", note_text(key, note)))
}

/// Returns the text of a warning.
pub fn note_text(key: &Key, note: &LockNote) -> String {
    let key = name(key);
    match note {
        LockNote::Lost { reason: LossReason::NotRenewed } => {
            format!("lock lost: {key}: the lease could not be renewed; the command keeps running")
        }
        LockNote::Lost { reason: LossReason::Taken } => {
            format!(
                "lock lost: {key}: the store reports that it has another holder or none; the command keeps running"
            )
        }
        LockNote::TokenFile { cause } => {
            format!("token file not updated: {}", escape(cause.as_bytes()))
        }
        LockNote::Unanswered { cause } => {
            format!("no answer, still waiting for {key}: {}", escape(cause.as_bytes()))
        }
        LockNote::Unconfirmed { cause, ttl_ms } => format!(
            "release of {key} not confirmed, it becomes free within {}: {}",
            duration::of_ms(*ttl_ms),
            escape(cause.as_bytes())
        ),
    }
}

/// Returns why `unlock` has released nothing.
pub fn not_unlocked(key: &Key, holder: &Value, outcome: &DeleteOutcome) -> Option<String> {
    let key = name(key);
    match outcome {
        DeleteOutcome::Deleted { .. } => None,
        DeleteOutcome::Missing => Some(format!("not released: {key} is free")),
        DeleteOutcome::ValueDiffers { .. } => {
            Some(format!("not released: {key} is not held by {}", escape(holder)))
        }
    }
}

/// Returns the holder of a lock.
pub fn holder(found: Option<&VersionedValue>) -> Option<String> {
    found.map(|found| escape(&found.value))
}

fn name(key: &Key) -> String {
    escape(key.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    const STYLE: Style = Style { stderr_is_terminal: true, ..Style::PLAIN };

    fn key() -> Key {
        Key::new("deploy").unwrap()
    }

    #[test]
    fn waiting_is_reported_unless_quiet() {
        let message = |style: &Style| waiting(&key(), &"connector-0".into(), None, style).stderr;
        assert_eq!(message(&STYLE), "waiting for deploy, held by connector-0\n");
        assert_eq!(message(&Style::PLAIN), "waiting for deploy, held by connector-0\n");
        assert_eq!(message(&Style { quiet: true, ..STYLE }), "");
    }

    #[test]
    fn a_holder_that_is_not_renewed_may_be_an_ordinary_value() {
        let silent = Some(Duration::from_millis(30_400));
        let message = held(&key(), Some(&"21.5\x1b[2J".into()), silent, &STYLE).stderr;
        assert_eq!(
            message,
            "error: deploy is held by 21.5\\x1B[2J\n  not renewed for 30s: the key may be an ordinary value, not a lock\n"
        );
    }

    #[test]
    fn the_token_is_the_first_column_in_a_pipe() {
        let token = Timestamp::of_store(5, 1);
        let line = |held_until| locked_line(&"ci 17".into(), &token, held_until).stdout;
        assert_eq!(line(HeldUntil::Signal), "000000000000005:00001:StateStore\n");
        assert_eq!(line(HeldUntil::LeaseEnd), "000000000000005:00001:StateStore\tci 17\n");
    }
}

//! What the verbs of locks say, for people.

use std::time::Duration;

use super::escape::escape;
use super::{Rendered, Style};
use crate::commands::duration;
use crate::commands::output::{DeleteOutcome, LockNote, LossReason, VersionedValue};
use crate::protocol::{Key, Timestamp, Value};

/// A lock that is held now.
pub fn locked(key: &Key, holder: &Value, token: &Timestamp, ttl_ms: u64, once: bool) -> Rendered {
    let (key, holder, token) = (name(key), escape(holder), escape(token.to_string().as_bytes()));
    Rendered::stdout(if once {
        let lease = duration::of_ms(ttl_ms);
        format!(
            "locked {key} for {lease} as {holder}, token {token}\nto release it: mqkv unlock {key} --holder {holder}\n"
        )
    } else {
        format!(
            "locked {key} as {holder}, token {token}\nthe end of input (Ctrl-D) or a signal releases it\n"
        )
    })
}

/// The same for a pipe: what a script reads.
pub fn locked_line(holder: &Value, token: &Timestamp, once: bool) -> Rendered {
    let token = escape(token.to_string().as_bytes());
    Rendered::stdout(if once { format!("{token}\t{}\n", escape(holder)) } else { format!("{token}\n") })
}

/// Somebody else holds the lock, and waiting for it takes time. Nobody wants to read this in a log.
pub fn waiting(key: &Key, holder: &Value, unrenewed: Option<Duration>, style: &Style) -> Rendered {
    if style.quiet || !(style.stderr_is_terminal || style.verbose) {
        return Rendered::default();
    }
    let (key, holder) = (name(key), escape(holder));
    Rendered::stderr(match unrenewed {
        None => format!("waiting for {key}, held by {holder}\n"),
        Some(silent) => format!("still waiting for {key}, held by {holder}\n{}", without_end(silent)),
    })
}

/// Somebody else holds the lock, and that is that.
pub fn held(key: &Key, holder: Option<&Value>, unrenewed: Option<Duration>, style: &Style) -> Rendered {
    if style.quiet {
        return Rendered::default();
    }
    let key = name(key);
    let first = match holder {
        Some(holder) => format!("{key} is held by {}\n", escape(holder)),
        None => format!("{key} was held by somebody else until just now\n"),
    };
    let rest = match unrenewed {
        Some(silent) => without_end(silent),
        None if style.verbose && holder.is_some() => {
            "  until when is not known: the store does not tell how long a lease lasts\n".to_owned()
        }
        None => String::new(),
    };
    Rendered::stderr(first + &rest)
}

fn without_end(silent: Duration) -> String {
    let silent = duration::of_ms(silent.as_secs().saturating_mul(1000));
    format!(
        "  not renewed for {silent}: it has no end that we know of, and may be an ordinary value and no lock at all\n"
    )
}

/// What `lock` has to say beside the matter.
pub fn note(key: &Key, note: &LockNote, style: &Style) -> Rendered {
    if style.quiet {
        return Rendered::default();
    }
    Rendered::stderr(format!("{}\n", note_text(key, note)))
}

/// The same as a sentence.
pub fn note_text(key: &Key, note: &LockNote) -> String {
    let key = name(key);
    match note {
        LockNote::Lost { reason: LossReason::NotRenewed } => {
            format!("the lock {key} is about to be lost: its lease could not be renewed; the command runs on")
        }
        LockNote::Lost { reason: LossReason::Taken } => {
            format!("the lock {key} is lost: the store says that it is not ours; the command runs on")
        }
        LockNote::TokenFile { cause } => {
            format!("the file with the fencing token is not the newest: {}", escape(cause.as_bytes()))
        }
        LockNote::Unconfirmed { cause, ttl_ms } => format!(
            "{key} may not be released, but will be free within {}: {}",
            duration::of_ms(*ttl_ms),
            escape(cause.as_bytes())
        ),
    }
}

/// Why an `unlock` has released nothing.
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

/// Who holds a lock; none where nobody does.
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
    fn who_waits_in_a_log_says_nothing() {
        let told = |style: &Style| waiting(&key(), &"connector-0".into(), None, style).stderr;
        assert_eq!(told(&STYLE), "waiting for deploy, held by connector-0\n");
        assert_eq!(told(&Style { stderr_is_terminal: false, ..STYLE }), "");
        let verbose = Style { stderr_is_terminal: false, verbose: true, ..STYLE };
        assert_eq!(told(&verbose), "waiting for deploy, held by connector-0\n");
        assert_eq!(told(&Style { quiet: true, ..STYLE }), "");
    }

    #[test]
    fn a_holder_that_is_never_renewed_may_be_no_lock_at_all() {
        let silent = Some(Duration::from_millis(30_400));
        let told = held(&key(), Some(&"21.5\x1b[2J".into()), silent, &STYLE).stderr;
        assert_eq!(
            told,
            "deploy is held by 21.5\\x1B[2J\n  not renewed for 30s: it has no end that we know of, \
             and may be an ordinary value and no lock at all\n"
        );
    }

    #[test]
    fn a_script_reads_the_token_first() {
        let token = Timestamp::of_store(5, 1);
        let line = |once| locked_line(&"ci 17".into(), &token, once).stdout;
        assert_eq!(line(false), "000000000000005:00001:StateStore\n");
        assert_eq!(line(true), "000000000000005:00001:StateStore\tci 17\n");
    }
}

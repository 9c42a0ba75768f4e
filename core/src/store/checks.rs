//! Checks of a request, in the order of protocol §5: lengths, timestamps, authorization, fence, condition.

use super::authorization::KeySet;
use super::limits::Limits;
use crate::protocol::timestamp::TimestampError;
use crate::protocol::{Condition, ErrorReply, Key, Timestamp, Value};

pub(super) fn check_key_length(key: &Key, limits: &Limits) -> Result<(), ErrorReply> {
    let fits = key.as_bytes().len() <= limits.key_bytes_max;
    fits.then_some(()).ok_or(ErrorReply::KeyTooLong)
}

pub(super) fn check_lengths(key: &Key, value: &Value, limits: &Limits) -> Result<(), ErrorReply> {
    check_key_length(key, limits)?;
    let fits = value.len() <= limits.value_bytes_max;
    fits.then_some(()).ok_or(ErrorReply::ValueTooLong)
}

/// Returns the `__ts` of a SET. Other requests do not need it, and their `__ts` is ignored (protocol §0 row 8).
pub(super) fn check_timestamp(
    timestamp: Option<Result<Timestamp, TimestampError>>,
    wall_ms: u64,
) -> Result<Timestamp, ErrorReply> {
    let timestamp =
        timestamp.ok_or(ErrorReply::MissingTimestamp)?.map_err(|_| ErrorReply::MalformedTimestamp)?;
    if timestamp.is_too_far_ahead(wall_ms) {
        return Err(ErrorReply::TimestampTooFarAhead);
    }
    Ok(timestamp)
}

/// Returns the `__ft` of a write, which is one of the timestamps: [`evaluate`] compares it with the stored one.
pub(super) fn check_fence(
    fence: Option<Result<Timestamp, TimestampError>>,
    wall_ms: u64,
) -> Result<Option<Timestamp>, ErrorReply> {
    let fence = fence.transpose().map_err(|_| ErrorReply::MalformedTimestamp)?;
    if fence.as_ref().is_some_and(|fence| fence.is_too_far_ahead(wall_ms)) {
        return Err(ErrorReply::FenceTooFarAhead);
    }
    Ok(fence)
}

/// Rejects a request for a key outside of `keys`; `None` stands for a server without rules.
pub(super) fn check_permission(keys: Option<&KeySet>, key: &Key) -> Result<(), ErrorReply> {
    match keys {
        Some(keys) if !keys.contains(key.as_bytes()) => Err(ErrorReply::NotAuthorized),
        _ => Ok(()),
    }
}

/// A write that a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Write<'a> {
    /// Write this value, under a condition.
    Set(Option<Condition>, &'a [u8]),
    /// Delete the key.
    Del,
    /// Delete the key if it holds this value.
    VDel(&'a [u8]),
}

/// What the key holds before the write.
#[derive(Clone, Copy, Debug)]
pub(super) struct CurrentEntry<'a> {
    pub(super) value: &'a [u8],
    pub(super) fence: Option<&'a Timestamp>,
}

/// Verdict on a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Apply,
    ConditionFailed,
    /// There is no key to delete.
    Absent,
    /// The fencing token is missing or stale.
    Reject(ErrorReply),
}

/// Evaluates a write. The fence comes before the condition, so that a holder with a stale token learns that
/// it has lost its lease (protocol §5).
pub(super) fn evaluate(
    write: Write<'_>,
    token: Option<&Timestamp>,
    current: Option<CurrentEntry<'_>>,
) -> Verdict {
    let error = match (current.and_then(|current| current.fence), token) {
        (Some(_), None) => Some(ErrorReply::FenceRequired),
        (Some(stored), Some(token)) if token < stored => Some(ErrorReply::FenceTooOld),
        _ => None,
    };
    if let Some(error) = error {
        return Verdict::Reject(error);
    }
    match (write, current) {
        (Write::Set(..), None) | (Write::Set(None, _) | Write::Del, Some(_)) => Verdict::Apply,
        (Write::Set(Some(Condition::Absent), _), Some(_)) => Verdict::ConditionFailed,
        (Write::Set(Some(Condition::AbsentOrEqual), value) | Write::VDel(value), Some(current)) => {
            if value == current.value { Verdict::Apply } else { Verdict::ConditionFailed }
        }
        (Write::Del | Write::VDel(_), None) => Verdict::Absent,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_no_rule_allows_is_rejected_and_without_rules_all_are_allowed() {
        let key = |name: &str| Key::new(name.to_owned()).unwrap();
        assert_eq!(check_permission(None, &key("k")), Ok(()));
        assert_eq!(check_permission(Some(&KeySet::default()), &key("k")), Err(ErrorReply::NotAuthorized));
        let mut some = KeySet::default();
        some.add(b"k");
        assert_eq!(check_permission(Some(&some), &key("k")), Ok(()));
        assert_eq!(check_permission(Some(&some), &key("k2")), Err(ErrorReply::NotAuthorized));
    }

    /// Every write against every state of the key, without a fence.
    #[test]
    fn every_row_of_the_condition_table_holds() {
        use Verdict::{Absent, Apply, ConditionFailed};
        let set = |condition| Write::Set(condition, b"v");
        let rows = [
            // write, key absent, key holds the same value, key holds another value
            (set(None), Apply, Apply, Apply),
            (set(Some(Condition::Absent)), Apply, ConditionFailed, ConditionFailed),
            (set(Some(Condition::AbsentOrEqual)), Apply, Apply, ConditionFailed),
            (Write::Del, Absent, Apply, Apply),
            (Write::VDel(b"v"), Absent, Apply, ConditionFailed),
        ];
        for (write, absent, same, other) in rows {
            for (value, expected) in [(None, absent), (Some(b"v"), same), (Some(b"w"), other)] {
                let current = value.map(|value| CurrentEntry { value, fence: None });
                assert_eq!(evaluate(write, None, current), expected, "{write:?} {current:?}");
            }
        }
    }

    /// Every write with every token against every fence, with a value that meets the condition and one that
    /// does not.
    #[test]
    fn the_fence_is_evaluated_before_the_condition() {
        let stored = Timestamp::of_store(10, 5);
        let [older, newer] = [Timestamp::of_store(10, 4), Timestamp::of_store(10, 6)];
        let rows = [
            (None, None, None),
            (None, Some(&older), None),
            (Some(&stored), None, Some(ErrorReply::FenceRequired)),
            (Some(&stored), Some(&older), Some(ErrorReply::FenceTooOld)),
            (Some(&stored), Some(&stored), None),
            (Some(&stored), Some(&newer), None),
        ];
        let writes = [
            Write::Set(None, b"v"),
            Write::Set(Some(Condition::Absent), b"v"),
            Write::Set(Some(Condition::AbsentOrEqual), b"v"),
            Write::Del,
            Write::VDel(b"v"),
        ];
        for (fence, token, error) in &rows {
            for write in writes {
                for value in [b"v".as_slice(), b"w"] {
                    let current = Some(CurrentEntry { value, fence: *fence });
                    let unfenced = Some(CurrentEntry { value, fence: None });
                    let expected =
                        error.clone().map_or_else(|| evaluate(write, None, unfenced), Verdict::Reject);
                    assert_eq!(evaluate(write, *token, current), expected, "{write:?} {token:?} {current:?}");
                }
            }
        }
    }

    #[test]
    fn tokens_with_equal_times_are_ordered_by_node() {
        let token = |node| format!("10:5:{node}").parse::<Timestamp>().unwrap();
        let (a, b) = (token("a"), token("b"));
        let current = Some(CurrentEntry { value: b"v", fence: Some(&b) });
        assert_eq!(evaluate(Write::Del, Some(&a), current), Verdict::Reject(ErrorReply::FenceTooOld));
        assert_eq!(evaluate(Write::Del, Some(&b), current), Verdict::Apply);
    }
}

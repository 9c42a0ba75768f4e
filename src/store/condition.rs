//! Whether a request may change a key: NX, NEX, VDEL and the fence as one decision table.

use crate::protocol::{Condition, ErrorReply, Timestamp};

/// What a request wants to do to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish<'a> {
    /// Write this value.
    Set(Option<Condition>, &'a [u8]),
    /// Remove the key whatever it holds.
    Del,
    /// Remove the key if it holds this value.
    VDel(&'a [u8]),
}

/// What the key holds at that moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held<'a> {
    pub(super) value: &'a [u8],
    pub(super) fence: Option<&'a Timestamp>,
}

/// What becomes of the wish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// The change is made.
    Apply,
    /// The condition does not hold.
    NotApplied,
    /// There is nothing to remove.
    Absent,
    /// The fence does not let the request through.
    Refuse(ErrorReply),
}

/// Decides: first the fence, so that a stale holder learns the truth, then the condition (protocol §5).
pub(super) fn decide(wish: Wish<'_>, token: Option<&Timestamp>, held: Option<Held<'_>>) -> Decision {
    let refusal = match (held.and_then(|held| held.fence), token) {
        (Some(_), None) => Some(ErrorReply::FenceRequired),
        (Some(stored), Some(token)) if token < stored => Some(ErrorReply::FenceTooOld),
        _ => None,
    };
    if let Some(refusal) = refusal {
        return Decision::Refuse(refusal);
    }
    match (wish, held) {
        (Wish::Set(..), None) | (Wish::Set(None, _) | Wish::Del, Some(_)) => Decision::Apply,
        (Wish::Set(Some(Condition::Absent), _), Some(_)) => Decision::NotApplied,
        (Wish::Set(Some(Condition::AbsentOrEqual), value) | Wish::VDel(value), Some(held)) => {
            if value == held.value { Decision::Apply } else { Decision::NotApplied }
        }
        (Wish::Del | Wish::VDel(_), None) => Decision::Absent,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every wish against every state of the key, where the fence lets it through.
    #[test]
    fn every_row_of_the_condition_table_is_decided() {
        use Decision::{Absent, Apply, NotApplied};
        let set = |condition| Wish::Set(condition, b"v");
        let rows = [
            // wish, key absent, key holds the same value, key holds another value
            (set(None), Apply, Apply, Apply),
            (set(Some(Condition::Absent)), Apply, NotApplied, NotApplied),
            (set(Some(Condition::AbsentOrEqual)), Apply, Apply, NotApplied),
            (Wish::Del, Absent, Apply, Apply),
            (Wish::VDel(b"v"), Absent, Apply, NotApplied),
        ];
        for (wish, absent, same, other) in rows {
            for (value, expected) in [(None, absent), (Some(b"v"), same), (Some(b"w"), other)] {
                let held = value.map(|value| Held { value, fence: None });
                assert_eq!(decide(wish, None, held), expected, "{wish:?} {held:?}");
            }
        }
    }

    /// Every wish with every token against every fence; a value that would pass and one that would not.
    #[test]
    fn every_row_of_the_fence_table_is_decided_before_the_condition() {
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
        let wishes = [
            Wish::Set(None, b"v"),
            Wish::Set(Some(Condition::Absent), b"v"),
            Wish::Set(Some(Condition::AbsentOrEqual), b"v"),
            Wish::Del,
            Wish::VDel(b"v"),
        ];
        for (fence, token, refusal) in &rows {
            for wish in wishes {
                for value in [b"v".as_slice(), b"w"] {
                    let held = Some(Held { value, fence: *fence });
                    let unfenced = Some(Held { value, fence: None });
                    let expected =
                        refusal.clone().map_or_else(|| decide(wish, None, unfenced), Decision::Refuse);
                    assert_eq!(decide(wish, *token, held), expected, "{wish:?} {token:?} {held:?}");
                }
            }
        }
    }

    #[test]
    fn tokens_of_one_moment_are_ordered_by_their_node() {
        let token = |node| format!("10:5:{node}").parse::<Timestamp>().unwrap();
        let (a, b) = (token("a"), token("b"));
        let held = Some(Held { value: b"v", fence: Some(&b) });
        assert_eq!(decide(Wish::Del, Some(&a), held), Decision::Refuse(ErrorReply::FenceTooOld));
        assert_eq!(decide(Wish::Del, Some(&b), held), Decision::Apply);
    }
}

//! The clocks of the members, as they announce them: an instance whose clock is wrong must own nothing.
//!
//! Versions follow the owner's clock and never go back. An owner whose clock is an hour ahead would leave versions behind that all
//! clients refuse for an hour.

use std::collections::BTreeMap;

use super::event::ClusterEvent;
use crate::store::Now;

/// How far the clock of an instance that owns the store may be from the clocks of the others, and behind the head's. An instance at
/// this bound owns nothing until its clock is set right. An ordinary machine does not get there: without any correction for a month,
/// its clock is some 10 s off.
pub const CLOCK_OFF_MS: u64 = 30_000;
/// An announcement of a member counts for this time: some times the one between two.
const FRESH_MS: u64 = 20_000;
/// Without a member whose clock counts, those that have gone count for this time: the loss of the owner does not make the clock of
/// an instance that is left right. An instance at this bound takes over, although its clock or that of the lost one is wrong: it
/// has reported that since, and requests are not answered meanwhile.
pub const GONE_MS: u64 = 600_000;

/// How long the clock of an instance must be off before that is reported, and an owner gives the store up: after a pause, what others
/// have announced meanwhile comes late.
const LASTING_MS: u64 = 2_000;
/// A smaller change of what the clock is off is not shown.
const CHANGE_MS: u64 = 1_000;
/// The step in which the offset to other clocks is shown: announcements are received some milliseconds late.
const SHOWN_STEP_MS: i64 = 100;

/// Whether the clock of this instance is right.
#[derive(Debug, Default)]
pub struct ClockCheck {
    /// What the clock of the machine is ahead of [`Now::wall_ms`], which follows a great step late.
    machine_ahead_ms: i64,
    /// Since when the clock is off, in monotonic milliseconds.
    off_since_ms: Option<u64>,
    /// By how much it is, as reported; 0: it is not.
    off_ms: i64,
    offset_ms: Option<i64>,
}

impl ClockCheck {
    /// Notes what the clock of the machine shows.
    pub fn set_machine_clock(&mut self, wall_ms: u64, now: Now) {
        self.machine_ahead_ms = ahead_ms(wall_ms, now.wall_ms);
    }

    /// Compares the clock of the machine with others, as [`clock_off_ms`] does. Returns what is to be reported.
    pub fn check(
        &mut self,
        head_ms: Option<u64>,
        is_owner: bool,
        others: &OtherClocks,
        now: Now,
    ) -> Option<ClusterEvent> {
        let own_ms = now.wall_ms.saturating_add_signed(self.machine_ahead_ms);
        self.offset_ms = offset_ms(own_ms, others);
        let off_ms = clock_off_ms(own_ms, head_ms, is_owner, others);
        if off_ms == 0 {
            self.off_since_ms = None;
            return (std::mem::take(&mut self.off_ms) != 0).then_some(ClusterEvent::ClockRight);
        }
        let since_ms = *self.off_since_ms.get_or_insert(now.monotonic_ms);
        let is_lasting = since_ms.saturating_add(LASTING_MS) <= now.monotonic_ms;
        if !is_lasting || off_ms.abs_diff(self.off_ms) <= CHANGE_MS {
            return None;
        }
        (std::mem::replace(&mut self.off_ms, off_ms) == 0).then_some(ClusterEvent::ClockOff { off_ms })
    }

    /// Whether the clock is off, so that nothing may be taken over.
    pub fn is_off(&self) -> bool {
        self.off_since_ms.is_some()
    }

    /// Returns by how much the clock has been off for some time; 0: it is not.
    pub fn off_ms(&self) -> i64 {
        self.off_ms
    }

    /// Returns by how much the clock is ahead of the median of the others, or behind it, in steps of 100 ms; `None` without others.
    pub fn offset_ms(&self) -> Option<i64> {
        self.offset_ms
    }

    /// Returns when to check again, in monotonic milliseconds; `None`: when others have announced their clocks.
    pub fn next_deadline(&self) -> Option<u64> {
        self.off_since_ms.filter(|_| self.off_ms == 0).map(|since_ms| since_ms.saturating_add(LASTING_MS))
    }
}

/// Wall clocks of other instances: those of the members, and, for an instance that is no owner, those of the last minutes.
pub type OtherClocks = [Vec<u64>; 2];

/// The last announcements of the members.
#[derive(Debug, Default)]
pub struct Clocks {
    samples: BTreeMap<String, Sample>,
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    /// The announced clock at the reception, in Unix milliseconds.
    wall_ms: u64,
    at_ms: u64,
    /// The revision of etcd that announced it.
    revision: u64,
    /// The same by the announcement before. One of both may have come late.
    earlier: Option<(u64, u64)>,
}

impl Clocks {
    /// Notes an announcement that was received now. One that is read again is as old as it was: its instance may have announced
    /// nothing since, because etcd takes no writes.
    pub fn note(&mut self, instance: String, wall_ms: u64, revision: u64, now: Now) {
        let known = self.samples.get(&instance);
        if known.is_some_and(|known| known.revision == revision) {
            return;
        }
        let earlier = known.map(|sample| (sample.wall_ms, sample.at_ms));
        self.samples.insert(instance, Sample { wall_ms, at_ms: now.monotonic_ms, revision, earlier });
    }

    /// Returns the wall clocks of the other instances now.
    pub fn others(
        &self,
        own: &str,
        is_owner: bool,
        is_member: impl Fn(&str) -> bool,
        now: Now,
    ) -> OtherClocks {
        let others = || self.samples.iter().filter(|(name, _)| *name != own);
        let members = others().filter(|(name, _)| is_member(name));
        let members = members.filter_map(|(_, sample)| sample.wall_ms(FRESH_MS, now)).collect();
        let recent = others().filter(|_| !is_owner).filter_map(|(_, sample)| sample.wall_ms(GONE_MS, now));
        [members, recent.collect()]
    }

    /// Forgets what counts no more.
    pub fn discard_old(&mut self, now: Now) {
        self.samples.retain(|_, sample| sample.wall_ms(GONE_MS, now).is_some());
    }
}

impl Sample {
    /// Returns the clock now; `None` if it was announced longer ago.
    fn wall_ms(&self, within_ms: u64, now: Now) -> Option<u64> {
        let now_by = |(wall_ms, at_ms): (u64, u64)| {
            let elapsed_ms = now.monotonic_ms.saturating_sub(at_ms);
            (elapsed_ms <= within_ms).then(|| wall_ms.saturating_add(elapsed_ms))
        };
        // The later an announcement is received, the more the clock seems to be behind.
        now_by((self.wall_ms, self.at_ms)).max(self.earlier.and_then(now_by))
    }
}

/// Returns by how much the clock `own_ms` is ahead of the right time, or behind it, as far as that is known; 0 if the instance may
/// own the store.
///
/// `head_ms` is the clock of the head, for an owner that of its own last commit. A clock behind it is wrong, or the head was written
/// by a clock that was ahead: both make this instance wait. Of the others, those that are behind the head count for nothing, so
/// that they do not outvote an owner; if that leaves no member, the clocks of the last minutes count. Two others and more decide by
/// the median. Of two instances, the one that is ahead is wrong: it is the owner only if its clock was set since its last commit.
pub fn clock_off_ms(own_ms: u64, head_ms: Option<u64>, is_owner: bool, others: &OtherClocks) -> i64 {
    let is_behind_head = |wall_ms: u64| head_ms.is_some_and(|head_ms| ahead_ms(head_ms, wall_ms) > LIMIT_MS);
    if let Some(head_ms) = head_ms.filter(|_| !is_owner && is_behind_head(own_ms)) {
        return ahead_ms(own_ms, head_ms);
    }
    let ahead_of = |clocks: &Vec<u64>| -> Vec<i64> {
        let counted = clocks.iter().filter(|wall_ms| !is_behind_head(**wall_ms));
        counted.map(|wall_ms| ahead_ms(own_ms, *wall_ms)).collect()
    };
    let mut ahead = others.iter().map(ahead_of).find(|ahead| !ahead.is_empty()).unwrap_or_default();
    let off_ms = match ahead[..] {
        [] => 0,
        [ahead_ms] => ahead_ms.max(0),
        _ => {
            ahead.push(0);
            ahead.sort_unstable();
            // Of an even number, the one of both in the middle that leaves the store to this instance.
            let middle = ahead.len().div_euclid(2);
            let upper = ahead.get(middle).copied().unwrap_or(0);
            let lower = ahead.len().is_multiple_of(2).then(|| ahead.get(middle.saturating_sub(1)).copied());
            lower
                .flatten()
                .into_iter()
                .chain([upper])
                .min_by_key(|ahead_ms| ahead_ms.unsigned_abs())
                .unwrap_or(0)
        }
    };
    if off_ms.abs() > LIMIT_MS { off_ms } else { 0 }
}

fn offset_ms(own_ms: u64, others: &OtherClocks) -> Option<i64> {
    let mut others = others.iter().find(|clocks| !clocks.is_empty())?.clone();
    others.sort_unstable();
    // Of an even number, the later one: announcements are received late, so that clocks seem to be behind.
    let median_ms = others.get(others.len().div_euclid(2))?;
    Some(ahead_ms(own_ms, *median_ms).div_euclid(SHOWN_STEP_MS).saturating_mul(SHOWN_STEP_MS))
}

const LIMIT_MS: i64 = CLOCK_OFF_MS.cast_signed();

fn ahead_ms(one_ms: u64, other_ms: u64) -> i64 {
    // Both are far below 2⁶³ milliseconds, unless a record was forged.
    let signed = |ms: u64| i64::try_from(ms).unwrap_or(i64::MAX);
    signed(one_ms).saturating_sub(signed(other_ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: u64 = 1_700_000_000_000;
    const HOUR: u64 = 3_600_000;

    fn follower(own_ms: u64, head_ms: u64, others: &[u64]) -> i64 {
        clock_off_ms(own_ms, Some(head_ms), false, &members(others))
    }

    fn members(clocks: &[u64]) -> OtherClocks {
        [clocks.to_vec(), Vec::new()]
    }

    #[test]
    fn the_clock_of_one_of_three_that_is_off_is_wrong_in_either_direction() {
        for is_owner in [false, true] {
            let off = |own, others: &[u64]| clock_off_ms(own, Some(T - HOUR), is_owner, &members(others));
            assert_eq!(off(T + HOUR, &[T, T + 9_000]), HOUR.cast_signed() - 9_000);
            assert_eq!(off(T, &[T + HOUR, T + 5]), 0);
            assert_eq!(off(T, &[T + HOUR, T + HOUR]), -HOUR.cast_signed());
            assert_eq!(off(T + 30_000, &[T, T]), 0);
            assert_eq!(off(T + 30_001, &[T, T]), 30_001);
        }
        assert_eq!(follower(T, T, &[T, T + HOUR, T + HOUR]), 0, "two against two");
    }

    #[test]
    fn the_offset_that_is_shown_is_that_to_the_median_of_the_others() {
        assert_eq!(offset_ms(T, &members(&[])), None);
        assert_eq!(offset_ms(T + 5_040, &members(&[T])), Some(5_000));
        assert_eq!(offset_ms(T - 5_000, &members(&[T + HOUR, T, T - 9_000])), Some(-5_000));
        let (mut check, now) = (ClockCheck::default(), Now { wall_ms: T + 1_200, monotonic_ms: 0 });
        assert_eq!(check.check(None, true, &members(&[T]), now), None);
        assert_eq!((check.offset_ms(), check.off_ms()), (Some(1_200), 0));
    }

    #[test]
    fn of_two_instances_the_one_that_is_ahead_owns_nothing() {
        assert_eq!(follower(T + HOUR, T, &[T]), HOUR.cast_signed());
        assert_eq!(follower(T, T, &[T + HOUR]), 0);
        assert_eq!(
            clock_off_ms(T + HOUR, Some(T), true, &members(&[T])),
            HOUR.cast_signed(),
            "an owner whose clock was set"
        );
    }

    #[test]
    fn a_lone_instance_waits_for_the_clock_of_the_head_and_for_nothing_else() {
        assert_eq!(clock_off_ms(T, None, false, &members(&[])), 0);
        assert_eq!(follower(T + 365 * 24 * HOUR, T, &[]), 0, "after a long time without an instance");
        assert_eq!(follower(T, T + HOUR, &[]), -HOUR.cast_signed());
        assert_eq!(follower(T, T + 30_000, &[]), 0);
        assert_eq!(
            clock_off_ms(T, Some(T + HOUR), true, &members(&[])),
            0,
            "an owner whose clock was set back"
        );
    }

    #[test]
    fn instances_behind_the_head_do_not_outvote_one_that_is_not() {
        assert_eq!(follower(T, T, &[T - HOUR]), 0);
        assert_eq!(follower(T, T, &[T - HOUR, T - HOUR]), 0);
        assert_eq!(clock_off_ms(T, Some(T), true, &members(&[T - HOUR, T - HOUR])), 0);
        assert_eq!(follower(T - HOUR, T, &[T - HOUR, T - HOUR]), -HOUR.cast_signed());
    }

    #[test]
    fn an_announcement_counts_for_some_seconds_and_a_late_one_less_than_the_one_before() {
        let at = |monotonic_ms| Now { wall_ms: 0, monotonic_ms };
        let mut clocks = Clocks::default();
        let others = |clocks: &Clocks, now| clocks.others("a", true, |_| true, at(now))[0].clone();
        clocks.note("a".to_owned(), T + HOUR, 1, at(1_000));
        clocks.note("b".to_owned(), T, 2, at(1_000));
        assert_eq!(others(&clocks, 3_000), [T + 2_000]);
        // Four seconds late.
        clocks.note("b".to_owned(), T + 5_000, 3, at(10_000));
        assert_eq!(others(&clocks, 11_000), [T + 10_000]);
        assert!(others(&clocks, 30_001).is_empty());
    }

    #[test]
    fn an_announcement_that_is_read_again_is_as_old_as_it_was() {
        let at = |monotonic_ms| Now { wall_ms: 0, monotonic_ms };
        let mut clocks = Clocks::default();
        clocks.note("b".to_owned(), T, 7, at(0));
        clocks.note("b".to_owned(), T, 7, at(40_000));
        assert_eq!(clocks.others("a", false, |_| true, at(50_000)), [vec![], vec![T + 50_000]]);
        assert_eq!(clocks.others("a", true, |_| true, at(50_000)), members(&[]), "too old for an owner");
    }

    #[test]
    fn clocks_of_instances_that_have_gone_count_for_some_minutes_where_no_member_has_one() {
        let at = |monotonic_ms| Now { wall_ms: 0, monotonic_ms };
        let mut clocks = Clocks::default();
        clocks.note("b".to_owned(), T, 1, at(0));
        clocks.note("c".to_owned(), T + HOUR, 2, at(0));
        let others = |clocks: &Clocks, is_owner, member, now| {
            clocks.others("a", is_owner, |name| name == member, at(now))
        };
        assert_eq!(others(&clocks, false, "b", 10), [vec![T + 10], vec![T + 10, T + HOUR + 10]]);
        assert_eq!(others(&clocks, true, "b", 10), members(&[T + 10]));
        assert!(others(&clocks, false, "b", GONE_MS)[0].is_empty(), "it is silent");
        assert_eq!(others(&clocks, false, "b", GONE_MS)[1].len(), 2);
        assert_eq!(others(&clocks, false, "", GONE_MS + 1), members(&[]));
        clocks.discard_old(at(GONE_MS));
        assert_eq!(clocks.samples.len(), 2);
        clocks.discard_old(at(GONE_MS + 1));
        assert!(clocks.samples.is_empty());
    }

    #[test]
    fn the_clock_of_an_owner_that_has_gone_counts_where_all_members_are_behind_the_head() {
        let off = |own, gone| clock_off_ms(own, Some(T), false, &[vec![T - 40_000], gone]);
        assert_eq!(off(T + HOUR, vec![T - 40_000, T]), HOUR.cast_signed());
        assert_eq!(off(T, vec![T - 40_000, T + HOUR]), 0);
        assert_eq!(off(T + HOUR, vec![T - 40_000]), 0, "for some minutes");
    }
}

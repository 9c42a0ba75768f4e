//! The wall clock as versions follow it: a step far ahead counts once it has lasted.

use crate::protocol::timestamp::SKEW_MAX_MS;

/// The greatest step that versions follow at once. A greater one would make clients refuse them.
const STEP_MAX_MS: i64 = SKEW_MAX_MS.cast_signed();
/// How long a greater step must last before versions follow it, in milliseconds.
const LASTING_MS: u64 = 60_000;

/// Both clocks at one moment, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Observation {
    /// Since the Unix epoch.
    pub(super) wall_ms: u64,
    /// Since any fixed moment, on a clock that is never set and advances while the machine sleeps.
    pub(super) boot_ms: u64,
}

/// Decides which steps of the wall clock count.
///
/// Versions never go back, so that a clock that is an hour ahead for a moment would leave all versions an hour ahead. The
/// difference between the wall clock and a clock that is never set shows a step. [`WallClock::observe`] must be called about
/// once a second.
#[derive(Debug)]
pub(super) struct WallClock {
    /// What must be added to `boot_ms` for the time that counts.
    offset_ms: i64,
    step: Option<Step>,
}

/// A step that may not last.
#[derive(Clone, Copy, Debug)]
struct Step {
    offset_ms: i64,
    since_boot_ms: u64,
}

/// A change of the wall clock that operators must know of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClockStep {
    /// The clock is this far ahead. Versions do not follow it yet.
    Ahead { by_ms: u64 },
    /// It has stayed this far ahead, and versions follow it.
    Lasting { by_ms: u64 },
    /// The clock is this far behind. Versions wait for it.
    Behind { by_ms: u64 },
}

impl WallClock {
    pub(super) fn new(observation: Observation) -> Self {
        Self { offset_ms: offset_ms(observation), step: None }
    }

    /// Returns the offset for [`trusted_ms`].
    pub(super) fn offset_ms(&self) -> i64 {
        self.offset_ms
    }

    /// Follows the clock, and returns a step when it is first seen, and when one ahead has lasted.
    pub(super) fn observe(&mut self, observation: Observation) -> Option<ClockStep> {
        let offset_ms = offset_ms(observation);
        let by_ms = offset_ms.saturating_sub(self.offset_ms);
        if by_ms.abs() <= STEP_MAX_MS {
            *self = Self { offset_ms, step: None };
            return None;
        }
        let is_same = |step: &Step| step.offset_ms.abs_diff(offset_ms) <= SKEW_MAX_MS;
        let (distance_ms, is_ahead) = (by_ms.unsigned_abs(), by_ms > 0);
        let Some(step) = self.step.filter(is_same) else {
            self.step = Some(Step { offset_ms, since_boot_ms: observation.boot_ms });
            return Some(if is_ahead {
                ClockStep::Ahead { by_ms: distance_ms }
            } else {
                ClockStep::Behind { by_ms: distance_ms }
            });
        };
        if observation.boot_ms.saturating_sub(step.since_boot_ms) < LASTING_MS {
            return None;
        }
        *self = Self { offset_ms, step: None };
        is_ahead.then_some(ClockStep::Lasting { by_ms: distance_ms })
    }
}

/// Returns the wall clock, or the time that was expected if the clock is too far ahead of that.
pub(super) fn trusted_ms(offset_ms: i64, observation: Observation) -> u64 {
    let Observation { wall_ms, boot_ms } = observation;
    let expected_ms = boot_ms.saturating_add_signed(offset_ms);
    if wall_ms > expected_ms.saturating_add(SKEW_MAX_MS) { expected_ms } else { wall_ms }
}

fn offset_ms(Observation { wall_ms, boot_ms }: Observation) -> i64 {
    // Both are far below 2⁶³ milliseconds.
    i64::try_from(wall_ms).unwrap_or(i64::MAX).saturating_sub(i64::try_from(boot_ms).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const START_MS: u64 = 1_700_000_000_000;
    const HOUR_MS: i64 = 3_600_000;

    /// The wall clock `step_ms` off its right time, `seconds` after the start.
    fn at(seconds: u64, step_ms: i64) -> Observation {
        let boot_ms = 5_000 + seconds * 1_000;
        Observation { wall_ms: (START_MS + seconds * 1_000).saturating_add_signed(step_ms), boot_ms }
    }

    /// Observes once a second and returns the steps with their seconds.
    fn observe(clock: &mut WallClock, seconds: std::ops::Range<u64>, step_ms: i64) -> Vec<(u64, ClockStep)> {
        seconds.filter_map(|second| Some((second, clock.observe(at(second, step_ms))?))).collect()
    }

    fn time_ms(clock: &WallClock, second: u64, step_ms: i64) -> u64 {
        trusted_ms(clock.offset_ms(), at(second, step_ms)) - START_MS
    }

    #[test]
    fn a_clock_that_is_an_hour_ahead_for_a_moment_is_reported_and_not_followed() {
        let mut clock = WallClock::new(at(0, 0));
        assert_eq!(time_ms(&clock, 1, HOUR_MS), 1_000, "before the step is observed");
        let steps = observe(&mut clock, 1..60, HOUR_MS);
        assert_eq!(steps, [(1, ClockStep::Ahead { by_ms: 3_600_000 })]);
        assert_eq!(time_ms(&clock, 60, HOUR_MS), 60_000);
        assert_eq!(observe(&mut clock, 60..200, 0), []);
        assert_eq!(time_ms(&clock, 200, 0), 200_000);
    }

    #[test]
    fn a_step_that_lasts_is_followed() {
        let mut clock = WallClock::new(at(0, 0));
        let steps = observe(&mut clock, 1..200, HOUR_MS);
        let by_ms = 3_600_000;
        assert_eq!(steps, [(1, ClockStep::Ahead { by_ms }), (61, ClockStep::Lasting { by_ms })]);
        assert_eq!(time_ms(&clock, 200, HOUR_MS), 3_800_000);
    }

    #[test]
    fn another_step_begins_its_own_time() {
        let mut clock = WallClock::new(at(0, 0));
        observe(&mut clock, 1..50, HOUR_MS);
        let steps = observe(&mut clock, 50..111, 2 * HOUR_MS);
        let by_ms = 7_200_000;
        assert_eq!(steps, [(50, ClockStep::Ahead { by_ms }), (110, ClockStep::Lasting { by_ms })]);
    }

    #[test]
    fn a_step_of_up_to_a_minute_is_followed_at_once() {
        let mut clock = WallClock::new(at(0, 0));
        assert_eq!(time_ms(&clock, 1, 60_000), 61_000);
        assert_eq!(time_ms(&clock, 1, 60_001), 1_000);
        assert_eq!(observe(&mut clock, 1..3, 60_000), []);
        assert_eq!(time_ms(&clock, 3, 120_000), 123_000);
    }

    #[test]
    fn a_clock_that_was_set_back_may_return_at_once() {
        let mut clock = WallClock::new(at(0, 0));
        assert_eq!(observe(&mut clock, 1..30, -HOUR_MS), [(1, ClockStep::Behind { by_ms: 3_600_000 })]);
        assert_eq!(trusted_ms(clock.offset_ms(), at(30, -HOUR_MS)), START_MS + 30_000 - 3_600_000);
        assert_eq!(observe(&mut clock, 30..40, 0), []);
        assert_eq!(time_ms(&clock, 40, 0), 40_000);
    }

    #[test]
    fn a_clock_that_stays_behind_becomes_the_one_that_steps_are_measured_by() {
        let mut clock = WallClock::new(at(0, 0));
        observe(&mut clock, 1..100, -HOUR_MS);
        assert_eq!(observe(&mut clock, 100..101, 0), [(100, ClockStep::Ahead { by_ms: 3_600_000 })]);
    }
}

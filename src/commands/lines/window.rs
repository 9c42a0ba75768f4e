//! How many requests are in flight: a fixed number, or as many as make answers arrive faster (pure).

use std::time::{Duration, Instant};

/// The first size of an adaptive window.
pub const WINDOW_MIN: usize = 64;
/// The greatest size of an adaptive window: on a slow link, half a second of 8,000 requests a second.
pub const WINDOW_MAX: usize = 4096;
/// A size is judged by the answers of so many full windows.
const WINDOWS_OF_PERIOD: usize = 8;
/// Periods until a larger size is tried again.
const STEADY_PERIODS: u32 = 64;

/// The number of requests in flight.
///
/// The size doubles as long as the round trip of a request does not grow with it. If it does, the requests only wait longer,
/// for a broker or a link that is at its limit: then the size is halved again, and a larger one is tried later.
///
/// Contract: the owner calls [`Window::handle_answers`] each time that it has waited for answers, and before
/// [`Window::size`].
#[derive(Debug)]
pub struct Window {
    size: usize,
    /// None: the size is fixed.
    growth: Option<Growth>,
}

#[derive(Debug)]
struct Growth {
    size_max: usize,
    /// The start of the period, and the answers since then.
    started: Option<Instant>,
    answers: usize,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    /// The round trip with half the size; None at the start.
    Growing {
        before: Option<Duration>,
    },
    Steady {
        periods_left: u32,
    },
}

impl Window {
    /// Creates a window of this size, or one that adapts.
    #[must_use]
    pub fn new(fixed: Option<u16>) -> Self {
        match fixed {
            Some(size) => Self { size: usize::from(size), growth: None },
            None => {
                let phase = Phase::Growing { before: None };
                let growth = Growth { size_max: WINDOW_MAX, started: None, answers: 0, phase };
                Self { size: WINDOW_MIN, growth: Some(growth) }
            }
        }
    }

    /// Returns the greatest number of requests in flight.
    #[must_use]
    pub fn size(&self) -> usize {
        self.size
    }

    /// Bounds an adaptive window to the broker's Receive Maximum: more requests would wait here.
    pub fn handle_receive_max(&mut self, receive_max: u16) {
        if let Some(growth) = &mut self.growth {
            growth.size_max = usize::from(receive_max).clamp(1, WINDOW_MAX);
            self.size = self.size.min(growth.size_max);
        }
    }

    /// Handles that so many answers have arrived. `was_full`: no other request could be sent meanwhile.
    pub fn handle_answers(&mut self, answers: usize, was_full: bool, now: Instant) {
        let Some(growth) = &mut self.growth else { return };
        let Some(started) = growth.started.filter(|_| was_full) else {
            // With requests of its own pace, the caller would be measured, not the round trip.
            growth.started = Some(now);
            growth.answers = 0;
            return;
        };
        growth.answers = growth.answers.saturating_add(answers);
        if growth.answers < self.size.saturating_mul(WINDOWS_OF_PERIOD) {
            return;
        }
        let round_trip = round_trip(now.saturating_duration_since(started), growth.answers, self.size);
        growth.started = Some(now);
        growth.answers = 0;
        self.size = growth.next_size(self.size, round_trip);
    }
}

impl Growth {
    fn next_size(&mut self, size: usize, round_trip: Duration) -> usize {
        let double = size.saturating_mul(2).min(self.size_max);
        match &mut self.phase {
            // Twice the size with the same round trip is twice the rate. Three quarters more time are an eighth more rate:
            // not worth the memory and the requests that an error leaves in flight.
            Phase::Growing { before: Some(before) } if is_longer(round_trip, *before) => {
                self.phase = Phase::Steady { periods_left: STEADY_PERIODS };
                size.div_ceil(2)
            }
            Phase::Steady { periods_left: left @ 1.. } => {
                *left = left.saturating_sub(1);
                size
            }
            _ if double == size => {
                self.phase = Phase::Steady { periods_left: STEADY_PERIODS };
                size
            }
            _ => {
                self.phase = Phase::Growing { before: Some(round_trip) };
                double
            }
        }
    }
}

/// Returns the mean round trip of a request: by Little's law, the size of the window over the rate.
fn round_trip(elapsed: Duration, answers: usize, size: usize) -> Duration {
    let nanos = elapsed.as_nanos().saturating_mul(size as u128).checked_div(answers as u128).unwrap_or(0);
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

fn is_longer(round_trip: Duration, before: Duration) -> bool {
    round_trip.saturating_mul(4) > before.saturating_mul(7)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A broker with a latency and a greatest rate, and a client that sends as much as the window allows.
    struct Link {
        latency: Duration,
        per_second: u32,
        now: Instant,
    }

    impl Link {
        fn new(latency_us: u64, per_second: u32) -> Self {
            Self { latency: Duration::from_micros(latency_us), per_second, now: crate::clock::monotonic() }
        }

        /// Lets the answers of `windows` full windows arrive.
        fn run(&mut self, window: &mut Window, windows: usize) {
            for _ in 0..windows {
                let size = window.size();
                let busy = Duration::from_secs(1) * u32::try_from(size).unwrap() / self.per_second;
                self.now += busy.max(self.latency);
                window.handle_answers(size, true, self.now);
            }
        }
    }

    #[test]
    fn the_window_grows_until_the_rate_of_the_broker_is_reached() {
        for (latency_us, per_second, sizes) in [
            // 100 requests fit into the round trip: 128 are enough.
            (1_000, 100_000, 64..=128),
            (10_000, 100_000, 1_000..=1_024),
            // The broker is slower than the first window.
            (10, 1_000, 64..=64),
            // A link of half a second.
            (500_000, 1_000_000, WINDOW_MAX..=WINDOW_MAX),
        ] {
            let (mut window, mut link) = (Window::new(None), Link::new(latency_us, per_second));
            link.run(&mut window, 200);
            assert!(sizes.contains(&window.size()), "{latency_us} us, {per_second}/s: {}", window.size());
        }
    }

    #[test]
    fn the_window_follows_a_link_that_becomes_longer() {
        let (mut window, mut link) = (Window::new(None), Link::new(100, 100_000));
        link.run(&mut window, 200);
        assert_eq!(window.size(), WINDOW_MIN);
        link.latency = Duration::from_millis(50);
        link.run(&mut window, 2_000);
        assert!(window.size() >= 2_048, "{}", window.size());
    }

    #[test]
    fn a_fixed_window_never_changes() {
        let (mut window, mut link) = (Window::new(Some(1)), Link::new(500_000, 1_000_000));
        window.handle_receive_max(20);
        link.run(&mut window, 200);
        assert_eq!(window.size(), 1);
    }

    #[test]
    fn the_receive_maximum_bounds_an_adaptive_window() {
        let (mut window, mut link) = (Window::new(None), Link::new(500_000, 1_000_000));
        window.handle_receive_max(100);
        link.run(&mut window, 200);
        assert_eq!(window.size(), 100);
        window.handle_receive_max(20);
        assert_eq!(window.size(), 20);
    }

    #[test]
    fn a_caller_that_sends_less_than_the_window_does_not_grow_it() {
        let mut window = Window::new(None);
        let start = crate::clock::monotonic();
        for second in 0..1_000 {
            window.handle_answers(1_000, false, start + Duration::from_secs(second));
        }
        assert_eq!(window.size(), WINDOW_MIN);
    }
}

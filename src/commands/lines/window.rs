//! How many requests are in flight: a fixed number, or as many as make answers arrive faster (pure).

use std::time::{Duration, Instant};

/// The first size of an adaptive window. It becomes smaller only if answers would take too long.
pub const WINDOW_MIN: usize = 64;
/// The greatest size of an adaptive window: on a slow link, half a second of 8,000 requests a second.
pub const WINDOW_MAX: usize = 4096;
/// Up to this size a window grows while a round trip is shorter than this, whatever the rate: a request waits hardly longer, and
/// fewer and larger groups of requests cost each side fewer system calls and wake-ups.
const QUICK_SIZE_MAX: usize = 256;
const QUICK_ROUND_TRIP: Duration = Duration::from_millis(1);
/// A size is judged by the answers of so many full windows.
const WINDOWS_OF_PERIOD: usize = 8;
/// The same if they take long.
const WINDOWS_OF_LONG_PERIOD: usize = 4;
/// Periods until a larger size is tried again.
const STEADY_PERIODS: u32 = 64;
/// A request may wait in a queue for this part of its time limit. The rest is for a broker that becomes slower: what is in
/// flight then cannot be taken back.
const PARTS_OF_TIMEOUT: u32 = 4;

/// The number of requests in flight.
///
/// The size doubles as long as that raises the rate of answers by a seventh, that is, as long as the round trip of a request grows
/// by less than three quarters. If it grows by more, the requests only wait longer, for a broker or a link that is at its limit:
/// then the former size is restored, and a larger one is tried later. Small windows with a short round trip grow in any case.
///
/// If the round trip becomes much longer, the broker may have become slower, so that most of the requests wait: the size is halved
/// as long as that shortens the round trip. It falls below [`WINDOW_MIN`] only if the requests would wait for more than a
/// quarter of their time limit.
///
/// Contract: the owner calls [`Window::handle_answers`] each time before it waits for answers.
#[derive(Debug)]
pub struct Window {
    size: usize,
    /// None: the size is fixed.
    adaptive: Option<Adaptive>,
}

#[derive(Debug)]
struct Adaptive {
    size_max: usize,
    /// The longest time that a request may wait in a queue.
    queue_max: Duration,
    /// A round trip that a smaller window has not shortened, so that no queue is part of it. Zero: not known.
    latency: Duration,
    /// The start of the period, and the answers since then.
    started: Option<Instant>,
    answers: usize,
    phase: Phase,
}

/// What a size has shown.
#[derive(Clone, Copy, Debug)]
struct Measurement {
    size: usize,
    /// Less than `size` if the bytes in flight are the limit.
    in_flight: usize,
    /// The mean round trip of a request, or a shorter time if that exceeds the limit.
    round_trip: Duration,
    /// The requests that are answered in half of the time that a request may wait in a queue.
    in_time: usize,
}

impl Measurement {
    /// Returns whether the rate, the number in flight over the round trip, is higher by a seventh.
    fn is_faster_than(&self, other: &Self) -> bool {
        let rate = (self.in_flight as u128).saturating_mul(other.round_trip.as_nanos());
        let other_rate = (other.in_flight as u128).saturating_mul(self.round_trip.as_nanos());
        rate.saturating_mul(7) >= other_rate.saturating_mul(8)
    }
}

#[derive(Debug)]
enum Phase {
    /// The size has been doubled; None: it is doubled next.
    Growing { before: Option<Measurement> },
    /// The size has been halved, or more than that.
    Shrinking { before: Measurement },
    /// The round trip of this size is known.
    Steady {
        round_trip: Duration,
        periods_left: u32,
        /// Whether the last period was much slower.
        is_slower: bool,
    },
}

impl Window {
    /// Creates a window of this size, or one that adapts.
    #[must_use]
    pub fn new(fixed: Option<u16>) -> Self {
        match fixed {
            Some(size) => Self { size: usize::from(size), adaptive: None },
            None => {
                let adaptive = Adaptive {
                    size_max: WINDOW_MAX,
                    queue_max: Duration::MAX,
                    latency: Duration::ZERO,
                    started: None,
                    answers: 0,
                    phase: Phase::Growing { before: None },
                };
                Self { size: WINDOW_MIN, adaptive: Some(adaptive) }
            }
        }
    }

    /// Returns the greatest number of requests in flight.
    #[must_use]
    pub fn size(&self) -> usize {
        self.size
    }

    /// Sets the time limit of a request, of which an adaptive window uses a part.
    pub fn set_request_timeout(&mut self, timeout: Duration) {
        if let Some(adaptive) = &mut self.adaptive {
            adaptive.queue_max = timeout.checked_div(PARTS_OF_TIMEOUT).unwrap_or(timeout);
        }
    }

    /// Bounds an adaptive window to the broker's Receive Maximum: more requests would wait here.
    pub fn handle_receive_max(&mut self, receive_max: u16) {
        if let Some(adaptive) = &mut self.adaptive {
            adaptive.size_max = usize::from(receive_max).clamp(1, WINDOW_MAX);
            self.size = self.size.min(adaptive.size_max);
        }
    }

    /// Handles that so many answers have arrived since the last call, and that `in_flight` requests wait for theirs now.
    /// `is_full`: no other request can be sent before an answer arrives.
    pub fn handle_answers(&mut self, answers: usize, in_flight: usize, is_full: bool, now: Instant) {
        let Some(adaptive) = &mut self.adaptive else { return };
        // With requests at its own pace, the caller would be measured, not the round trip; and after a halving, the size before.
        if !is_full || in_flight > self.size {
            adaptive.started = None;
            return;
        }
        let Some(started) = adaptive.started else {
            return adaptive.start_period(now);
        };
        adaptive.answers = adaptive.answers.saturating_add(answers);
        if let Some(measured) =
            adaptive.measured(self.size, in_flight, now.saturating_duration_since(started))
        {
            adaptive.start_period(now);
            self.size = adaptive.next_size(measured);
            if self.size != measured.size {
                // The caller has yet to send the further requests.
                adaptive.started = None;
            }
        }
    }
}

impl Adaptive {
    fn start_period(&mut self, now: Instant) {
        self.started = Some(now);
        self.answers = 0;
    }

    fn round_trip_max(&self) -> Duration {
        self.latency.saturating_add(self.queue_max)
    }

    /// Returns what the size has shown in a period, if that is long enough.
    fn measured(&self, size: usize, in_flight: usize, elapsed: Duration) -> Option<Measurement> {
        let windows = self.answers.checked_div(in_flight).unwrap_or(0);
        let is_long = elapsed >= half(self.queue_max);
        let round_trip = match windows {
            // A request of the beginning waits for longer than it may.
            0 if self.answers > 0 && elapsed > self.round_trip_max() => elapsed,
            // By Little's law, the round trip is the number in flight over the rate. A few windows do not show the rate: answers may
            // arrive in bursts.
            WINDOWS_OF_PERIOD.. => scaled(elapsed, in_flight, self.answers),
            WINDOWS_OF_LONG_PERIOD.. if is_long => scaled(elapsed, in_flight, self.answers),
            _ => return None,
        };
        let in_time = (self.answers as u128).saturating_mul(half(self.queue_max).as_nanos());
        let in_time = usize::try_from(in_time.checked_div(elapsed.as_nanos()).unwrap_or(u128::MAX));
        Some(Measurement { size, in_flight, round_trip, in_time: in_time.unwrap_or(usize::MAX) })
    }

    fn next_size(&mut self, measured: Measurement) -> usize {
        let Measurement { size, round_trip, .. } = measured;
        // Bursts of answers make a round trip seem a little shorter.
        if round_trip < half(self.latency) {
            self.latency = round_trip;
        }
        let round_trip_max = self.round_trip_max();
        let double = size.saturating_mul(2).min(self.size_max);
        match &mut self.phase {
            // Fewer requests were answered at a lower rate, so those of the size before did not wait in a queue.
            Phase::Shrinking { before } if is_similar(before.round_trip, round_trip) => {
                let before = before.size.min(self.size_max);
                // A broker whose rate falls meanwhile looks alike: the time limit must not be reached then either.
                self.latency = round_trip.min(self.queue_max.saturating_mul(2));
                self.phase = Phase::Growing { before: None };
                before
            }
            _ if round_trip > round_trip_max => self.shrink(measured),
            Phase::Growing { .. }
                if size < QUICK_SIZE_MAX.min(self.size_max)
                    && measured.in_flight >= size
                    && round_trip < QUICK_ROUND_TRIP =>
            {
                self.phase = Phase::Growing { before: None };
                double
            }
            // A little more rate is not worth the memory and the requests that an error leaves in flight.
            Phase::Growing { before: Some(before) } if !measured.is_faster_than(before) => {
                let Measurement { size, round_trip, .. } = *before;
                self.be_steady(size, round_trip)
            }
            Phase::Shrinking { .. } if size > WINDOW_MIN => self.shrink(measured),
            Phase::Shrinking { .. } => self.be_steady(size, round_trip),
            Phase::Steady { round_trip: known, is_slower, .. }
                if size > WINDOW_MIN && round_trip > known.saturating_mul(2) =>
            {
                // A part of the first such period may have been as fast as before.
                if !std::mem::replace(is_slower, true) {
                    return size;
                }
                self.shrink(measured)
            }
            Phase::Steady { periods_left: left @ 1.., is_slower, .. } => {
                *is_slower = false;
                *left = left.saturating_sub(1);
                size
            }
            _ if double == size || round_trip.saturating_mul(2) > round_trip_max => {
                self.be_steady(size, round_trip)
            }
            _ => {
                self.phase = Phase::Growing { before: Some(measured) };
                double
            }
        }
    }

    fn be_steady(&mut self, size: usize, round_trip: Duration) -> usize {
        self.phase = Phase::Steady { round_trip, periods_left: STEADY_PERIODS, is_slower: false };
        size
    }

    /// Halves the size, and more than that if the requests still waited too long.
    fn shrink(&mut self, measured: Measurement) -> usize {
        self.phase = Phase::Shrinking { before: measured };
        measured.in_time.min(measured.size / 2).max(1)
    }
}

fn half(time: Duration) -> Duration {
    time.checked_div(2).unwrap_or(time)
}

/// Returns `time * numerator / denominator`.
fn scaled(time: Duration, numerator: usize, denominator: usize) -> Duration {
    let nanos =
        time.as_nanos().saturating_mul(numerator as u128).checked_div(denominator as u128).unwrap_or(0);
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// Returns whether a round trip is longer than another one by three quarters.
fn is_longer(round_trip: Duration, than: Duration) -> bool {
    round_trip.saturating_mul(4) > than.saturating_mul(7)
}

fn is_similar(one: Duration, other: Duration) -> bool {
    !is_longer(one, other) && !is_longer(other, one)
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(10);

    /// A broker that handles one request after the other, a link with a latency, and a client that sends as much as the window
    /// allows.
    struct Link {
        latency: Duration,
        service: Duration,
        now: Instant,
        /// When the broker has handled all requests.
        idle_at: Instant,
        /// When each request was sent, and when its answer arrives.
        in_flight: VecDeque<(Instant, Instant)>,
        /// Answers that the window has not counted.
        arrived: usize,
    }

    impl Link {
        fn new(latency_us: u64, per_second: u32) -> Self {
            let now = crate::clock::monotonic();
            let latency = Duration::from_micros(latency_us);
            let service = Duration::from_secs(1) / per_second;
            Self { latency, service, now, idle_at: now, in_flight: VecDeque::new(), arrived: 0 }
        }

        /// Lets so many answers arrive. Returns the longest time that a request has waited for its answer.
        fn run(&mut self, window: &mut Window, answers: usize) -> Duration {
            let mut longest = Duration::ZERO;
            for _ in 0..answers {
                while self.in_flight.len() < window.size() {
                    self.idle_at = self.idle_at.max(self.now) + self.service;
                    self.in_flight.push_back((self.now, self.idle_at + self.latency));
                }
                window.handle_answers(self.arrived, self.in_flight.len(), true, self.now);
                let (sent, answered) = self.in_flight.pop_front().unwrap();
                self.arrived = 1;
                self.now = answered;
                longest = longest.max(answered - sent);
            }
            longest
        }
    }

    fn adaptive() -> Window {
        let mut window = Window::new(None);
        window.set_request_timeout(TIMEOUT);
        window
    }

    #[test]
    fn the_window_grows_until_the_rate_of_the_broker_is_reached() {
        for (latency_us, per_second, sizes) in [
            // 100 requests fit into the round trip: 128 are enough.
            (1_000, 100_000, 64..=256),
            (10_000, 100_000, 1_000..=2_048),
            // The broker is slower than the first window.
            (10, 1_000, 64..=64),
            // A link of half a second.
            (500_000, 1_000_000, WINDOW_MAX..=WINDOW_MAX),
        ] {
            let (mut window, mut link) = (adaptive(), Link::new(latency_us, per_second));
            link.run(&mut window, 100_000);
            assert!(sizes.contains(&window.size()), "{latency_us} us, {per_second}/s: {}", window.size());
        }
    }

    #[test]
    fn a_short_round_trip_is_no_reason_for_a_small_window() {
        let (mut window, mut link) = (adaptive(), Link::new(10, 500_000));
        link.run(&mut window, 100_000);
        assert_eq!(window.size(), QUICK_SIZE_MAX);
        window.handle_receive_max(100);
        link.run(&mut window, 100_000);
        assert_eq!(window.size(), 100);
    }

    #[test]
    fn the_window_follows_a_link_that_becomes_longer() {
        let (mut window, mut link) = (adaptive(), Link::new(1_000, 100_000));
        link.run(&mut window, 100_000);
        assert!(window.size() <= 256, "{}", window.size());
        link.latency = Duration::from_millis(50);
        link.run(&mut window, 500_000);
        assert!(window.size() >= 2_048, "{}", window.size());
    }

    #[test]
    fn the_window_shrinks_when_the_broker_becomes_a_hundred_times_slower() {
        let (mut window, mut link) = (adaptive(), Link::new(10_000, 100_000));
        link.run(&mut window, 100_000);
        assert!(window.size() >= 1_000, "{}", window.size());
        link.service *= 100;
        assert!(link.run(&mut window, 40_000) < TIMEOUT / 2);
        assert!(window.size() <= 2 * WINDOW_MIN, "{}", window.size());
        // Ten answers a second: a queue of WINDOW_MIN is 6.4 s long.
        link.service *= 100;
        assert!(link.run(&mut window, 1_000) < TIMEOUT);
        assert!(link.run(&mut window, 10_000) < TIMEOUT / 2);
        assert!(window.size() <= 25, "{}", window.size());
    }

    #[test]
    fn large_values_on_a_slow_link_do_not_wait_for_their_time_limit() {
        // 100 KB at 1 MB/s.
        let (mut window, mut link) = (adaptive(), Link::new(10_000, 10));
        assert!(link.run(&mut window, 100) < TIMEOUT);
        assert!(link.run(&mut window, 20_000) < TIMEOUT / 2);
        assert!(window.size() <= 25, "{}", window.size());
    }

    #[test]
    fn no_size_is_tried_with_which_requests_would_wait_for_a_quarter_of_their_time_limit() {
        let (mut window, mut link) = (adaptive(), Link::new(10_000, 40));
        assert!(link.run(&mut window, 100_000) < TIMEOUT / 4);
    }

    #[test]
    fn a_latency_beyond_the_limit_of_the_queue_does_not_shrink_the_window() {
        let (mut window, mut link) = (adaptive(), Link::new(600_000, 100_000));
        window.set_request_timeout(Duration::from_secs(1));
        link.run(&mut window, 1_000);
        for _ in 0..10_000 {
            link.run(&mut window, 1);
            assert!(window.size() >= WINDOW_MIN, "{}", window.size());
        }
    }

    #[test]
    fn a_stall_of_the_broker_is_forgotten() {
        let (mut window, mut link) = (adaptive(), Link::new(10_000, 100_000));
        link.run(&mut window, 100_000);
        link.idle_at = link.now + Duration::from_secs(4);
        link.run(&mut window, 1_000_000);
        assert!(window.size() >= 1_000, "{}", window.size());
    }

    #[test]
    fn a_fixed_window_never_changes() {
        let (mut window, mut link) = (Window::new(Some(1)), Link::new(500_000, 1_000_000));
        window.set_request_timeout(TIMEOUT);
        window.handle_receive_max(20);
        link.run(&mut window, 1_000);
        assert_eq!(window.size(), 1);
    }

    #[test]
    fn the_receive_maximum_bounds_an_adaptive_window() {
        let (mut window, mut link) = (adaptive(), Link::new(500_000, 1_000_000));
        window.handle_receive_max(100);
        link.run(&mut window, 20_000);
        assert_eq!(window.size(), 100);
        window.handle_receive_max(20);
        assert_eq!(window.size(), 20);
    }

    #[test]
    fn a_size_that_is_too_large_is_replaced_by_the_one_before() {
        let (mut window, mut link) = (adaptive(), Link::new(10, 1_000));
        window.handle_receive_max(100);
        let sizes: Vec<_> = (0..2_000)
            .map(|_| {
                link.run(&mut window, 1);
                window.size()
            })
            .collect();
        assert!(!sizes.contains(&50) && sizes.contains(&64), "{sizes:?}");
    }

    #[test]
    fn a_caller_that_sends_less_than_the_window_does_not_grow_it() {
        let mut window = adaptive();
        let start = crate::clock::monotonic();
        for second in 0..1_000 {
            window.handle_answers(1_000, 1, false, start + Duration::from_secs(second));
        }
        assert_eq!(window.size(), WINDOW_MIN);
    }

    #[test]
    fn a_window_that_bytes_limit_does_not_grow() {
        let mut window = adaptive();
        let start = crate::clock::monotonic();
        for step in 0..10_000 {
            window.handle_answers(10, 10, true, start + Duration::from_micros(step * 100));
        }
        assert_eq!(window.size(), WINDOW_MIN);
    }
}

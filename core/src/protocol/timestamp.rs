//! Hybrid logical clocks (HLC): versions of values and fencing tokens (protocol §4).

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use super::decimal;

/// The greatest difference, in milliseconds, by which a timestamp may be ahead of the receiver's clock.
pub const SKEW_MAX_MS: u64 = 60_000;
/// The greatest counter: .NET reads 31 bits.
pub const COUNTER_MAX: u32 = i32::MAX as u32;
/// The longest node id in bytes that is accepted from the network.
pub const NODE_BYTES_MAX: usize = 512;
/// The node id of the store.
pub const STORE_NODE: &str = "StateStore";

/// The digits to which the padded form pads milliseconds and counter, and the greatest numbers that have no more.
const MS_DIGITS: usize = 15;
const COUNTER_DIGITS: usize = 5;
pub const MS_USUAL_MAX: u64 = 999_999_999_999_999;
pub const COUNTER_USUAL_MAX: u32 = 99_999;
/// The length of both with the colon between them.
pub const USUAL_DIGITS: usize = MS_DIGITS + 1 + COUNTER_DIGITS;

/// A timestamp of a hybrid logical clock, ordered by milliseconds, then counter, then node.
///
/// ```
/// # extern crate mqkv_core as mqkv;
/// use mqkv::protocol::Timestamp;
///
/// let version: Timestamp = "1795205105140:7:StateStore".parse()?;
/// assert_eq!((version.ms, version.counter), (1_795_205_105_140, 7));
/// assert_eq!(version.to_string(), "001795205105140:00007:StateStore");
///
/// let next = version.tick(version.ms);
/// assert!(next > version && next.counter == 8);
/// # Ok::<(), mqkv::protocol::timestamp::TimestampError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    /// Milliseconds since the Unix epoch.
    pub ms: u64,
    /// Orders timestamps within one millisecond; at most [`COUNTER_MAX`].
    pub counter: u32,
    node: Cow<'static, str>,
}

/// Error of parsing a timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimestampError {
    /// There are not three parts separated by `:`.
    Parts,
    /// The milliseconds are no number of 64 bits.
    Milliseconds,
    /// The counter is no number of 31 bits.
    Counter,
    /// The node is empty, too long, or has blanks or control characters.
    Node,
}

impl Timestamp {
    /// Returns a timestamp of the store.
    #[must_use]
    pub const fn of_store(ms: u64, counter: u32) -> Self {
        Self { ms, counter, node: Cow::Borrowed(STORE_NODE) }
    }

    /// Returns the timestamp before all that a node gives out.
    ///
    /// # Errors
    /// [`TimestampError::Node`] if `node` is no node id.
    pub fn zero(node: String) -> Result<Self, TimestampError> {
        if is_node(&node) {
            Ok(Self { ms: 0, counter: 0, node: Cow::Owned(node) })
        } else {
            Err(TimestampError::Node)
        }
    }

    /// Returns the id of the node that gave out the timestamp.
    #[must_use]
    pub fn node(&self) -> &str {
        &self.node
    }

    /// Returns the timestamp in the padded form of the wire (protocol §0 row 12).
    #[must_use]
    pub fn to_text(&self) -> String {
        let bytes =
            MS_DIGITS.saturating_add(COUNTER_DIGITS).saturating_add(2).saturating_add(self.node.len());
        let mut text = Vec::with_capacity(bytes);
        self.put_text(&mut text);
        // The conversion cannot fail: a node is a string, and the rest is ASCII.
        String::from_utf8(text).unwrap_or_default()
    }

    /// Parses a timestamp whose node does not matter, and returns it as one of the store: a node takes an allocation.
    ///
    /// # Errors
    /// [`TimestampError`], as from [`str::parse`].
    pub fn parse_time(text: &str) -> Result<Self, TimestampError> {
        Ok(Self::parse(text)?.0)
    }

    /// Returns the time as a timestamp of the store, and the node.
    fn parse(text: &str) -> Result<(Self, &str), TimestampError> {
        let (ms, rest) = split(text).ok_or(TimestampError::Parts)?;
        let (counter, node) = split(rest).ok_or(TimestampError::Parts)?;
        if node != STORE_NODE && !is_plain(node) && node.contains(':') {
            return Err(TimestampError::Parts);
        }
        let ms = decimal::parse(ms.as_bytes()).ok_or(TimestampError::Milliseconds)?;
        let counter = decimal::parse(counter.as_bytes())
            .and_then(|counter| u32::try_from(counter).ok())
            .filter(|counter| *counter <= COUNTER_MAX)
            .ok_or(TimestampError::Counter)?;
        if is_node(node) { Ok((Self::of_store(ms, counter), node)) } else { Err(TimestampError::Node) }
    }

    /// Returns milliseconds and counter as in [`Timestamp::to_text`], if they have no more digits than usual.
    #[must_use]
    pub fn usual_digits(ms: u64, counter: u32) -> Option<[u8; USUAL_DIGITS]> {
        let mut text = [b':'; USUAL_DIGITS];
        if ms > MS_USUAL_MAX || counter > COUNTER_USUAL_MAX {
            return None;
        }
        let (ms_text, counter_text) = text.split_at_mut(MS_DIGITS);
        decimal::fill(ms_text, ms);
        decimal::fill(counter_text.get_mut(1..)?, counter.into());
        Some(text)
    }

    /// Appends what [`Timestamp::to_text`] returns.
    pub(super) fn put_text(&self, out: &mut Vec<u8>) {
        if let Some(digits) = Self::usual_digits(self.ms, self.counter) {
            out.extend_from_slice(&digits);
        } else {
            decimal::put(out, self.ms, MS_DIGITS);
            out.push(b':');
            decimal::put(out, self.counter.into(), COUNTER_DIGITS);
        }
        out.push(b':');
        out.extend_from_slice(self.node.as_bytes());
    }

    /// Returns the next timestamp of this node: greater than `self`, and at `now_ms` or later.
    #[must_use]
    pub fn tick(&self, now_ms: u64) -> Self {
        let mut next = self.clone();
        next.advance(now_ms);
        next
    }

    /// Replaces this timestamp by [`Timestamp::tick`], without a copy of the node.
    pub fn advance(&mut self, now_ms: u64) {
        (self.ms, self.counter) =
            if now_ms > self.ms { (now_ms, 0) } else { next_counter(self.ms, self.counter) };
    }

    /// Returns the next timestamp of this node that is also greater than `received` (protocol §4).
    #[must_use]
    pub fn merge(&self, received: &Self, now_ms: u64) -> Self {
        let mut next = self.clone();
        next.advance_past(received, now_ms);
        next
    }

    /// Replaces this timestamp by [`Timestamp::merge`], without a copy of the node.
    pub fn advance_past(&mut self, received: &Self, now_ms: u64) {
        (self.ms, self.counter) = (self.ms, self.counter).max((received.ms, received.counter));
        self.advance(now_ms);
    }

    /// Whether the timestamp is further ahead of `now_ms` than a receiver accepts.
    #[must_use]
    pub fn is_too_far_ahead(&self, now_ms: u64) -> bool {
        self.ms > now_ms.saturating_add(SKEW_MAX_MS)
    }
}

/// Carries a full counter into the milliseconds, so that the clock always advances. Only at the end of both
/// there is no greater timestamp, and the clock stops.
const fn next_counter(ms: u64, counter: u32) -> (u64, u32) {
    if counter < COUNTER_MAX {
        return (ms, counter.saturating_add(1));
    }
    match ms.checked_add(1) {
        Some(ms) => (ms, 0),
        None => (ms, COUNTER_MAX),
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.to_text())
    }
}

impl FromStr for Timestamp {
    type Err = TimestampError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (time, node) = Self::parse(text)?;
        Ok(if node == STORE_NODE { time } else { Self { node: Cow::Owned(node.to_owned()), ..time } })
    }
}

/// Splits at the first colon. The parts are short: comparing byte by byte is faster than a search that is
/// made for long texts.
fn split(text: &str) -> Option<(&str, &str)> {
    let at = text.bytes().position(|byte| byte == b':')?;
    text.get(..at).zip(text.get(at.saturating_add(1)..))
}

fn is_node(node: &str) -> bool {
    let bad = |c: char| c == ':' || c.is_whitespace() || c.is_control();
    !node.is_empty() && node.len() <= NODE_BYTES_MAX && (is_plain(node) || !node.contains(bad))
}

/// Whether a node is of visible ASCII characters without a colon. Nearly all are, and need no lookup in the tables of Unicode.
fn is_plain(node: &str) -> bool {
    node.bytes().fold(true, |is_plain, byte| is_plain & matches!(byte, b'!'..=b'9' | b';'..=b'~'))
}

impl fmt::Display for TimestampError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Parts => "a timestamp has three parts, MILLISECONDS:COUNTER:NODE",
            Self::Milliseconds => "the milliseconds of a timestamp are a number of 64 bits, digits only",
            Self::Counter => "the counter of a timestamp is a number of 31 bits, digits only",
            Self::Node => "the node of a timestamp is 1 to 512 bytes without blanks",
        })
    }
}

impl std::error::Error for TimestampError {}

#[cfg(test)]
mod tests {
    use std::cmp::Ordering;

    use proptest::prelude::*;

    use super::super::strategies::timestamp;
    use super::super::vectors::{Case, check, escape, unescape};
    use super::*;

    fn text(escaped: &str) -> String {
        String::from_utf8(unescape(escaped)).unwrap()
    }

    fn parse(text: &str) -> Timestamp {
        text.parse().unwrap_or_else(|error: TimestampError| panic!("{text}: {error}"))
    }

    fn show(text: &str, timestamp: &Timestamp) -> String {
        let Timestamp { ms, counter, node } = timestamp;
        let shown = format!("{ms} {counter} {}", escape(node.as_bytes()));
        if timestamp.to_string() == text { shown } else { format!("{shown}\nprints {timestamp}") }
    }

    fn run(case: &Case<'_>) -> String {
        match case.operation() {
            ["parse"] => {
                let text = text(case.operands::<1>()[0]);
                text.parse()
                    .map_or_else(|error: TimestampError| format!("{error:?}"), |found| show(&text, &found))
            }
            ["order"] => {
                let [first, second] = case.operands().map(parse);
                match first.cmp(&second) {
                    Ordering::Less => "before",
                    Ordering::Equal => "equal",
                    Ordering::Greater => "after",
                }
                .to_owned()
            }
            ["tick", now] => {
                let [clock] = case.operands().map(parse);
                clock.tick(now.parse().unwrap()).to_string()
            }
            ["merge", now] => {
                let [local, received] = case.operands().map(parse);
                local.merge(&received, now.parse().unwrap()).to_string()
            }
            ["skew", now] => {
                let [received] = case.operands().map(parse);
                let is_rejected = received.is_too_far_ahead(now.parse().unwrap());
                if is_rejected { "rejected" } else { "accepted" }.to_owned()
            }
            _ => case.unknown(),
        }
    }

    #[test]
    fn timestamps_are_as_in_the_vectors() {
        check(include_str!("../../../tests/vectors/timestamp.txt"), run);
    }

    #[test]
    fn a_node_ends_at_its_limit() {
        let node = |len: usize| format!("1:0:{}", "n".repeat(len)).parse::<Timestamp>();
        assert!(node(NODE_BYTES_MAX).is_ok());
        assert_eq!(node(NODE_BYTES_MAX + 1), Err(TimestampError::Node));
    }

    #[test]
    fn a_node_that_cannot_be_parsed_is_rejected() {
        for node in ["", "a:b", "a b", "a\n"] {
            assert_eq!(Timestamp::zero(node.to_owned()), Err(TimestampError::Node));
        }
    }

    #[test]
    fn a_parsed_timestamp_of_the_store_equals_a_constructed_one() {
        assert_eq!(parse("1:2:StateStore"), Timestamp::of_store(1, 2));
    }

    #[test]
    fn a_time_is_parsed_like_a_timestamp_but_for_its_node() {
        for text in ["1:2:a", "1:2:StateStore", "1:2", "x:2:a", "1:x:a", "1:2:a b", "1:2:", "1:2:a:b"] {
            let expected =
                text.parse::<Timestamp>().map(|whole| Timestamp::of_store(whole.ms, whole.counter));
            assert_eq!(Timestamp::parse_time(text), expected, "{text}");
        }
    }

    /// Whether there is a next timestamp: not for the last one of a node.
    fn has_next(timestamp: &Timestamp) -> bool {
        (timestamp.ms, timestamp.counter) != (u64::MAX, COUNTER_MAX)
    }

    fn now(timestamp: &Timestamp) -> impl Strategy<Value = u64> + use<> {
        let ms = timestamp.ms;
        prop_oneof![any::<u64>(), ms.saturating_sub(2)..=ms.saturating_add(2)]
    }

    proptest! {
        #[test]
        fn a_printed_timestamp_parses_to_itself(timestamp in timestamp()) {
            prop_assert_eq!(timestamp.to_string().parse(), Ok(timestamp));
        }

        #[test]
        fn a_parsed_timestamp_survives_another_round_trip(
            text in "[0-9]{0,22}:[0-9]{0,12}:[!-~ ]{0,8}|.{0,30}",
        ) {
            if let Ok(timestamp) = text.parse::<Timestamp>() {
                prop_assert_eq!(timestamp.to_string().parse(), Ok(timestamp));
            }
        }

        #[test]
        fn a_tick_is_greater_than_the_clock_and_not_before_the_wall_clock(
            (clock, now) in timestamp().prop_flat_map(|clock| { let now = now(&clock); (Just(clock), now) }),
        ) {
            let next = clock.tick(now);
            prop_assert!(next > clock || !has_next(&clock), "{} after {}", next, clock);
            prop_assert!(next >= clock && next.ms >= now && next.counter <= COUNTER_MAX);
            prop_assert_eq!(next.node(), clock.node());
        }

        #[test]
        fn a_merge_is_greater_than_both_clocks_and_not_before_the_wall_clock(
            local in timestamp(),
            (received, now) in timestamp().prop_flat_map(|clock| { let now = now(&clock); (Just(clock), now) }),
        ) {
            let next = local.merge(&received, now);
            if has_next(&local) && has_next(&received) {
                prop_assert!((next.ms, next.counter) > (local.ms, local.counter));
                prop_assert!((next.ms, next.counter) > (received.ms, received.counter));
            }
            prop_assert!(next.ms >= now && next.counter <= COUNTER_MAX);
            prop_assert_eq!(next.node(), local.node());
        }

        #[test]
        fn a_merge_follows_the_four_rules_if_no_counter_is_full(
            (l_ms, l_counter) in (0..4_u64, 0..100_u32),
            (r_ms, r_counter) in (0..4_u64, 0..100_u32),
            now in 0..4_u64,
        ) {
            // The four rules of protocol §4.
            let expected = if now > l_ms && now > r_ms {
                (now, 0)
            } else if l_ms == r_ms {
                (l_ms, l_counter.max(r_counter) + 1)
            } else if l_ms > r_ms {
                (l_ms, l_counter + 1)
            } else {
                (r_ms, r_counter + 1)
            };
            let received = Timestamp { counter: r_counter, ms: r_ms, ..Timestamp::zero("c".to_owned()).unwrap() };
            let next = Timestamp::of_store(l_ms, l_counter).merge(&received, now);
            prop_assert_eq!((next.ms, next.counter), expected);
        }

        #[test]
        fn timestamps_are_ordered_by_milliseconds_then_counter_then_node(a in timestamp(), b in timestamp()) {
            let parts = |t: &Timestamp| (t.ms, t.counter, t.node().to_owned());
            prop_assert_eq!(a.cmp(&b), parts(&a).cmp(&parts(&b)));
        }
    }
}

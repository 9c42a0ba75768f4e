//! Hybrid logical clocks (HLC): the versions of values and the fencing tokens (protocol §4).

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

/// How far a clock may be ahead of the receiver's before it is refused, in milliseconds.
pub const SKEW_MAX_MS: u64 = 60_000;
/// The greatest counter: .NET reads 31 bits.
pub const COUNTER_MAX: u32 = i32::MAX as u32;
/// The longest node id in bytes that is taken from the network.
pub const NODE_BYTES_MAX: usize = 512;
/// The node id of the store.
pub const STORE_NODE: &str = "StateStore";

/// A hybrid logical clock: ordered by milliseconds, then counter, then node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    /// Milliseconds since the Unix epoch.
    pub ms: u64,
    /// Tells apart what happened within one millisecond, at most [`COUNTER_MAX`].
    pub counter: u32,
    node: Cow<'static, str>,
}

/// Why a text is not a timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimestampError {
    /// Not three parts separated by `:`.
    Parts,
    /// The milliseconds are no number of 64 bits.
    Milliseconds,
    /// The counter is no number of 31 bits.
    Counter,
    /// The node is empty, too long, or has blanks or control characters.
    Node,
}

impl Timestamp {
    /// A timestamp of the store's own node.
    #[must_use]
    pub const fn of_store(ms: u64, counter: u32) -> Self {
        Self { ms, counter, node: Cow::Borrowed(STORE_NODE) }
    }

    /// The first timestamp of a node, before all that it gives out.
    ///
    /// # Errors
    /// [`TimestampError::Node`] if the node is no node id.
    pub fn zero(node: String) -> Result<Self, TimestampError> {
        if is_node(&node) {
            Ok(Self { ms: 0, counter: 0, node: Cow::Owned(node) })
        } else {
            Err(TimestampError::Node)
        }
    }

    /// Who gave the timestamp out.
    #[must_use]
    pub fn node(&self) -> &str {
        &self.node
    }

    /// The next timestamp of this node: greater than `self`, and at `now_ms` or later.
    #[must_use]
    pub fn tick(&self, now_ms: u64) -> Self {
        let (ms, counter) = if now_ms > self.ms { (now_ms, 0) } else { next_counter(self.ms, self.counter) };
        Self { ms, counter, node: self.node.clone() }
    }

    /// The next timestamp of this node that is also greater than `received` (protocol §4).
    #[must_use]
    pub fn merge(&self, received: &Self, now_ms: u64) -> Self {
        let latest = (self.ms, self.counter).max((received.ms, received.counter));
        Self { ms: latest.0, counter: latest.1, node: self.node.clone() }.tick(now_ms)
    }

    /// Whether the timestamp is further ahead of `now_ms` than a receiver accepts.
    #[must_use]
    pub fn is_too_far_ahead(&self, now_ms: u64) -> bool {
        self.ms > now_ms.saturating_add(SKEW_MAX_MS)
    }
}

/// A counter that is full carries into the milliseconds, so that time never stands still.
const fn next_counter(ms: u64, counter: u32) -> (u64, u32) {
    if counter >= COUNTER_MAX { (ms.saturating_add(1), 0) } else { (ms, counter.saturating_add(1)) }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:015}:{:05}:{}", self.ms, self.counter, self.node)
    }
}

impl FromStr for Timestamp {
    type Err = TimestampError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut parts = text.split(':');
        let (Some(ms), Some(counter), Some(node), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(TimestampError::Parts);
        };
        let ms = parse_digits(ms).ok_or(TimestampError::Milliseconds)?;
        let counter = parse_digits(counter)
            .and_then(|counter| u32::try_from(counter).ok())
            .filter(|counter| *counter <= COUNTER_MAX)
            .ok_or(TimestampError::Counter)?;
        match node {
            STORE_NODE => Ok(Self::of_store(ms, counter)),
            node if is_node(node) => Ok(Self { ms, counter, node: Cow::Owned(node.to_owned()) }),
            _ => Err(TimestampError::Node),
        }
    }
}

/// Digits only: `parse` alone would take a `+`.
fn parse_digits(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

fn is_node(node: &str) -> bool {
    let bad = |c: char| c == ':' || c.is_whitespace() || c.is_control();
    !node.is_empty() && node.len() <= NODE_BYTES_MAX && !node.contains(bad)
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

//! Topics of an exchange.

/// The prefix of all topics of exchanges.
pub const PREFIX: &str = "mqkv/exchange/v1/";
/// The topic of operator requests.
pub const COMMAND: &str = "mqkv/exchange/v1/command";

/// Returns the topic of the frames from a leaf to the root.
#[must_use]
pub fn up(exchange: &str, leaf: &str) -> String {
    format!("{PREFIX}{exchange}/up/{leaf}")
}

/// Returns the topic of the frames from the root to a leaf.
#[must_use]
pub fn down(exchange: &str, leaf: &str) -> String {
    format!("{PREFIX}{exchange}/down/{leaf}")
}

/// Returns the topic on which a node publishes its conflicts: one [`ConflictReport`](super::ConflictReport) a message.
#[must_use]
pub fn conflicts(exchange: &str) -> String {
    format!("{PREFIX}{exchange}/conflicts")
}

/// A topic of an exchange. Names are not validated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topic<'a> {
    Command,
    Up { exchange: &'a str, leaf: &'a str },
    Down { exchange: &'a str, leaf: &'a str },
    Conflicts { exchange: &'a str },
}

impl<'a> Topic<'a> {
    /// Parses a topic; `None` for any other topic.
    #[must_use]
    pub fn parse(topic: &'a str) -> Option<Self> {
        if topic == COMMAND {
            return Some(Self::Command);
        }
        let mut levels = topic.strip_prefix(PREFIX)?.split('/');
        let (exchange, kind, leaf, end) = (levels.next()?, levels.next()?, levels.next(), levels.next());
        match (kind, leaf, end) {
            ("up", Some(leaf), None) => Some(Self::Up { exchange, leaf }),
            ("down", Some(leaf), None) => Some(Self::Down { exchange, leaf }),
            ("conflicts", None, None) => Some(Self::Conflicts { exchange }),
            _ => None,
        }
    }
}

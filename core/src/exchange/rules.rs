//! Rules of an exchange: which keys take part, which node may change them, which leaves they concern.

use std::fmt;
use std::hash::{Hash, Hasher};

use crate::protocol::Key;
use crate::protocol::frame::Frame;
use crate::store::Pattern;

use super::digest::fnv;
use super::names::Name;

/// The most rules of an exchange.
pub const RULES_MAX: usize = 256;
/// The most patterns of one list in a rule.
pub const PATTERNS_MAX: usize = 64;
/// The longest pattern in bytes.
pub const PATTERN_BYTES_MAX: usize = 1_024;
/// The most steps of matching one pattern with one key. A pattern that takes more does not match: nearly all patterns
/// are linear, and the bound gives every node the same answer.
const STEPS_MAX: usize = 256 * 1024;

/// The rules of an exchange, in their order. The first one that has a pattern for a key counts (§2).
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Rules(Vec<Rule>);

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    keys: Patterns,
    change: Change,
    /// `None`: all leaves.
    leaves: Option<Patterns>,
}

/// The nodes that may change a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The root only.
    Root,
    /// The root, and by proposal the leaves that the rule concerns.
    Leaves,
}

/// A rule as the configuration has it, with positions for error messages.
#[derive(Clone, Debug, Default)]
pub struct RuleSource {
    /// The position of the rule itself.
    pub at: Position,
    pub keys: Option<Vec<Text>>,
    pub change: Option<Text>,
    pub leaves: Option<Vec<Text>>,
}

/// A string of the configuration.
#[derive(Clone, Debug)]
pub struct Text {
    pub text: String,
    pub at: Position,
}

/// A place in a file; both numbers count from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Position {
    pub line: usize,
    pub column: usize,
}

/// A mistake in a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleError {
    pub at: Position,
    pub message: String,
}

/// Patterns with their texts, which travel to the leaves.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Patterns(Vec<(String, Pattern)>);

impl Rules {
    /// Parses the rules of a configuration.
    ///
    /// # Errors
    /// All mistakes, in the order of the rules.
    pub fn parse(sources: &[RuleSource]) -> Result<Self, Vec<RuleError>> {
        if let Some(extra) = sources.get(RULES_MAX) {
            return Err(vec![error(extra.at, format!("there are over {RULES_MAX} rules"))]);
        }
        let (mut rules, mut errors) = (Vec::new(), Vec::new());
        for source in sources {
            match Rule::parse(source) {
                Ok(rule) => rules.push(rule),
                Err(mistakes) => errors.extend(mistakes),
            }
        }
        if errors.is_empty() { Ok(Self(rules)) } else { Err(errors) }
    }

    /// Returns the number of rules.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the first rule with a pattern for the key. Keys without a rule, and keys that are not UTF-8, are local.
    #[must_use]
    pub fn find(&self, key: &Key) -> Option<&Rule> {
        self.find_with_index(key).map(|(_, rule)| rule)
    }

    /// Returns the same rule with its index.
    #[must_use]
    pub fn find_with_index(&self, key: &Key) -> Option<(usize, &Rule)> {
        let text = str::from_utf8(key.as_bytes()).ok()?;
        self.0.iter().enumerate().find(|(_, rule)| rule.keys.matches(text))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Rule> {
        self.0.iter()
    }

    /// Whether the key takes part, and concerns this leaf.
    #[must_use]
    pub fn concerns(&self, key: &Key, leaf: &Name) -> bool {
        self.find(key).is_some_and(|rule| rule.concerns(leaf))
    }

    /// Whether this leaf may propose changes of the key.
    #[must_use]
    pub fn may_change(&self, key: &Key, leaf: &Name) -> bool {
        self.find(key).is_some_and(|rule| rule.change == Change::Leaves && rule.concerns(leaf))
    }

    /// Returns the rules as they travel to leaves.
    #[must_use]
    pub fn to_frame(&self) -> Frame {
        Frame::Array(self.0.iter().map(Rule::to_frame).collect())
    }

    /// Returns `None` for anything but valid rules within the bounds.
    #[must_use]
    pub fn from_frame(frame: &Frame) -> Option<Self> {
        let Frame::Array(rules) = frame else { return None };
        let is_bounded = rules.len() <= RULES_MAX;
        let rules = is_bounded.then(|| rules.iter().map(Rule::from_frame).collect::<Option<_>>())?;
        rules.map(Self)
    }

    /// Returns a digest of the rules, by which a leaf reports those that it has.
    #[must_use]
    pub fn digest(&self) -> u64 {
        let mut bytes = bytes::BytesMut::new();
        self.to_frame().encode(&mut bytes);
        fnv(&bytes)
    }
}

impl Rule {
    fn parse(source: &RuleSource) -> Result<Self, Vec<RuleError>> {
        let missing = |what| vec![error(source.at, format!("the rule has no '{what}'"))];
        let keys = source.keys.as_ref().ok_or_else(|| missing("keys"));
        let keys = keys.and_then(|keys| Patterns::parse(keys, source.at, "keys"));
        let change = source.change.as_ref().ok_or_else(|| missing("change")).and_then(|change| {
            let text = change.text.escape_debug();
            let invalid = || error(change.at, format!("change is \"root\" or \"leaves\", not \"{text}\""));
            Change::parse(change.text.as_bytes()).ok_or_else(|| vec![invalid()])
        });
        let leaves = source.leaves.as_ref().map(|leaves| Patterns::parse(leaves, source.at, "leaves"));
        match (keys, change, leaves.transpose()) {
            (Ok(keys), Ok(change), Ok(leaves)) => Ok(Self { keys, change, leaves }),
            (keys, change, leaves) => {
                Err([keys.err(), change.err(), leaves.err()].into_iter().flatten().flatten().collect())
            }
        }
    }

    #[must_use]
    pub fn keys(&self) -> &Patterns {
        &self.keys
    }

    #[must_use]
    pub fn change(&self) -> Change {
        self.change
    }

    /// Returns the patterns of the leaves that the rule concerns; `None`: all leaves.
    #[must_use]
    pub fn leaves(&self) -> Option<&Patterns> {
        self.leaves.as_ref()
    }

    #[must_use]
    pub fn concerns(&self, leaf: &Name) -> bool {
        self.leaves.as_ref().is_none_or(|leaves| leaves.matches(leaf.as_str()))
    }

    fn to_frame(&self) -> Frame {
        let leaves = self.leaves.as_ref().map_or(Frame::Null, Patterns::to_frame);
        let change = Frame::Simple(self.change.as_str().into());
        Frame::Array(vec![self.keys.to_frame(), change, leaves])
    }

    fn from_frame(frame: &Frame) -> Option<Self> {
        let Frame::Array(elements) = frame else { return None };
        let [keys, Frame::Simple(change), leaves, ..] = elements.as_slice() else { return None };
        let leaves = match leaves {
            Frame::Null => None,
            leaves => Some(Patterns::from_frame(leaves)?),
        };
        Some(Self { keys: Patterns::from_frame(keys)?, change: Change::parse(change)?, leaves })
    }
}

impl Change {
    fn parse(text: &[u8]) -> Option<Self> {
        [Self::Root, Self::Leaves].into_iter().find(|change| change.as_str().as_bytes() == text)
    }

    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::Leaves => "leaves",
        }
    }
}

impl Patterns {
    /// Parses a list of patterns; `what` is its name in error messages.
    ///
    /// # Errors
    /// All mistakes.
    pub fn parse(texts: &[Text], at: Position, what: &str) -> Result<Self, Vec<RuleError>> {
        if texts.is_empty() || texts.len() > PATTERNS_MAX {
            return Err(vec![error(at, format!("'{what}' has 1 to {PATTERNS_MAX} patterns"))]);
        }
        let (mut patterns, mut errors) = (Vec::new(), Vec::new());
        for Text { text, at } in texts {
            match pattern(text.as_bytes()) {
                Some(pattern) => patterns.push(pattern),
                None => errors.push(error(*at, format!("invalid pattern \"{}\"", text.escape_debug()))),
            }
        }
        if errors.is_empty() { Ok(Self(patterns)) } else { Err(errors) }
    }

    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(text, _)| text.as_str())
    }

    /// Whether one of the patterns matches.
    #[must_use]
    pub fn matches(&self, text: &str) -> bool {
        self.0.iter().any(|(_, pattern)| pattern.matches_within(text, &mut { STEPS_MAX }) == Some(true))
    }

    fn to_frame(&self) -> Frame {
        Frame::Array(self.0.iter().map(|(text, _)| Frame::Bulk(text.clone().into())).collect())
    }

    fn from_frame(frame: &Frame) -> Option<Self> {
        let Frame::Array(texts) = frame else { return None };
        let parse = |text: &Frame| match text {
            Frame::Bulk(text) => pattern(text),
            _ => None,
        };
        let is_bounded = (1..=PATTERNS_MAX).contains(&texts.len());
        is_bounded.then(|| texts.iter().map(parse).collect::<Option<_>>())?.map(Self)
    }
}

fn pattern(text: &[u8]) -> Option<(String, Pattern)> {
    let text =
        str::from_utf8(text).ok().filter(|text| text.len() <= PATTERN_BYTES_MAX && !text.is_empty())?;
    Pattern::parse(text).ok().map(|pattern| (text.to_owned(), pattern))
}

fn error(at: Position, message: String) -> RuleError {
    RuleError { at, message }
}

impl Hash for Rules {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.digest());
    }
}

impl Hash for Patterns {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.iter().for_each(|(text, _)| text.hash(state));
    }
}

impl fmt::Display for RuleError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "line {}, column {}: {}", self.at.line, self.at.column, self.message)
    }
}

impl std::error::Error for RuleError {}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    fn text(text: &str, line: usize, column: usize) -> Text {
        Text { text: text.to_owned(), at: Position { line, column } }
    }

    fn source(keys: &[&str], change: &str, leaves: Option<&[&str]>) -> RuleSource {
        let texts = |texts: &[&str]| texts.iter().map(|one| text(one, 2, 9)).collect();
        RuleSource {
            at: Position { line: 1, column: 1 },
            keys: Some(texts(keys)),
            change: Some(text(change, 3, 10)),
            leaves: leaves.map(texts),
        }
    }

    pub fn plant() -> Rules {
        Rules::parse(&[
            source(&["recipe/secret"], "root", Some(&["press-7"])),
            source(&["recipe/**"], "root", None),
            source(&["line/*", "state/?"], "leaves", Some(&["press-*"])),
        ])
        .unwrap()
    }

    /// All leaves may change the keys of these patterns.
    pub fn keys(keys: &[&str]) -> Rules {
        Rules::parse(&[source(keys, "leaves", None)]).unwrap()
    }

    /// All leaves may change all keys.
    pub fn all_keys() -> Rules {
        Rules::parse(&[source(&["*"], "leaves", None)]).unwrap()
    }

    fn key(text: &'static str) -> Key {
        Key::new(text).unwrap()
    }

    #[test]
    fn the_first_rule_with_a_pattern_for_the_key_counts() {
        let (rules, press, mill) = (plant(), Name::new("press-7").unwrap(), Name::new("mill").unwrap());
        assert!(
            rules.concerns(&key("recipe/secret"), &press) && !rules.concerns(&key("recipe/secret"), &mill)
        );
        assert!(rules.concerns(&key("recipe/9"), &mill) && !rules.may_change(&key("recipe/9"), &press));
        assert!(
            rules.may_change(&key("line/2/setpoint"), &press) && !rules.may_change(&key("line/2"), &mill)
        );
        assert!(rules.may_change(&key("state/a"), &press));
    }

    #[test]
    fn a_key_without_a_rule_stays_local() {
        let rules = plant();
        assert!(rules.find(&key("other")).is_none());
        assert!(rules.find(&Key::new(vec![b'l', 0xff]).unwrap()).is_none());
        assert!(Rules::default().find(&key("line/1")).is_none());
    }

    #[test]
    fn a_mistake_has_its_line_and_column() {
        let rejected = |source| {
            let errors = Rules::parse(&[source]).unwrap_err();
            errors.iter().map(RuleError::to_string).collect::<Vec<_>>().join("; ")
        };
        let changed = rejected(source(&["a"], "any", None));
        assert_eq!(changed, "line 3, column 10: change is \"root\" or \"leaves\", not \"any\"");
        assert_eq!(rejected(source(&["a**"], "root", None)), "line 2, column 9: invalid pattern \"a**\"");
        assert_eq!(rejected(source(&["a"], "root", Some(&["["]))), "line 2, column 9: invalid pattern \"[\"");
        assert_eq!(rejected(source(&[], "root", None)), "line 1, column 1: 'keys' has 1 to 64 patterns");
        let without = RuleSource { keys: None, ..source(&["a"], "root", None) };
        assert_eq!(rejected(without), "line 1, column 1: the rule has no 'keys'");
        let many = vec![source(&["a"], "root", None); RULES_MAX + 1];
        assert_eq!(Rules::parse(&many).unwrap_err()[0].message, "there are over 256 rules");
        let all = rejected(source(&["a", "b**", "["], "any", Some(&[])));
        assert_eq!(all.split("; ").count(), 4, "{all}");
    }

    #[test]
    fn rules_travel_and_keep_their_digest() {
        let rules = plant();
        let received = Rules::from_frame(&rules.to_frame()).unwrap();
        assert_eq!((&received, received.digest()), (&rules, rules.digest()));
        assert_ne!(rules.digest(), Rules::default().digest());
    }

    #[test]
    fn rules_beyond_the_bounds_are_rejected() {
        let Frame::Array(rules) = plant().to_frame() else { panic!() };
        assert!(Rules::from_frame(&Frame::Array(vec![rules[0].clone(); RULES_MAX + 1])).is_none());
        for bad in [Frame::Null, Frame::Array(vec![Frame::Null]), Frame::Array(vec![Frame::Array(vec![])])] {
            assert!(Rules::from_frame(&bad).is_none(), "{bad:?}");
        }
    }
}

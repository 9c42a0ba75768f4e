//! Patterns of SCAN: the language of Rust's `glob` crate (protocol §7), without its exponential worst case.

/// A parsed pattern: what comes before the first star, then each star with what comes after it.
///
/// A text matches if it begins with the first segment, has the others behind it in their order, and ends with the last
/// one. Each segment is taken at its first place: whatever an earlier star could take, the next one can take too. A
/// segment without `?` and brackets is found in time that is linear in the text, whatever it has in common with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    head: Segment,
    stars: Vec<(Star, Segment)>,
}

/// The text is no valid pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidPattern;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Star {
    /// `*`
    Sequence,
    /// `**/`, or `**` at the end: whole path components, or none; at the end, everything that is left.
    Parts,
}

/// What stands between two stars.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Segment {
    /// Without `?` and brackets.
    Literal(String),
    /// With `?` or brackets.
    Tokens(Vec<Token>),
}

/// What matches one character.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    /// A literal character.
    Char(char),
    /// `?`
    Any,
    /// `[...]` and, negated, `[!...]`: ranges from a character to a character.
    OneOf { negated: bool, ranges: Vec<(char, char)> },
}

impl Pattern {
    /// Parses a pattern. `**` must be a whole path component. Three stars and an unclosed `[` are errors.
    ///
    /// # Errors
    /// [`InvalidPattern`] for any other text.
    pub fn parse(text: &str) -> Result<Self, InvalidPattern> {
        let chars: Vec<char> = text.chars().collect();
        let mut rest = chars.as_slice();
        let mut before = '/';
        let (mut segments, mut kinds, mut tokens) = (Vec::new(), Vec::new(), Vec::new());
        while let [first, tail @ ..] = rest {
            let star;
            (star, rest) = match (first, tail) {
                ('*', ['*', '*', ..]) => return Err(InvalidPattern),
                ('*', ['*', '/', tail @ ..]) if before == '/' => (Star::Parts, tail),
                ('*', ['*']) if before == '/' => (Star::Parts, [].as_slice()),
                ('*', ['*', ..]) => return Err(InvalidPattern),
                ('*', _) => (Star::Sequence, tail),
                _ => {
                    let token;
                    (token, rest) = match (first, tail) {
                        ('?', _) => (Token::Any, tail),
                        ('[', _) => one_of(tail).ok_or(InvalidPattern)?,
                        (char, _) => (Token::Char(*char), tail),
                    };
                    tokens.push(token);
                    before = *first;
                    continue;
                }
            };
            before = if star == Star::Parts { '/' } else { *first };
            segments.push(Segment::new(std::mem::take(&mut tokens)));
            kinds.push(star);
        }
        segments.push(Segment::new(tokens));
        let mut segments = segments.into_iter();
        let head = segments.next().ok_or(InvalidPattern)?;
        Ok(Self { head, stars: kinds.into_iter().zip(segments).collect() })
    }

    /// Returns a prefix that every matching text has.
    pub(super) fn literal_prefix(&self) -> String {
        match &self.head {
            Segment::Literal(text) => text.clone(),
            Segment::Tokens(tokens) => {
                let literal = tokens.iter().map_while(|token| match token {
                    Token::Char(char) => Some(*char),
                    Token::Any | Token::OneOf { .. } => None,
                });
                literal.collect()
            }
        }
    }

    /// Whether it matches all texts with its literal prefix: nothing but a star follows that.
    pub(super) fn is_prefix(&self) -> bool {
        let is_empty = |segment: &Segment| matches!(segment, Segment::Literal(text) if text.is_empty());
        matches!(self.head, Segment::Literal(_)) && matches!(&self.stars[..], [(_, last)] if is_empty(last))
    }

    /// Whether the pattern matches the whole text.
    pub(super) fn matches(&self, text: &str) -> bool {
        let mut steps = usize::MAX;
        self.matches_within(text, &mut steps).unwrap_or(false)
    }

    /// Matches in at most `steps` steps and subtracts those that it took. Returns `None` if they do not
    /// suffice.
    ///
    /// Without `?` and brackets, the number of steps is at most the length of the text and the pattern together.
    /// Otherwise it is at most their product, which is too much for two long ones.
    pub fn matches_within(&self, text: &str, steps: &mut usize) -> Option<bool> {
        let Some(mut rest) = self.head.strip(text, steps)? else { return Some(false) };
        let Some(((last_star, last), others)) = self.stars.split_last() else { return Some(rest.is_empty()) };
        // A component begins where the previous segment ended: the parser requires that there is a slash before `**`.
        for (star, segment) in others {
            let Some(after) = segment.find(rest, *star, steps)? else { return Some(false) };
            rest = after;
        }
        last.ends(rest, *last_star, steps)
    }
}

impl Segment {
    fn new(tokens: Vec<Token>) -> Self {
        let literal: Option<String> = tokens
            .iter()
            .map(|token| match token {
                Token::Char(char) => Some(*char),
                Token::Any | Token::OneOf { .. } => None,
            })
            .collect();
        literal.map_or(Self::Tokens(tokens), Self::Literal)
    }

    /// Returns what follows the segment at the start of a text; `Some(None)` if the text does not begin with it.
    fn strip<'a>(&self, text: &'a str, steps: &mut usize) -> Option<Option<&'a str>> {
        match self {
            Self::Literal(literal) => {
                *steps = steps.checked_sub(literal.len().min(text.len()))?;
                Some(text.strip_prefix(literal.as_str()))
            }
            Self::Tokens(tokens) => {
                let mut chars = text.chars();
                for token in tokens {
                    *steps = steps.checked_sub(token.steps())?;
                    if !chars.next().is_some_and(|char| token.is(char)) {
                        return Some(None);
                    }
                }
                Some(Some(chars.as_str()))
            }
        }
    }

    /// Returns what follows the first place of the segment behind a star.
    fn find<'a>(&self, text: &'a str, star: Star, steps: &mut usize) -> Option<Option<&'a str>> {
        if let Self::Literal(literal) = self {
            if star == Star::Parts {
                if let Some(after) = self.strip(text, steps)? {
                    return Some(Some(after));
                }
                return find_literal(text, &["/", literal].concat(), steps);
            }
            return find_literal(text, literal, steps);
        }
        let mut from = text.chars();
        loop {
            if let Some(after) = self.strip(from.as_str(), steps)? {
                return Some(Some(after));
            }
            *steps = steps.checked_sub(1)?;
            if !from.any(|char| star == Star::Sequence || char == '/') {
                return Some(None);
            }
        }
    }

    /// Whether a text ends with the segment, behind a star at its start.
    fn ends(&self, text: &str, star: Star, steps: &mut usize) -> Option<bool> {
        let len = match self {
            Self::Literal(literal) if literal.is_empty() => return Some(true),
            Self::Literal(literal) => literal.len(),
            Self::Tokens(tokens) => {
                *steps = steps.checked_sub(tokens.len())?;
                // Each token matches one character.
                let last = tokens.len().checked_sub(1).and_then(|last| text.char_indices().rev().nth(last));
                let Some((at, _)) = last else { return Some(false) };
                text.len().saturating_sub(at)
            }
        };
        let at = text.len().checked_sub(len).and_then(|at| text.split_at_checked(at));
        let Some((before, end)) = at else { return Some(false) };
        let is_place = star == Star::Sequence || before.is_empty() || before.ends_with('/');
        Some(is_place && self.strip(end, steps)? == Some(""))
    }
}

/// Returns what follows the first place of a literal.
fn find_literal<'a>(text: &'a str, literal: &str, steps: &mut usize) -> Option<Option<&'a str>> {
    // The search of the standard library is linear in both lengths.
    let found = text.find(literal).and_then(|at| text.get(at.saturating_add(literal.len())..));
    let looked_at = text.len().saturating_sub(found.map_or(0, str::len));
    *steps = steps.checked_sub(looked_at)?;
    Some(found)
}

impl Token {
    /// Returns the cost of comparing one character.
    fn steps(&self) -> usize {
        match self {
            Self::OneOf { ranges, .. } => ranges.len(),
            Self::Char(_) | Self::Any => 1,
        }
    }

    fn is(&self, char: char) -> bool {
        match self {
            Self::Char(expected) => *expected == char,
            Self::OneOf { negated, ranges } => {
                let within = ranges.iter().any(|(first, last)| (*first..=*last).contains(&char));
                within != *negated
            }
            Self::Any => true,
        }
    }
}

/// Parses the part after `[`. A `]` that comes first is literal, and so is a `-` that is first or last.
fn one_of(tail: &[char]) -> Option<(Token, &[char])> {
    let negated = tail.first() == Some(&'!');
    let tail = if negated { tail.get(1..)? } else { tail };
    let end = tail.iter().skip(1).position(|char| *char == ']')?.checked_add(1)?;
    let (mut inside, rest) = tail.split_at_checked(end)?;
    let mut ranges = Vec::new();
    while let [first, tail @ ..] = inside {
        let last;
        (last, inside) = match tail {
            ['-', last, tail @ ..] => (last, tail),
            _ => (first, tail),
        };
        ranges.push((*first, *last));
    }
    let token = match ranges.as_slice() {
        // An escaped character is as cheap as any other.
        [(first, last)] if first == last && !negated => Token::Char(*first),
        _ => Token::OneOf { negated, ranges },
    };
    Some((token, rest.get(1..)?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The results of version 0.3 of the `glob` crate.
    #[test]
    fn patterns_match_as_those_of_the_glob_crate_do() {
        let rows: &[(&str, &[&str], &[&str])] = &[
            ("", &[""], &["a"]),
            ("*", &["", "a", "a/b", ".a"], &[]),
            ("a*", &["a", "ab", "a/b"], &["ba", ""]),
            ("*b*c", &["bc", "abbcc", "b/c"], &["b", "cb"]),
            ("?", &["a", "é", "/"], &["", "ab"]),
            ("[ab]c", &["ac", "bc"], &["cc", "c", "abc"]),
            ("[0-9]", &["0", "9"], &["a", ""]),
            ("[!0-9]", &["a", "!"], &["5", ""]),
            ("[^0-9]", &["^", "5"], &["a"]),
            ("[*]", &["*"], &["a"]),
            ("[]]", &["]"], &["a"]),
            ("[]-]", &["]", "-"], &["a"]),
            ("[!]a]", &["b"], &["]", "a"]),
            ("[a-]", &["a", "-"], &["b"]),
            ("[-a]", &["a", "-"], &["b"]),
            ("[z-a]", &[], &["m", "z", "a", "-"]),
            ("a/**", &["a/", "a/b", "a/b/c"], &["a", "ab"]),
            ("**/b", &["b", "a/b", "a/c/b"], &["ab", "a/bb"]),
            ("a/**/b", &["a/b", "a/x/b", "a/x/y/b"], &["ab", "a/xb"]),
            ("**/**/b", &["b", "a/b"], &["ab"]),
            ("**/*.x", &["a.x", "b/a.x"], &["a.y"]),
            ("**", &["", "a", "a/b"], &[]),
            ("**/", &["", "a", "a/b"], &[]),
        ];
        for (pattern, matching, others) in rows {
            let parsed = Pattern::parse(pattern).unwrap();
            assert!(matching.iter().all(|text| parsed.matches(text)), "{pattern} {parsed:?}");
            assert!(!others.iter().any(|text| parsed.matches(text)), "{pattern} {parsed:?}");
        }
    }

    #[test]
    fn a_pattern_that_the_glob_crate_rejects_is_invalid() {
        for text in ["***", "a**", "**a", "a/**b", "[", "[]", "[a", "[!]", "[!", "x[!a"] {
            assert_eq!(Pattern::parse(text), Err(InvalidPattern), "{text}");
        }
    }

    #[test]
    fn patterns_without_character_classes_are_matched_in_linear_time() {
        let a = |count: usize| "a".repeat(count);
        for (pattern, text) in [
            ("*a".repeat(1_000), a(999)),
            (format!("{}b", "a*".repeat(50)), a(10_000)),
            (format!("*{}b", a(5_000)), a(10_000)),
            (format!("*{}b*", a(5_000)), a(10_000)),
            (format!("**/{}b/**/c", "a/".repeat(2_000)), "a/".repeat(5_000)),
            (format!("*{}[*]b*", a(5_000)), a(10_000)),
            (format!("*{}", "?".repeat(5_000)), a(4_999)),
        ] {
            let mut steps = 2 * (pattern.len() + text.len());
            let matched = Pattern::parse(&pattern).unwrap().matches_within(&text, &mut steps);
            assert_eq!(matched, Some(false), "{}", &pattern[..10]);
        }
    }

    #[test]
    fn a_pattern_with_character_classes_stops_when_its_steps_are_used_up() {
        let pattern = Pattern::parse(&format!("*[ab]{}b*", "a".repeat(100))).unwrap();
        let text = "a".repeat(10_000);
        assert_eq!(pattern.matches_within(&text, &mut 100_000), None);
        let mut steps = 2_000_000;
        assert_eq!(pattern.matches_within(&text, &mut steps), Some(false));
        assert!((900_000..1_100_000).contains(&steps), "{steps}");
    }

    /// Tries every place for each star.
    fn matches_naively(pattern: &Pattern, text: &str) -> bool {
        fn after_stars(stars: &[(Star, Segment)], text: &str) -> bool {
            let Some(((star, segment), rest)) = stars.split_first() else { return text.is_empty() };
            if *star == Star::Parts && rest.is_empty() && *segment == Segment::Literal(String::new()) {
                return true;
            }
            let places = text.char_indices().map(|(at, _)| at).chain([text.len()]);
            let mut places =
                places.filter(|at| *star == Star::Sequence || *at == 0 || text[..*at].ends_with('/'));
            places.any(|at| {
                let after = segment.strip(&text[at..], &mut { usize::MAX }).unwrap();
                after.is_some_and(|after| after_stars(rest, after))
            })
        }
        let after = pattern.head.strip(text, &mut { usize::MAX }).unwrap();
        after.is_some_and(|after| after_stars(&pattern.stars, after))
    }

    proptest! {
        #[test]
        fn a_match_is_found_if_there_is_one(
            pattern in "([ab/é?]|\\*|\\*\\*/|\\[ab\\]|\\[!a\\]){0,8}", text in "[ab/é]{0,10}",
        ) {
            if let Ok(parsed) = Pattern::parse(&pattern) {
                prop_assert_eq!(parsed.matches(&text), matches_naively(&parsed, &text));
            }
        }
    }
}

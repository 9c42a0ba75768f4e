//! Patterns of SCAN: the language of Rust's `glob` crate (protocol §7), without its exponential worst case.

/// A parsed pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pattern(Vec<Token>);

/// The text is no valid pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidPattern;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    /// A literal character.
    Char(char),
    /// `?`
    Any,
    /// `[...]` and, negated, `[!...]`: ranges from a character to a character.
    OneOf { negated: bool, ranges: Vec<(char, char)> },
    /// `*`
    Sequence,
    /// `**/`, or `**` at the end: whole path components, or none; at the end, everything that is left.
    Parts,
}

impl Pattern {
    /// Parses a pattern. `**` must be a whole path component. Three stars and an unclosed `[` are errors.
    pub(super) fn parse(text: &str) -> Result<Self, InvalidPattern> {
        let chars: Vec<char> = text.chars().collect();
        let mut rest = chars.as_slice();
        let mut before = '/';
        let mut tokens = Vec::new();
        while let [first, tail @ ..] = rest {
            let token;
            (token, rest) = match (first, tail) {
                ('?', _) => (Token::Any, tail),
                ('*', ['*', '*', ..]) => return Err(InvalidPattern),
                ('*', ['*', '/', tail @ ..]) if before == '/' => (Token::Parts, tail),
                ('*', ['*']) if before == '/' => (Token::Parts, [].as_slice()),
                ('*', ['*', ..]) => return Err(InvalidPattern),
                ('*', _) => (Token::Sequence, tail),
                ('[', _) => one_of(tail).ok_or(InvalidPattern)?,
                (char, _) => (Token::Char(*char), tail),
            };
            before = match token {
                Token::Parts => '/',
                _ => *first,
            };
            tokens.push(token);
        }
        Ok(Self(tokens))
    }

    /// Returns the prefix that every matching text has.
    pub(super) fn literal_prefix(&self) -> String {
        let literal = self.0.iter().map_while(|token| match token {
            Token::Char(char) => Some(*char),
            _ => None,
        });
        literal.collect()
    }

    /// Whether the pattern matches the whole text.
    pub(super) fn matches(&self, text: &str) -> bool {
        let mut steps = usize::MAX;
        self.matches_within(text, &mut steps).unwrap_or(false)
    }

    /// Matches in at most `steps` steps and subtracts those that it took. Returns `None` if they do not
    /// suffice.
    ///
    /// Only the last star ever needs to be retried: whatever an earlier one could take, the last one can take
    /// too. The number of steps is therefore at most the length of the text times that of the pattern, which
    /// is still too much for two long ones.
    pub(super) fn matches_within(&self, text: &str, steps: &mut usize) -> Option<bool> {
        let (mut tokens, mut chars) = (self.0.as_slice(), text.chars());
        let mut retry = None;
        loop {
            let matched = match tokens {
                [] => chars.as_str().is_empty(),
                [Token::Parts] => return Some(true),
                [star @ (Token::Sequence | Token::Parts), rest @ ..] => {
                    tokens = rest;
                    retry = Some((star, rest, chars.clone()));
                    continue;
                }
                [token, rest @ ..] => {
                    *steps = steps.checked_sub(token.steps())?;
                    let matched = chars.next().is_some_and(|char| token.is(char));
                    if matched {
                        tokens = rest;
                        continue;
                    }
                    matched
                }
            };
            if matched {
                return Some(true);
            }
            let Some((star, after, from)) = &mut retry else {
                return Some(false);
            };
            *steps = steps.checked_sub(1)?;
            let stops = |char: char| **star == Token::Sequence || char == '/';
            if !from.any(stops) {
                return Some(false);
            }
            (tokens, chars) = (*after, from.clone());
        }
    }
}

impl Token {
    /// Returns the cost of comparing one character.
    fn steps(&self) -> usize {
        match self {
            Self::OneOf { ranges, .. } => ranges.len(),
            Self::Char(_) | Self::Any | Self::Sequence | Self::Parts => 1,
        }
    }

    fn is(&self, char: char) -> bool {
        match self {
            Self::Char(expected) => *expected == char,
            Self::OneOf { negated, ranges } => {
                let within = ranges.iter().any(|(first, last)| (*first..=*last).contains(&char));
                within != *negated
            }
            Self::Any | Self::Sequence | Self::Parts => true,
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
    Some((Token::OneOf { negated, ranges }, rest.get(1..)?))
}

#[cfg(test)]
mod tests {
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
    fn many_stars_are_matched_in_bounded_time() {
        let pattern = Pattern::parse(&"*a".repeat(1_000)).unwrap();
        assert!(!pattern.matches(&"a".repeat(999)));
        assert!(!Pattern::parse(&format!("{}b", "a*".repeat(50))).unwrap().matches(&"a".repeat(10_000)));
    }
}

//! The pattern language of SCAN, that of Rust's `glob` crate (protocol §7), without its exponential worst case.

/// One pattern, ready to be matched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pattern(Vec<Token>);

/// A text is no pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidPattern;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    /// A character that stands for itself.
    Char(char),
    /// `?`
    Any,
    /// `[...]` and, negated, `[!...]`: ranges from a character to a character.
    OneOf { negated: bool, ranges: Vec<(char, char)> },
    /// `*`
    Sequence,
    /// `**/`, or `**` at the end: whole parts of a path, or none; at the end, whatever there is.
    Parts,
}

impl Pattern {
    /// Reads a pattern. `**` must be a whole part of a path; three stars and an open `[` are errors.
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

    /// What every text that it describes begins with.
    pub(super) fn literal_prefix(&self) -> String {
        let literal = self.0.iter().map_while(|token| match token {
            Token::Char(char) => Some(*char),
            _ => None,
        });
        literal.collect()
    }

    /// Whether the pattern describes the whole text.
    pub(super) fn matches(&self, text: &str) -> bool {
        let mut steps = usize::MAX;
        self.matches_within(text, &mut steps).unwrap_or(false)
    }

    /// The same in so many steps at most, which it takes off; none if that was not enough.
    ///
    /// Only the last star ever needs another try: whatever an earlier one could take, the last can take too. So the
    /// steps are no more than the text has characters times what the pattern has, which for long ones is very much.
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
    /// What it costs to hold a character against it.
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

/// What follows a `[`. A `]` that comes first stands for itself, and so does a `-` that is first or last.
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

    /// What version 0.3 of the `glob` crate says to each of these.
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
    fn what_the_glob_crate_refuses_is_no_pattern() {
        for text in ["***", "a**", "**a", "a/**b", "[", "[]", "[a", "[!]", "[!", "x[!a"] {
            assert_eq!(Pattern::parse(text), Err(InvalidPattern), "{text}");
        }
    }

    #[test]
    fn many_stars_do_not_take_for_ever() {
        let pattern = Pattern::parse(&"*a".repeat(1_000)).unwrap();
        assert!(!pattern.matches(&"a".repeat(999)));
        assert!(!Pattern::parse(&format!("{}b", "a*".repeat(50))).unwrap().matches(&"a".repeat(10_000)));
    }
}

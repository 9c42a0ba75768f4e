//! Templates: strings of the rules with placeholders for properties of the client.

use std::fmt;

use super::error::RuleError;
use crate::broker::Principal;
use crate::store::authorization::escape;

/// The start of a placeholder for a property of the client.
pub(super) const OPENING: &str = "{principal.";

/// First topic levels that do not belong to one client: all clients' topics and the state store's.
const RESERVED_LEVELS: [&str; 2] = ["clients", "statestore"];

/// A string with placeholders for properties of the client: each placeholder stands between two texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Template(Vec<Piece>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    Text(String),
    ClientId,
    Username,
    Attribute(String),
}

/// What a template stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Usage {
    TopicFilter,
    KeyPattern,
    Key,
    ClientId,
}

/// Why a template has no string for a client.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unfilled {
    /// The client lacks the property of a placeholder.
    Missing,
    /// The value of this placeholder would let the rule reach beyond the client.
    Unsafe(Piece),
}

/// The client that the rules are evaluated for.
#[derive(Clone, Copy)]
pub(super) struct Subject<'a> {
    pub(super) client_id: &'a str,
    pub(super) principal: &'a Principal,
}

impl Usage {
    /// Returns whether a character has a meaning of its own in the literal text of a template.
    fn is_wildcard(self, char: char) -> bool {
        match self {
            Self::TopicFilter => matches!(char, '+' | '#'),
            Self::KeyPattern => matches!(char, '*' | '?' | '['),
            Self::Key | Self::ClientId => false,
        }
    }

    /// Returns whether a value with this character may not be inserted. Wildcards of a key pattern can be escaped,
    /// those of a topic filter cannot.
    fn is_separator(self, char: char) -> bool {
        match self {
            Self::TopicFilter => matches!(char, '/' | '+' | '#' | '\0'),
            Self::KeyPattern | Self::Key => char == '/',
            Self::ClientId => false,
        }
    }
}

impl Template {
    pub(super) fn parse(line: usize, text: &str) -> Result<Self, RuleError> {
        let (mut pieces, mut rest) = (Vec::new(), text);
        while let Some((before, after)) = rest.split_once(OPENING) {
            let (name, after) = after
                .split_once('}')
                .ok_or_else(|| RuleError::new(line, format!("{text} has {OPENING} without }}")))?;
            pieces.push(Piece::Text(before.to_owned()));
            pieces.push(match (name, name.strip_prefix("attributes.")) {
                ("clientId", _) => Piece::ClientId,
                ("username", _) => Piece::Username,
                (_, Some(name)) if !name.is_empty() => Piece::Attribute(name.to_owned()),
                _ => {
                    let known = "{principal.clientId}, {principal.username} or {principal.attributes.NAME}";
                    return Err(RuleError::new(
                        line,
                        format!("unknown placeholder {OPENING}{name}}}: expected {known}"),
                    ));
                }
            });
            rest = after;
        }
        pieces.push(Piece::Text(rest.to_owned()));
        Ok(Self(pieces))
    }

    /// Returns the string with sample values.
    pub(super) fn sample(&self) -> String {
        let text = |piece: &Piece| match piece {
            Piece::Text(text) => text.clone(),
            _ => "x".to_owned(),
        };
        self.0.iter().map(text).collect()
    }

    /// Returns the text before each placeholder, with sample values in earlier ones.
    pub(super) fn prefixes(&self) -> Vec<String> {
        let mut text = String::new();
        let mut prefixes = Vec::new();
        for piece in &self.0 {
            match piece {
                Piece::Text(piece) => text.push_str(piece),
                _ => {
                    prefixes.push(text.clone());
                    text.push('x');
                }
            }
        }
        prefixes
    }

    /// Returns the string for one client.
    ///
    /// A value that contains a separator could reach what belongs to another client: with `{principal.clientId}/*`, the
    /// client `press-8/sub` would read the keys of `press-8`. Such a template does not apply.
    pub(super) fn fill(&self, subject: Subject<'_>, usage: Usage) -> Result<String, Unfilled> {
        let mut filled = String::new();
        let mut in_first_level = None;
        for (at, piece) in self.0.iter().enumerate() {
            if let Piece::Text(text) = piece {
                filled.push_str(text);
                continue;
            }
            let value = piece.value(subject).ok_or(Unfilled::Missing)?;
            let rest = self.0.get(at.saturating_add(1)..).unwrap_or_default();
            if value.is_empty()
                || value.contains(|char| usage.is_separator(char))
                || is_ambiguous_before(value, rest, usage)
            {
                return Err(Unfilled::Unsafe(piece.clone()));
            }
            if !filled.contains('/') {
                in_first_level = Some(piece);
            }
            match usage {
                Usage::KeyPattern => filled.push_str(&escape(value)),
                Usage::TopicFilter | Usage::Key | Usage::ClientId => filled.push_str(value),
            }
        }
        match in_first_level {
            Some(piece) if usage == Usage::TopicFilter && self.has_reserved_level(&filled) => {
                Err(Unfilled::Unsafe(piece.clone()))
            }
            _ => Ok(filled),
        }
    }

    /// Returns whether a value has turned the first level of a topic filter into a reserved one.
    fn has_reserved_level(&self, filled: &str) -> bool {
        let begins_with_value = matches!(self.0.first(), Some(Piece::Text(text)) if text.is_empty());
        let first = filled.split('/').next().unwrap_or_default();
        // `$SYS` and `$share`, among others.
        RESERVED_LEVELS.contains(&first) || (begins_with_value && first.starts_with('$'))
    }
}

impl Piece {
    /// Returns the client's property that a placeholder stands for.
    fn value<'a>(&self, Subject { client_id, principal }: Subject<'a>) -> Option<&'a str> {
        match self {
            Self::Text(_) => None,
            Self::ClientId => Some(client_id),
            Self::Username => principal.user.as_deref(),
            Self::Attribute(name) => principal
                .certificate_attributes()
                .find(|(known, _)| known == name)
                .map(|(_, value)| value.as_str()),
        }
    }
}

/// Returns whether `value` and the separator after it can be read as a shorter value, the separator, and more: with
/// `{principal.clientId}:*`, the keys of the client `a:b` would be keys of the client `a` too.
///
/// `rest` is the template after the placeholder. Its text up to the next wildcard or placeholder is the separator; if the
/// template ends with that text, nothing can follow it.
fn is_ambiguous_before(value: &str, rest: &[Piece], usage: Usage) -> bool {
    let Some((Piece::Text(text), after)) = rest.split_first() else { return false };
    let separator = text.split(|char| usage.is_wildcard(char)).next().unwrap_or_default();
    if separator.is_empty() || (separator.len() == text.len() && after.is_empty()) {
        return false;
    }
    value.char_indices().skip(1).any(|(at, _)| {
        let tail = value.bytes().skip(at);
        separator.bytes().zip(tail.chain(separator.bytes())).all(|(expected, found)| expected == found)
    })
}

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|piece| piece.fmt(f))
    }
}

impl fmt::Display for Piece {
    /// Writes the piece as in the file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::ClientId => write!(f, "{OPENING}clientId}}"),
            Self::Username => write!(f, "{OPENING}username}}"),
            Self::Attribute(name) => write!(f, "{OPENING}attributes.{name}}}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(template: &str, client_id: &str, user: Option<&str>, usage: Usage) -> Result<String, Unfilled> {
        let principal = Principal { user: user.map(Into::into), ..Principal::default() };
        let subject = Subject { client_id, principal: &principal };
        Template::parse(1, template).unwrap().fill(subject, usage)
    }

    #[test]
    fn a_value_with_a_separator_is_not_inserted() {
        const ID: &str = "{principal.clientId}";
        let key = [Usage::KeyPattern, Usage::Key];
        for (usages, template, id, is_filled) in [
            (&key[..], "ID/*", "press-8", true),
            (&key[..], "ID/*", "press-8/sub", false),
            (&key[..], "own/ID", "press-8/sub", false),
            (&key[..1], "ID:*", "a:b", false),
            (&key[..1], "ID:*", "a.b", true),
            (&key[..1], "ID--*", "a-", false),
            (&key[..1], "ID--*", "a-b", true),
            (&key[..1], "IDstate*", "press-7", true),
            // Nothing can follow the value, so a prefix of it is another key.
            (&key[..], "own:ID", "a:b", true),
            (&key[..], "ID:state", "a:b", true),
            (&[Usage::TopicFilter][..], "t/ID/#", "a/b", false),
            (&[Usage::TopicFilter][..], "t/ID", "a+", false),
            (&[Usage::TopicFilter][..], "t/ID", "#", false),
            (&[Usage::TopicFilter][..], "t/ID", "a.b", true),
            (&[Usage::ClientId][..], "ID", "a/b:c", true),
        ] {
            for usage in usages {
                let filled = fill(&template.replace("ID", ID), id, None, *usage);
                let expected = if is_filled {
                    Ok(template.replace("ID", id))
                } else {
                    Err(Unfilled::Unsafe(Piece::ClientId))
                };
                assert_eq!(filled, expected, "{template} {id} {usage:?}");
            }
        }
    }

    #[test]
    fn two_placeholders_are_separated_unambiguously() {
        let template = "{principal.username}-{principal.clientId}";
        for usage in [Usage::TopicFilter, Usage::KeyPattern, Usage::Key, Usage::ClientId] {
            assert_eq!(fill(template, "b-c", Some("a"), usage), Ok("a-b-c".to_owned()));
            assert_eq!(fill(template, "c", Some("a-b"), usage), Err(Unfilled::Unsafe(Piece::Username)));
        }
    }

    #[test]
    fn a_missing_or_empty_property_is_not_inserted() {
        for usage in [Usage::TopicFilter, Usage::KeyPattern, Usage::Key, Usage::ClientId] {
            let fill = |user| fill("own/{principal.username}", "x", user, usage);
            assert_eq!(fill(None), Err(Unfilled::Missing), "{usage:?}");
            assert_eq!(fill(Some("")), Err(Unfilled::Unsafe(Piece::Username)), "{usage:?}");
            assert_eq!(fill(Some("ann")), Ok("own/ann".to_owned()), "{usage:?}");
        }
    }

    #[test]
    fn a_value_is_never_a_reserved_first_level() {
        for (template, id, is_filled) in [
            ("ID/#", "clients", false),
            ("ID/#", "statestore", false),
            ("ID/#", "$SYS", false),
            ("ID", "$share", false),
            ("clientID/#", "s", false),
            ("ID/#", "clients2", true),
            ("a/ID/#", "clients", true),
            ("clients/ID/#", "clients", true),
            ("clients/ID/#", "$SYS", true),
            ("$app-ID/#", "x", true),
        ] {
            let filled = fill(&template.replace("ID", "{principal.clientId}"), id, None, Usage::TopicFilter);
            assert_eq!(filled.is_ok(), is_filled, "{template} {id}");
        }
        assert!(fill("{principal.clientId}/*", "clients", None, Usage::KeyPattern).is_ok(), "a key");
    }

    #[test]
    fn a_template_is_displayed_as_in_the_file() {
        let text = "a/{principal.clientId}/{principal.username}-{principal.attributes.OU}";
        assert_eq!(Template::parse(1, text).unwrap().to_string(), text);
    }
}

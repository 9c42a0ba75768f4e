//! Secrets in URLs: passwords before the `@`, and queries (pure).

use std::borrow::Cow;

/// Returns a URL without what may be a secret in it; other words unchanged.
#[must_use]
pub fn without_secret(url: &str) -> Cow<'_, str> {
    let (scheme, rest) = url.split_at(url.find("://").map_or(0, |at| at.saturating_add("://".len())));
    // The last @ ends the user, because a password may contain any character.
    let (user, place) = rest.split_at(rest.rfind('@').map_or(0, |at| at.saturating_add(1)));
    let user_shown = if user.contains([':', '/', '?', '#']) { "…@" } else { user };
    // The only query of brokers in a cluster.
    let is_known = scheme == "kube://" && place.contains("?serviceaccount=");
    let query = place.find(['?', '#']).filter(|_| !scheme.is_empty() && !is_known);
    let place_shown = query.and_then(|at| place.get(..=at));
    match place_shown {
        Some(place) => Cow::Owned(format!("{scheme}{user_shown}{place}…")),
        None if user_shown != user => Cow::Owned(format!("{scheme}{user_shown}{place}")),
        None => Cow::Borrowed(url),
    }
}

/// Returns whether a URL may contain a secret.
#[must_use]
pub fn has_secret(url: &str) -> bool {
    matches!(without_secret(url), Cow::Owned(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_and_a_query_are_removed() {
        for (url, shown) in [
            ("mqtt://u:secret@h:1", "mqtt://…@h:1"),
            ("wss://u/secret@h/a", "wss://…@h/a"),
            ("u:secret@h", "…@h"),
            ("u:secret@", "…@"),
            ("mqtt://h?password=secret", "mqtt://h?…"),
            ("mqtt://ann@h/?password=secret&a=b", "mqtt://ann@h/?…"),
            ("ws://u:secret@h#secret", "ws://…@h#…"),
            ("mqtt://u:sec?ret@h", "mqtt://…@h"),
            ("kube://c?token=secret", "kube://c?…"),
        ] {
            assert_eq!(without_secret(url), shown);
            assert!(has_secret(url), "{url}");
        }
    }

    #[test]
    fn other_words_are_unchanged() {
        for word in [
            "kube:",
            "kube://ann@c/ns",
            "kube://c?serviceaccount=me",
            "",
            "mqtt://h",
            "mqtt://ann@h:1884",
            "ann@h",
            "h:1",
            "what?",
            "a#b",
            "://",
            "5s",
        ] {
            assert_eq!(without_secret(word), word);
            assert!(!has_secret(word), "{word}");
        }
    }
}

//! The store's error texts: one table, both directions, plus those that nobody knows yet (protocol §2).

use std::fmt;

/// Why the store refuses a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ErrorReply {
    /// `__ts` is more than 60 s ahead of the store's clock.
    TimestampTooFarAhead,
    /// The key is fenced and the request has no token.
    FenceRequired,
    /// `__ft` is more than 60 s ahead of the store's clock.
    FenceTooFarAhead,
    /// The key is fenced by a newer token.
    FenceTooOld,
    /// A limit of the store is reached.
    QuotaExceeded,
    /// The payload is no request.
    SyntaxError,
    /// The client may not do this to this key.
    NotAuthorized,
    /// The store does not know the verb.
    UnknownCommand,
    /// A verb has too few or too many arguments.
    WrongNumberOfArguments,
    /// A SET has no `__ts`.
    MissingTimestamp,
    /// `__ts` or `__ft` is no timestamp.
    MalformedTimestamp,
    /// The key has no bytes.
    EmptyKey,
    /// The key is over the store's limit. Ours: the published list has no text for it.
    KeyTooLong,
    /// The value is over the store's limit. Ours, as above.
    ValueTooLong,
    /// The key is too long for a notification topic. Ours: MQTT sets the limit (protocol §3).
    KeyTooLongToWatch,
    /// The change could not be put on disk, and was not made. Ours.
    NotPersisted,
    /// A text that is in no table, as received, at most one frame line long.
    Unknown(String),
}

/// The exact texts, after `-ERR `.
const TEXTS: [(ErrorReply, &str); 16] = [
    (
        ErrorReply::TimestampTooFarAhead,
        "the request timestamp is too far in the future; ensure that the client and broker system clocks are synchronized",
    ),
    (ErrorReply::FenceRequired, "a fencing token is required for this request"),
    (
        ErrorReply::FenceTooFarAhead,
        "the request fencing token timestamp is too far in the future; ensure that the client and broker system clocks are synchronized",
    ),
    (
        ErrorReply::FenceTooOld,
        "the request fencing token is a lower version than the fencing token protecting the resource",
    ),
    (ErrorReply::QuotaExceeded, "the quota has been exceeded"),
    (ErrorReply::SyntaxError, "syntax error"),
    (ErrorReply::NotAuthorized, "not authorized"),
    (ErrorReply::UnknownCommand, "unknown command"),
    (ErrorReply::WrongNumberOfArguments, "wrong number of arguments"),
    (ErrorReply::MissingTimestamp, "missing timestamp"),
    (ErrorReply::MalformedTimestamp, "malformed timestamp"),
    (ErrorReply::EmptyKey, "the key length is zero"),
    (ErrorReply::KeyTooLong, "the key is too long"),
    (ErrorReply::ValueTooLong, "the value is too long"),
    (ErrorReply::KeyTooLongToWatch, "the key is too long to be notified"),
    (ErrorReply::NotPersisted, "the change could not be persisted"),
];

/// How the published page spells [`ErrorReply::FenceTooOld`] (protocol §0 row 6).
const FENCE_TOO_OLD_ON_THE_PAGE: &str =
    "the request fencing token is a lower version that the fencing token protecting the resource";

impl ErrorReply {
    /// Every error_reply with a text of its own.
    pub fn known() -> impl Iterator<Item = &'static Self> {
        TEXTS.iter().map(|(error_reply, _)| error_reply)
    }

    /// The error_reply that a text stands for.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        if text == FENCE_TOO_OLD_ON_THE_PAGE {
            return Self::FenceTooOld;
        }
        let known = TEXTS.iter().find(|(_, known)| *known == text);
        known.map_or_else(|| Self::Unknown(text.to_owned()), |(error_reply, _)| error_reply.clone())
    }

    /// The text that stands for the error_reply, without `-ERR `.
    #[must_use]
    pub fn text(&self) -> &str {
        match self {
            Self::Unknown(text) => text,
            known => TEXTS.iter().find(|(error_reply, _)| error_reply == known).map_or("", |(_, text)| text),
        }
    }
}

impl fmt::Display for ErrorReply {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.text())
    }
}

#[cfg(test)]
mod tests {
    use super::super::vectors::{Case, check};
    use super::*;

    fn run(case: &Case<'_>) -> String {
        let ["text"] = case.operation() else { case.unknown() };
        let [text] = case.operands();
        let error_reply = ErrorReply::parse(text);
        if error_reply.text() == text {
            format!("{error_reply:?}")
        } else {
            format!("{error_reply:?}\ntext {error_reply}")
        }
    }

    #[test]
    fn texts_are_as_in_the_vectors() {
        check(include_str!("../../tests/vectors/error_reply.txt"), run);
    }

    #[test]
    fn every_refusal_has_one_text_and_every_text_one_refusal() {
        for (error_reply, text) in &TEXTS {
            assert!(!text.is_empty());
            assert_eq!(error_reply.text(), *text);
            assert_eq!(ErrorReply::parse(text), *error_reply);
        }
    }

    #[test]
    fn an_unknown_text_is_kept_as_it_is() {
        assert_eq!(ErrorReply::parse("out of cheese").text(), "out of cheese");
    }
}

//! Error replies of the store: one table of their texts for both directions (protocol §2).

use std::fmt;

/// An error reply: why the store rejects a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ErrorReply {
    /// `__ts` is more than 60 s ahead of the store's clock.
    TimestampTooFarAhead,
    /// The key has a fencing token and the request has none.
    FenceRequired,
    /// `__ft` is more than 60 s ahead of the store's clock.
    FenceTooFarAhead,
    /// The key has a newer fencing token.
    FenceTooOld,
    /// A limit of the store is reached.
    QuotaExceeded,
    /// The payload is malformed.
    SyntaxError,
    /// The rules do not allow this request for this key.
    NotAuthorized,
    UnknownCommand,
    WrongNumberOfArguments,
    MissingTimestamp,
    /// `__ts` or `__ft` cannot be parsed.
    MalformedTimestamp,
    EmptyKey,
    /// The key is over the store's limit. Of this program: the published list has no text for it.
    KeyTooLong,
    /// The value is over the store's limit. Of this program.
    ValueTooLong,
    /// The key is too long for a notification topic. Of this program: MQTT sets the limit (protocol §3).
    KeyTooLongToWatch,
    /// The change could not be committed, and was rolled back. Of this program.
    NotPersisted,
    /// The disk has no room for the change. Of this program.
    DiskFull,
    /// The store was started again, or another instance has taken it over, since the token of the SCAN was given out. Of
    /// this program.
    ScanInterrupted,
    /// Only the root of the exchange changes the key. Of this program.
    RootOnly,
    /// This leaf of an exchange has not been linked yet, and does not know the rules of keys. Of this program.
    NotJoined,
    /// The key takes part in an exchange, which replicates neither leases nor fencing tokens. Of this program.
    NotReplicated,
    /// A text that is not in the table, as received; at most one line of a frame.
    Unknown(String),
}

/// The exact texts, after `-ERR `.
const TEXTS: [(ErrorReply, &str); 21] = [
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
    (ErrorReply::DiskFull, "the disk of the store is full"),
    (ErrorReply::ScanInterrupted, "the scan was interrupted by a restart of the store"),
    (ErrorReply::RootOnly, "only the root of the exchange changes this key"),
    (ErrorReply::NotJoined, "this leaf has not joined its exchange yet"),
    (ErrorReply::NotReplicated, "a key of the exchange takes neither a lease nor a fencing token"),
];

/// The text of [`ErrorReply::FenceTooOld`] in the published page (protocol §0 row 6).
const FENCE_TOO_OLD_ON_THE_PAGE: &str =
    "the request fencing token is a lower version that the fencing token protecting the resource";

impl ErrorReply {
    /// Returns all error replies with a text in the table.
    pub fn known() -> impl Iterator<Item = &'static Self> {
        TEXTS.iter().map(|(error_reply, _)| error_reply)
    }

    /// Returns the error reply with this text.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        if text == FENCE_TOO_OLD_ON_THE_PAGE {
            return Self::FenceTooOld;
        }
        let known = TEXTS.iter().find(|(_, known)| *known == text);
        known.map_or_else(|| Self::Unknown(text.to_owned()), |(error_reply, _)| error_reply.clone())
    }

    /// Returns the text, without `-ERR `.
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
        check(include_str!("../../../tests/vectors/error_reply.txt"), run);
    }

    #[test]
    fn error_replies_and_texts_correspond_one_to_one() {
        for (error_reply, text) in &TEXTS {
            assert!(!text.is_empty());
            assert_eq!(error_reply.text(), *text);
            assert_eq!(ErrorReply::parse(text), *error_reply);
        }
    }

    #[test]
    fn an_unknown_text_is_preserved() {
        assert_eq!(ErrorReply::parse("an error of a later version").text(), "an error of a later version");
    }
}

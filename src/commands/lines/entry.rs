//! Entries of an import: keys and their values, as JSON lines.

use std::borrow::Cow;
use std::num::NonZeroU64;

use bytes::Bytes;

use super::records::{Members, Named, begins_with_verb, data_error, decoded, is_object, missing, text};
use crate::client::SetOptions;
use crate::commands::error::CommandError;
use crate::commands::process::file::value_within_limit;
use crate::protocol::{Key, Timestamp};

/// A key and its value, as `export` writes them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub key: Key,
    pub value: Bytes,
    pub expiry: Expiry,
    /// The fencing token that protects the key.
    pub fence: Option<Timestamp>,
}

/// When a key expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    Never,
    /// After these milliseconds from the moment at which it is set.
    After(NonZeroU64),
    /// At this time, in Unix milliseconds. `export` writes it, because a lock ends also while it is in a file.
    At(u64),
}

impl Entry {
    /// Parses a line of an import. Unknown members are ignored, because later versions may write more. Key and value share the
    /// memory of the line where they can.
    ///
    /// # Errors
    /// [`Kind::Data`](crate::commands::error::Kind) if the line is no entry.
    pub fn parse(line: &Bytes) -> Result<Self, CommandError> {
        let mut members = Members::parse(line).map_err(|error| with_example(line, error))?;
        members.check_version()?;
        let expiry = match (members.ttl_ms(), members.expires_ms()) {
            (Ok(None), Ok(None)) => Ok(Expiry::Never),
            (Ok(Some(ttl_ms)), Ok(None)) => Ok(Expiry::After(ttl_ms)),
            (Ok(None), Ok(Some(ms))) => Ok(Expiry::At(ms)),
            (Ok(_), Ok(_)) => Err(data_error("both \"ttl_ms\" and \"expires\"")),
            (Err(error), _) | (_, Err(error)) => Err(error),
        };
        let fence = members.fence();
        let Members { key, key_encoding, value, encoding, .. } = members;
        let key = Key::new(bytes(line, ("key", key), ("key_encoding", key_encoding))?)
            .map_err(|error| data_error(error.to_string()))?;
        let value = bytes(line, ("value", value), ("encoding", encoding))?;
        Ok(Self { key, value: value_within_limit(value)?, expiry: expiry?, fence: fence? })
    }

    /// Returns the options of the SET at this time, in Unix milliseconds; None if the key has expired.
    #[must_use]
    pub fn options(&self, now_ms: u64) -> Option<SetOptions> {
        let ttl_ms = match self.expiry {
            Expiry::Never => None,
            Expiry::After(ttl_ms) => Some(ttl_ms),
            Expiry::At(ms) => Some(NonZeroU64::new(ms.saturating_sub(now_ms))?),
        };
        Some(SetOptions { ttl_ms, fence: self.fence.clone(), ..SetOptions::default() })
    }
}

/// Adds hints to the error of a line that is no object: what an entry is, and where lines of verbs belong.
fn with_example(line: &[u8], error: CommandError) -> CommandError {
    if is_object(line) {
        return error;
    }
    let error = error.hint(r#"each line is an object: {"key":"line1/temp","value":"21.5"}"#);
    match begins_with_verb(line) {
        true => error.hint("mqkv batch FILE runs lines such as: set KEY VALUE"),
        false => error,
    }
}

/// Returns the bytes of a member whose encoding another member states.
fn bytes(line: &Bytes, (name, member): Named, encoding: Named) -> Result<Bytes, CommandError> {
    let encoding = (encoding.0, text(encoding)?);
    match (text((name, member))?.ok_or_else(|| missing(name))?, encoding) {
        (Cow::Borrowed(text), (_, None)) => Ok(line.slice_ref(text.as_bytes())),
        (Cow::Borrowed(text), (_, Some(encoding))) if encoding == "utf-8" => {
            Ok(line.slice_ref(text.as_bytes()))
        }
        (text, (encoding_name, encoding)) => {
            decoded(name, text.into_owned(), encoding_name, encoding.as_deref()).map(Bytes::from)
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::render::encoding::to_base64;

    fn parse(line: &str) -> Result<Entry, CommandError> {
        Entry::parse(&Bytes::copy_from_slice(line.as_bytes()))
    }

    fn entry(key: &'static str, value: &'static str) -> Entry {
        let (key, value) = (Key::new(key).unwrap(), value.into());
        Entry { key, value, expiry: Expiry::Never, fence: None }
    }

    fn message(line: &str) -> String {
        parse(line).unwrap_err().message
    }

    #[test]
    fn an_entry_ignores_unknown_members_and_rejects_a_later_schema() {
        let read = parse(
            r#"{"v":1,"op":"get","key":"k","found":true,"value":"v","encoding":"utf-8","size":1,"more":[{"a":-1.5}]}"#,
        );
        assert_eq!(read, Ok(entry("k", "v")));
        assert_eq!(
            message(r#"{"v":[2],"key":"k","value":"v"}"#),
            "unsupported schema version [2]: expected \"v\":1"
        );
        assert!(message(r#"{"key":"","value":"v"}"#).contains("empty"));
    }

    #[test]
    fn an_entry_has_the_time_that_is_left_and_its_fencing_token() {
        let options = |members: &str| {
            let entry = parse(&format!(r#"{{"key":"k","value":"v"{members}}}"#)).unwrap();
            entry.options(1_763_669_639_958).map(|options| (options.ttl_ms, options.fence))
        };
        assert_eq!(options(""), Some((None, None)));
        assert_eq!(options(r#","ttl_ms":7"#), Some((NonZeroU64::new(7), None)));
        assert_eq!(options(r#","expires":"2025-11-20T20:14:00Z""#), Some((NonZeroU64::new(42), None)));
        assert_eq!(options(r#","expires":"2025-11-20T20:13:59.958Z""#), None);
        assert_eq!(options(r#","fence":"5:3:n""#), Some((None, Some("5:3:n".parse().unwrap()))));
    }

    #[test]
    fn names_may_have_escapes() {
        let read = parse(r#"{"k\u0065y":"\u00e9\n","value":""}"#).unwrap();
        assert_eq!(read, entry("é\n", ""));
    }

    #[test]
    fn an_invalid_entry_is_reported_with_its_cause() {
        for (line, expected) in [
            ("[1]", "not a JSON object"),
            ("7", "not a JSON object"),
            ("seven", "not a JSON object"),
            (r#"{"key":}"#, "invalid JSON: expected a value at column 8"),
            (r#"{"key":nil}"#, "invalid JSON: expected a value at column 9"),
            ("{key:1}", "invalid JSON: expected a name in double quotes at column 2"),
            (r#"{"key":"k""#, "invalid JSON: unexpected end of line"),
            (r#"{"key":"k"} x"#, "invalid JSON: trailing characters at column 13"),
            (r#"{"value":"v"}"#, "missing member \"key\""),
            (r#"{"key":1,"k\u0065y":"k","value":"v"}"#, "duplicate member \"key\""),
            (r#"{"key":"k"}"#, "missing member \"value\""),
            (r#"{"key":["k"],"value":"v"}"#, "invalid \"key\": not a string"),
            (r#"{"key":"k","value":"v","encoding":1}"#, "invalid \"encoding\": not a string"),
            (r#"{"key":"k","value":"v","encoding":"rot13"}"#, "invalid \"encoding\": rot13"),
            (r#"{"key":"k","value":"v","ttl_ms":0}"#, "invalid \"ttl_ms\": not a positive integer"),
            (r#"{"key":"k","value":"v","ttl_ms":1e13}"#, "invalid \"ttl_ms\": not a positive integer"),
            (r#"{"key":"k","value":"v","expires":"today"}"#, "invalid \"expires\": today"),
            (r#"{"key":"k","value":"v","fence":1}"#, "invalid \"fence\": not a string"),
            (
                r#"{"key":"k","value":"v","ttl_ms":1,"expires":"2025-11-20T20:14:00Z"}"#,
                "both \"ttl_ms\" and \"expires\"",
            ),
            (
                r#"{"key":"k","value":"v","ttl_ms":10000000000000}"#,
                "invalid \"ttl_ms\": longer than 100 years",
            ),
        ] {
            assert_eq!(message(line), expected, "{line}");
        }
    }

    #[test]
    fn a_line_that_is_no_object_is_reported_with_an_example() {
        let example = r#"each line is an object: {"key":"line1/temp","value":"21.5"}"#;
        let hints = |line| parse(line).unwrap_err().hints;
        assert_eq!(hints("1"), [example]);
        assert_eq!(hints("SET k v"), [example, "mqkv batch FILE runs lines such as: set KEY VALUE"]);
        assert!(hints(r#"{"key":"#).is_empty());
    }

    #[test]
    fn a_string_that_is_not_utf_8_is_no_entry() {
        for line in
            [&b"{\"key\":\"\xff\",\"value\":\"v\"}"[..], b"{\"key\":\"k\",\"value\":\"v\",\"x\":\"\xff\"}"]
        {
            assert!(Entry::parse(&Bytes::from_static(line)).unwrap_err().message.contains("unicode"));
        }
    }

    #[test]
    fn key_and_value_without_escapes_share_the_memory_of_the_line() {
        let line = Bytes::from_static(br#"{"key":"some key","value":"some value","encoding":"utf-8"}"#);
        let entry = Entry::parse(&line).unwrap();
        let range = line.as_ptr_range();
        assert!(range.contains(&entry.key.as_bytes().as_ptr()) && range.contains(&entry.value.as_ptr()));
    }

    proptest! {
        #[test]
        fn bytes_survive_base64(key in vec(any::<u8>(), 1..20), value in vec(any::<u8>(), 0..40)) {
            let line = format!(
                r#"{{"key":"{}","key_encoding":"base64","value":"{}","encoding":"base64"}}"#,
                to_base64(&key), to_base64(&value),
            );
            let read = parse(&line).unwrap();
            prop_assert_eq!(read.key.as_bytes(), &key[..]);
            prop_assert_eq!(&read.value[..], &value[..]);
        }

        #[test]
        fn any_line_is_parsed_or_rejected(line in vec(any::<u8>(), 0..60)) {
            let _ = Entry::parse(&line.into());
        }
    }
}

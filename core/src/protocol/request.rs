//! Requests to the store (protocol §1).

use std::fmt;
use std::num::NonZeroU64;

use bytes::{Bytes, BytesMut};

use super::error_reply::ErrorReply;
use super::frame::{FrameError, array_len, bulk_len, decode_bulk_array, put_array, put_bulk};
use super::key::{Key, KeyError, Value};

/// The most words that are decoded: the longest request has six, and more are too many for any command.
const WORDS_MAX: usize = 8;

/// Condition of a SET.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Condition {
    /// `NX`: only if the key is absent.
    Absent,
    /// `NEX`: only if the key is absent or holds the same value.
    AbsentOrEqual,
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// `SET key value [NX|NEX] [PX ms]`
    Set {
        key: Key,
        value: Value,
        condition: Option<Condition>,
        /// Time to live in milliseconds; `None`: the key does not expire.
        ttl_ms: Option<NonZeroU64>,
    },
    /// `GET key`
    Get { key: Key },
    /// `DEL key`
    Del { key: Key },
    /// `VDEL key value`
    VDel {
        key: Key,
        /// The value that the key must hold.
        value: Value,
    },
    /// `KEYNOTIFY key [STOP]`
    KeyNotify {
        key: Key,
        /// Whether to stop the watch.
        stop: bool,
    },
    /// `SCAN pattern [token]`
    Scan {
        /// Pattern in the language of Rust's `glob` crate (protocol §7).
        pattern: Bytes,
        /// Opaque token of the page.
        token: Option<Bytes>,
    },
}

/// Error of decoding a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestError {
    /// The payload is not one frame.
    Frame(FrameError),
    /// The payload is a frame, but no array of one or more bulk strings.
    NotBulkArray,
    UnknownCommand,
    WrongNumberOfArguments,
    /// An argument is not one that the command has in this place.
    Syntax,
    Key(KeyError),
}

impl RequestError {
    /// Returns the error reply of the store to such a payload.
    #[must_use]
    pub fn error_reply(&self) -> ErrorReply {
        match self {
            Self::Frame(_) | Self::NotBulkArray | Self::Syntax => ErrorReply::SyntaxError,
            Self::UnknownCommand => ErrorReply::UnknownCommand,
            Self::WrongNumberOfArguments => ErrorReply::WrongNumberOfArguments,
            Self::Key(KeyError::Empty) => ErrorReply::EmptyKey,
            Self::Key(KeyError::TooLong(_)) => ErrorReply::KeyTooLong,
        }
    }
}

impl From<FrameError> for RequestError {
    fn from(error: FrameError) -> Self {
        Self::Frame(error)
    }
}

impl From<KeyError> for RequestError {
    fn from(error: KeyError) -> Self {
        Self::Key(error)
    }
}

impl Request {
    /// Returns the command in upper case.
    #[must_use]
    pub fn verb(&self) -> &'static str {
        match self {
            Self::Set { .. } => "SET",
            Self::Get { .. } => "GET",
            Self::Del { .. } => "DEL",
            Self::VDel { .. } => "VDEL",
            Self::KeyNotify { .. } => "KEYNOTIFY",
            Self::Scan { .. } => "SCAN",
        }
    }

    /// Returns the key; SCAN has none.
    #[must_use]
    pub fn key(&self) -> Option<&Key> {
        match self {
            Self::Set { key, .. }
            | Self::Get { key }
            | Self::Del { key }
            | Self::VDel { key, .. }
            | Self::KeyNotify { key, .. } => Some(key),
            Self::Scan { .. } => None,
        }
    }

    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut words: Vec<&[u8]> = Vec::with_capacity(3);
        words.push(self.verb().as_bytes());
        match self {
            Self::Set { key, value, condition, ttl_ms } => {
                return encode_set(key, value, *condition, *ttl_ms);
            }
            Self::Get { key } | Self::Del { key } => words.push(key.as_bytes()),
            Self::VDel { key, value } => words.extend([key.as_bytes(), value]),
            Self::KeyNotify { key, stop } => {
                words.push(key.as_bytes());
                words.extend(stop.then_some(b"STOP".as_slice()));
            }
            Self::Scan { pattern, token } => {
                words.push(pattern);
                words.extend(token.as_deref());
            }
        }
        encode_bulk_array(&words)
    }

    /// Decodes a payload; commands and options are upper case (protocol §0 row 7). The key of a GET is copied; other keys and
    /// values share the memory of the payload.
    ///
    /// # Errors
    /// [`RequestError`], from which the error reply follows.
    pub fn decode(payload: &Bytes) -> Result<Self, RequestError> {
        let mut words: [&[u8]; WORDS_MAX] = [&[]; WORDS_MAX];
        let count = decode_bulk_array(payload, &mut words)?.ok_or(RequestError::NotBulkArray)?;
        let words = words.get(..count).unwrap_or(&words);
        let (verb, arguments) = words.split_first().ok_or(RequestError::NotBulkArray)?;
        let value = |word: &[u8]| payload.slice_ref(word);
        let key = |word: &[u8]| Key::new(value(word));
        match (*verb, arguments) {
            (b"SET", [name, word, options @ ..]) => {
                let (condition, ttl_ms) = decode_set_options(options)?;
                Ok(Self::Set { key: key(name)?, value: value(word), condition, ttl_ms })
            }
            // A copy of a key costs less than to count references to the payload.
            (b"GET", [name]) => Ok(Self::Get { key: Key::new(Bytes::copy_from_slice(name))? }),
            (b"DEL", [name]) => Ok(Self::Del { key: key(name)? }),
            (b"VDEL", [name, word]) => Ok(Self::VDel { key: key(name)?, value: value(word) }),
            (b"KEYNOTIFY", [name]) => Ok(Self::KeyNotify { key: key(name)?, stop: false }),
            (b"KEYNOTIFY", [name, b"STOP"]) => Ok(Self::KeyNotify { key: key(name)?, stop: true }),
            (b"KEYNOTIFY", [_, _]) => Err(RequestError::Syntax),
            (b"SCAN", [pattern]) => Ok(Self::Scan { pattern: value(pattern), token: None }),
            (b"SCAN", [pattern, token]) => {
                Ok(Self::Scan { pattern: value(pattern), token: Some(value(token)) })
            }
            (b"SET" | b"GET" | b"DEL" | b"VDEL" | b"KEYNOTIFY" | b"SCAN", _) => {
                Err(RequestError::WrongNumberOfArguments)
            }
            _ => Err(RequestError::UnknownCommand),
        }
    }
}

/// Encodes a SET, as [`Request::encode`] does.
#[must_use]
pub fn encode_set(
    key: &Key,
    value: &[u8],
    condition: Option<Condition>,
    ttl_ms: Option<NonZeroU64>,
) -> Bytes {
    let condition = condition.map(|condition| match condition {
        Condition::Absent => b"NX".as_slice(),
        Condition::AbsentOrEqual => b"NEX",
    });
    let set = [b"SET".as_slice(), key.as_bytes(), value];
    let ttl = ttl_ms.map(|ttl_ms| ttl_ms.to_string());
    match (condition, &ttl) {
        (None, None) => encode_bulk_array(&set),
        (condition, ttl) => {
            let ttl = ttl.iter().flat_map(|ttl| [b"PX".as_slice(), ttl.as_bytes()]);
            encode_bulk_array(&set.into_iter().chain(condition).chain(ttl).collect::<Vec<_>>())
        }
    }
}

/// Encodes any array of bulk strings, also one that is no known request.
#[must_use]
pub fn encode_bulk_array(words: &[impl AsRef<[u8]>]) -> Bytes {
    // The exact length: with room that is left, sharing the bytes takes another allocation.
    let size =
        words.iter().fold(array_len(words.len()), |size, word| size.saturating_add(bulk_len(word.as_ref())));
    let mut out = BytesMut::with_capacity(size);
    put_array(&mut out, words.len());
    for word in words {
        put_bulk(&mut out, word.as_ref());
    }
    out.freeze()
}

/// Decodes `[NX|NEX] [PX ms]`, in this order.
fn decode_set_options(options: &[&[u8]]) -> Result<(Option<Condition>, Option<NonZeroU64>), RequestError> {
    let (condition, rest) = match options {
        [b"NX", rest @ ..] => (Some(Condition::Absent), rest),
        [b"NEX", rest @ ..] => (Some(Condition::AbsentOrEqual), rest),
        rest => (None, rest),
    };
    match rest {
        [] => Ok((condition, None)),
        [b"PX", ttl] => Ok((condition, Some(parse_ttl(ttl).ok_or(RequestError::Syntax)?))),
        _ => Err(RequestError::Syntax),
    }
}

/// Parses milliseconds and truncates a fraction, which .NET can send (protocol §1).
fn parse_ttl(text: &[u8]) -> Option<NonZeroU64> {
    let text = std::str::from_utf8(text).ok()?;
    let (whole, fraction) = text.split_once('.').map_or((text, "0"), |(whole, fraction)| (whole, fraction));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    (digits(whole) && digits(fraction)).then(|| whole.parse().ok()).flatten()
}

impl fmt::Display for RequestError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Frame(error) => error.fmt(out),
            Self::NotBulkArray => out.write_str("a request is an array of one or more bulk strings"),
            Self::UnknownCommand => out.write_str("unknown command"),
            Self::WrongNumberOfArguments => out.write_str("wrong number of arguments"),
            Self::Syntax => out.write_str("unexpected argument"),
            Self::Key(error) => error.fmt(out),
        }
    }
}

impl std::error::Error for RequestError {}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::option;
    use proptest::prelude::*;

    use super::super::key::KEY_BYTES_MAX;
    use super::super::strategies::{bytes, key, mutated};
    use super::super::{topic, vectors};
    use super::*;

    fn formatted(bytes: &[u8]) -> String {
        if bytes.is_empty() { "<empty>".to_owned() } else { vectors::escape(bytes) }
    }

    fn show(request: &Request) -> String {
        let verb = request.verb();
        match request {
            Request::Set { key, value, condition, ttl_ms } => {
                let condition = condition.map(|condition| format!("; condition {condition:?}"));
                let ttl = ttl_ms.map(|ttl_ms| format!("; ttl_ms {ttl_ms}"));
                let [key, value] = [formatted(key.as_bytes()), formatted(value)];
                [format!("{verb} {key} {value}"), condition.unwrap_or_default(), ttl.unwrap_or_default()]
                    .concat()
            }
            Request::Get { key } | Request::Del { key } => format!("{verb} {}", formatted(key.as_bytes())),
            Request::VDel { key, value } => {
                format!("{verb} {} {}", formatted(key.as_bytes()), formatted(value))
            }
            Request::KeyNotify { key, stop } => {
                format!("{verb} {}{}", formatted(key.as_bytes()), if *stop { " STOP" } else { "" })
            }
            Request::Scan { pattern, token } => {
                let token = token.as_ref().map(|token| format!("; token {}", formatted(token)));
                format!("{verb} {}{}", formatted(pattern), token.unwrap_or_default())
            }
        }
    }

    fn run(case: &vectors::Case<'_>) -> String {
        let ["decode"] = case.operation() else { case.unknown() };
        let payload = case.bytes();
        match Request::decode(&payload) {
            Ok(request) if request.encode() == payload => show(&request),
            Ok(request) => format!("{}\nencodes {}", show(&request), vectors::escape(&request.encode())),
            Err(error) => format!("error: {}", error.error_reply()),
        }
    }

    #[test]
    fn requests_are_as_in_the_vectors() {
        vectors::check(include_str!("../../../tests/vectors/request.txt"), run);
    }

    #[test]
    fn an_error_of_the_frame_is_the_cause() {
        let error = Request::decode(&Bytes::from("*1\r\n$3\r\nGE")).unwrap_err();
        assert_eq!(error.to_string(), "truncated at byte 8");
    }

    #[test]
    fn a_key_over_the_limit_has_its_own_error() {
        let key = |len| encode_bulk_array(&[b"GET".to_vec(), vec![b'k'; len]]);
        assert!(Request::decode(&key(KEY_BYTES_MAX)).is_ok());
        let error = Request::decode(&key(KEY_BYTES_MAX + 1)).unwrap_err();
        assert_eq!(error.error_reply(), ErrorReply::KeyTooLong);
    }

    #[test]
    fn a_key_too_long_to_watch_is_decoded_and_left_to_the_store() {
        let payload = encode_bulk_array(&[b"KEYNOTIFY".to_vec(), vec![b'k'; 40_000]]);
        let Ok(Request::KeyNotify { key, stop: false }) = Request::decode(&payload) else {
            panic!("not a KEYNOTIFY")
        };
        assert_eq!(topic::notify("c", &key), None);
    }

    fn request() -> impl Strategy<Value = Request> {
        let condition = prop::sample::select(vec![Condition::Absent, Condition::AbsentOrEqual]);
        let ttl_ms = (1..=u64::MAX).prop_map(|ttl_ms| NonZeroU64::new(ttl_ms).unwrap());
        prop_oneof![
            (key(), bytes(40), option::of(condition), option::of(ttl_ms))
                .prop_map(|(key, value, condition, ttl_ms)| Request::Set { key, value, condition, ttl_ms }),
            key().prop_map(|key| Request::Get { key }),
            key().prop_map(|key| Request::Del { key }),
            (key(), bytes(40)).prop_map(|(key, value)| Request::VDel { key, value }),
            (key(), any::<bool>()).prop_map(|(key, stop)| Request::KeyNotify { key, stop }),
            (bytes(40), option::of(bytes(40))).prop_map(|(pattern, token)| Request::Scan { pattern, token }),
        ]
    }

    /// Arrays of bulk strings that resemble requests and often are none.
    fn words() -> impl Strategy<Value = Bytes> {
        let known: Vec<&str> =
            "SET GET DEL VDEL KEYNOTIFY SCAN NX NEX PX STOP set px 0 1 -1 1.5 k".split(' ').collect();
        let word = prop_oneof![
            8 => prop::sample::select(known).prop_map(|word| word.as_bytes().to_vec()),
            1 => bytes(4).prop_map(|bytes| bytes.to_vec()),
        ];
        vec(word, 0..7).prop_map(|words| encode_bulk_array(&words))
    }

    proptest! {
        #[test]
        fn an_encoded_request_decodes_to_itself(request in request()) {
            let payload = request.encode();
            prop_assert_eq!(Request::decode(&payload), Ok(request));
        }

        #[test]
        fn a_decoded_request_survives_another_round_trip(
            payload in prop_oneof![
                bytes(64),
                words(),
                mutated(request().prop_map(|request| request.encode())),
            ],
        ) {
            if let Ok(request) = Request::decode(&payload) {
                prop_assert_eq!(Request::decode(&request.encode()), Ok(request));
            }
        }
    }
}

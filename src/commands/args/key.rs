//! Keys on the command line: a word, `-k`, or encoded.

use std::ffi::OsString;

use clap::Args;

use super::kind::{OtherForm, ValueKind};
use crate::commands::error::CommandError;
use crate::protocol::Key;
use crate::render::encoding::{Encoded, parse_base64, parse_hex};

/// The ways to give one key.
#[derive(Clone, Debug, Default, Args)]
pub struct KeyArgs {
    /// Key, any bytes
    #[arg(value_name = "KEY", allow_negative_numbers = true, add = ValueKind::Key)]
    key_word: Option<OsString>,
    /// Key, as an option
    #[arg(short = 'k', long = "key", value_name = "KEY", conflicts_with_all = ["key_hex", "key_base64"])]
    #[arg(add = ValueKind::Key, add = OtherForm::OfOperand)]
    key_option: Option<OsString>,
    /// Key in hexadecimal
    #[arg(long, value_name = "HEX", value_parser = parse_hex, add = OtherForm::OfOperand, conflicts_with = "key_base64")]
    key_hex: Option<Encoded>,
    /// Key in base64
    #[arg(long, value_name = "BASE64", value_parser = parse_base64, add = OtherForm::OfOperand)]
    key_base64: Option<Encoded>,
}

impl KeyArgs {
    /// Creates a key that is given as a word.
    #[must_use]
    pub fn word(word: OsString) -> Self {
        Self { key_word: Some(word), ..Self::default() }
    }

    /// Creates a key whose bytes are known.
    #[must_use]
    pub fn bytes(bytes: Vec<u8>) -> Self {
        Self { key_hex: Some(Encoded(bytes)), ..Self::default() }
    }

    /// Returns whether there is a word that is not the key, because the key is given as an option.
    #[must_use]
    pub fn has_other_word(&self) -> bool {
        let option = self.key_option.is_some() || self.key_hex.is_some() || self.key_base64.is_some();
        option && self.key_word.is_some()
    }

    /// Returns the key, and the first word of the command line if that is not the key.
    ///
    /// # Errors
    /// There is no key, or it is invalid.
    pub fn resolve(self, usage: &str) -> Result<(Key, Option<OsString>), CommandError> {
        let option = self.key_option.map(OsString::into_encoded_bytes);
        let encoded = self.key_hex.or(self.key_base64).map(|encoded| encoded.0);
        let (key, rest) = match (option.or(encoded), self.key_word) {
            (Some(key), word) => (key, word),
            (None, Some(word)) => (word.into_encoded_bytes(), None),
            (None, None) => return Err(missing(usage)),
        };
        Ok((parse(key)?, rest))
    }

    /// Returns the key of a verb that takes no other word.
    ///
    /// # Errors
    /// There is no key, more than one, or it is invalid.
    pub fn resolve_only(self, usage: &str) -> Result<Key, CommandError> {
        match self.resolve(usage)? {
            (key, None) => Ok(key),
            (_, Some(_)) => Err(CommandError::usage("more than one key").hint(usage)),
        }
    }
}

/// The ways to give one or more keys.
#[derive(Debug, Default, Args)]
pub struct KeyListArgs {
    /// Keys, any bytes
    #[arg(value_name = "KEY", allow_negative_numbers = true, add = ValueKind::Key)]
    key_words: Vec<OsString>,
    /// Key, as an option
    #[arg(short = 'k', long = "key", value_name = "KEY", add = ValueKind::Key, add = OtherForm::OfOperand)]
    key_options: Vec<OsString>,
    /// Key in hexadecimal
    #[arg(long, value_name = "HEX", value_parser = parse_hex, add = OtherForm::OfOperand)]
    key_hex: Vec<Encoded>,
    /// Key in base64
    #[arg(long, value_name = "BASE64", value_parser = parse_base64, add = OtherForm::OfOperand)]
    key_base64: Vec<Encoded>,
}

impl KeyListArgs {
    /// Creates one key that is given as a word.
    #[must_use]
    pub fn word(word: OsString) -> Self {
        Self { key_words: vec![word], ..Self::default() }
    }

    /// Creates one key whose bytes are known.
    #[must_use]
    pub fn bytes(bytes: Vec<u8>) -> Self {
        Self { key_hex: vec![Encoded(bytes)], ..Self::default() }
    }

    /// Returns the number of keys.
    #[must_use]
    pub fn count(&self) -> usize {
        let words = self.key_words.len().saturating_add(self.key_options.len());
        words.saturating_add(self.key_hex.len()).saturating_add(self.key_base64.len())
    }

    /// Returns the keys, at least one.
    ///
    /// # Errors
    /// There is no key, or one of them is invalid.
    pub fn resolve(self, usage: &str) -> Result<Vec<Key>, CommandError> {
        let words = self.key_words.into_iter().chain(self.key_options);
        let encoded = self.key_hex.into_iter().chain(self.key_base64);
        let keys = words
            .map(OsString::into_encoded_bytes)
            .chain(encoded.map(|encoded| encoded.0))
            .map(parse)
            .collect::<Result<Vec<_>, _>>()?;
        if keys.is_empty() {
            return Err(missing(usage));
        }
        Ok(keys)
    }

    /// Returns the words of a verb that takes patterns in place of keys, at least one.
    ///
    /// # Errors
    /// There is none.
    pub fn resolve_patterns(self, usage: &str) -> Result<Vec<OsString>, CommandError> {
        match self.key_words {
            words if words.is_empty() => Err(missing(usage)),
            words => Ok(words),
        }
    }

    /// Returns the key, if there is one only.
    ///
    /// # Errors
    /// There is no key, more than one, or it is invalid.
    pub fn resolve_only(self, usage: &str) -> Result<Key, CommandError> {
        let mut keys = self.resolve(usage)?;
        match (keys.pop(), keys.is_empty()) {
            (Some(key), true) => Ok(key),
            _ => Err(CommandError::usage("more than one key").hint(usage)),
        }
    }
}

fn parse(bytes: Vec<u8>) -> Result<Key, CommandError> {
    Key::new(bytes).map_err(|error| CommandError::usage(error.to_string()))
}

fn missing(usage: &str) -> CommandError {
    CommandError::usage("KEY is missing").hint(usage)
}

//! A value on the command line: literal, encoded, from a file or from standard input.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use clap::Args;

use super::kind::OtherForm;
use crate::commands::error::CommandError;
use crate::commands::process::file;
use crate::commands::session::Session;
use crate::render::encoding::{Encoded, parse_base64, parse_hex};

/// The ways to give one value.
#[derive(Debug, Default, Args)]
#[group(id = "value_forms", multiple = false)]
pub struct ValueArgs {
    /// Value, literal; - reads standard input
    #[arg(value_name = "VALUE", allow_negative_numbers = true, add = OtherForm::OfValue)]
    value_word: Option<OsString>,
    /// Value, literal, even if it begins with -
    #[arg(long = "value", value_name = "STR", allow_hyphen_values = true, add = OtherForm::OfValue)]
    value_option: Option<OsString>,
    /// Read the value from FILE
    #[arg(short = 'f', long = "file", visible_alias = "valuefile", value_name = "FILE", add = OtherForm::OfValue)]
    value_file: Option<PathBuf>,
    /// Value in hexadecimal
    #[arg(long = "hex", value_name = "HEX", value_parser = parse_hex, add = OtherForm::OfValue)]
    value_hex: Option<Encoded>,
    /// Value in base64
    #[arg(long = "base64", value_name = "BASE64", value_parser = parse_base64, add = OtherForm::OfValue)]
    value_base64: Option<Encoded>,
}

impl ValueArgs {
    /// Creates a value that is given as a word.
    #[must_use]
    pub fn word(word: OsString) -> Self {
        Self { value_word: Some(word), ..Self::default() }
    }

    /// Creates a value that is a word, also if that is a hyphen.
    #[must_use]
    pub fn literal(word: OsString) -> Self {
        Self { value_option: Some(word), ..Self::default() }
    }

    /// Creates a value whose bytes are known.
    #[must_use]
    pub fn bytes(bytes: Vec<u8>) -> Self {
        Self { value_hex: Some(Encoded(bytes)), ..Self::default() }
    }

    /// Returns whether the value is read from a file.
    #[must_use]
    pub fn reads_file(&self) -> bool {
        self.value_file.is_some()
    }

    /// Returns the value. `first_word` is the word at the position of the key, if the key is given as an option.
    ///
    /// # Errors
    /// There is no value, more than one, or it cannot be read.
    pub fn resolve(
        self,
        first_word: Option<OsString>,
        usage: &str,
        session: &Session,
    ) -> Result<Bytes, CommandError> {
        let twice = || CommandError::usage("more than one value").hint(usage);
        let word = match (first_word, self.value_word) {
            (Some(_), Some(_)) => return Err(twice()),
            (first, second) => first.or(second),
        };
        let encoded = self.value_hex.or(self.value_base64).map(|encoded| encoded.0);
        let option = self.value_option.map(OsString::into_encoded_bytes).or(encoded);
        match (word, option, self.value_file) {
            (Some(word), None, None) if word == "-" => session.read_input(),
            (Some(word), None, None) => Ok(word.into_encoded_bytes().into()),
            (None, Some(bytes), None) => Ok(bytes.into()),
            (None, None, Some(path)) if path == Path::new("-") => session.read_input(),
            (None, None, Some(path)) => file::read(&path),
            (None, None, None) => {
                let hint = if session.has_input() {
                    "- in place of VALUE reads standard input; '' is the empty value"
                } else {
                    "'' is the empty value"
                };
                Err(CommandError::usage("VALUE is missing").hint(usage).hint(hint))
            }
            _ => Err(twice()),
        }
    }
}

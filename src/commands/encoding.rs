//! Hexadecimal and base64, both ways; the only user of the `base64` crate.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// Bytes as two lower-case digits each.
#[must_use]
pub fn to_hex(bytes: &[u8]) -> String {
    hex::encode(bytes)
}

/// Bytes as base64 with the standard alphabet and padding (RFC 4648, section 4).
#[must_use]
pub fn to_base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Bytes that came from the command line in an encoding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoded(pub Vec<u8>);

/// Reads digits of either case.
///
/// # Errors
/// What is wrong with the digits.
pub fn parse_hex(text: &str) -> Result<Encoded, String> {
    hex::decode(text).map(Encoded).map_err(|error| match error {
        hex::FromHexError::OddLength => "two digits make a byte: their number must be even".to_owned(),
        hex::FromHexError::InvalidHexCharacter { index, .. } => {
            format!("no hexadecimal digit at position {}", index.saturating_add(1))
        }
        other @ hex::FromHexError::InvalidStringLength => other.to_string(),
    })
}

/// Reads base64 with the standard alphabet and padding.
///
/// # Errors
/// What is wrong with it.
pub fn parse_base64(text: &str) -> Result<Encoded, String> {
    let malformed = |error| format!("no base64 (standard alphabet, padded): {error}");
    STANDARD.decode(text).map(Encoded).map_err(malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_takes_either_case_and_says_what_is_wrong() {
        assert_eq!(parse_hex("00fF"), Ok(Encoded(vec![0, 255])));
        assert_eq!(parse_hex(""), Ok(Encoded(vec![])));
        assert!(parse_hex("abc").unwrap_err().contains("even"));
        assert!(parse_hex("0g").unwrap_err().contains("position 2"));
        assert_eq!(to_hex(&[0, 255]), "00ff");
    }

    #[test]
    fn base64_is_padded() {
        assert_eq!(parse_base64("AP8="), Ok(Encoded(vec![0, 255])));
        assert!(parse_base64("AP8").is_err());
        assert_eq!(to_base64(&[0, 255]), "AP8=");
    }
}

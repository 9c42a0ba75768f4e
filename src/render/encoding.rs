//! Hexadecimal and base64: encoding and decoding.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// Encodes bytes in lower-case hexadecimal.
#[must_use]
pub fn to_hex(bytes: &[u8]) -> String {
    hex::encode(bytes)
}

/// Encodes bytes in base64 with the standard alphabet and padding (RFC 4648, section 4).
#[must_use]
pub fn to_base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Bytes that were given in an encoding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoded(pub Vec<u8>);

/// Decodes hexadecimal digits of either case.
pub fn parse_hex(text: &str) -> Result<Encoded, String> {
    hex::decode(text).map(Encoded).map_err(|error| match error {
        hex::FromHexError::OddLength => "invalid hexadecimal: the number of digits must be even".to_owned(),
        hex::FromHexError::InvalidHexCharacter { index, .. } => {
            format!("invalid hexadecimal digit at position {}", index.saturating_add(1))
        }
        other @ hex::FromHexError::InvalidStringLength => other.to_string(),
    })
}

/// Decodes base64 with the standard alphabet and padding.
pub fn parse_base64(text: &str) -> Result<Encoded, String> {
    let malformed = |error| format!("invalid base64 (standard alphabet, padded): {error}");
    STANDARD.decode(text).map(Encoded).map_err(malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_digits_of_either_case_are_accepted_and_errors_have_their_position() {
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

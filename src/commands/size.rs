//! Sizes in bytes: parsing and formatting.

use std::fmt;

/// A number of bytes, displayed as it can be typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub u64);

impl fmt::Display for Size {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(30, "G"), (20, "M"), (10, "K")];
        match units.into_iter().find(|(shift, _)| self.0 >> shift > 0 && self.0.trailing_zeros() >= *shift) {
            Some((shift, unit)) => write!(out, "{}{unit}", self.0 >> shift),
            None => write!(out, "{}", self.0),
        }
    }
}

/// Parses a size. Below 1024 bytes it needs a unit, and it must not be zero.
pub fn parse(text: &str) -> Result<u64, String> {
    const SHAPE: &str =
        "a size is a number with the unit B, K, M or G, for example 512M; without a unit at least 1024 bytes";
    let unit_at = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(unit_at).ok_or(SHAPE)?;
    let shift = match unit.to_ascii_uppercase().trim_end_matches("IB").trim_end_matches('B') {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        _ => return Err(SHAPE.to_owned()),
    };
    if number.is_empty() {
        return Err(SHAPE.to_owned());
    }
    // Only a number of too many digits cannot be parsed.
    match number.parse().ok().and_then(|number: u64| number.checked_mul(1 << shift)) {
        Some(0) => Err("a size is at least 1".to_owned()),
        // `5` for five megabytes is a slip that would refuse every value.
        Some(1..1024) if unit.is_empty() => {
            Err(format!("a size below 1024 bytes needs a unit: {text}B, {text}K, {text}M or {text}G"))
        }
        Some(bytes) => Ok(bytes),
        None => Err(format!("a size is at most {} bytes", u64::MAX)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_has_a_unit_or_is_in_bytes() {
        for (text, bytes) in
            [("1B", 1), ("1024", 1024), ("4k", 4096), ("512M", 512 << 20), ("2GiB", 2 << 30), ("3KB", 3072)]
        {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
        for text in ["", "0", "5", "1023", "M", "-1", "1.5M", "1T"] {
            assert!(parse(text).is_err(), "{text}");
        }
        for text in ["18446744073709551615K", "999999999999999999999999G"] {
            assert_eq!(parse(text), Err("a size is at most 18446744073709551615 bytes".to_owned()), "{text}");
        }
        assert_eq!([1, 1500, 4096, 3 << 20].map(|bytes| Size(bytes).to_string()), ["1", "1500", "4K", "3M"]);
    }
}

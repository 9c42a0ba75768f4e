//! Numbers in decimal digits, faster than the standard library's: every request and response has several.

use bytes::BufMut;

/// Number of digits of `u64::MAX`.
const DIGITS_MAX: usize = 20;

/// Appends a number, padded with zeros to `width` digits.
pub(super) fn put(out: &mut impl BufMut, number: u64, width: usize) {
    let mut digits = [b'0'; DIGITS_MAX];
    let (mut left, mut start) = (number, DIGITS_MAX);
    // Two digits for each division of 64 bits.
    for pair in digits.rchunks_exact_mut(2) {
        if left == 0 {
            break;
        }
        let two = u8::try_from(left % 100).unwrap_or(0);
        if let [tens, ones] = pair {
            (*tens, *ones) = (b'0' | (two / 10), b'0' | (two % 10));
        }
        start = start.saturating_sub(if left < 10 { 1 } else { 2 });
        left /= 100;
    }
    let start = start.min(DIGITS_MAX.saturating_sub(width));
    out.put_slice(digits.get(start..).unwrap_or_default());
}

/// Writes a number, padded with zeros, into a place for as many digits as it has, or more.
pub(super) fn fill(place: &mut [u8], number: u64) {
    let mut left = number;
    for pair in place.rchunks_mut(2) {
        let two = u8::try_from(left % 100).unwrap_or(0);
        left /= 100;
        match pair {
            [tens, ones] => (*tens, *ones) = (b'0' | (two / 10), b'0' | (two % 10)),
            [ones] => *ones = b'0' | (two % 10),
            _ => {}
        }
    }
}

/// Returns the number of digits.
pub(super) fn count(number: usize) -> usize {
    number.checked_ilog10().map_or(1, |log| usize::try_from(log).unwrap_or(0).saturating_add(1))
}

/// Parses digits; `None` for no digits, any other character, or an overflow.
pub(super) fn parse(digits: &[u8]) -> Option<u64> {
    if (1..DIGITS_MAX).contains(&digits.len()) {
        // These fit into 64 bits: no digit needs a check of its own.
        let add = |(number, is_number): (u64, bool), digit: &u8| {
            let digit = digit.wrapping_sub(b'0');
            (number.wrapping_mul(10).wrapping_add(digit.into()), is_number & (digit <= 9))
        };
        let (number, is_number) = digits.iter().fold((0, true), add);
        return is_number.then_some(number);
    }
    let add = |number: u64, digit: &u8| {
        let digit = digit.checked_sub(b'0').filter(|digit| *digit <= 9)?;
        number.checked_mul(10)?.checked_add(digit.into())
    };
    if digits.is_empty() { None } else { digits.iter().try_fold(0, add) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_number_is_written_as_by_the_standard_library(
            number in prop_oneof![any::<u64>(), 0..1_000_u64, Just(u64::MAX)],
            width in 1..=DIGITS_MAX,
        ) {
            let mut out = b"x".to_vec();
            put(&mut out, number, width);
            prop_assert_eq!(String::from_utf8(out).unwrap(), format!("x{number:0width$}"));
            let mut place = vec![b'x'; width.max(number.to_string().len())];
            fill(&mut place, number);
            prop_assert_eq!(String::from_utf8(place).unwrap(), format!("{number:0width$}"));
            let number = usize::try_from(number).unwrap();
            prop_assert_eq!(count(number), number.to_string().len());
        }

        #[test]
        fn digits_are_parsed_as_by_the_standard_library(text in "[0-9]{0,22}|[0-9]{0,3}[+a /:-][0-9]{0,3}") {
            let expected = if text.starts_with('+') { None } else { text.parse().ok() };
            prop_assert_eq!(parse(text.as_bytes()), expected);
        }
    }
}

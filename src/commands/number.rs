//! Numbers within a range: parsing (pure).

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// Returns a parser of numbers, whose error names the range.
pub fn number<T>(range: RangeInclusive<T>) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync
where
    T: FromStr + PartialOrd + Display + Clone + Send + Sync,
{
    move |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        number.ok_or_else(|| format!("expected a number from {} to {}", range.start(), range.end()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_outside_its_range_is_refused_with_the_range() {
        let parse = number(1..=u16::MAX);
        assert_eq!((parse("1"), parse("65535")), (Ok(1), Ok(65535)));
        for text in ["", "0", "-1", "65536", "99999999999999999999999", "x", "1.5"] {
            assert_eq!(parse(text), Err("expected a number from 1 to 65535".to_owned()), "{text}");
        }
    }
}

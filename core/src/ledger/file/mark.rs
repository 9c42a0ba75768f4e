//! Content of the lock file: the format, and the last group at the last orderly end.

use super::frame::Chain;

/// Version of the layout of all files.
pub const FORMAT: u64 = 1;

/// Content of the lock file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// `None` if the directory never had a store, or if the content is damaged.
    pub format: Option<u64>,
    /// The last group at the last orderly end, which was durable then.
    pub closed: Option<Chain>,
    /// Whether there is any content: the directory had a store.
    pub is_set: bool,
}

impl Mark {
    /// Returns the content of the lock file.
    #[must_use]
    pub fn encode(closed: Option<Chain>) -> String {
        let closed =
            closed.map(|Chain { number, sum }| format!("closed after group {number}, checksum {sum:016x}\n"));
        format!("mqkv store, format {FORMAT}\n{}", closed.unwrap_or_default())
    }

    #[must_use]
    pub fn decode(content: &[u8]) -> Self {
        let mut mark = Self { is_set: !content.is_empty(), ..Self::default() };
        let text = String::from_utf8_lossy(content);
        // A power cut may leave the new content with the old length: a line that is cut off counts for nothing.
        for line in text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')) {
            if let Some(format) = line.strip_prefix("mqkv store, format ") {
                mark.format = format.parse().ok();
            } else if let Some((number, sum)) =
                line.strip_prefix("closed after group ").and_then(|closed| closed.split_once(", checksum "))
            {
                let number = number.parse().ok().zip(u64::from_str_radix(sum, 16).ok());
                mark.closed = number.map(|(number, sum)| Chain { number, sum });
            }
        }
        mark
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_unchanged_and_damage_is_no_mark() {
        let closed = Some(Chain { number: 12, sum: 0xAB });
        for closed in [None, closed] {
            let mark = Mark { format: Some(FORMAT), closed, is_set: true };
            assert_eq!(Mark::decode(Mark::encode(closed).as_bytes()), mark);
        }
        let text = Mark::encode(closed);
        for len in 1..text.len() {
            let mark = Mark::decode(&text.as_bytes()[..len]);
            assert!(mark.is_set && mark.closed.is_none(), "{len}");
        }
        assert_eq!(Mark::decode(b""), Mark::default());
        assert_eq!(Mark::decode(&[0xFF; 60]), Mark { is_set: true, ..Mark::default() });
    }
}

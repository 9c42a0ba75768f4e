//! Frames: the unit in which logs and snapshots are written. Each has the checksum of the one before: a chain.

use bytes::{Buf, BufMut};

/// The smallest unit that a disk writes, or a multiple of it. A frame begins at a block boundary, so that a torn write of
/// one cannot touch the one before.
pub const BLOCK_BYTES: usize = 4096;
/// Magic bytes, length of the body, store, number, checksum of the frame before, and checksum.
pub const HEADER_BYTES: usize = 4 + 4 + 8 + 8 + 8 + 8;
/// The odd number nearest to 2^64 divided by the golden ratio.
const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;

/// The files that have frames. The last of the magic bytes is the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Group,
    Snapshot,
}

impl Kind {
    fn magic(self) -> [u8; 4] {
        match self {
            Self::Group => [0xA7, b'm', b'g', 6],
            Self::Snapshot => [0xA7, b'm', b's', 6],
        }
    }
}

/// The last frame of a chain: the next one has the next number, and names this checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chain {
    pub number: u64,
    pub sum: u64,
}

impl Chain {
    /// Returns the chain before the first frame of a store.
    #[must_use]
    pub fn begin(store: u64) -> Self {
        Self { number: 0, sum: store }
    }

    /// Whether a frame continues this chain.
    #[must_use]
    pub fn is_continued_by(self, frame: &Frame<'_>) -> bool {
        self.number.checked_add(1) == Some(frame.chain.number) && frame.previous == self.sum
    }
}

/// An intact frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// A random number of the store. A client cannot know it, so that no value is taken for a frame.
    pub store: u64,
    pub chain: Chain,
    /// The checksum of the frame before.
    pub previous: u64,
    pub body: &'a [u8],
}

/// Begins a frame whose body is appended to `out`, which is empty.
pub fn begin(out: &mut Vec<u8>) {
    out.put_bytes(0, HEADER_BYTES);
}

/// Ends a frame: fills in its header, and fills it up with zeros to whole blocks. Returns `None` if it is too long.
pub fn end(out: &mut Vec<u8>, kind: Kind, store: u64, after: Chain) -> Option<Chain> {
    let (mut header, body) = out.split_at_mut_checked(HEADER_BYTES)?;
    let number = after.number.checked_add(1)?;
    let len = u32::try_from(body.len()).ok()?;
    let sum = checksum(kind, len, [store, number, after.sum], body);
    header.put_slice(&kind.magic());
    header.put_u32(len);
    [store, number, after.sum, sum].into_iter().for_each(|word| header.put_u64(word));
    out.resize(out.len().next_multiple_of(BLOCK_BYTES), 0);
    Some(Chain { number, sum })
}

/// Returns the length in blocks of a frame with this body.
#[must_use]
pub fn frame_bytes(body_bytes: usize) -> usize {
    HEADER_BYTES.saturating_add(body_bytes).checked_next_multiple_of(BLOCK_BYTES).unwrap_or(usize::MAX)
}

/// Returns the length of the body that a header names.
#[must_use]
pub fn body_bytes(kind: Kind, header: &[u8]) -> Option<usize> {
    let mut header = header.strip_prefix(&kind.magic())?;
    usize::try_from(header.try_get_u32().ok()?).ok()
}

/// Returns the store, the number, the checksum of the frame before, and the checksum that a header names.
#[must_use]
pub fn header(bytes: &[u8]) -> Option<[u64; 4]> {
    let mut header = bytes.get(8..HEADER_BYTES)?;
    Some([(); 4].map(|()| header.get_u64()))
}

/// Returns the frame with which `bytes` begins, if it is intact.
#[must_use]
pub fn parse(kind: Kind, bytes: &[u8]) -> Option<Frame<'_>> {
    let len = body_bytes(kind, bytes)?;
    let [store, number, previous, sum] = header(bytes)?;
    let body = bytes.get(HEADER_BYTES..)?.get(..len)?;
    let is_intact = checksum(kind, u32::try_from(len).ok()?, [store, number, previous], body) == sum;
    is_intact.then_some(Frame { store, chain: Chain { number, sum }, previous, body })
}

/// Returns the intact frames of a store at the block boundaries of `bytes`, with their offsets; those of all stores if it is
/// `None`. What a frame contains is skipped.
///
/// The store is compared before the checksum: no client knows it, so that a value cannot make its blocks be summed up again and
/// again.
pub fn intact(kind: Kind, bytes: &[u8], store: Option<u64>) -> impl Iterator<Item = (usize, Frame<'_>)> {
    let may_be =
        move |bytes: &&[u8]| store.is_none_or(|store| header(bytes).is_some_and(|[of, ..]| of == store));
    let mut at = 0_usize;
    std::iter::from_fn(move || {
        loop {
            let rest = bytes.get(at..).filter(|rest| !rest.is_empty())?;
            let begin = at;
            match Some(rest).filter(may_be).and_then(|rest| parse(kind, rest)) {
                Some(frame) => {
                    at = at.saturating_add(frame_bytes(frame.body.len()));
                    return Some((begin, frame));
                }
                None => at = at.saturating_add(BLOCK_BYTES),
            }
        }
    })
}

/// A checksum in words: any change of one word changes it. It detects accidents, not attacks, and is defined here because a
/// checksum on disk must not change with a release of a library.
fn checksum(kind: Kind, len: u32, head: [u64; 3], body: &[u8]) -> u64 {
    // The product moves each bit upwards, the shift moves it down again; both can be undone, so that no change is lost.
    let step = |sum: u64, word: u64| {
        let product = (sum ^ word).wrapping_mul(FACTOR);
        product ^ (product >> 32)
    };
    let begin = (u64::from(u32::from_be_bytes(kind.magic())) << 32) | u64::from(len);
    let sum = head.into_iter().fold(step(0, begin), step);
    let (words, rest) = body.as_chunks::<8>();
    let sum = words.iter().fold(sum, |sum, word| step(sum, u64::from_be_bytes(*word)));
    let mut last = [0; 8];
    last.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
    step(sum, u64::from_be_bytes(last))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const AFTER: Chain = Chain { number: 6, sum: 99 };

    fn framed(body: &[u8]) -> (Vec<u8>, Chain) {
        let mut out = Vec::new();
        begin(&mut out);
        out.extend_from_slice(body);
        let chain = end(&mut out, Kind::Group, 5, AFTER).unwrap();
        (out, chain)
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

        #[test]
        fn a_frame_is_read_unchanged_and_not_at_all_after_any_byte_changes(
            body in prop::collection::vec(any::<u8>(), 0..9_000),
            at in any::<prop::sample::Index>(),
            flip in 1_u8..,
        ) {
            let (mut bytes, chain) = framed(&body);
            prop_assert!(bytes.len().is_multiple_of(BLOCK_BYTES) && bytes.len() == frame_bytes(body.len()));
            let frame = parse(Kind::Group, &bytes).unwrap();
            prop_assert_eq!(frame, Frame { store: 5, chain, previous: 99, body: &body });
            prop_assert!(AFTER.is_continued_by(&frame));
            prop_assert_eq!(parse(Kind::Snapshot, &bytes), None);
            let at = at.index(HEADER_BYTES + body.len());
            bytes[at] ^= flip;
            prop_assert_eq!(parse(Kind::Group, &bytes), None);
        }

        #[test]
        fn arbitrary_bytes_are_no_frame(bytes in prop::collection::vec(any::<u8>(), 0..9_000), len in any::<u32>()) {
            let head = |len: u32| [&Kind::Group.magic()[..], &len.to_be_bytes()].concat();
            for bytes in [bytes.clone(), [&head(len)[..], &bytes].concat(), [&head(100)[..], &bytes].concat()] {
                prop_assert_eq!(intact(Kind::Group, &bytes, None).count(), 0);
            }
        }
    }

    /// Two flips of the same bit in different words must not cancel each other out.
    #[test]
    fn two_flipped_bits_are_detected() {
        let (bytes, _) = framed(&[7; 200]);
        for bit in 0..64 {
            for (first, second) in [(5, 6), (6, 20), (5, 29)] {
                let mut bytes = bytes.clone();
                [first, second].iter().for_each(|word| bytes[word * 8 + bit / 8] ^= 1 << (bit % 8));
                assert_eq!(parse(Kind::Group, &bytes), None, "bit {bit} of words {first} and {second}");
            }
        }
    }
}

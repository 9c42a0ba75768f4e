//! Bulk reads: all keys of a range at one revision, in pages whose cost grows with the number of keys only.
//!
//! etcd counts all keys from the first one of a request to its end, also those after the page. With pages up to the end of the
//! range, a read of n keys would count n² / (2 × page) keys, under a lock that every write needs. So the range is read in blocks:
//! the keys that share their first bits. The count in each answer shows whether a block is too large, and the keys of a page show
//! which bits differ at all.

use bytes::Bytes;

use super::layout::KeyRange;
use super::operation::{Pair, RangeAnswer, RangeRead, key_after};

/// The pairs of the first page. The next ones have more, as far as the lengths of the pairs allow.
const FIRST_PAIRS: u32 = 64;
/// The most pairs of a page: with values of 1 MiB after short ones, etcd has a page of 1 GiB in memory, once.
const PAIRS_MAX: u32 = 1_000;
/// The bytes that a page should have.
const PAGE_BYTES: u64 = 4 * 1024 * 1024;
/// The memory of a pair besides its bytes.
const PAIR_BYTES: u64 = 64;
/// A block of more pages than this is divided.
const BLOCK_PAGES_MAX: u64 = 8;
/// The pages that a block should have.
const BLOCK_PAGES: u64 = 4;
/// A block shares at most so many bits less than the one before it: it is at most 2³ times as large.
const GROWTH_BITS_MAX: u32 = 3;
/// After so many blocks in a row without a pair, this is doubled: the gap behind keys with a long beginning in common is large.
const EMPTY_BLOCKS: u32 = 8;
/// A block has so many bits less than the first and the last key of a page share: it is about as large as four such pages.
const SHARED_BITS_SPARED: u32 = 2;

/// A read of a range, as a state machine: asks for [`BulkRead::next_read`] until [`BulkRead::handle_page`] returns true.
#[derive(Clone, Debug)]
pub struct BulkRead {
    revision: u64,
    from: Bytes,
    /// The end of the range; empty: there is none.
    to: Bytes,
    /// The end of the block.
    block_end: Bytes,
    /// The number of bits that the keys of a block share.
    block_bits: u32,
    /// The pairs of the block that were read.
    block_pairs: u64,
    /// The number of blocks without a pair since the last one with any.
    empty_blocks: u32,
    limit: u32,
    pairs: u64,
}

impl BulkRead {
    #[must_use]
    pub fn new((from, to): KeyRange, revision: u64) -> Self {
        Self {
            revision,
            from,
            block_end: to.clone(),
            to,
            block_bits: 0,
            block_pairs: 0,
            empty_blocks: 0,
            limit: FIRST_PAIRS,
            pairs: 0,
        }
    }

    /// Returns the read of the next page.
    #[must_use]
    pub fn next_read(&self) -> RangeRead {
        RangeRead {
            from: self.from.clone(),
            to: self.block_end.clone(),
            limit: self.limit,
            revision: Some(self.revision),
        }
    }

    /// Returns the revision of all pages.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Returns the number of pairs that were read.
    #[must_use]
    pub fn pairs(&self) -> u64 {
        self.pairs
    }

    /// Notes the answer to the last read; returns whether the range was read.
    pub fn handle_page(&mut self, answer: &RangeAnswer) -> bool {
        let page = u64::try_from(answer.pairs.len()).unwrap_or(u64::MAX);
        self.pairs = self.pairs.saturating_add(page);
        self.block_pairs = self.block_pairs.saturating_add(page);
        let page_limit = u64::from(self.limit);
        self.set_limit(&answer.pairs);
        let (Some(first), Some(last), 1..) = (answer.pairs.first(), answer.pairs.last(), answer.more) else {
            return self.end_block(page_limit);
        };
        self.from = key_after(&last.key);
        let counted = page.saturating_add(answer.more);
        if counted > BLOCK_PAGES_MAX.saturating_mul(page_limit) {
            let by_count = counted.div_euclid(BLOCK_PAGES.saturating_mul(page_limit).max(1)).max(2).ilog2();
            let by_keys = shared_bits(&first.key, &last.key).saturating_sub(SHARED_BITS_SPARED);
            self.begin_block(self.block_bits.saturating_add(by_count).max(by_keys));
        }
        false
    }

    /// Goes on behind a block whose pairs were all read.
    fn end_block(&mut self, page_limit: u64) -> bool {
        if self.block_end == self.to {
            return true;
        }
        self.from = self.block_end.clone();
        let wanted = BLOCK_PAGES.saturating_mul(page_limit);
        let growth = wanted.div_euclid(self.block_pairs.saturating_add(1)).max(1).ilog2();
        self.empty_blocks = if self.block_pairs == 0 { self.empty_blocks.saturating_add(1) } else { 0 };
        let growth = growth.min(GROWTH_BITS_MAX);
        // A block has less than 2²⁰ bits, so that the factor need not be larger.
        let factor = 1_u32 << self.empty_blocks.div_euclid(EMPTY_BLOCKS).min(20);
        self.begin_block(self.block_bits.saturating_sub(growth.saturating_mul(factor)));
        false
    }

    fn begin_block(&mut self, bits: u32) {
        (self.block_bits, self.block_pairs) = (bits, 0);
        let end = block_end(&self.from, bits);
        self.block_end = match end {
            Some(end) if self.to.is_empty() || end < self.to => end,
            _ => self.to.clone(),
        };
    }

    /// Sets the number of pairs of the next page by the lengths of the last ones.
    fn set_limit(&mut self, pairs: &[Pair]) {
        let bytes = pairs.iter().map(|pair| pair.key.len().saturating_add(pair.value.len()));
        let bytes = bytes.fold(0_u64, |sum, len| {
            sum.saturating_add(PAIR_BYTES).saturating_add(u64::try_from(len).unwrap_or(u64::MAX))
        });
        let count = u64::try_from(pairs.len()).unwrap_or(u64::MAX);
        if let Some(mean) = bytes.checked_div(count) {
            let fitting = u32::try_from(PAGE_BYTES.div_euclid(mean.max(1))).unwrap_or(u32::MAX);
            self.limit = fitting.min(self.limit.saturating_mul(4)).clamp(1, PAIRS_MAX);
        }
    }
}

/// Returns the first key after all that share the first `bits` bits of `key`, which is followed by zeros; `None` if there is none.
fn block_end(key: &[u8], bits: u32) -> Option<Bytes> {
    let len = usize::try_from(bits.div_ceil(u8::BITS)).unwrap_or(usize::MAX);
    let mut end: Vec<u8> = key.iter().copied().chain(std::iter::repeat(0)).take(len).collect();
    let unused = bits.next_multiple_of(u8::BITS).saturating_sub(bits);
    let mut carry = 1_u8.checked_shl(unused).filter(|_| bits > 0)?;
    if let Some(last) = end.last_mut() {
        *last &= u8::MAX.checked_shl(unused).unwrap_or(0);
    }
    for byte in end.iter_mut().rev() {
        let (sum, has_carry) = byte.overflowing_add(carry);
        (*byte, carry) = (sum, u8::from(has_carry));
        if !has_carry {
            break;
        }
    }
    if carry != 0 {
        return None;
    }
    let used = end.iter().rposition(|byte| *byte != 0).map_or(0, |last| last.saturating_add(1));
    end.truncate(used);
    (!end.is_empty()).then(|| end.into())
}

/// Returns the number of bits that two keys have in common at their beginning.
fn shared_bits(one: &[u8], other: &[u8]) -> u32 {
    let shared = one.iter().zip(other).take_while(|(one, other)| one == other).count();
    let bits = |key: &[u8]| key.get(shared).copied().unwrap_or_default();
    let within = (bits(one) ^ bits(other)).leading_zeros();
    u32::try_from(shared).unwrap_or(u32::MAX).saturating_mul(u8::BITS).saturating_add(within)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The keys that a model of etcd has returned, and what it took.
    #[derive(Default)]
    struct Cost {
        requests: u64,
        /// The keys that were counted.
        counted: u64,
        /// The most bytes of a page.
        page_bytes: usize,
    }

    const RANGE: (&[u8], &[u8]) = (b"/mqkv/c/s/0/", b"/mqkv/c/s/00");

    /// Reads all, checks that each key comes once and in order, and returns the cost.
    fn read(keys: &BTreeSet<Bytes>, value_len: impl Fn(&[u8]) -> usize) -> Cost {
        let (from, to) = (Bytes::from_static(RANGE.0), Bytes::from_static(RANGE.1));
        let mut bulk = BulkRead::new((from.clone(), to.clone()), 7);
        let (mut cost, mut found) = (Cost::default(), Vec::new());
        loop {
            let read = bulk.next_read();
            assert!(read.revision == Some(7) && read.from < read.to && read.to <= to, "{read:?}");
            let mut all = keys.range(read.from..read.to);
            let pair = |key: &Bytes| {
                let value = vec![0; value_len(key)].into();
                Pair { key: key.clone(), value, mod_revision: 1 }
            };
            let pairs: Vec<_> = all.by_ref().take(read.limit as usize).map(pair).collect();
            let more = all.count() as u64;
            cost.requests += 1;
            cost.counted += pairs.len() as u64 + more;
            let bytes = pairs.iter().map(|pair| pair.value.len()).sum();
            cost.page_bytes = cost.page_bytes.max(bytes);
            found.extend(pairs.iter().map(|pair| pair.key.clone()));
            if bulk.handle_page(&RangeAnswer { revision: 9, pairs, more }) {
                break;
            }
        }
        assert!(found.iter().eq(keys.range(from..to)), "{} of {} keys", found.len(), keys.len());
        assert_eq!(bulk.pairs(), found.len() as u64);
        cost
    }

    fn key(rest: impl AsRef<[u8]>) -> Bytes {
        [RANGE.0, b"k/", rest.as_ref()].concat().into()
    }

    fn scrambled(number: u64) -> u64 {
        number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (number << 31)
    }

    #[test]
    fn the_cost_of_a_read_grows_with_the_number_of_keys_only_whatever_the_keys_are() {
        const KEYS: u64 = 100_000;
        type Shape = fn(u64) -> Bytes;
        let shapes: [(&str, Shape); 7] = [
            ("numbers", |number| key(format!("line1/machine{number:07}/temperature"))),
            ("numbers without zeros", |number| key(format!("m{number}"))),
            ("hexadecimal", |number| key(format!("{:016x}", scrambled(number)))),
            ("binary", |number| key(scrambled(number).to_be_bytes())),
            ("in few groups", |number| {
                key(format!("area/{}/of/a/long/name/sensor{:05}", number % 7, number / 7))
            }),
            ("in many groups", |number| {
                key(format!("{:08x}/value{}", scrambled(number / 20) >> 32, number % 20))
            }),
            ("one long", |number| key([vec![b'x'; 400], scrambled(number).to_be_bytes().to_vec()].concat())),
        ];
        for (name, shape) in shapes {
            let mut keys: BTreeSet<_> = (0..KEYS).map(shape).collect();
            keys.insert(Bytes::from([RANGE.0, b"h"].concat()));
            keys.extend(
                (0..5_000).map(|seq| Bytes::from([RANGE.0, format!("d/{seq:016x}").as_bytes()].concat())),
            );
            let cost = read(&keys, |_| 100);
            let (requests, counted) = (cost.requests, cost.counted);
            println!("{name}: {requests} requests, {counted} counted");
            assert!(requests < 4 * KEYS / u64::from(PAIRS_MAX), "{name}: {requests} requests");
            assert!(counted < 24 * KEYS, "{name}: {counted} counted");
        }
    }

    #[test]
    fn pages_of_long_values_have_few_keys() {
        let keys: BTreeSet<_> = (0..3_000).map(|number| key(format!("{number:06}"))).collect();
        let cost = read(&keys, |_| 64 * 1024);
        assert!(cost.page_bytes <= 2 * PAGE_BYTES as usize, "{} bytes", cost.page_bytes);
        let cost = read(&keys, |key| if key.ends_with(b"7") { 1024 * 1024 } else { 10 });
        assert!(cost.page_bytes <= 10 * PAGE_BYTES as usize, "{} bytes", cost.page_bytes);
    }

    #[test]
    fn an_empty_range_and_one_key_are_read_at_once() {
        assert_eq!(read(&BTreeSet::new(), |_| 1).requests, 1);
        assert_eq!(read(&BTreeSet::from([key("a")]), |_| 1).requests, 1);
    }

    #[test]
    fn a_block_ends_behind_all_keys_that_share_its_bits() {
        let end = |key: &[u8], bits| block_end(key, bits).map(|end| end.to_vec());
        assert_eq!(end(b"ab", 16), Some(b"ac".to_vec()));
        assert_eq!(end(b"ab", 15), Some(b"ad".to_vec()));
        assert_eq!(end(b"a", 16), Some(vec![b'a', 1]));
        assert_eq!(end(b"a\xff", 16), Some(b"b".to_vec()));
        assert_eq!(end(b"\xff\xff", 16), None);
        assert_eq!(end(b"a", 0), None);
        assert_eq!((shared_bits(b"ab", b"ac"), shared_bits(b"a", b"a")), (15, 16));
    }
}

//! Bodies of frames: groups, and the parts of a snapshot.

use bytes::{Buf, BufMut, Bytes, TryGetError};

use super::entry::{CommitMetadata, Entry, EntryGroup, Moment, Place};
use super::frame::Chain;
use crate::ledger::RecordTooLong;
use crate::protocol::Key;
use crate::store::Version;

const KEY: u8 = 1;
const EXCHANGE: u8 = 2;
/// Added to the kind of a place without content.
const ABSENT: u8 = 0x80;

const BEGIN: u8 = 1;
const ENTRIES: u8 = 2;
const END: u8 = 3;

/// A part of a snapshot: the first frame, then entries, then the last frame.
#[derive(Debug, PartialEq, Eq)]
pub enum Part {
    /// The last group before the segment with which the snapshot was begun.
    Begin(Chain),
    Entries(Vec<Entry>),
    End(End),
}

/// The end of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// Number of the entries.
    pub entries: u64,
    /// The log was durable up to this group: all that the entries show is in it.
    pub number: u64,
    pub metadata: CommitMetadata,
}

/// Appends the body of a group.
///
/// # Errors
/// A place or a content is too long.
pub fn put_group(
    out: &mut Vec<u8>,
    metadata: &CommitMetadata,
    entries: &[Entry],
) -> Result<(), RecordTooLong> {
    put_metadata(out, metadata);
    entries.iter().try_for_each(|entry| put_entry(out, entry))
}

/// Decodes the body of the group with this number.
pub fn take_group(number: u64, mut body: Bytes) -> Option<EntryGroup> {
    let metadata = take_metadata(&mut body).ok()?;
    Some(EntryGroup { number, metadata, entries: take_entries(body)? })
}

pub fn put_begin(out: &mut Vec<u8>, base: Chain) {
    out.put_u8(BEGIN);
    out.put_u64(base.number);
    out.put_u64(base.sum);
}

/// Begins a part with entries.
pub fn put_entries(out: &mut Vec<u8>) {
    out.put_u8(ENTRIES);
}

pub fn put_end(out: &mut Vec<u8>, end: &End) {
    out.put_u8(END);
    out.put_u64(end.entries);
    out.put_u64(end.number);
    put_metadata(out, &end.metadata);
}

/// Decodes a part of a snapshot.
pub fn take_part(mut body: Bytes) -> Option<Part> {
    match body.try_get_u8().ok()? {
        BEGIN => Some(Part::Begin(Chain { number: body.try_get_u64().ok()?, sum: body.try_get_u64().ok()? })),
        ENTRIES => Some(Part::Entries(take_entries(body)?)),
        END => {
            let (entries, number) = (body.try_get_u64().ok()?, body.try_get_u64().ok()?);
            Some(Part::End(End { entries, number, metadata: take_metadata(&mut body).ok()? }))
        }
        _ => None,
    }
}

/// Appends an entry.
///
/// # Errors
/// The place or the content is too long.
pub fn put_entry(out: &mut Vec<u8>, entry: &Entry) -> Result<(), RecordTooLong> {
    let (kind, place) = match &entry.place {
        Place::Key(key) => (KEY, key.as_bytes()),
        Place::Row(row) => (EXCHANGE, row.as_ref()),
    };
    out.put_u8(kind | if entry.content.is_some() { 0 } else { ABSENT });
    put_bytes(out, place)?;
    entry.content.as_ref().map_or(Ok(()), |content| put_bytes(out, content))
}

fn take_entries(mut body: Bytes) -> Option<Vec<Entry>> {
    let mut entries = Vec::new();
    while body.has_remaining() {
        let kind = body.try_get_u8().ok()?;
        let place = take_bytes(&mut body)?;
        let place = match kind & !ABSENT {
            KEY => Place::Key(Key::new(place).ok()?),
            EXCHANGE => Place::Row(place),
            _ => return None,
        };
        let content = if kind & ABSENT == 0 { Some(take_bytes(&mut body)?) } else { None };
        entries.push(Entry { place, content });
    }
    Some(entries)
}

fn put_metadata(out: &mut Vec<u8>, metadata: &CommitMetadata) {
    let CommitMetadata { ceiling, wall_ms, clock_ms, moment } = metadata;
    out.put_u64(ceiling.ms);
    out.put_u32(ceiling.counter);
    out.put_u64(*wall_ms);
    out.put_u64(*clock_ms);
    out.put_u64(moment.boot);
    out.put_u64(moment.boot_ms);
    out.put_u8(u8::from(moment.is_unsynchronized));
}

fn take_metadata(from: &mut Bytes) -> Result<CommitMetadata, TryGetError> {
    Ok(CommitMetadata {
        ceiling: Version { ms: from.try_get_u64()?, counter: from.try_get_u32()? },
        wall_ms: from.try_get_u64()?,
        clock_ms: from.try_get_u64()?,
        moment: Moment {
            boot: from.try_get_u64()?,
            boot_ms: from.try_get_u64()?,
            is_unsynchronized: from.try_get_u8()? != 0,
        },
    })
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) -> Result<(), RecordTooLong> {
    out.put_u32(u32::try_from(bytes.len()).map_err(|_| RecordTooLong)?);
    out.put_slice(bytes);
    Ok(())
}

/// Takes bytes, which share the memory of `from`.
fn take_bytes(from: &mut Bytes) -> Option<Bytes> {
    let len = usize::try_from(from.try_get_u32().ok()?).ok()?;
    (len <= from.len()).then(|| from.split_to(len))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entry() -> impl Strategy<Value = Entry> {
        let key =
            prop::collection::vec(any::<u8>(), 1..50).prop_map(|key| Place::Key(Key::new(key).unwrap()));
        let row = prop::collection::vec(any::<u8>(), 0..50).prop_map(|row| Place::Row(row.into()));
        let content = prop::option::of(prop::collection::vec(any::<u8>(), 0..600).prop_map(Bytes::from));
        (prop_oneof![key, row], content).prop_map(|(place, content)| Entry { place, content })
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

        #[test]
        fn groups_and_parts_of_snapshots_decode_unchanged(
            entries in prop::collection::vec(entry(), 0..20),
            numbers in any::<[u64; 7]>(),
            is_unsynchronized in any::<bool>(),
        ) {
            let [ms, wall_ms, clock_ms, boot, boot_ms, number, count] = numbers;
            let moment = Moment { boot, boot_ms, is_unsynchronized };
            let metadata = CommitMetadata { ceiling: Version { ms, counter: 7 }, wall_ms, clock_ms, moment };
            let mut out = Vec::new();
            put_group(&mut out, &metadata, &entries).unwrap();
            let group = EntryGroup { number, metadata, entries: entries.clone() };
            prop_assert_eq!(take_group(number, out.into()), Some(group));
            let mut out = Vec::new();
            put_entries(&mut out);
            entries.iter().for_each(|entry| put_entry(&mut out, entry).unwrap());
            prop_assert_eq!(take_part(out.into()), Some(Part::Entries(entries)));
            let (mut out, end) = (Vec::new(), End { entries: count, number, metadata });
            put_end(&mut out, &end);
            prop_assert_eq!(take_part(out.into()), Some(Part::End(end)));
        }

        #[test]
        fn arbitrary_bodies_decode_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let bytes = Bytes::from(bytes);
            let _ = (take_group(1, bytes.clone()), take_part(bytes));
        }
    }
}

//! The last changes, one group behind the other in a file of its own, ahead of the tables: one place to write and to wait
//! for, where the tables take seven. What is in it goes to the tables when it is full.
//!
//! A file of fixed length that is written from its beginning again and again: what it begins with, a tag, says which of it
//! belongs to the tables as they are, for they name it. Each group begins a block, so that none that is on the disk is
//! ever written again while it is needed.

use std::collections::BTreeMap;
use std::io;

use bytes::{Buf, BufMut};
use redb::StorageBackend;

use super::disk::{Disk, Doubt};
use super::error::StorageErrorKind;
use super::{LOG_NAME, Past};
use crate::protocol::Key;
use crate::server::storage::record::{
    CHECKSUM_OF_NOTHING, Found as FoundRow, Row, checksum_on, put_text, take_text,
};
use crate::store::Version;

/// What a disk writes at once, or more.
const BLOCK_BYTES: usize = 4096;
/// What a group begins with.
const MARK: [u8; 4] = [0xA7, b'k', b'l', 0x03];
/// Mark, length of the body, tag, number and checksum.
const HEAD_BYTES: usize = 4 + 4 + 8 + 8 + 8;
/// The greatest version and the clock.
const PAST_BYTES: usize = 8 + 4 + 8;
const IS_ROW: u8 = 1;
const IS_GONE: u8 = 0;

/// What has become of keys: the bytes of the [`Row`], or none if it is gone.
pub type Entries = BTreeMap<Key, Option<Vec<u8>>>;

/// When there is a log, and how much it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogPolicy {
    /// How many commits go to the tables before it is made: who writes a little and ends needs none.
    pub commits_before: u32,
    /// How long its file is, in whole blocks.
    pub bytes: usize,
}

impl Default for LogPolicy {
    fn default() -> Self {
        Self { commits_before: 16, bytes: 1024 * 1024 }
    }
}

/// A log that takes groups.
#[derive(Debug)]
pub struct Log {
    disk: Disk,
    bytes: usize,
    tag: u64,
    /// That of the next group, from 1 on.
    number: u64,
    at: usize,
    /// Room for a group, kept for the next one.
    group: Vec<u8>,
}

/// What a log holds.
#[derive(Debug, PartialEq, Eq)]
pub struct Found {
    /// What is newest of each key.
    pub entries: Entries,
    /// What the last group says of the time before; none, if there is none.
    pub past: Option<Past>,
    /// What is wrong with it, if anything: a group that is not there although later ones are must have been there.
    pub damage: Option<String>,
    number: u64,
    end: usize,
}

impl Log {
    /// Makes a log of an empty file, and takes the room of all that it will hold. It has no room for a group before it is
    /// [`Log::restart`]ed.
    ///
    /// # Errors
    /// The system's.
    pub fn create(below: Box<dyn StorageBackend>, policy: LogPolicy, doubt: &Doubt) -> io::Result<Self> {
        let LogPolicy { bytes, .. } = policy;
        below.set_len(bytes as u64)?;
        below.write(0, &vec![0; bytes])?;
        // If this fails, nothing is lost.
        below.sync_data()?;
        let disk = Disk::direct(below, doubt);
        Ok(Self { disk, bytes, tag: 0, number: 0, at: bytes, group: Vec::new() })
    }

    /// Reads what is there, and goes on behind it.
    ///
    /// # Errors
    /// The system's; or it is damaged.
    pub fn open(
        below: Box<dyn StorageBackend>,
        policy: LogPolicy,
        doubt: &Doubt,
        tag: u64,
    ) -> Result<(Self, Found), StorageErrorKind> {
        let disk = Disk::direct(below, doubt);
        let len = usize::try_from(disk.len()?).unwrap_or(usize::MAX);
        let mut bytes = vec![0; len.min(policy.bytes)];
        disk.read(0, &mut bytes)?;
        let mut found = find(Some(&bytes), policy, tag);
        if let Some(damage) = found.damage.take() {
            return Err(StorageErrorKind::CorruptWal(damage));
        }
        // Another process may have written it and not have waited for the disk.
        disk.sync_data()?;
        let LogPolicy { bytes, .. } = policy;
        let log = Self { disk, bytes, tag, number: found.number, at: found.end, group: Vec::new() };
        Ok((log, found))
    }

    /// Begins again from the beginning: what is there belongs to another tag.
    pub fn restart(&mut self, tag: u64) {
        (self.tag, self.number, self.at) = (tag, 1, 0);
    }

    /// How many groups it holds.
    #[cfg(test)]
    pub fn groups(&self) -> u64 {
        self.number.saturating_sub(1)
    }

    /// Adds a group; when this returns true, it is on the disk. False: there is no room for it.
    ///
    /// # Errors
    /// The system's; it is not known then whether it is there.
    pub fn append(&mut self, entries: &Entries, past: Past) -> io::Result<bool> {
        let entry_bytes = |(key, row): (&Key, &Option<Vec<u8>>)| {
            1_usize
                .saturating_add(row.as_ref().map_or_else(|| key.as_bytes().len().saturating_add(2), Vec::len))
        };
        let body_bytes = entries.iter().map(entry_bytes).fold(PAST_BYTES, usize::saturating_add);
        let room = self.bytes.saturating_sub(self.at).saturating_sub(HEAD_BYTES);
        let Some(len) = u32::try_from(body_bytes).ok().filter(|_| body_bytes <= room) else {
            return Ok(false);
        };
        self.encode(len, entries, past);
        self.disk.write(self.at as u64, &self.group)?;
        self.disk.sync_data()?;
        self.at = self.at.saturating_add(self.group.len());
        self.number = self.number.saturating_add(1);
        Ok(true)
    }

    /// Whole blocks: the rest is zero.
    fn encode(&mut self, len: u32, entries: &Entries, past: Past) {
        let Self { tag, number, group, .. } = self;
        group.clear();
        group.put_slice(&MARK);
        group.put_u32(len);
        group.put_u64(*tag);
        group.put_u64(*number);
        group.put_u64(0);
        group.put_u64(past.greatest.ms);
        group.put_u32(past.greatest.counter);
        group.put_u64(past.wall_ms);
        for (key, row) in entries {
            match row {
                Some(row) => {
                    group.put_u8(IS_ROW);
                    group.put_slice(row);
                }
                None => {
                    group.put_u8(IS_GONE);
                    put_text(group, key.as_bytes());
                }
            }
        }
        let sum = checksum(*tag, *number, group.get(HEAD_BYTES..).unwrap_or_default());
        if let Some(at) = group.get_mut(HEAD_BYTES.saturating_sub(8)..HEAD_BYTES) {
            at.copy_from_slice(&sum.to_be_bytes());
        }
        group.resize(group.len().next_multiple_of(BLOCK_BYTES), 0);
    }
}

/// Looks for what belongs to a tag in what a log file has, if there is one. The last group may have been cut off in the
/// middle, and is none then.
pub fn find(bytes: Option<&[u8]>, policy: LogPolicy, tag: u64) -> Found {
    let damage = match bytes {
        None => Some(format!("{LOG_NAME} is missing")),
        Some(bytes) if bytes.len() < policy.bytes => Some(format!("{LOG_NAME} has lost its end")),
        Some(_) => None,
    };
    let mut found = Found { entries: Entries::new(), past: None, damage, number: 1, end: 0 };
    let (bytes, mut at) = (bytes.unwrap_or_default(), 0);
    while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
        let group = group(rest, tag).filter(|(number, _)| *number >= found.number);
        let Some((number, body)) = group else {
            at = at.saturating_add(BLOCK_BYTES);
            continue;
        };
        if number > found.number {
            found.note(found.number);
        }
        match decode(body, &mut found.entries) {
            Some(past) => found.past = Some(past),
            None => found.note(number),
        }
        found.number = number.saturating_add(1);
        at = at.saturating_add(HEAD_BYTES.saturating_add(body.len()).next_multiple_of(BLOCK_BYTES));
        found.end = at;
    }
    found
}

impl Found {
    fn note(&mut self, number: u64) {
        let damage = || format!("in {LOG_NAME}, group {number} makes no sense");
        self.damage.get_or_insert_with(damage);
    }
}

/// The group that begins here, if one of this tag does: its number and its body.
fn group(bytes: &[u8], tag: u64) -> Option<(u64, &[u8])> {
    let mut head = bytes.strip_prefix(&MARK)?;
    let len = usize::try_from(head.try_get_u32().ok()?).ok()?;
    let its_tag = head.try_get_u64().ok()?;
    let (number, sum) = (head.try_get_u64().ok()?, head.try_get_u64().ok()?);
    let body = head.get(..len)?;
    (its_tag == tag && checksum(tag, number, body) == sum).then_some((number, body))
}

fn decode(mut body: &[u8], entries: &mut Entries) -> Option<Past> {
    let (ms, counter) = (body.try_get_u64().ok()?, body.try_get_u32().ok()?);
    let past = Past { greatest: Version { ms, counter }, wall_ms: body.try_get_u64().ok()? };
    while !body.is_empty() {
        if body.try_get_u8().ok()? == IS_GONE {
            entries.insert(Key::new(take_text(&mut body)?.to_vec()).ok()?, None);
            continue;
        }
        let FoundRow::Row(row, len) = Row::find(body) else { return None };
        let (bytes, rest) = body.split_at_checked(len)?;
        entries.insert(row.key, Some(bytes.to_vec()));
        body = rest;
    }
    Some(past)
}

fn checksum(tag: u64, number: u64, body: &[u8]) -> u64 {
    let sum = checksum_on(checksum_on(CHECKSUM_OF_NOTHING, &tag.to_be_bytes()), &number.to_be_bytes());
    checksum_on(sum, body)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::medium::Medium;
    use super::super::simulated::SimulatedDisk;
    use super::*;
    use bytes::Bytes;

    const TAG: u64 = 77;
    const POLICY: LogPolicy = LogPolicy { commits_before: 0, bytes: 512 * 1024 };

    fn begin(disk: &mut SimulatedDisk) -> Log {
        let mut log = Log::create(disk.create_log().unwrap(), POLICY, &Doubt::default()).unwrap();
        log.restart(TAG);
        log
    }

    fn bytes(disk: &mut SimulatedDisk) -> Vec<u8> {
        let below = disk.log().unwrap().unwrap();
        let mut bytes = vec![0; usize::try_from(below.len().unwrap()).unwrap()];
        below.read(0, &mut bytes).unwrap();
        bytes
    }

    fn entry(key: &str, value: Option<&[u8]>) -> (Key, Option<Vec<u8>>) {
        let key = Key::new(key.to_owned()).unwrap();
        let row = value.map(|value| {
            let (version, value) = (Version { ms: 5, counter: 1 }, Bytes::copy_from_slice(value));
            Row { key: key.clone(), version, fence: None, deadline: None, value }.encode()
        });
        (key, row)
    }

    fn past(ms: u64) -> Past {
        Past { greatest: Version { ms, counter: 3 }, wall_ms: ms + 1 }
    }

    /// What so many groups make of the keys.
    fn sum(groups: &[Entries]) -> Entries {
        groups.iter().flatten().map(|(key, row)| (key.clone(), row.clone())).collect()
    }

    fn groups() -> impl Strategy<Value = Vec<Entries>> {
        let value = prop::option::of(prop::collection::vec(any::<u8>(), 0..6_000));
        let entry = (0..8_u8, value).prop_map(|(key, value)| entry(&format!("k{key}"), value.as_deref()));
        let group = prop::collection::vec(entry, 0..4).prop_map(Entries::from_iter);
        prop::collection::vec(group, 1..12)
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

        #[test]
        fn groups_come_back_in_their_order_but_for_a_last_one_that_was_cut_off(
            older in groups(),
            groups in groups(),
            at in any::<prop::sample::Index>(),
        ) {
            let disk = &mut SimulatedDisk::default();
            let mut log = begin(disk);
            // What an earlier use has left is of another tag.
            log.restart(TAG + 1);
            for group in &older {
                prop_assert!(log.append(group, past(999)).unwrap());
            }
            log.restart(TAG);
            let mut begins = Vec::new();
            for (number, group) in groups.iter().enumerate() {
                begins.push(log.at);
                prop_assert!(log.append(group, past(number as u64)).unwrap());
            }
            let (begin, end) = (*begins.last().unwrap(), log.at);
            let mut bytes = bytes(disk);
            let whole = find(Some(&bytes), POLICY, TAG);
            prop_assert_eq!(&whole.entries, &sum(&groups));
            prop_assert_eq!(whole.past, Some(past(groups.len() as u64 - 1)));
            prop_assert_eq!((whole.damage, whole.number, whole.end), (None, groups.len() as u64 + 1, end));
            // Any byte of what was written last has not come to the disk.
            let last = groups.len() - 1;
            let used = bytes[begin..end].iter().rposition(|byte| *byte != 0).unwrap() + 1;
            bytes[begin + at.index(used)] ^= 0x55;
            let cut = find(Some(&bytes), POLICY, TAG);
            prop_assert_eq!(&cut.entries, &sum(&groups[..last]));
            prop_assert_eq!((cut.damage, cut.number, cut.end), (None, last as u64 + 1, begin));
            prop_assert_eq!(cut.past, last.checked_sub(1).map(|number| past(number as u64)));
        }

        #[test]
        fn a_group_that_is_damaged_in_the_middle_is_noticed_and_the_others_are_found(
            groups in groups(),
            which in any::<prop::sample::Index>(),
            at in any::<prop::sample::Index>(),
        ) {
            let disk = &mut SimulatedDisk::default();
            let mut log = begin(disk);
            let mut begins = Vec::new();
            for group in groups.iter().chain([&Entries::new()]) {
                begins.push(log.at);
                prop_assert!(log.append(group, past(1)).unwrap());
            }
            let mut bytes = bytes(disk);
            let which = which.index(groups.len());
            let group = &bytes[begins[which]..begins[which + 1]];
            let used = group.iter().rposition(|byte| *byte != 0).unwrap() + 1;
            bytes[begins[which] + at.index(used)] ^= 0x55;
            let found = find(Some(&bytes), POLICY, TAG);
            prop_assert_eq!(found.damage, Some(format!("in store.log, group {} makes no sense", which + 1)));
            let others = [&groups[..which], &groups[which + 1..]].concat();
            prop_assert_eq!(found.entries, sum(&others));
            let opened = Log::open(disk.log().unwrap().unwrap(), POLICY, &Doubt::default(), TAG);
            prop_assert!(opened.is_ok(), "on the disk it is as it was");
        }

        #[test]
        fn any_bytes_are_taken(bytes in prop::collection::vec(any::<u8>(), 0..9_000), len in any::<u32>()) {
            let head = |len: u32| [&MARK[..], &len.to_be_bytes(), &TAG.to_be_bytes(), &1_u64.to_be_bytes()].concat();
            for bytes in [bytes.clone(), [&head(len)[..], &bytes].concat(), [&head(100)[..], &bytes].concat()] {
                prop_assert_eq!(find(Some(&bytes), POLICY, TAG).entries, Entries::new());
            }
        }
    }

    #[test]
    fn a_group_for_which_there_is_no_room_is_not_written() {
        let disk = &mut SimulatedDisk::default();
        let mut log = begin(disk);
        let half = Entries::from([entry("k", Some(&[b'x'; POLICY.bytes / 2]))]);
        assert!(log.append(&half, past(1)).unwrap());
        assert!(!log.append(&half, past(2)).unwrap());
        // To the last block.
        let overhead = HEAD_BYTES + PAST_BYTES + 1 + entry("k", Some(b"")).1.unwrap().len();
        let rest = vec![b'y'; POLICY.bytes - log.at - overhead];
        let too_much = Entries::from([entry("k", Some(&[&rest[..], b"y"].concat()))]);
        assert!(!log.append(&too_much, past(2)).unwrap());
        let rest = Entries::from([entry("k", Some(&rest))]);
        assert!(log.append(&rest, past(2)).unwrap());
        assert!(!log.append(&Entries::new(), past(3)).unwrap());
        assert_eq!(find(Some(&bytes(disk)), POLICY, TAG).entries, rest);
    }

    #[test]
    fn what_is_missing_of_the_file_is_noticed() {
        let disk = &mut SimulatedDisk::default();
        let mut log = begin(disk);
        assert!(log.append(&Entries::from([entry("k", Some(b"v"))]), past(1)).unwrap());
        let bytes = bytes(disk);
        let damage = |bytes: Option<&[u8]>| find(bytes, POLICY, TAG).damage;
        assert_eq!(damage(Some(&bytes)), None);
        assert_eq!(damage(Some(&bytes[1..])), Some("store.log has lost its end".to_owned()));
        assert_eq!(damage(None), Some("store.log is missing".to_owned()));
    }
}

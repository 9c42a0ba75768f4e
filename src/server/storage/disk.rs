//! What the storage crate writes to: it is held back until the file has shown to be whole, and watched for syncs that
//! fail.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redb::{BackendError, StorageBackend};

const BLOCK_BYTES: u64 = 4096;
const BLOCK: usize = 4096;

/// A disk that can be believed and one that is not touched before it is: until [`Disk::release`] all that is written
/// stays in memory.
#[derive(Clone, Debug)]
pub struct Disk(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    below: Box<dyn StorageBackend>,
    is_shared: bool,
    is_holding: AtomicBool,
    held: Mutex<Held>,
    doubt: Doubt,
}

/// Whether a sync of any of some disks has failed: what the system says is in a file may be in memory only, marked as
/// written, and gone after the next power cut.
#[derive(Clone, Debug, Default)]
pub struct Doubt(Arc<AtomicBool>);

impl Doubt {
    /// Whether there is any.
    #[must_use]
    pub fn is_there(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// From now on there is.
    pub fn raise(&self) {
        self.0.store(true, Ordering::Release);
    }
}

/// What was written and is not on the disk below: in order, and as it can be read.
#[derive(Debug, Default)]
struct Held {
    actions: Vec<Action>,
    blocks: HashMap<u64, Box<[u8; BLOCK]>>,
    len: u64,
    /// It is what it was: nothing is written below.
    len_below: u64,
}

#[derive(Debug)]
enum Action {
    Write(u64, Box<[u8]>),
    SetLen(u64),
    Sync,
}

impl Disk {
    /// Holds back what is written.
    ///
    /// # Errors
    /// The length cannot be read.
    pub fn holding(below: Box<dyn StorageBackend>, doubt: &Doubt) -> io::Result<Self> {
        Self::new(below, true, false, doubt).measured()
    }

    /// The same for one that others may read at the same time; must not be released.
    ///
    /// # Errors
    /// The length cannot be read.
    pub fn read_only(below: Box<dyn StorageBackend>) -> io::Result<Self> {
        Self::new(below, true, true, &Doubt::default()).measured()
    }

    /// One that holds nothing back.
    pub fn direct(below: Box<dyn StorageBackend>, doubt: &Doubt) -> Self {
        Self::new(below, false, false, doubt)
    }

    fn measured(self) -> io::Result<Self> {
        let len = self.0.below.len()?;
        {
            let mut held = self.0.held();
            (held.len, held.len_below) = (len, len);
        }
        Ok(self)
    }

    fn new(below: Box<dyn StorageBackend>, is_holding: bool, is_shared: bool, doubt: &Doubt) -> Self {
        Self(Arc::new(Inner {
            below,
            is_shared,
            is_holding: AtomicBool::new(is_holding),
            held: Mutex::default(),
            doubt: doubt.clone(),
        }))
    }

    /// Does what was held back, in its order, and holds nothing back any more.
    ///
    /// # Errors
    /// The disk's; then it holds back what it held, and reads as before.
    pub fn release(&self) -> io::Result<()> {
        let mut held = self.0.held();
        for action in &held.actions {
            match action {
                Action::Write(offset, data) => self.0.below.write(*offset, data)?,
                Action::SetLen(len) => self.0.below.set_len(*len)?,
                Action::Sync => self.0.sync()?,
            }
        }
        *held = Held::default();
        self.0.is_holding.store(false, Ordering::Release);
        Ok(())
    }
}

impl Inner {
    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is held back, while anything is to be.
    fn holding(&self) -> Option<MutexGuard<'_, Held>> {
        self.is_holding.load(Ordering::Acquire).then(|| self.held())
    }

    fn sync(&self) -> io::Result<()> {
        let synced = self.below.sync_data();
        if synced.is_err() {
            self.doubt.raise();
        }
        synced
    }
}

impl Held {
    /// A block as it can be read.
    fn block(&mut self, number: u64, below: &dyn StorageBackend) -> io::Result<&mut [u8; BLOCK]> {
        Ok(match self.blocks.entry(number) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(vacant) => vacant.insert(Box::new(block_below(number, below)?)),
        })
    }

    fn write(&mut self, offset: u64, data: &[u8], below: &dyn StorageBackend) -> io::Result<()> {
        self.actions.push(Action::Write(offset, data.into()));
        self.len = self.len.max(offset.saturating_add(data.len() as u64));
        for (number, from, part) in parts(offset, data.len()) {
            let block = self.block(number, below)?;
            if let (Some(to), Some(from)) = (block.get_mut(from..), data.get(part)) {
                to.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
            }
        }
        Ok(())
    }

    fn read(&mut self, offset: u64, out: &mut [u8], below: &dyn StorageBackend) -> io::Result<()> {
        // What was cut off reads as zeros: the storage crate looks at what a commit that has failed has left, and shall
        // find that it makes no sense.
        if offset.saturating_add(out.len() as u64) > self.len.max(self.len_below) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let is_touched = || parts(offset, out.len()).any(|(number, ..)| self.blocks.contains_key(&number));
        if self.actions.is_empty()
            || (offset.saturating_add(out.len() as u64) <= self.len_below && !is_touched())
        {
            return below.read(offset, out);
        }
        for (number, from, part) in parts(offset, out.len()) {
            let unwritten;
            let block = match self.blocks.get(&number) {
                Some(block) => &**block,
                None => {
                    unwritten = block_below(number, below)?;
                    &unwritten
                }
            };
            if let (Some(to), Some(from)) = (out.get_mut(part), block.get(from..)) {
                to.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
            }
        }
        Ok(())
    }

    /// What was cut off is zero when it comes back.
    fn set_len(&mut self, len: u64, below: &dyn StorageBackend) -> io::Result<()> {
        self.actions.push(Action::SetLen(len));
        let mut from = len;
        while from < self.len.max(below.len()?) {
            let (number, within) = (from.div_euclid(BLOCK_BYTES), from.rem_euclid(BLOCK_BYTES));
            let block = self.block(number, below)?;
            let within = usize::try_from(within).unwrap_or(BLOCK);
            block.get_mut(within..).unwrap_or_default().fill(0);
            from = number.saturating_add(1).saturating_mul(BLOCK_BYTES);
        }
        self.len = len;
        Ok(())
    }
}

/// A block as it is on the disk; what is beyond the end is zero.
fn block_below(number: u64, below: &dyn StorageBackend) -> io::Result<[u8; BLOCK]> {
    let mut block = [0; BLOCK];
    let (start, end) = (number.saturating_mul(BLOCK_BYTES), below.len()?);
    let there = usize::try_from(end.saturating_sub(start)).unwrap_or(BLOCK).min(BLOCK);
    if let Some(there) = block.get_mut(..there)
        && !there.is_empty()
    {
        below.read(start, there)?;
    }
    Ok(block)
}

/// The blocks that a range touches: each one's number, where the range begins in it, and which part of the range it is.
fn parts(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done >= len {
            return None;
        }
        let at = offset.saturating_add(done as u64);
        let from = usize::try_from(at.rem_euclid(BLOCK_BYTES)).unwrap_or(0);
        let end = done.saturating_add(BLOCK.saturating_sub(from)).min(len);
        let part = done..end;
        done = end;
        Some((at.div_euclid(BLOCK_BYTES), from, part))
    })
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        match self.0.holding() {
            Some(held) => Ok(held.len),
            None => self.0.below.len(),
        }
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        match self.0.holding() {
            Some(mut held) => held.read(offset, out, &*self.0.below),
            None => self.0.below.read(offset, out),
        }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        match self.0.holding() {
            Some(mut held) => held.set_len(len, &*self.0.below),
            None => self.0.below.set_len(len),
        }
    }

    fn sync_data(&self) -> io::Result<()> {
        match self.0.holding() {
            Some(mut held) => {
                held.actions.push(Action::Sync);
                Ok(())
            }
            None => self.0.sync(),
        }
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        match self.0.holding() {
            Some(mut held) => held.write(offset, data, &*self.0.below),
            None => self.0.below.write(offset, data),
        }
    }

    fn close(&self) -> io::Result<()> {
        self.0.below.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        // Whoever does not write needs no more, and may not be allowed more.
        if self.0.is_shared {
            return self.0.below.try_lock_shared_range(start, end);
        }
        self.0.below.try_lock_range(start, end)
    }

    fn try_lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.0.below.try_lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.0.below.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.0.below.query_lock_range(start, end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redb::backends::InMemoryBackend;

    fn bytes(disk: &dyn StorageBackend) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(disk.len().unwrap()).unwrap()];
        disk.read(0, &mut bytes).unwrap();
        bytes
    }

    /// What is held back reads like what would have been written, and is the same after the release.
    #[test]
    fn a_disk_that_holds_back_reads_as_one_that_does_not() {
        let start = (0..20_000_u32).map(|byte| byte as u8).collect::<Vec<_>>();
        let (plain, held) = (InMemoryBackend::new(), InMemoryBackend::new());
        for backend in [&plain, &held] {
            backend.set_len(start.len() as u64).unwrap();
            backend.write(0, &start).unwrap();
        }
        let held = Disk::holding(Box::new(held), &Doubt::default()).unwrap();
        let mut chance = 1_u64;
        let mut draw = |below: u64| {
            chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (chance >> 33) % below
        };
        for round in 0..2_000 {
            let len = plain.len().unwrap();
            match draw(10) {
                0 => {
                    let len = draw(40_000);
                    plain.set_len(len).unwrap();
                    held.set_len(len).unwrap();
                }
                1 => held.sync_data().unwrap(),
                _ if len > 0 => {
                    let at = draw(len);
                    let data = vec![round as u8; usize::try_from(draw((len - at).min(9_000) + 1)).unwrap()];
                    plain.write(at, &data).unwrap();
                    held.write(at, &data).unwrap();
                }
                _ => {}
            }
            if round % 50 == 0 {
                assert!(bytes(&plain) == bytes(&held), "round {round}");
            }
            if round == 1_500 {
                assert!(bytes(&*held.0.below) == start, "nothing below is touched");
                held.release().unwrap();
            }
        }
        assert!(bytes(&plain) == bytes(&*held.0.below));
    }

    /// Has no room for more than there is.
    #[derive(Debug)]
    struct Full(InMemoryBackend);

    impl StorageBackend for Full {
        fn len(&self) -> io::Result<u64> {
            self.0.len()
        }

        fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
            self.0.read(offset, out)
        }

        fn set_len(&self, _: u64) -> io::Result<()> {
            Err(io::ErrorKind::StorageFull.into())
        }

        fn sync_data(&self) -> io::Result<()> {
            Ok(())
        }

        fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
            self.0.write(offset, data)
        }
    }

    #[test]
    fn a_release_for_which_there_is_no_room_leaves_what_can_be_read_as_it_was() {
        let below = InMemoryBackend::new();
        below.set_len(10_000).unwrap();
        let held = Disk::holding(Box::new(Full(below)), &Doubt::default()).unwrap();
        held.write(100, &[1; 50]).unwrap();
        held.set_len(20_000).unwrap();
        held.write(15_000, &[2; 50]).unwrap();
        let before = bytes(&held);
        for _ in 0..2 {
            assert_eq!(held.release().unwrap_err().kind(), io::ErrorKind::StorageFull);
            assert!(bytes(&held) == before);
        }
    }
}

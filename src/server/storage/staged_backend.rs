//! File backend of the storage crate that stages writes in memory until they are released, and notes failed syncs.
//!
//! The storage crate repairs a file while it opens it. The repairs stay in memory until the file has proved to be
//! intact, so that a corrupt file stays as it was found.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redb::{BackendError, StorageBackend};

const BLOCK_BYTES: u64 = 4096;
const BLOCK: usize = 4096;

/// A file that stages its writes until [`StagedBackend::release`], or writes through. Clones are the same file.
#[derive(Clone, Debug)]
pub struct StagedBackend(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    inner: Box<dyn StorageBackend>,
    /// Whether a shared lock is enough.
    is_read_only: bool,
    is_staging: AtomicBool,
    staged: Mutex<StagedWrites>,
    sync_failure: SyncFailure,
}

/// Whether a sync of any file of a store has failed. Clones are the same flag.
///
/// After a failed sync the system may have marked pages as written that are not, so that reads return what a power
/// cut will lose, and a second sync succeeds (fsync(2), "error handling"). Such files must be written anew.
#[derive(Clone, Debug, Default)]
pub struct SyncFailure(Arc<AtomicBool>);

impl SyncFailure {
    #[must_use]
    pub fn has_occurred(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    pub fn note(&self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Writes that are not in the file: in order, and as blocks to read from.
#[derive(Debug, Default)]
struct StagedWrites {
    actions: Vec<Action>,
    blocks: HashMap<u64, Box<[u8; BLOCK]>>,
    /// The length that the file seems to have.
    len: u64,
    /// The length of the file. It does not change before the release.
    inner_len: u64,
}

#[derive(Debug)]
enum Action {
    Write(u64, Box<[u8]>),
    SetLen(u64),
    Sync,
}

impl StagedBackend {
    /// Stages writes until [`StagedBackend::release`].
    ///
    /// # Errors
    /// The length of the file cannot be read.
    pub fn staging(inner: Box<dyn StorageBackend>, sync_failure: &SyncFailure) -> io::Result<Self> {
        Self::new(inner, true, false, sync_failure).with_len()
    }

    /// Stages writes to a file that other processes may read at the same time. Must not be released.
    ///
    /// # Errors
    /// The length of the file cannot be read.
    pub fn read_only(inner: Box<dyn StorageBackend>) -> io::Result<Self> {
        Self::new(inner, true, true, &SyncFailure::default()).with_len()
    }

    /// Writes through.
    pub fn direct(inner: Box<dyn StorageBackend>, sync_failure: &SyncFailure) -> Self {
        Self::new(inner, false, false, sync_failure)
    }

    fn with_len(self) -> io::Result<Self> {
        let len = self.0.inner.len()?;
        {
            let mut staged = self.0.staged();
            (staged.len, staged.inner_len) = (len, len);
        }
        Ok(self)
    }

    fn new(
        inner: Box<dyn StorageBackend>,
        is_staging: bool,
        is_read_only: bool,
        sync_failure: &SyncFailure,
    ) -> Self {
        Self(Arc::new(Shared {
            inner,
            is_read_only,
            is_staging: AtomicBool::new(is_staging),
            staged: Mutex::default(),
            sync_failure: sync_failure.clone(),
        }))
    }

    /// Applies the staged writes in their order and stages no more.
    ///
    /// # Errors
    /// A write failed. The writes stay staged, so that reads return the same as before, and a later release applies
    /// them again from the first.
    pub fn release(&self) -> io::Result<()> {
        let mut staged = self.0.staged();
        for action in &staged.actions {
            match action {
                Action::Write(offset, data) => self.0.inner.write(*offset, data)?,
                Action::SetLen(len) => self.0.inner.set_len(*len)?,
                Action::Sync => self.0.sync()?,
            }
        }
        *staged = StagedWrites::default();
        self.0.is_staging.store(false, Ordering::Release);
        Ok(())
    }
}

impl Shared {
    fn staged(&self) -> MutexGuard<'_, StagedWrites> {
        self.staged.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the staged writes; `None` once they are released.
    fn if_staging(&self) -> Option<MutexGuard<'_, StagedWrites>> {
        self.is_staging.load(Ordering::Acquire).then(|| self.staged())
    }

    fn sync(&self) -> io::Result<()> {
        let synced = self.inner.sync_data();
        if synced.is_err() {
            self.sync_failure.note();
        }
        synced
    }
}

impl StagedWrites {
    fn block(&mut self, number: u64, inner: &dyn StorageBackend) -> io::Result<&mut [u8; BLOCK]> {
        Ok(match self.blocks.entry(number) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(vacant) => vacant.insert(Box::new(read_block(number, inner)?)),
        })
    }

    fn write(&mut self, offset: u64, data: &[u8], inner: &dyn StorageBackend) -> io::Result<()> {
        let end = end_of(offset, data.len())?;
        self.actions.push(Action::Write(offset, data.into()));
        self.len = self.len.max(end);
        for (number, from, part) in parts(offset, data.len()) {
            let block = self.block(number, inner)?;
            if let (Some(to), Some(from)) = (block.get_mut(from..), data.get(part)) {
                to.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
            }
        }
        Ok(())
    }

    fn read(&mut self, offset: u64, out: &mut [u8], inner: &dyn StorageBackend) -> io::Result<()> {
        let end = end_of(offset, out.len())?;
        // Bytes that were cut off read as zeros instead of an error: the storage crate looks at the transaction that a
        // failed commit has left there, finds that it is malformed, and takes the one before it.
        if end > self.len.max(self.inner_len) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let is_touched = || parts(offset, out.len()).any(|(number, ..)| self.blocks.contains_key(&number));
        if self.actions.is_empty() || (end <= self.inner_len && !is_touched()) {
            return inner.read(offset, out);
        }
        for (number, from, part) in parts(offset, out.len()) {
            let unwritten;
            let block = match self.blocks.get(&number) {
                Some(block) => &**block,
                None => {
                    unwritten = read_block(number, inner)?;
                    &unwritten
                }
            };
            if let (Some(to), Some(from)) = (out.get_mut(part), block.get(from..)) {
                to.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
            }
        }
        Ok(())
    }

    fn set_len(&mut self, len: u64, inner: &dyn StorageBackend) -> io::Result<()> {
        self.actions.push(Action::SetLen(len));
        // A file that is cut and grows again has zeros in between.
        let mut from = len;
        while from < self.len.max(inner.len()?) {
            let (number, within) = (from.div_euclid(BLOCK_BYTES), from.rem_euclid(BLOCK_BYTES));
            let block = self.block(number, inner)?;
            // The remainder is less than a block, so the conversion cannot fail.
            let within = usize::try_from(within).unwrap_or(BLOCK);
            block.get_mut(within..).unwrap_or_default().fill(0);
            from = number.saturating_add(1).saturating_mul(BLOCK_BYTES);
        }
        self.len = len;
        Ok(())
    }
}

fn end_of(offset: u64, len: usize) -> io::Result<u64> {
    offset.checked_add(len as u64).ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

/// Reads a block of the file; what is beyond the end is zero.
fn read_block(number: u64, inner: &dyn StorageBackend) -> io::Result<[u8; BLOCK]> {
    let mut block = [0; BLOCK];
    let (start, end) = (number.saturating_mul(BLOCK_BYTES), inner.len()?);
    let len = usize::try_from(end.saturating_sub(start)).unwrap_or(BLOCK).min(BLOCK);
    if let Some(part) = block.get_mut(..len)
        && !part.is_empty()
    {
        inner.read(start, part)?;
    }
    Ok(block)
}

/// Returns the blocks that a range touches: the number of each, where the range begins in it, and the part of the range
/// that it holds. The caller has checked that the range does not overflow.
fn parts(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done >= len {
            return None;
        }
        let at = offset.saturating_add(done as u64);
        // The remainder is less than a block, so the conversion cannot fail.
        let from = usize::try_from(at.rem_euclid(BLOCK_BYTES)).unwrap_or(0);
        let end = done.saturating_add(BLOCK.saturating_sub(from)).min(len);
        let part = done..end;
        done = end;
        Some((at.div_euclid(BLOCK_BYTES), from, part))
    })
}

impl StorageBackend for StagedBackend {
    fn len(&self) -> io::Result<u64> {
        match self.0.if_staging() {
            Some(staged) => Ok(staged.len),
            None => self.0.inner.len(),
        }
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        match self.0.if_staging() {
            Some(mut staged) => staged.read(offset, out, &*self.0.inner),
            None => self.0.inner.read(offset, out),
        }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        match self.0.if_staging() {
            Some(mut staged) => staged.set_len(len, &*self.0.inner),
            None => self.0.inner.set_len(len),
        }
    }

    fn sync_data(&self) -> io::Result<()> {
        match self.0.if_staging() {
            Some(mut staged) => {
                staged.actions.push(Action::Sync);
                Ok(())
            }
            None => self.0.sync(),
        }
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        match self.0.if_staging() {
            Some(mut staged) => staged.write(offset, data, &*self.0.inner),
            None => self.0.inner.write(offset, data),
        }
    }

    fn close(&self) -> io::Result<()> {
        self.0.inner.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        // A reader needs no exclusive lock, and may not have the permission to take one.
        if self.0.is_read_only {
            return self.0.inner.try_lock_shared_range(start, end);
        }
        self.0.inner.try_lock_range(start, end)
    }

    fn try_lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.0.inner.try_lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.0.inner.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.0.inner.query_lock_range(start, end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redb::backends::{FileBackend, InMemoryBackend};

    fn bytes(file: &dyn StorageBackend) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
        file.read(0, &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn a_file_is_locked_by_one_writer_or_by_any_number_of_readers() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let open = || Box::new(FileBackend::new(file.reopen().unwrap()).unwrap());
        let whole = (Bound::Unbounded, Bound::Unbounded);
        let is_locked = |backend: &StagedBackend| backend.try_lock_range(whole.0, whole.1).unwrap();
        let writer = || StagedBackend::direct(open(), &SyncFailure::default());
        let reader = || StagedBackend::read_only(open()).unwrap();
        let (first, second, other) = (reader(), reader(), writer());
        assert!(is_locked(&first) && is_locked(&second) && !is_locked(&other));
        drop((first, second));
        assert!(is_locked(&other) && !is_locked(&writer()) && !is_locked(&reader()));
    }

    /// The file is compared with one that writes through, before and after the release.
    #[test]
    fn staged_writes_read_like_direct_ones() {
        let start = (0..20_000_u32).map(|byte| byte as u8).collect::<Vec<_>>();
        let (plain, staged) = (InMemoryBackend::new(), InMemoryBackend::new());
        for backend in [&plain, &staged] {
            backend.set_len(start.len() as u64).unwrap();
            backend.write(0, &start).unwrap();
        }
        let staged = StagedBackend::staging(Box::new(staged), &SyncFailure::default()).unwrap();
        let mut random = 1_u64;
        let mut draw = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % below
        };
        for round in 0..2_000 {
            let len = plain.len().unwrap();
            match draw(10) {
                0 => {
                    let len = draw(40_000);
                    plain.set_len(len).unwrap();
                    staged.set_len(len).unwrap();
                }
                1 => staged.sync_data().unwrap(),
                _ if len > 0 => {
                    let at = draw(len);
                    let data = vec![round as u8; usize::try_from(draw((len - at).min(9_000) + 1)).unwrap()];
                    plain.write(at, &data).unwrap();
                    staged.write(at, &data).unwrap();
                }
                _ => {}
            }
            if round % 50 == 0 {
                assert!(bytes(&plain) == bytes(&staged), "round {round}");
            }
            if round == 1_500 {
                assert!(bytes(&*staged.0.inner) == start, "the file is unchanged before the release");
                staged.release().unwrap();
            }
        }
        assert!(bytes(&plain) == bytes(&*staged.0.inner));
    }

    /// A file that cannot grow.
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
    fn a_release_that_fails_for_lack_of_room_does_not_change_what_is_read() {
        let below = InMemoryBackend::new();
        below.set_len(10_000).unwrap();
        let staged = StagedBackend::staging(Box::new(Full(below)), &SyncFailure::default()).unwrap();
        staged.write(100, &[1; 50]).unwrap();
        staged.set_len(20_000).unwrap();
        staged.write(15_000, &[2; 50]).unwrap();
        let before = bytes(&staged);
        for _ in 0..2 {
            assert_eq!(staged.release().unwrap_err().kind(), io::ErrorKind::StorageFull);
            assert!(bytes(&staged) == before);
        }
    }
}

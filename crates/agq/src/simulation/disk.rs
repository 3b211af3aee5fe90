//! Simulated disk: keeps what a process has written, what of it is synced, and what is left after a
//! crash or a power failure.
//!
//! The first [`JOURNAL`] bytes are the write-ahead log, the others are the database. The two files
//! are synced separately.

use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use fastrand::Rng;
use redb::StorageBackend;

/// Unit that is written completely or not at all when the power fails, in bytes.
const SECTOR: usize = 512;

/// Size of the write-ahead log in bytes. The size is small, so that the log is flushed often.
pub(super) const JOURNAL: usize = 8 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DiskFile {
    Journal,
    Database,
}

impl DiskFile {
    fn start(self) -> u64 {
        match self {
            Self::Journal => 0,
            Self::Database => JOURNAL as u64,
        }
    }

    /// Returns true if a sync of this file makes `change` durable.
    pub(super) fn has(self, change: &DiskChange) -> bool {
        let is_journals = matches!(change, DiskChange::Write { offset, .. } if *offset < JOURNAL as u64);
        is_journals == (self == Self::Journal)
    }
}

#[derive(Debug, Clone)]
pub(super) enum DiskChange {
    Write { offset: u64, data: Vec<u8> },
    Resize(u64),
}

impl DiskChange {
    pub(super) fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Resize(len) => bytes.resize(usize::try_from(*len).unwrap_or(usize::MAX), 0),
            Self::Write { offset, data } => {
                let at = usize::try_from(*offset).unwrap_or(usize::MAX);
                if bytes.len() < at + data.len() {
                    bytes.resize(at + data.len(), 0);
                }
                bytes[at..at + data.len()].copy_from_slice(data);
            }
        }
    }

    /// Returns the random sectors that survive a power failure during the change.
    pub(super) fn torn(&self, rng: &mut Rng) -> Vec<Self> {
        let Self::Write { offset, data } = self else { return vec![self.clone()] };
        let sectors = data.chunks(SECTOR).zip((*offset..).step_by(SECTOR));
        let kept = sectors.filter(|_| rng.bool());
        kept.map(|(data, offset)| Self::Write { offset, data: data.to_vec() }).collect()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DiskFault {
    /// The process dies after `after` more changes, and no later change reaches the file. If
    /// `power` is a seed, the power fails as well, and unsynced changes are lost by that seed.
    Death { after: u64, power: Option<u64> },
    /// One write or sync fails after `after` more changes. If `forgets` is a seed, unsynced changes
    /// are lost by that seed.
    Error { after: u64, forgets: Option<u64> },
    /// Every write fails, because the disk is full.
    Full,
}

#[derive(Debug, Clone)]
pub(super) enum DiskEvent {
    Changed(DiskChange),
    Synced(DiskFile),
    /// Position of the writer, given by its number.
    Mark(usize),
}

#[derive(Debug, Default)]
struct DiskState {
    /// Content as the process sees it.
    bytes: Vec<u8>,
    /// Content at the last sync.
    synced: Vec<u8>,
    unsynced: Vec<DiskChange>,
    fault: Option<DiskFault>,
    /// Number of the process that may write. Earlier processes are dead.
    owner: u64,
    is_dead: bool,
    /// Set if a fault has happened since the last repair.
    has_failed: bool,
    log: Option<Vec<DiskEvent>>,
}

/// Disk with the two files of a database.
#[derive(Debug, Clone, Default)]
pub(super) struct Disk(Arc<Mutex<DiskState>>);

impl Disk {
    /// Returns a disk with empty files.
    pub(super) fn empty() -> Self {
        Self::with(&[0; JOURNAL])
    }

    /// Returns a disk with `bytes`, all of them synced.
    pub(super) fn with(bytes: &[u8]) -> Self {
        let (bytes, synced) = (bytes.to_vec(), bytes.to_vec());
        Self(Arc::new(Mutex::new(DiskState { bytes, synced, ..DiskState::default() })))
    }

    /// Returns database and WAL for a new process. The previous process is dead.
    pub(super) fn open(&self) -> [File; 2] {
        let mut state = self.lock();
        state.owner += 1;
        state.is_dead = false;
        [DiskFile::Database, DiskFile::Journal].map(|which| File {
            disk: self.clone(),
            which,
            owner: state.owner,
        })
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        self.lock().bytes.clone()
    }

    pub(super) fn plan(&self, fault: DiskFault) {
        self.lock().fault = Some(fault);
    }

    pub(super) fn repair(&self) {
        let mut state = self.lock();
        (state.fault, state.has_failed) = (None, false);
    }

    /// Returns true if a fault is planned or has happened.
    pub(super) fn is_faulty(&self) -> bool {
        let state = self.lock();
        state.fault.is_some() || state.is_dead || state.has_failed
    }

    pub(super) fn is_dead(&self) -> bool {
        self.lock().is_dead
    }

    /// Kills the process. The data that the process has written survives.
    pub(super) fn kill(&self) {
        self.lock().is_dead = true;
    }

    /// Cuts the power. A random part of the unsynced changes survives.
    pub(super) fn cut_power(&self, rng: &mut Rng) {
        let mut state = self.lock();
        state.is_dead = true;
        state.forget(rng);
    }

    /// Starts to record events, and returns the current content, which counts as synced.
    pub(super) fn record(&self) -> Vec<u8> {
        let mut state = self.lock();
        (state.log, state.synced) = (Some(Vec::new()), state.bytes.clone());
        state.unsynced.clear();
        state.bytes.clone()
    }

    pub(super) fn recorded(&self) -> Vec<DiskEvent> {
        self.lock().log.take().unwrap_or_default()
    }

    pub(super) fn mark(&self, number: usize) {
        if let Some(log) = &mut self.lock().log {
            log.push(DiskEvent::Mark(number));
        }
    }

    fn lock(&self) -> MutexGuard<'_, DiskState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DiskState {
    /// Drops a random part of the unsynced changes, in any order.
    fn forget(&mut self, rng: &mut Rng) {
        let mut bytes = std::mem::take(&mut self.synced);
        let keeps = rng.u8(..);
        for change in std::mem::take(&mut self.unsynced) {
            if rng.u8(..) > keeps {
                continue;
            }
            let is_torn = rng.u8(..) < 16;
            let left = if is_torn { change.torn(rng) } else { vec![change] };
            left.iter().for_each(|change| change.apply(&mut bytes));
        }
        self.synced.clone_from(&bytes);
        self.bytes = bytes;
    }

    /// Returns an error if this process may not change the file now.
    fn admit(&mut self, owner: u64) -> io::Result<()> {
        if self.is_dead || owner != self.owner {
            return Err(io::Error::other("the process is dead"));
        }
        match &mut self.fault {
            None => Ok(()),
            Some(DiskFault::Full) => Err(io::ErrorKind::StorageFull.into()),
            Some(DiskFault::Death { after, .. } | DiskFault::Error { after, .. }) if *after > 0 => {
                *after -= 1;
                Ok(())
            }
            Some(DiskFault::Death { power: lost, .. } | DiskFault::Error { forgets: lost, .. }) => {
                let lost = *lost;
                self.has_failed = true;
                self.is_dead = matches!(self.fault.take(), Some(DiskFault::Death { .. }));
                if let Some(seed) = lost {
                    self.forget(&mut Rng::with_seed(seed));
                }
                let reason = if self.is_dead { "the process is dead" } else { "the disk does not answer" };
                Err(io::Error::other(reason))
            }
        }
    }
}

#[derive(Debug)]
pub(super) struct File {
    disk: Disk,
    which: DiskFile,
    owner: u64,
}

impl File {
    fn change(&self, change: DiskChange) -> io::Result<()> {
        let mut state = self.disk.lock();
        state.admit(self.owner)?;
        change.apply(&mut state.bytes);
        if let Some(log) = &mut state.log {
            log.push(DiskEvent::Changed(change.clone()));
        }
        state.unsynced.push(change);
        Ok(())
    }
}

impl StorageBackend for File {
    fn len(&self) -> io::Result<u64> {
        match self.which {
            DiskFile::Journal => Ok(JOURNAL as u64),
            DiskFile::Database => Ok(self.disk.lock().bytes.len().saturating_sub(JOURNAL) as u64),
        }
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let state = self.disk.lock();
        if state.is_dead || self.owner != state.owner {
            return Err(io::Error::other("the process is dead"));
        }
        let from = usize::try_from(self.which.start() + offset).unwrap_or(usize::MAX);
        let there = state.bytes.get(from..from.saturating_add(out.len()));
        out.copy_from_slice(there.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.change(DiskChange::Resize(self.which.start() + len))
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.disk.lock();
        state.admit(self.owner)?;
        let mut synced = std::mem::take(&mut state.synced);
        for change in state.unsynced.extract_if(.., |change| self.which.has(change)) {
            change.apply(&mut synced);
        }
        state.synced = synced;
        if let Some(log) = &mut state.log {
            log.push(DiskEvent::Synced(self.which));
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.change(DiskChange::Write { offset: self.which.start() + offset, data: data.to_vec() })
    }
}

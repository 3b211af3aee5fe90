//! Simulated storage of blobs: keeps published files through every crash, and loses uploads when
//! the power fails.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use fastrand::Rng;
use futures_util::future::ready;

use super::time::SimulatedTime;
use crate::{
    blobs::{BlobError, BlobFile, BlobFuture, BlobStorage, ListedFile},
    clock::TimeSource,
};

/// A file, with the time of its last change.
type SimulatedFile = (Vec<u8>, agenix_protocol::time::Timestamp);

#[derive(Debug, Default)]
struct BlobDiskFiles {
    uploads: BTreeMap<String, SimulatedFile>,
    /// Published files by their part and name.
    published: BTreeMap<(u8, String), SimulatedFile>,
    /// All files that were ever published, for the start on an earlier state.
    ever: BTreeMap<(u8, String), SimulatedFile>,
    /// Number of published files that agq has removed.
    removed: u64,
    /// Number of changes after which one change fails, because the disk is full.
    fails_after: Option<u64>,
}

/// Names of the published files of a moment.
#[derive(Debug, Clone)]
pub(super) struct PublishedFiles {
    files: BlobDisk,
    /// `None` stands for all files that were ever published.
    names: Option<BTreeSet<(u8, String)>>,
}

impl PublishedFiles {
    /// Returns all files that were ever published, because damage may restore an earlier state of
    /// the database.
    pub(super) fn of_all_times(&self) -> Self {
        Self { names: None, ..self.clone() }
    }

    /// Returns a storage with these files.
    pub(super) fn storage(&self, time: &SimulatedTime) -> BlobDisk {
        let mut published = self.files.lock().ever.clone();
        published.retain(|file, _| self.names.as_ref().is_none_or(|names| names.contains(file)));
        let files = BlobDiskFiles { published, ..BlobDiskFiles::default() };
        BlobDisk { files: Arc::new(Mutex::new(files)), time: time.clone() }
    }
}

/// Directory of blobs on a simulated disk.
#[derive(Debug, Clone)]
pub(super) struct BlobDisk {
    files: Arc<Mutex<BlobDiskFiles>>,
    time: SimulatedTime,
}

impl BlobDisk {
    pub(super) fn new(time: &SimulatedTime) -> Self {
        Self { files: Arc::default(), time: time.clone() }
    }

    /// Makes one change fail after `after` more changes.
    pub(super) fn plan_failure(&self, after: u64) {
        self.lock().fails_after = Some(after);
    }

    pub(super) fn repair(&self) {
        self.lock().fails_after = None;
    }

    /// Loses a random part of each upload, because no upload is synced.
    pub(super) fn lose_power(&self, rng: &mut Rng) {
        let mut files = self.lock();
        files.uploads.retain(|_, _| rng.bool());
        for (bytes, _) in files.uploads.values_mut() {
            bytes.truncate(rng.usize(..=bytes.len()));
        }
    }

    /// Returns the published files of this moment.
    pub(super) fn published(&self) -> PublishedFiles {
        PublishedFiles { files: self.clone(), names: Some(self.lock().published.keys().cloned().collect()) }
    }

    /// Returns the names of the published files of this moment.
    pub(super) fn names(&self) -> BTreeSet<String> {
        self.lock().published.keys().map(|(_, name)| name.clone()).collect()
    }

    /// Returns the number of published files that agq has removed.
    pub(super) fn removed(&self) -> u64 {
        self.lock().removed
    }

    fn lock(&self) -> MutexGuard<'_, BlobDiskFiles> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the files, unless this change has to fail.
    fn change(&self, change: impl FnOnce(&mut BlobDiskFiles) -> Result<(), BlobError>) -> BlobFuture<()> {
        let mut files = self.lock();
        let fails = files.fails_after == Some(0);
        files.fails_after = files.fails_after.map(|left| left.saturating_sub(1)).filter(|_| !fails);
        let done = if fails { Err(BlobError::Failed("the disk is full".into())) } else { change(&mut files) };
        Box::pin(ready(done))
    }
}

fn missing(name: &str) -> BlobError {
    BlobError::Failed(format!("there is no file {name}"))
}

fn listed((name, (bytes, modified_at)): (&String, &SimulatedFile)) -> ListedFile {
    ListedFile { name: name.clone(), bytes: bytes.len() as u64, modified_at: *modified_at }
}

impl BlobStorage for BlobDisk {
    fn write(&self, upload: &str, offset: u64, data: Bytes) -> BlobFuture<()> {
        let now = self.time.now();
        self.change(|files| {
            if offset == 0 {
                files.uploads.insert(upload.to_owned(), (Vec::new(), now));
            }
            let (bytes, modified_at) = files.uploads.get_mut(upload).ok_or_else(|| missing(upload))?;
            let end = usize::try_from(offset).unwrap_or(usize::MAX) + data.len();
            bytes.resize(bytes.len().max(end), 0);
            bytes[end - data.len()..end].copy_from_slice(&data);
            *modified_at = now;
            Ok(())
        })
    }

    fn publish(&self, upload: &str, file: &BlobFile) -> BlobFuture<()> {
        self.change(|files| {
            let uploaded = files.uploads.remove(upload).ok_or_else(|| missing(upload))?;
            files.ever.insert((file.hash.0[0], file.to_string()), uploaded.clone());
            files.published.insert((file.hash.0[0], file.to_string()), uploaded);
            Ok(())
        })
    }

    fn discard(&self, upload: &str) -> BlobFuture<()> {
        self.change(|files| {
            files.uploads.remove(upload);
            Ok(())
        })
    }

    fn read(&self, file: &BlobFile, ranges: Vec<(u64, usize)>) -> BlobFuture<Vec<Bytes>> {
        let files = self.lock();
        let name = file.to_string();
        let found = files.published.get(&(file.hash.0[0], name.clone()));
        let read = |(bytes, _): &SimulatedFile, (offset, length): (u64, usize)| {
            let start = usize::try_from(offset).unwrap_or(usize::MAX);
            bytes.get(start..start.saturating_add(length)).map(Bytes::copy_from_slice)
        };
        let bytes = found.and_then(|found| ranges.into_iter().map(|range| read(found, range)).collect());
        Box::pin(ready(bytes.ok_or_else(|| missing(&name))))
    }

    fn remove(&self, part: u8, name: &str) -> BlobFuture<()> {
        self.change(|files| {
            files.removed += u64::from(files.published.remove(&(part, name.to_owned())).is_some());
            Ok(())
        })
    }

    fn list(&self, part: u8) -> BlobFuture<Vec<ListedFile>> {
        let files = self.lock();
        let of_part = files.published.iter().filter(|((of, _), _)| *of == part);
        Box::pin(ready(Ok(of_part.map(|((_, name), file)| listed((name, file))).collect())))
    }

    fn list_uploads(&self) -> BlobFuture<Vec<ListedFile>> {
        Box::pin(ready(Ok(self.lock().uploads.iter().map(listed).collect())))
    }
}

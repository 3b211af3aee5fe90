//! Publication of uploads: sends files to a bucket, several at the same time.

use std::{
    collections::HashMap,
    fmt,
    fs::File,
    io,
    os::unix::fs::FileExt,
    path::{Path as FilePath, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use futures_util::{
    FutureExt,
    future::{BoxFuture, Shared},
};
use object_store::{ObjectStore, ObjectStoreExt, WriteMultipart, path::Path};
use tokio::{
    sync::Semaphore,
    task::spawn_blocking,
    time::{error::Elapsed, timeout},
};

use super::failure::failure;
use crate::{
    blobs::{BlobError, BlobFuture},
    sync::lock,
};

/// Maximum number of bytes of a file whose requests have as little time as those of a read, so that
/// a worker learns the reason of a failure soon.
const SMALL_BYTES: u64 = 1 << 20;
/// Number of bytes of a part, and of the largest file that is sent with one request.
const PART_BYTES: u64 = 8 << 20;
/// Maximum number of parts that S3 accepts.
const MAX_PARTS: u64 = 10_000;
/// Maximum number of parts of a file that are on their way at a time.
const PARTS_AT_ONCE: usize = 2;
/// Maximum number of files that are on their way at a time. Further files wait.
const FILES_AT_ONCE: usize = 4;
/// Time for which a request waits for a publication. A client of agq waits 60 seconds for a reply.
const MAX_WAIT: Duration = Duration::from_secs(20);
/// Time limit of a publication, so that a sweep never removes a new object.
const LIMIT: Duration = Duration::from_secs(12 * 3600);

type PublicationFuture = Shared<BoxFuture<'static, Result<(), BlobError>>>;

/// Publications of this process, by the path of their file.
#[derive(Clone)]
pub(super) struct Publications {
    all: Arc<Mutex<HashMap<PathBuf, PublicationFuture>>>,
    permits: Arc<Semaphore>,
    /// Bucket with more time for each request.
    large_files: Arc<dyn ObjectStore>,
    pub(super) max_wait: Duration,
    pub(super) part_bytes: u64,
}

impl fmt::Debug for Publications {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Publications").field("files", &lock(&self.all).len()).finish_non_exhaustive()
    }
}

impl Publications {
    pub(super) fn new(large_files: Arc<dyn ObjectStore>) -> Self {
        let permits = Arc::new(Semaphore::new(FILES_AT_ONCE));
        Self { all: Arc::default(), permits, large_files, max_wait: MAX_WAIT, part_bytes: PART_BYTES }
    }

    /// Sends a file to a bucket, or waits for the publication of this file that has begun. `shown`
    /// is the address of the object.
    pub(super) fn publish(
        &self,
        store: &Arc<dyn ObjectStore>,
        from: PathBuf,
        to: Path,
        shown: String,
    ) -> BlobFuture<()> {
        let (own, store) = (self.clone(), Arc::clone(store));
        Box::pin(async move {
            let begin = || own.begin(store, from.clone(), to, shown.clone());
            let running = lock(&own.all).entry(from.clone()).or_insert_with(begin).clone();
            let Ok(done) = timeout(own.max_wait, running).await else {
                return Err(BlobError::Unpublished(format!("{shown}: it is still being sent")));
            };
            own.forget(&from);
            done
        })
    }

    /// Forgets a publication. A publication that has not ended continues, and its object has no
    /// record.
    pub(super) fn forget(&self, from: &FilePath) {
        lock(&self.all).remove(from);
    }

    /// Begins a publication, which continues without a request that waits for it.
    fn begin(
        &self,
        store: Arc<dyn ObjectStore>,
        from: PathBuf,
        to: Path,
        shown: String,
    ) -> PublicationFuture {
        let (permits, part_bytes) = (Arc::clone(&self.permits), self.part_bytes);
        let large_files = Arc::clone(&self.large_files);
        let task = tokio::spawn(async move {
            let _permit = permits.acquire().await;
            let sent = timeout(LIMIT, send([&*store, &*large_files], from, &to, part_bytes)).await;
            sent.map_err(|_: Elapsed| "it takes longer than 12 hours".to_owned()).flatten()
        });
        let ended = async move {
            let sent = task.await.map_err(|error| error.to_string()).flatten();
            sent.map_err(|reason| BlobError::Unpublished(format!("{shown}: {reason}")))
        };
        ended.boxed().shared()
    }
}

/// Sends a file to `store`, or to `large_files` if the file is large. When the call returns, the
/// bucket has acknowledged the object.
async fn send(
    [store, large_files]: [&dyn ObjectStore; 2],
    from: PathBuf,
    to: &Path,
    part_bytes: u64,
) -> Result<(), String> {
    let opened = spawn_blocking(move || {
        let file = File::open(from)?;
        let length = file.metadata()?.len();
        Ok::<_, io::Error>((Arc::new(file), length))
    });
    let (file, length) = opened.await.map_err(io::Error::other).flatten().map_err(|e| e.to_string())?;
    let part_bytes = part_bytes.max(length.div_ceil(MAX_PARTS));
    if length <= part_bytes {
        let bytes = read(file, 0, length).await?;
        let store = if length <= SMALL_BYTES { store } else { large_files };
        return store.put(to, bytes.into()).await.map(drop).map_err(|error| failure(&error));
    }
    let upload = large_files.put_multipart(to).await.map_err(|error| failure(&error))?;
    let chunk = usize::try_from(part_bytes).unwrap_or(usize::MAX);
    let mut parts = WriteMultipart::new_with_chunk_size(upload, chunk);
    match send_parts(&mut parts, file, length, part_bytes).await {
        // `finish` removes the parts if it fails.
        Ok(()) => parts.finish().await.map(drop).map_err(|error| failure(&error)),
        Err(reason) => {
            // A rule of the bucket removes the parts if the abort fails.
            let _removed = parts.abort().await;
            Err(reason)
        }
    }
}

/// Sends the parts of a file. The last parts may still be on their way when the call returns.
async fn send_parts(
    parts: &mut WriteMultipart,
    file: Arc<File>,
    length: u64,
    part_bytes: u64,
) -> Result<(), String> {
    let mut offset = 0;
    while offset < length {
        let bytes = read(Arc::clone(&file), offset, part_bytes.min(length - offset)).await?;
        offset += bytes.len() as u64;
        parts.wait_for_capacity(PARTS_AT_ONCE).await.map_err(|error| failure(&error))?;
        parts.put(bytes);
    }
    Ok(())
}

async fn read(file: Arc<File>, offset: u64, length: u64) -> Result<Bytes, String> {
    let read = spawn_blocking(move || {
        let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
        file.read_exact_at(&mut bytes, offset)?;
        Ok::<_, io::Error>(Bytes::from(bytes))
    });
    read.await.map_err(io::Error::other).flatten().map_err(|error| error.to_string())
}

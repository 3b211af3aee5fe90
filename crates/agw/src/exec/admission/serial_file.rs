//! File of the uses of orders. A use is on disk before its attempt starts.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use agenix_cli::sync_directory;
use agenix_order::{SerialLog, Terms, Unacceptable};
use agenix_protocol::{ids::JobId, time::Timestamp};
use anyhow::{Context, anyhow, bail};

/// Number of uses after which expired serials are removed from the file.
const PRUNED_AFTER: usize = 4096;
/// Mode of the file.
const OWN: u32 = 0o600;

/// File of uses, which one worker uses at a time.
#[derive(Debug)]
pub(super) struct SerialFile {
    path: PathBuf,
    state: Mutex<SerialFileState>,
    /// File that is locked as long as the worker runs.
    _lock: File,
}

#[derive(Debug)]
struct SerialFileState {
    log: SerialLog,
    /// File to append to. Absent if the file has to be rewritten, because a write failed.
    file: Option<File>,
    /// Number of uses since the file was rewritten.
    appended: usize,
}

/// Reason why a use is not recorded.
#[derive(Debug)]
pub(super) enum UseError {
    /// The order permits no more uses.
    Unacceptable(Unacceptable),
    /// The disk refuses the record.
    Unwritten(io::Error),
}

impl From<io::Error> for UseError {
    fn from(error: io::Error) -> Self {
        Self::Unwritten(error)
    }
}

impl SerialFile {
    /// Opens the file, creates it if it is missing, and removes expired serials.
    pub(super) fn open(path: &Path, now: Timestamp) -> anyhow::Result<Self> {
        let shown = path.display();
        let lock = locked(&path.with_added_extension("lock"))?;
        let text = match std::fs::read_to_string(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            text => text.with_context(|| format!("cannot read trust.serials {shown}"))?,
        };
        let mut log = SerialLog::parse(&text)
            .map_err(|line| anyhow!("line {line} of trust.serials {shown} is not a use of an order"))?;
        log.prune(now);
        let file = rewrite(path, &log).with_context(|| format!("cannot write trust.serials {shown}"))?;
        let state = Mutex::new(SerialFileState { log, file: Some(file), appended: 0 });
        Ok(Self { path: path.to_owned(), state, _lock: lock })
    }

    /// Records a use of an order by an attempt of `job`, if the order limits its uses or its jobs.
    /// After an error, the attempt must not start.
    pub(super) fn use_once(&self, terms: &Terms, job: &JobId, now: Timestamp) -> Result<(), UseError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(next) = state.log.next_use(terms, job).map_err(UseError::Unacceptable)? else {
            return Ok(());
        };
        if state.appended >= PRUNED_AFTER {
            state.log.prune(now);
            state.file = None;
        }
        let mut file = match state.file.take() {
            Some(file) => file,
            None => {
                state.appended = 0;
                rewrite(&self.path, &state.log)?
            }
        };
        // After an error, a part of the line may be in the file, which is then rewritten.
        file.write_all(next.line().as_bytes())?;
        file.sync_data()?;
        state.file = Some(file);
        state.appended += 1;
        state.log.add(next);
        Ok(())
    }

    /// Returns the directory of the file.
    pub(super) fn directory(&self) -> &Path {
        directory_of(&self.path)
    }

    /// Lets the next use rewrite the file, as after an error.
    #[cfg(test)]
    pub(super) fn rewrite_next(&self) {
        self.state.lock().unwrap().file = None;
    }
}

/// Locks a file beside the file of uses, which is replaced when it is rewritten.
fn locked(path: &Path) -> anyhow::Result<File> {
    let shown = path.display();
    let options = OpenOptions::new().write(true).create(true).truncate(false).mode(OWN).open(path);
    let file = options.with_context(|| format!("cannot create {shown} beside trust.serials"))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => bail!("another worker uses trust.serials: {shown} is locked"),
        Err(TryLockError::Error(error)) => Err(error).with_context(|| format!("cannot lock {shown}")),
    }
}

fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Replaces the file by the uses of `log`, and opens it for more.
fn rewrite(path: &Path, log: &SerialLog) -> io::Result<File> {
    let directory = directory_of(path);
    let mut written = tempfile::NamedTempFile::new_in(directory)?;
    written.write_all(log.to_text().as_bytes())?;
    written.as_file().sync_all()?;
    let file = written.persist(path).map_err(|error| error.error)?;
    sync_directory(directory)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use agenix_order::{Terms, Unacceptable};
    use agenix_protocol::{ids::JobId, time::Timestamp};

    use super::{SerialFile, UseError};

    const NOW: Timestamp = Timestamp(1_000);

    fn terms(serial: &str, uses: u32) -> Terms {
        let text = format!(
            r#"{{"for": ["c"], "not_after": "2026-12-01T00:00:00Z", "serial": "{serial}", "uses": {uses}}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    fn job() -> JobId {
        "j".parse().unwrap()
    }

    #[test]
    fn uses_survive_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("serials");
        let file = SerialFile::open(&path, NOW).unwrap();
        file.use_once(&terms("a", 2), &job(), NOW).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "a 1796083200000\n");
        let second = SerialFile::open(&path, NOW).unwrap_err().to_string();
        assert!(second.starts_with("another worker uses trust.serials: "), "{second}");
        drop(file);

        let file = SerialFile::open(&path, NOW).unwrap();
        file.use_once(&terms("a", 2), &job(), NOW).unwrap();
        let used_up = file.use_once(&terms("a", 2), &job(), NOW).unwrap_err();
        assert!(
            matches!(used_up, UseError::Unacceptable(Unacceptable::UsedUp { uses: 2, .. })),
            "{used_up:?}"
        );
        file.use_once(&terms("b", 1), &job(), NOW).unwrap();
        drop(file);

        // A line that a crash has cut did not start an attempt, and an expired serial is removed.
        let text = std::fs::read_to_string(&path).unwrap() + "old 5\nc 17";
        std::fs::write(&path, text).unwrap();
        drop(SerialFile::open(&path, Timestamp(200_000_000)).unwrap());
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text, "a 1796083200000\na 1796083200000\nb 1796083200000\n");
    }

    #[test]
    fn damaged_file_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("serials");
        std::fs::write(&path, "a 1\nnonsense\n").unwrap();
        let error = SerialFile::open(&path, NOW).unwrap_err().to_string();
        assert!(error.starts_with("line 2 of trust.serials"), "{error}");
        let missing = SerialFile::open(&dir.path().join("no/serials"), NOW).unwrap_err().to_string();
        assert!(missing.contains("beside trust.serials"), "{missing}");
    }
}

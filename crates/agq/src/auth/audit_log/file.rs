//! File of the audit log, whose lines form a hash chain.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{self, Read, Seek, SeekFrom, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::SystemTime,
};

use agenix_protocol::printable::printable_json;
use agenix_rules::audit_chain::{AuditChain, ChainHead};
use serde::Serialize;

use super::AuditEntry;

/// Bytes at the end of a file that are read first. These bytes usually have the last line.
const END_BYTES: u64 = 64 * 1024;

#[derive(Debug)]
pub(super) struct ChainedFile {
    file: File,
    chain: AuditChain,
    head: ChainHead,
    /// True if the file does not end with a line feed.
    needs_line_feed: bool,
    /// Number of entries since the last line that could not be written.
    lost: u64,
}

#[derive(Serialize)]
struct ChainedEntry<'a> {
    #[serde(flatten)]
    entry: &'a AuditEntry<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lost: Option<u64>,
    prev: ChainHead,
}

impl ChainedFile {
    /// Opens or creates the file. The chain continues after the last line of the file or, if the
    /// file has no whole line, after the last line of the file that was moved away last.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = appended(path)?;
        lock_for_itself(&file)?;
        let FileEnd { chain, needs_line_feed } = FileEnd::of(path, || chain_after(&moved_away(path)))?;
        let head = chain.head();
        Ok(Self { file, chain, head, needs_line_feed, lost: 0 })
    }

    /// Opens the file again if it was moved away. The chain continues.
    pub(super) fn reopen(&mut self, path: &Path) -> io::Result<()> {
        let file = appended(path)?;
        let (old, new) = (self.file.metadata()?, file.metadata()?);
        if (old.dev(), old.ino()) == (new.dev(), new.ino()) {
            return Ok(());
        }
        lock_for_itself(&file)?;
        self.needs_line_feed = FileEnd::of(path, AuditChain::default)?.needs_line_feed;
        self.file = file;
        Ok(())
    }

    pub(super) fn head(&self) -> ChainHead {
        self.head
    }

    pub(super) fn append(&mut self, entry: &AuditEntry<'_>) -> io::Result<()> {
        let lost = (self.lost > 0).then_some(self.lost);
        let json = serde_json::to_string(&ChainedEntry { entry, lost, prev: self.head })?;
        // A terminal that shows the file does not act on texts of clients.
        let json = printable_json(&json);
        let start = if self.needs_line_feed { "\n" } else { "" };
        let line = format!("{start}{json}\n");
        let (written, outcome) = write(&mut self.file, line.as_bytes());
        self.note(json.as_bytes(), start.len(), written);
        outcome
    }

    /// Notes that the file has `written` bytes of an entry and of the `start` bytes before it.
    fn note(&mut self, json: &[u8], start: usize, written: usize) {
        let of_entry = written.saturating_sub(start);
        if written > 0 {
            self.needs_line_feed = of_entry > 0 && of_entry <= json.len();
        }
        if of_entry >= json.len() {
            self.lost = 0;
            self.chain.push_line(json);
        } else {
            self.lost += 1;
            if of_entry > 0 {
                self.chain.push_torn(&json[..of_entry]);
            }
        }
        self.head = self.chain.head();
    }
}

/// Writes `bytes`, at once if the system permits it. Returns the number of written bytes as well.
fn write(file: &mut impl Write, bytes: &[u8]) -> (usize, io::Result<()>) {
    let mut written = 0;
    while written < bytes.len() {
        match file.write(&bytes[written..]) {
            Ok(0) => return (written, Err(io::ErrorKind::WriteZero.into())),
            Ok(count) => written += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (written, Err(error)),
        }
    }
    (written, Ok(()))
}

fn appended(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

/// Locks the file, because the lines of two processes would not form a chain.
fn lock_for_itself(file: &File) -> io::Result<()> {
    match file.try_lock() {
        Err(TryLockError::WouldBlock) if file.metadata()?.is_file() => {
            let reason = "another process writes it, and a hash chain has one writer";
            Err(io::Error::new(io::ErrorKind::ResourceBusy, reason))
        }
        // Some file systems have no locks.
        Ok(()) | Err(_) => Ok(()),
    }
}

struct FileEnd {
    chain: AuditChain,
    needs_line_feed: bool,
}

impl FileEnd {
    /// Reads the end of a file. `before` returns the chain of the file before, with which an empty
    /// file goes on, one without a whole line, and one that is not regular, such as a pipe.
    fn of(path: &Path, before: impl FnOnce() -> AuditChain) -> io::Result<Self> {
        let metadata = std::fs::metadata(path)?;
        if !metadata.is_file() || metadata.len() == 0 {
            return Ok(Self { chain: before(), needs_line_feed: false });
        }
        let mut file = File::open(path)?;
        let mut wanted = END_BYTES;
        loop {
            let from = metadata.len().saturating_sub(wanted);
            let mut bytes = Vec::new();
            file.seek(SeekFrom::Start(from))?;
            file.read_to_end(&mut bytes)?;
            let needs_line_feed = bytes.last().is_some_and(|last| *last != b'\n');
            if let Some(chain) = AuditChain::of_end(&bytes, from == 0) {
                return Ok(Self { chain, needs_line_feed });
            }
            if from == 0 {
                return Ok(Self { chain: before().after_torn(&bytes), needs_line_feed });
            }
            wanted = wanted.saturating_mul(8);
        }
    }
}

/// Returns the chain after files of which the one that was written last comes first. Files that
/// cannot be read are left out.
fn chain_after(files: &[PathBuf]) -> AuditChain {
    let Some((last, earlier)) = files.split_first() else { return AuditChain::default() };
    FileEnd::of(last, || chain_after(earlier)).map_or_else(|_unread| chain_after(earlier), |end| end.chain)
}

/// Returns the files `PATH.…` and `PATH-…`, as logrotate names them, that are not compressed and
/// not empty. The file that was written last comes first.
fn moved_away(path: &Path) -> Vec<PathBuf> {
    let Some(name) = path.file_name() else { return Vec::new() };
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let Ok(entries) = std::fs::read_dir(directory.unwrap_or(Path::new("."))) else { return Vec::new() };
    let is_moved = |other: &Path| {
        let bytes = other.file_name().unwrap_or_default().as_encoded_bytes();
        let rest = bytes.strip_prefix(name.as_encoded_bytes());
        let is_compressed = [".gz", ".xz", ".zst", ".bz2"].iter().any(|end| bytes.ends_with(end.as_bytes()));
        rest.is_some_and(|rest| rest.starts_with(b".") || rest.starts_with(b"-")) && !is_compressed
    };
    let time = |path: PathBuf| -> Option<(SystemTime, PathBuf)> {
        let metadata = std::fs::metadata(&path).ok()?;
        (metadata.is_file() && metadata.len() > 0).then_some((metadata.modified().ok()?, path))
    };
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| is_moved(path));
    let mut files: Vec<_> = paths.filter_map(time).collect();
    files.sort_by(|a, b| b.cmp(a));
    files.into_iter().map(|(_, path)| path).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use agenix_protocol::time::Timestamp;
    use agenix_rules::audit_chain::{ChainHead, ChainVerifier, Misfit};

    use super::ChainedFile;
    use crate::auth::audit_log::AuditEntry;

    fn entry() -> AuditEntry<'static> {
        AuditEntry::wrong_key(Timestamp(1_763_373_605_250), "127.0.0.1:5000")
    }

    fn append(file: &mut ChainedFile) {
        file.append(&entry()).unwrap();
    }

    fn verified(paths: &[&Path], head: ChainHead) -> Result<ChainVerifier, Misfit> {
        let mut verifier = ChainVerifier::new(Some(head));
        for path in paths {
            let text = std::fs::read_to_string(path).unwrap();
            text.lines().try_for_each(|line| verifier.push(line.as_bytes()))?;
        }
        Ok(verifier)
    }

    #[test]
    fn chain_goes_on_across_restarts_and_rotations() {
        let dir = tempfile::tempdir().unwrap();
        let of = |name: &str| dir.path().join(name);
        let (path, first, second) = (of("audit.log"), of("audit.log.2"), of("audit.log.1"));
        let mut file = ChainedFile::open(&path).unwrap();
        assert_eq!(file.head(), ChainHead::START);
        append(&mut file);
        drop(file);
        let mut file = ChainedFile::open(&path).unwrap();
        append(&mut file);
        std::fs::rename(&path, &first).unwrap();
        append(&mut file);
        file.reopen(&path).unwrap();
        append(&mut file);
        // A reload without a rotation keeps the file.
        file.reopen(&path).unwrap();
        append(&mut file);
        let head = file.head();
        drop(file);
        // agq starts again after the file was moved away.
        std::fs::rename(&path, &second).unwrap();
        std::fs::write(of("audit.log.3.gz"), "{}\n").unwrap();
        std::fs::write(of("audit.log.4"), "").unwrap();
        let mut file = ChainedFile::open(&path).unwrap();
        assert_eq!(file.head(), head);
        append(&mut file);
        let verifier = verified(&[&first, &second, &path], file.head()).unwrap();
        assert_eq!((verifier.chained(), verifier.after_wanted()), (6, Some(0)));
        assert_eq!(verified(&[&path], head).unwrap().first_prev(), Some(head));
    }

    #[test]
    fn chain_goes_on_after_lines_of_an_older_agq() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let long = "x".repeat(100_000);
        std::fs::write(&path, format!("{{\"a\":1}}\n{{\"a\":\"{long}\"}}\n")).unwrap();
        let mut file = ChainedFile::open(&path).unwrap();
        append(&mut file);
        let verifier = verified(&[&path], file.head()).unwrap();
        assert_eq!((verifier.unchained(), verifier.chained(), verifier.after_wanted()), (2, 1, Some(0)));
    }

    #[test]
    fn chain_covers_the_torn_line_of_a_crash() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let mut file = ChainedFile::open(&path).unwrap();
        append(&mut file);
        append(&mut file);
        drop(file);
        let whole = std::fs::read(&path).unwrap();
        // The crash comes after any number of bytes of the second line, the line feed included.
        let first = whole.len() / 2;
        for kept in first..=whole.len() {
            std::fs::write(&path, &whole[..kept]).unwrap();
            let mut file = ChainedFile::open(&path).unwrap();
            append(&mut file);
            append(&mut file);
            let is_whole = kept >= whole.len() - 1;
            let expected = (u64::from(kept > first && !is_whole), if is_whole { 4 } else { 3 }, Some(0));
            let verifier = verified(&[&path], file.head()).unwrap();
            let found = (verifier.torn(), verifier.chained(), verifier.after_wanted());
            assert_eq!(found, expected, "after {kept} bytes");
        }
    }

    #[test]
    fn chain_goes_on_across_files_with_torn_lines_only() {
        let dir = tempfile::tempdir().unwrap();
        let of = |name: &str| dir.path().join(name);
        // Files of one moment are in the order of their names.
        let (path, first, second) = (of("audit.log"), of("audit.log-1"), of("audit.log-2"));
        let mut file = ChainedFile::open(&path).unwrap();
        append(&mut file);
        drop(file);
        std::fs::rename(&path, &first).unwrap();
        // A crash tears the first line of a file, and of the next one after another rotation.
        std::fs::write(&second, "{\"ts\":\n").unwrap();
        std::fs::write(&path, "{\"t").unwrap();
        let mut file = ChainedFile::open(&path).unwrap();
        append(&mut file);
        append(&mut file);
        let verifier = verified(&[&first, &second, &path], file.head()).unwrap();
        assert_eq!((verifier.chained(), verifier.torn(), verifier.after_wanted()), (3, 2, Some(0)));
    }

    #[test]
    fn chain_covers_what_a_full_disk_has_of_an_entry() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let mut file = ChainedFile::open(&path).unwrap();
        append(&mut file);
        let mut on_disk = std::fs::read_to_string(&path).unwrap();
        for written in [0, 1, 20, 1, 0, 70] {
            let json = serde_json::to_string(&entry()).unwrap();
            let start = if file.needs_line_feed { "\n" } else { "" };
            on_disk.push_str(&format!("{start}{json}\n")[..written]);
            file.note(json.as_bytes(), start.len(), written);
        }
        std::fs::write(&path, on_disk).unwrap();
        append(&mut file);
        let verifier = verified(&[&path], file.head()).unwrap();
        assert_eq!((verifier.chained(), verifier.torn(), verifier.after_wanted()), (2, 3, Some(0)));
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains(r#","lost":6,"prev":""#), "{text}");
    }

    #[test]
    fn chain_has_one_writer() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let _writer = ChainedFile::open(&path).unwrap();
        let error = ChainedFile::open(&path).unwrap_err().to_string();
        assert!(error.contains("another process writes it"), "{error}");
    }
}

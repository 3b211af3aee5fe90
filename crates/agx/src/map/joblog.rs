//! The joblog in the format of GNU Parallel: a line with tab-separated fields per ended job.

use std::{
    fs::{File, OpenOptions},
    io::{BufRead, BufReader, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use agenix_protocol::byte_escape::{decode, encode};

use super::resumed::{self, digest};
use crate::{
    error::{CliError, Result},
    util::atomic_file::cannot_write,
};

/// Number of bytes per read from the end of a joblog.
const CHUNK: usize = 64 * 1024;
/// First field of the heading, in all versions of GNU Parallel.
const SEQ: &[u8] = b"Seq\t";
const HEADING: &str = "Seq\tHost\tStarttime\tJobRuntime\tSend\tReceive\tExitval\tSignal\tCommand";

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct JobLogEntry<'e> {
    /// Number of the input, counted from 1.
    pub(crate) seq: u64,
    /// Worker, or `:` for this machine.
    pub(crate) host: &'e str,
    /// Start time in seconds since 1970.
    pub(crate) started: f64,
    /// Duration in seconds.
    pub(crate) runtime: f64,
    /// Number of bytes of the output.
    pub(crate) receive: u64,
    /// 0 if a signal ended the job, -1 if it timed out.
    pub(crate) exit_code: i32,
    pub(crate) signal: i32,
    /// Command with its placeholders replaced, with byte escapes.
    pub(crate) command: &'e str,
}

impl JobLogEntry<'_> {
    /// Returns the line of the joblog, with its line feed.
    pub(crate) fn line(&self) -> Vec<u8> {
        let Self { seq, host, started, runtime, receive, exit_code, signal, command } = self;
        // Line feeds in a command would break the line.
        let command = command.replace(char::is_control, " ");
        let line = format!(
            "{seq}\t{host}\t{started:.3}\t{runtime:10.3}\t0\t{receive}\t{exit_code}\t{signal}\t{command}\n"
        );
        decode(&line).into_owned()
    }
}

/// Jobs of a joblog that a new run skips.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResumeScope {
    /// All jobs in the joblog (`--resume`).
    Ended,
    /// Jobs that succeeded (`--resume-failed`).
    Well,
}

#[derive(Debug)]
pub(crate) struct JobLog {
    file: File,
    path: PathBuf,
}

impl JobLog {
    /// Creates a joblog, or opens an existing one for appending if `goes_on`. Refuses a file with
    /// other content, which stays unchanged.
    pub(crate) fn open(path: &Path, goes_on: bool) -> Result<Self> {
        let cannot = |error: std::io::Error| cannot_write(path, &error);
        let mut options = OpenOptions::new();
        // Without `append`, the file is truncated below, once it is known to be a joblog.
        options.append(goes_on).write(true).create(true).truncate(false);
        let mut file = options.open(path).map_err(cannot)?;
        let known = file.metadata().map_err(cannot)?;
        let mut length = known.len();
        // A pipe or a device has no lines to continue.
        if known.is_file() && length > 0 {
            if !begins_as_joblog(path).map_err(cannot)? {
                return Err(CliError::usage(
                    format!("{}: line 1 is not a line of a joblog", path.display()),
                    "give the joblog of an earlier run, or a new file",
                ));
            }
            // The last line may be incomplete, because its writer was killed or the disk was full.
            let kept = if goes_on { whole_length(path).map_err(cannot)? } else { 0 };
            if kept < length {
                file.set_len(kept).map_err(cannot)?;
                length = kept;
            }
        }
        if length == 0 {
            writeln!(file, "{HEADING}").map_err(cannot)?;
        }
        Ok(Self { file, path: path.to_owned() })
    }

    /// Appends the line of a job.
    pub(crate) fn add(&mut self, line: &[u8]) -> Result<()> {
        self.file.write_all(line).map_err(|error| cannot_write(&self.path, &error))
    }
}

/// Returns true if a file begins with the heading of a joblog or with the line of a job, or is a
/// part of the heading.
fn begins_as_joblog(path: &Path) -> std::io::Result<bool> {
    let mut start = Vec::new();
    BufReader::new(File::open(path)?.take(CHUNK as u64)).read_until(b'\n', &mut start)?;
    let heading = HEADING.as_bytes();
    Ok(heading.starts_with(&start) || start.starts_with(SEQ) || read(&encode(&start)).is_some())
}

/// Returns the length of a joblog up to the end of its last complete line.
fn whole_length(path: &Path) -> std::io::Result<u64> {
    let mut file = File::open(path)?;
    let mut end = file.metadata()?.len();
    let mut chunk = vec![0; CHUNK];
    while end > 0 {
        let from = end.saturating_sub(CHUNK as u64);
        let chunk = &mut chunk[..usize::try_from(end - from).unwrap_or(CHUNK)];
        file.seek(SeekFrom::Start(from))?;
        file.read_exact(chunk)?;
        if let Some(at) = chunk.iter().rposition(|&byte| byte == b'\n') {
            return Ok(from + at as u64 + 1);
        }
        end = from;
    }
    Ok(0)
}

/// Returns the jobs that are done according to a joblog, or none if there is no joblog yet. The
/// last line of a job counts. An incomplete line does not count.
pub(crate) fn done(path: &Path, wanted: ResumeScope) -> Result<resumed::CompletedInputs> {
    let wrong = |problem: String| {
        CliError::usage(
            format!("{}: {problem}", path.display()),
            "give another joblog, or leave out --resume",
        )
    };
    let file = match File::open(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Ok(resumed::CompletedInputs::new());
        }
        other => other.map_err(|error| wrong(error.to_string()))?,
    };
    let mut done = resumed::CompletedInputs::new();
    let mut reader = BufReader::new(file);
    for number in 1_u64.. {
        let mut line = Vec::new();
        if reader.read_until(b'\n', &mut line).map_err(|error| wrong(error.to_string()))? == 0 {
            break;
        }
        let is_torn = line.pop_if(|last| *last == b'\n').is_none();
        let line = encode(&line);
        if (number == 1 && line.starts_with("Seq\t")) || is_torn {
            continue;
        }
        let (seq, went_well, command) =
            read(&line).ok_or_else(|| wrong(format!("line {number} is not a line of a joblog")))?;
        if went_well || wanted == ResumeScope::Ended {
            done.insert(seq, digest(command));
        } else {
            done.remove(&seq);
        }
    }
    Ok(done)
}

/// Returns the number of the job, whether it succeeded, and its command.
fn read(line: &str) -> Option<(u64, bool, &str)> {
    let fields: Vec<&str> = line.splitn(9, '\t').collect();
    if fields.len() < 9 {
        return None;
    }
    let number = |at: usize| fields.get(at)?.trim().parse::<i64>().ok();
    Some((u64::try_from(number(0)?).ok()?, number(6)? == 0 && number(7)? == 0, fields.get(8).copied()?))
}

#[cfg(test)]
mod tests {
    use super::{JobLog, JobLogEntry, ResumeScope, done};

    fn entry(seq: u64, exit_code: i32, signal: i32) -> JobLogEntry<'static> {
        let (host, command) = (":", "echo a\nb");
        JobLogEntry { seq, host, started: 1.5, runtime: 0.25, receive: 2, exit_code, signal, command }
    }

    #[test]
    fn joblog_lines_have_the_format_of_gnu_parallel() {
        assert_eq!(entry(3, 1, 0).line(), b"3\t:\t1.500\t     0.250\t0\t2\t1\t0\techo a b\n");
    }

    #[test]
    fn joblog_entries_take_one_line_with_any_command() {
        let command = "a\nb\rc\u{1b}[2Jd\u{85}e";
        let line = JobLogEntry { command, ..entry(1, 0, 0) }.line();
        assert!(line.ends_with(b"\ta b c [2Jd e\n"), "{line:?}");
    }

    #[test]
    fn joblog_has_the_bytes_of_a_command() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let command = "cat 'caf\u{10fee9}\u{10fe85}'";
        JobLog::open(&path, false).unwrap().add(&JobLogEntry { command, ..entry(1, 0, 0) }.line()).unwrap();
        assert!(std::fs::read(&path).unwrap().ends_with(b"\tcat 'caf\xe9\x85'\n"));
        let done = done(&path, ResumeScope::Ended).unwrap();
        assert_eq!(done.get(&1), Some(&super::digest(command)));
    }

    #[test]
    fn joblog_drops_an_incomplete_last_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let mut log = JobLog::open(&path, false).unwrap();
        for entry in [entry(1, 0, 0), entry(2, 0, 0), entry(3, 0, 0)] {
            log.add(&entry.line()).unwrap();
        }
        let whole = std::fs::read_to_string(&path).unwrap();
        let last = whole.lines().last().unwrap().len();
        for cut in 1..=last {
            std::fs::write(&path, &whole[..whole.len() - cut]).unwrap();
            let of = |wanted| done(&path, wanted).unwrap().into_keys().collect::<Vec<_>>();
            assert_eq!(of(ResumeScope::Ended), [1, 2], "{cut} bytes are missing");
            JobLog::open(&path, true).unwrap().add(&entry(3, 1, 0).line()).unwrap();
            assert_eq!(of(ResumeScope::Ended), [1, 2, 3], "{cut} bytes were missing");
            JobLog::open(&path, true).unwrap().add(&entry(3, 0, 0).line()).unwrap();
            assert_eq!(of(ResumeScope::Well), [1, 2, 3]);
        }
    }

    #[test]
    fn joblog_does_not_truncate_other_files() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notes");
        for (text, goes_on) in [("one\ntwo", true), ("one\ntwo\n", true), ("one\n", false), ("x", false)] {
            std::fs::write(&path, text).unwrap();
            let refused = JobLog::open(&path, goes_on).unwrap_err().to_string();
            assert!(refused.contains("line 1 is not a line of a joblog"), "{refused}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
    }

    #[test]
    fn joblog_replaces_an_earlier_joblog() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let line = String::from_utf8(entry(7, 0, 0).line()).unwrap();
        for earlier in ["", "Se", super::HEADING, &format!("{}\n{line}", super::HEADING), &line] {
            std::fs::write(&path, earlier).unwrap();
            drop(JobLog::open(&path, false).unwrap());
            assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("{}\n", super::HEADING));
        }
        JobLog::open("/dev/null".as_ref(), false).unwrap().add(b"x\n").unwrap();
    }

    #[test]
    fn joblog_is_read_back_and_the_last_line_of_a_job_counts() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        assert!(done(&path, ResumeScope::Ended).unwrap().is_empty());
        let mut log = JobLog::open(&path, false).unwrap();
        for entry in [entry(1, 0, 0), entry(2, 1, 0), entry(3, 0, 9), entry(4, 1, 0), entry(4, 0, 0)] {
            log.add(&entry.line()).unwrap();
        }
        let of = |wanted| done(&path, wanted).unwrap().into_keys().collect::<Vec<_>>();
        assert_eq!((of(ResumeScope::Ended), of(ResumeScope::Well)), (vec![1, 2, 3, 4], vec![1, 4]));
        JobLog::open(&path, true).unwrap().add(&entry(2, 0, 0).line()).unwrap();
        assert_eq!(of(ResumeScope::Well), [1, 2, 4]);
        assert_eq!(std::fs::read_to_string(&path).unwrap().matches("Seq\t").count(), 1);
        std::fs::write(&path, "something else\n").unwrap();
        let error = done(&path, ResumeScope::Ended).unwrap_err().to_string();
        assert!(error.contains("line 1 is not a line of a joblog"));
    }
}

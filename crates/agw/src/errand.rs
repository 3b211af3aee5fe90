//! A short command that is no task of a job: empty stdin, a deadline, a process group of its own, little output kept.

use std::{io, path::Path, process::Stdio, time::Duration};

use agenix_protocol::documents::Kept;

use crate::{
    pipeline::{Command, Stdin, Stdout},
    process::Process,
    spool::{Spool, kept},
};

/// Most bytes of each stream that are kept.
const MOST_BYTES: usize = 4096;
/// Time between SIGTERM and SIGKILL.
const KILL_GRACE: Duration = Duration::from_secs(1);

/// What a command said, and how it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Said {
    /// As a shell has it.
    pub(crate) exit_code: i32,
    pub(crate) timed_out: bool,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs `program` under the name `name`, at most for `bound`. The error is that it could not be run.
pub(crate) async fn run(
    program: &Path,
    name: &str,
    args: &[String],
    spool: &Spool,
    bound: Duration,
) -> io::Result<Said> {
    let command = Command {
        task_number: 0,
        program: name.to_owned(),
        args: args.to_vec(),
        env: Vec::new(),
        cwd: None,
        stdin: Stdin::Empty,
        stdout: Stdout::Spool,
        timeout: bound,
    };
    let (stdout, stderr) = (spool.file()?, spool.file()?);
    let child_stdout = Stdio::from(stdout.try_clone()?);
    let mut process = Process::start(program, &command, Stdio::null(), child_stdout, stderr.try_clone()?)?;
    let ended = process.wait(KILL_GRACE).await?;
    Ok(Said {
        exit_code: ended.exit_code(),
        timed_out: ended.timed_out,
        stdout: text(&kept(&stdout, MOST_BYTES)?),
        stderr: text(&kept(&stderr, MOST_BYTES)?),
    })
}

/// What is not UTF-8 is replaced, and that takes more room than it had.
fn text(kept: &Kept) -> String {
    let bytes = String::from_utf8_lossy(&kept.bytes).into_owned().into_bytes();
    let mut text = Kept { total: bytes.len() as u64, bytes };
    text.truncate(MOST_BYTES);
    String::from_utf8_lossy(&text.bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use std::{path::Path, time::Duration};

    use agenix_protocol::documents::Kept;

    use super::{MOST_BYTES, Said, run, text};
    use crate::spool::Spool;

    async fn sh(script: &str, bound: Duration) -> Said {
        let dir = tempfile::tempdir().unwrap();
        let args = ["-c".to_owned(), script.to_owned()];
        run(Path::new("/bin/sh"), "sh", &args, &Spool::new(dir.path()), bound).await.unwrap()
    }

    #[tokio::test]
    async fn what_it_says_is_kept_apart_and_capped() {
        let said = sh("cat; echo out; echo err >&2; exit 3", Duration::from_secs(60)).await;
        let (stdout, stderr) = ("out\n".to_owned(), "err\n".to_owned());
        assert_eq!(said, Said { exit_code: 3, timed_out: false, stdout, stderr });
        let said = sh("head -c 100000 /dev/zero", Duration::from_secs(60)).await;
        assert_eq!(said.stdout.len(), MOST_BYTES);
    }

    #[tokio::test]
    async fn it_does_not_outlast_its_bound() {
        assert!(sh("sleep 1000", Duration::from_millis(10)).await.timed_out);
    }

    #[test]
    fn text_is_cut_after_it_has_grown() {
        let kept = Kept { bytes: vec![0xff; MOST_BYTES], total: MOST_BYTES as u64 };
        let text = text(&kept);
        assert!(text.len() <= MOST_BYTES && text.chars().all(|c| c == '\u{fffd}'), "{}", text.len());
    }
}

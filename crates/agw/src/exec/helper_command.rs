//! Helper commands: short commands that are not tasks of a job, with an empty stdin, a deadline, a
//! process group of their own, and bounded output.

use std::{
    fs::File,
    io::{self, Read},
    os::fd::OwnedFd,
    path::Path,
    thread,
    time::Duration,
};

use agenix_protocol::documents::CapturedOutput;
use tokio::{
    sync::mpsc,
    time::{Instant, timeout_at},
};

use crate::exec::{
    job_mark::JobMark,
    launch::Launcher,
    sandbox::job::JobSandbox,
    stages::{StageCommand, Stderr, Stdin, Stdout},
    streams::{Input, Output, Streams},
};

/// Maximum number of bytes of each stream that are kept.
const MAX_BYTES: usize = 4096;
/// Maximum wait for the last output after the end of the command.
const OUTPUT_GRACE: Duration = Duration::from_millis(200);
/// Time between SIGTERM and SIGKILL.
const KILL_GRACE: Duration = Duration::from_secs(1);

/// Output and exit code of a helper command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CommandOutput {
    /// Exit code as a shell returns it: 128 plus the signal number after a signal.
    pub(crate) exit_code: i32,
    pub(crate) timed_out: bool,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs `program` as `name`, in `sandbox` if there is one, for at most `bound`. Returns an error if
/// the program could not be run.
pub(crate) async fn run(
    (program, name): (&Path, &str),
    args: &[String],
    bound: Duration,
    sandbox: Option<JobSandbox>,
) -> io::Result<CommandOutput> {
    let command = StageCommand {
        task_number: 0,
        program: name.to_owned(),
        args: args.to_vec(),
        env: Vec::new(),
        secret_env: Vec::new(),
        cwd: None,
        stdin: Stdin::Empty,
        stdout: Stdout::Spool,
        stderr: Stderr::Spool,
        timeout: bound,
        idle_timeout: None,
        is_last: true,
    };
    let (stdout, child_stdout) = capture_pipe()?;
    let (stderr, child_stderr) = capture_pipe()?;
    let streams = Streams {
        stdin: Input::Descriptor(File::open("/dev/null")?.into()),
        stdout: Output::Descriptor(child_stdout),
        stderr: Output::Descriptor(child_stderr),
    };
    let mark = JobMark::new();
    let launcher = Launcher {
        mark: &mark,
        sandbox: sandbox.as_ref(),
        patterns: None,
        processor: None,
        record: None,
        resources: None,
    };
    let (mut process, _) = launcher.start(program, &command, streams).await?;
    let ended = process.wait(KILL_GRACE).await?;
    drop(process);
    if let Some(sandbox) = sandbox {
        sandbox.end(&mut []).await;
    }
    let (stdout, stderr) = (collect_output(stdout).await, collect_output(stderr).await);
    Ok(CommandOutput { exit_code: ended.exit_code(), timed_out: ended.timed_out, stdout, stderr })
}

/// Creates a pipe and a thread that keeps [`MAX_BYTES`] bytes of it, and discards the rest.
fn capture_pipe() -> io::Result<(mpsc::UnboundedReceiver<Vec<u8>>, OwnedFd)> {
    let (mut reader, writer) = io::pipe()?;
    let (sender, receiver) = mpsc::unbounded_channel();
    thread::Builder::new().name("capture".into()).spawn(move || {
        let (mut chunk, mut left) = ([0; MAX_BYTES], MAX_BYTES);
        // The loop ends when the last process closes the other end.
        while let Ok(count @ 1..) = reader.read(&mut chunk) {
            let wanted = count.min(left);
            left -= wanted;
            if wanted > 0 && sender.send(chunk[..wanted].to_vec()).is_err() {
                left = 0;
            }
        }
    })?;
    Ok((receiver, writer.into()))
}

/// Collects the output. A background process may hold the pipe longer, and is not waited for.
async fn collect_output(mut receiver: mpsc::UnboundedReceiver<Vec<u8>>) -> String {
    let mut bytes = Vec::new();
    let end = Instant::now() + OUTPUT_GRACE;
    while let Ok(Some(chunk)) = timeout_at(end, receiver.recv()).await {
        bytes.extend(chunk);
    }
    text(&bytes)
}

/// Decodes the output, cut to [`MAX_BYTES`]: replacements of invalid UTF-8 lengthen the text.
fn text(bytes: &[u8]) -> String {
    let bytes = String::from_utf8_lossy(bytes).into_owned().into_bytes();
    let mut text = CapturedOutput::whole(bytes);
    text.truncate(MAX_BYTES);
    String::from_utf8_lossy(&text.bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use std::{path::Path, time::Duration};

    use super::{CommandOutput, MAX_BYTES, run, text};

    async fn sh(script: &str, bound: Duration) -> CommandOutput {
        let args = ["-c".to_owned(), script.to_owned()];
        run((Path::new("/bin/sh"), "sh"), &args, bound, None).await.unwrap()
    }

    #[tokio::test]
    async fn helper_command_separates_and_caps_its_streams() {
        let output = sh("cat; echo out; echo err >&2; exit 3", Duration::from_secs(60)).await;
        let (stdout, stderr) = ("out\n".to_owned(), "err\n".to_owned());
        assert_eq!(output, CommandOutput { exit_code: 3, timed_out: false, stdout, stderr });
        let output = sh("head -c 100000 /dev/zero", Duration::from_secs(60)).await;
        assert_eq!(output.stdout.len(), MAX_BYTES);
    }

    #[tokio::test]
    async fn helper_command_times_out() {
        assert!(sh("sleep 1000", Duration::from_millis(10)).await.timed_out);
    }

    #[test]
    fn helper_command_text_is_capped_after_replacing_invalid_utf8() {
        let text = text(&[0xff; MAX_BYTES]);
        assert!(text.len() <= MAX_BYTES && text.chars().all(|c| c == '\u{fffd}'), "{}", text.len());
    }
}

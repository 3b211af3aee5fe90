//! Child process agq or agw, its end, and the reason for its end.

use std::{
    fs,
    io::{self, BufRead, BufReader},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use crate::{
    background::log_lines::last_lines,
    error::{CliError, Result},
};

/// Maximum wait for the end of a program, because agw gives its tasks a second.
const MAX_WAIT: Duration = Duration::from_secs(10);
/// Maximum wait for the end of a killed program.
const LAST_WAIT: Duration = Duration::from_secs(2);
/// Interval between two checks whether a program has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Maximum number of lines of a log in a message.
const SHOWN_LINES: usize = 3;
/// Number of free bytes below which a disk counts as full.
const NO_ROOM: u64 = 64 * 1024;

/// Advice for the end of a program whose log has the reason.
pub(super) const OWN: &str = "try again; or start agq and agw with `agx up`";
/// Advice for the end of an agw with a sandbox, which ends at its start if the machine cannot
/// enforce the profile.
pub(super) const OF_SANDBOX: &str = "`agw sandbox` shows what this machine can enforce, and the remedies";
/// Advice for other kinds of an unexpected end.
const ROOM: &str = "free space there, or set TMPDIR to a directory on another disk";
const SIGNALLED: &str = "a task can have sent the signal (`kill $PPID`), or a person on this machine, or the system when \
                         memory ran out; try again";

/// Child program that ends with this process, because the pipe to its stdin then closes.
pub(super) struct ManagedProcess {
    name: &'static str,
    child: Child,
    log: PathBuf,
    /// Advice if the log has the reason for the end of the program.
    advice: &'static str,
}

impl ManagedProcess {
    /// Starts a program with a log in `dir`. The failure of the program has `advice` if the log has
    /// the reason.
    pub(super) fn start(
        name: &'static str,
        command: &mut Command,
        dir: &Path,
        advice: &'static str,
    ) -> Result<Self> {
        let log = dir.join(name).with_extension("log");
        let stderr = fs::File::create(&log).map_err(|error| cannot("write its log", &error))?;
        // The child gets a process group of its own, because agx handles Ctrl-C and ends the child.
        let command = command.stdin(Stdio::piped()).stderr(stderr).process_group(0);
        let child = command.spawn().map_err(|error| cannot(&format!("start {name}"), &error))?;
        Ok(Self { name, child, log, advice })
    }

    /// Waits until agq prints that it listens.
    pub(super) fn wait_until_listening(&mut self) -> Result<()> {
        let mut line = String::new();
        if let Some(stdout) = self.child.stdout.take() {
            // An error also means that agq does not listen.
            let _ended = BufReader::new(stdout).read_line(&mut line);
        }
        if line.contains("listens on") {
            return Ok(());
        }
        let status = self.child.wait().ok();
        Err(self.failure(status))
    }

    /// Returns the failure of the program if it has ended.
    pub(super) fn exited(&mut self) -> Option<CliError> {
        match self.child.try_wait() {
            Ok(None) => None,
            Ok(status) => Some(self.failure(status)),
            // The program is no child of this process any more.
            Err(_) => Some(self.failure(None)),
        }
    }

    fn failure(&self, status: Option<ExitStatus>) -> CliError {
        let dir = self.log.parent().unwrap_or(Path::new("/"));
        let is_full = rustix::fs::statvfs(dir).is_ok_and(|disk| disk.f_bavail * disk.f_frsize < NO_ROOM);
        let log = fs::read_to_string(&self.log).map_err(|error| error.to_string());
        let log = log.as_deref().map_err(String::as_str);
        let (why, help) = exit_error(status, log, &self.log, is_full);
        let help = help.unwrap_or(self.advice);
        CliError::usage(format!("{} of this command has ended: {why}", self.name), help)
    }

    /// Waits for at most `bound`, and returns whether the program has ended.
    fn ends_within(&mut self, bound: Duration) -> bool {
        let since = Instant::now();
        loop {
            // After an error, the program is no child of this process any more.
            if !matches!(self.child.try_wait(), Ok(None)) {
                return true;
            }
            if since.elapsed() >= bound {
                return false;
            }
            #[expect(clippy::disallowed_methods, reason = "a wait for a child has no timeout")]
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

impl Drop for ManagedProcess {
    fn drop(&mut self) {
        // The program ends when its stdin closes. The output of the program closes too, which ends
        // a running task.
        drop(self.child.stdin.take());
        if self.ends_within(Duration::ZERO) {
            return;
        }
        let pid = Pid::from_child(&self.child);
        // A stopped program would not notice that its stdin is closed.
        let _may_have_ended = kill_process(pid, Signal::CONT);
        if !self.ends_within(MAX_WAIT) {
            let _may_have_ended = kill_process(pid, Signal::KILL);
            // SIGKILL does not end a program in a frozen control group.
            self.ends_within(LAST_WAIT);
        }
    }
}

/// Returns the reason, from the exit status, the log, and the free space of the disk. The advice is
/// `None` if the advice of the program fits.
fn exit_error(
    status: Option<ExitStatus>,
    log: Result<&str, &str>,
    path: &Path,
    is_full: bool,
) -> (String, Option<&'static str>) {
    let how = status.map_or_else(|| "its end was not seen".to_owned(), |status| status.to_string());
    let lines = log.map(|log| last_lines(log, SHOWN_LINES).join(" / ")).unwrap_or_default();
    if is_full {
        let dir = path.parent().unwrap_or(path).display();
        return (format!("the disk of {dir} is full ({how}) {lines}").trim_end().to_owned(), Some(ROOM));
    }
    if let Some(signal) = how.strip_prefix("signal: ") {
        return (format!("signal {signal} ended it {lines}").trim_end().to_owned(), Some(SIGNALLED));
    }
    if status.is_some_and(|status| status.success()) {
        return ("SIGTERM or SIGINT asked it to end".into(), Some(SIGNALLED));
    }
    match log {
        _ if !lines.is_empty() => (lines, None),
        Ok(_) => (format!("{how}, and its log {} does not say why", path.display()), None),
        Err(error) => (format!("{how}, and its log {} cannot be read: {error}", path.display()), None),
    }
}

pub(super) fn cannot(operation: &str, error: &io::Error) -> CliError {
    CliError::usage(
        format!("cannot {operation}: {error}"),
        "look at TMPDIR and at the limits of this shell, or give the address of an agq with --agq",
    )
}

#[cfg(test)]
mod tests {
    use std::{
        os::unix::process::ExitStatusExt,
        path::Path,
        process::{Command, ExitStatus, Stdio},
    };

    use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

    use super::{ManagedProcess, OWN, ROOM, SIGNALLED, exit_error};

    const INFO: &str = "2026-01-01T00:00:00Z  INFO agw: draining: no more jobs are claimed\n";

    fn why(raw: i32, log: Result<&str, &str>, is_full: bool) -> (String, Option<&'static str>) {
        exit_error(Some(ExitStatus::from_raw(raw)), log, Path::new("/tmp/agx-1-x/agw.log"), is_full)
    }

    #[test]
    fn exit_errors_name_the_signal_and_omit_informational_lines() {
        assert_eq!(why(9, Ok(INFO), false), ("signal 9 (SIGKILL) ended it".into(), Some(SIGNALLED)));
        let (asked, help) = why(0, Ok(INFO), false);
        assert!(asked.contains("SIGTERM") && help == Some(SIGNALLED), "{asked}");
        let failed = why(2 << 8, Ok("a\nb\nc\nthe cause\n"), false);
        assert_eq!(failed, ("b / c / the cause".into(), None));
    }

    #[test]
    fn exit_errors_without_log_lines_name_the_status_and_the_log() {
        let (empty, _) = why(1 << 8, Ok(""), false);
        assert_eq!(empty, "exit status: 1, and its log /tmp/agx-1-x/agw.log does not say why");
        let (unread, _) = why(1 << 8, Err("Input/output error"), false);
        assert!(unread.ends_with("agw.log cannot be read: Input/output error"), "{unread}");
        let (full, help) = why(1 << 8, Ok(""), true);
        assert_eq!((full.as_str(), help), ("the disk of /tmp/agx-1-x is full (exit status: 1)", Some(ROOM)));
    }

    #[test]
    fn program_whose_end_was_not_seen_has_ended() {
        let dir = tempfile::tempdir().unwrap();
        let mut exits = Command::new("true");
        let mut part = ManagedProcess::start("true", exits.stdout(Stdio::null()), dir.path(), OWN).unwrap();
        waitpid(Some(Pid::from_child(&part.child)), WaitOptions::empty()).unwrap();
        let failure = part.exited().unwrap().to_string();
        assert!(failure.contains("its end was not seen"), "{failure}");
    }

    #[test]
    fn a_stopped_child_is_ended() {
        let dir = tempfile::tempdir().unwrap();
        let mut cat = Command::new("cat");
        let part = ManagedProcess::start("cat", cat.stdout(Stdio::null()), dir.path(), OWN).unwrap();
        let pid = Pid::from_child(&part.child);
        kill_process(pid, Signal::STOP).unwrap();
        drop(part);
        assert!(rustix::process::test_kill_process(pid).is_err());
    }
}

//! Commands of the user that start and end workers.

use std::{
    os::unix::process::ExitStatusExt,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::{
    process::{Child, Command},
    time::timeout,
};

/// Command that `sh -c` runs.
#[derive(Debug, Clone)]
pub(crate) struct Hook {
    /// Option that gives the command, as `--up`.
    pub(crate) option: &'static str,
    /// Text of the command.
    pub(crate) command: String,
    /// Time after which the command is killed.
    pub(crate) timeout: Duration,
}

/// Reason for which a command did not succeed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HookFailure {
    /// `sh` could not be started, or not be waited for.
    #[error("{0} cannot be run: {1}")]
    NotRun(&'static str, std::io::Error),
    /// The command ended with another code than 0.
    #[error("{0} exited with code {1}")]
    ExitCode(&'static str, i32),
    /// A signal ended the command.
    #[error("{0} was ended by signal {1}")]
    Signal(&'static str, i32),
    /// The command took too long.
    #[error("{0} took longer than --command-timeout, and was killed")]
    TooLong(&'static str),
}

impl Hook {
    /// Runs the command with additional environment variables, and waits for its end. The stdout of
    /// the command goes to stderr, and its stdin is empty. The command gets a process group of its
    /// own, so Ctrl-C does not end it.
    pub(crate) async fn run(&self, variables: &[(&str, String)]) -> Result<(), HookFailure> {
        let mut command = Command::new("sh");
        command.args(["-c", &self.command]).envs(variables.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(std::io::stderr()).process_group(0);
        let failed = |error| HookFailure::NotRun(self.option, error);
        let mut child = command.spawn().map_err(failed)?;
        match timeout(self.timeout, child.wait()).await {
            Ok(status) => self.judge(status.map_err(failed)?),
            Err(_) => {
                kill(&child);
                child.wait().await.map_err(failed)?;
                Err(HookFailure::TooLong(self.option))
            }
        }
    }

    fn judge(&self, status: ExitStatus) -> Result<(), HookFailure> {
        match (status.code(), status.signal()) {
            (Some(0), _) => Ok(()),
            (Some(code), _) => Err(HookFailure::ExitCode(self.option, code)),
            (None, signal) => Err(HookFailure::Signal(self.option, signal.unwrap_or_default())),
        }
    }
}

/// Kills the processes of the command. A process with a group of its own stays.
fn kill(child: &Child) {
    let pid = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
    if let Some(pid) = pid {
        // The command may have ended already.
        let _ended = kill_process_group(pid, Signal::KILL);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Hook;

    async fn run(command: &str, timeout: Duration) -> Result<(), String> {
        let hook = Hook { option: "--up", command: command.into(), timeout };
        hook.run(&[("AGX_SCALE_COUNT", "2".into())]).await.map_err(|failure| failure.to_string())
    }

    #[tokio::test]
    async fn hook_gets_variables_and_its_failures_are_told_apart() {
        let long = Duration::from_secs(600);
        assert_eq!(run("test \"$AGX_SCALE_COUNT\" = 2 && ! read line", long).await, Ok(()));
        assert_eq!(run("exit 3", long).await, Err("--up exited with code 3".into()));
        assert_eq!(run("kill -9 $$", long).await, Err("--up was ended by signal 9".into()));
    }

    #[tokio::test]
    async fn hook_is_killed_with_its_processes_after_its_timeout() {
        let too_long = Err("--up took longer than --command-timeout, and was killed".into());
        assert_eq!(run("sleep 1000; true", Duration::from_millis(10)).await, too_long);
    }
}

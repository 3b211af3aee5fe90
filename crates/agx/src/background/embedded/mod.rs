//! Private agq and agw for one command, which exit when this process exits, even if it is killed.

mod directory;
mod managed_process;

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use agenix_client::{Address, Server};
use tokio::time::sleep;

use crate::{
    background::embedded::{
        directory::{EmbeddedDir, sweep},
        managed_process::{ManagedProcess, OF_SANDBOX, OWN, cannot},
    },
    error::{CliError, Result},
};

/// Interval of the check that both processes run.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Setting of agw that describes this machine, and so is meant for every worker on it.
const RESOURCES: &str = "AGW_RESOURCES";

/// Private agq and agw with their directory.
pub(crate) struct EmbeddedCluster {
    /// `agw` is declared before the directory, because the processes write to the directory until
    /// they have ended.
    agw: ManagedProcess,
    agq: ManagedProcess,
    dir: EmbeddedDir,
    key: String,
}

impl EmbeddedCluster {
    /// Starts agq, which keeps `kept` ended jobs, and agw with `jobs` slots, or one per processor.
    /// `sandbox` has the options of agw for tasks in a sandbox. These tasks get no open files of
    /// agx, and are not programs by path.
    pub(crate) fn start(jobs: Option<u32>, kept: u64, sandbox: Option<&[OsString]>) -> Result<Self> {
        sweep();
        let dir = EmbeddedDir::new().map_err(|error| cannot("make a directory for it", &error))?;
        let key = new_key();
        let socket = dir.path().join("agq");
        let mut agq = command("agq", &key)?;
        agq.args(["--end-with-stdin", "--fixed-workers", "--no-tcp", "--http", "off"]);
        agq.args(["--durability", "interval", "--socket"]);
        agq.arg(&socket).arg("--data-dir").arg(dir.path().join("data")).stdout(Stdio::piped());
        agq.arg("--keep-ended-count").arg(kept.to_string());
        let mut agq = ManagedProcess::start("agq", &mut agq, dir.path(), OWN)?;
        agq.wait_until_listening()?;
        let mut agw = command("agw", &key)?;
        agw.args(worker_args(&socket, dir.path(), jobs, sandbox));
        let advice = if sandbox.is_some() { OF_SANDBOX } else { OWN };
        let agw = ManagedProcess::start("agw", agw.stdout(Stdio::null()), dir.path(), advice)?;
        Ok(Self { agw, agq, dir, key })
    }

    pub(crate) fn server(&self) -> Result<Server> {
        let address = address(&self.dir.path().join("agq"));
        Server::new(&address, self.key.clone().into())
            .map_err(|problem| CliError::usage(problem, "choose another TMPDIR"))
    }

    /// Waits until one of the processes has ended unexpectedly.
    pub(crate) async fn until_exit(&mut self) -> CliError {
        loop {
            if let Some(failure) = self.exited() {
                return failure;
            }
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Returns the error of a process that has ended unexpectedly.
    pub(crate) fn exited(&mut self) -> Option<CliError> {
        [&mut self.agw, &mut self.agq].into_iter().find_map(ManagedProcess::exited)
    }
}

/// Returns the arguments of agw, with its spool in `dir`. The output of a job is bounded by
/// `--spool-reserve` alone, because the worker has no other users.
fn worker_args(socket: &Path, dir: &Path, jobs: Option<u32>, sandbox: Option<&[OsString]>) -> Vec<OsString> {
    let mut args: Vec<OsString> = vec![
        "--end-with-stdin".into(),
        "--agq".into(),
        address(socket).into(),
        "--spool-dir".into(),
        dir.into(),
        "--spool-quota".into(),
        u64::MAX.to_string().into(),
        "--give-up-outputs".into(),
    ];
    match sandbox {
        Some(options) => args.extend_from_slice(options),
        None => args.extend(["--inherit-files", "--program-paths"].map(OsString::from)),
    }
    if let Some(jobs) = jobs {
        args.push("--max-concurrent-jobs".into());
        args.push(jobs.to_string().into());
    }
    args
}

/// Returns a command for one of the programs. The key and [`RESOURCES`] are the only settings of
/// the command in the environment.
fn command(name: &str, key: &str) -> Result<Command> {
    let mut command = Command::new(program(name)?);
    for name in settings_variables() {
        command.env_remove(name);
    }
    command.env("AGQ_SESSION_KEY", key);
    Ok(command)
}

/// Returns the settings of agq and agw in the environment, which are meant for other processes.
/// [`RESOURCES`] is no such setting.
pub(crate) fn settings_variables() -> impl Iterator<Item = OsString> {
    let is_one = |name: &OsString| {
        let name = name.to_str().filter(|name| *name != RESOURCES);
        name.is_some_and(|name| name.starts_with("AGQ_") || name.starts_with("AGW_"))
    };
    std::env::vars_os().map(|(name, _)| name).filter(is_one)
}

/// Returns a random session key of 64 hexadecimal digits.
pub(crate) fn new_key() -> String {
    let [one, other] = [uuid::Uuid::new_v4(), uuid::Uuid::new_v4()];
    format!("{}{}", one.simple(), other.simple())
}

/// Returns the path of agq or agw: beside this program, or in PATH.
pub(crate) fn program(name: &str) -> Result<PathBuf> {
    let beside = std::env::current_exe().ok().map(|own| own.with_file_name(name));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).map(|dir| dir.join(name));
    beside.into_iter().chain(on_path).find(|file| file.is_file()).ok_or_else(|| {
        CliError::usage(
            format!("there is no {name} beside agx, and none on PATH"),
            "install all three programs into one directory, or give the address of an agq with --agq",
        )
    })
}

fn address(socket: &Path) -> String {
    Address::Unix(socket.to_owned()).to_string()
}

#[cfg(test)]
mod tests {
    use std::{ffi::OsString, path::Path};

    use super::worker_args;

    #[test]
    fn output_of_a_private_worker_has_no_bound_but_the_disk() {
        let [socket, dir] = ["/t/agq", "/t"].map(Path::new);
        let options: [OsString; 2] = ["--sandbox".into(), "reader".into()];
        let unbounded: [OsString; 2] = ["--spool-quota".into(), u64::MAX.to_string().into()];
        for sandbox in [None, Some(&options[..])] {
            let args = worker_args(socket, dir, Some(2), sandbox);
            assert!(args.windows(2).any(|pair| pair == unbounded), "{args:?}");
            assert!(args.iter().any(|arg| arg == "--give-up-outputs"), "nobody may free the disk: {args:?}");
        }
    }
}

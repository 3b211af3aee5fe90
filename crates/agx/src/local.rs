//! An agq and an agw of our own, for one command: nobody else reaches them, and they go with us, however we go.

use std::{
    ffi::OsString,
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use agenix_client::Server;
use tempfile::TempDir;
use tokio::time::sleep;

use crate::failure::Failure;

/// How the directories of such commands begin; then comes the number of their process.
const PREFIX: &str = "agx-";
/// Most bytes of a path of a Unix socket, with room for what ends it (sun_path, the shorter one of macOS).
const MOST_PATH: usize = 100;
/// Most bytes of a task's output that come back: as many as fit into one message.
const KEPT_BYTES: &str = "4194304";

/// How often it is looked whether both still run.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Both, and where they keep what they have.
pub(crate) struct Local {
    /// Before the directory: they write into it until they have ended.
    agw: Part,
    agq: Part,
    dir: TempDir,
    key: String,
}

/// One of the two. Its stdin is a pipe of which we hold the other end: when we are gone, it ends, too.
struct Part {
    name: &'static str,
    child: Child,
    log: PathBuf,
}

impl Local {
    /// Starts both. The worker runs so many jobs at once as there are processors, or as `jobs` says, in this directory. So many
    /// jobs that have ended are kept at most.
    pub(crate) fn start(jobs: Option<u32>, kept: u64) -> Result<Self, Failure> {
        sweep();
        let dir = directory().map_err(|error| cannot("make a directory for it", &error))?;
        let key = new_key();
        let socket = dir.path().join("agq");
        let mut agq = command("agq", &key)?;
        agq.args(["--end-with-stdin", "--no-tcp", "--http", "off", "--durability", "interval", "--socket"]);
        agq.arg(&socket).arg("--data-dir").arg(dir.path().join("data")).stdout(Stdio::piped());
        agq.arg("--keep-ended-count").arg(kept.to_string());
        let mut agq = Part::start("agq", &mut agq, dir.path())?;
        agq.wait_until_it_listens()?;
        let mut agw = command("agw", &key)?;
        agw.args(["--end-with-stdin", "--kept-bytes", KEPT_BYTES, "--agq"]).arg(address(&socket));
        agw.arg("--spool-dir").arg(dir.path());
        if let Some(jobs) = jobs {
            agw.arg("--max-concurrent-jobs").arg(jobs.to_string());
        }
        let agw = Part::start("agw", agw.stdout(Stdio::null()), dir.path())?;
        Ok(Self { agw, agq, dir, key })
    }

    /// Where this agq is.
    pub(crate) fn server(&self) -> Result<Server, Failure> {
        let address = address(&self.dir.path().join("agq"));
        Server::new(&address, self.key.clone().into())
            .map_err(|what| Failure::usage(what, "choose another TMPDIR"))
    }

    /// Waits until one of them has ended although it should not.
    pub(crate) async fn until_trouble(&mut self) -> Failure {
        loop {
            if let Some(failure) = self.trouble() {
                return failure;
            }
            sleep(LOOK_EVERY).await;
        }
    }

    /// What became of one that has ended although it should not.
    pub(crate) fn trouble(&mut self) -> Option<Failure> {
        [&mut self.agw, &mut self.agq].into_iter().find_map(Part::trouble)
    }
}

impl Part {
    fn start(name: &'static str, command: &mut Command, dir: &Path) -> Result<Self, Failure> {
        let log = dir.join(name).with_extension("log");
        let stderr = fs::File::create(&log).map_err(|error| cannot("write its log", &error))?;
        // A group of its own: Ctrl-C is for us, and we end it.
        let command = command.stdin(Stdio::piped()).stderr(stderr);
        let child = std::os::unix::process::CommandExt::process_group(command, 0)
            .spawn()
            .map_err(|error| cannot(&format!("start {name}"), &error))?;
        Ok(Self { name, child, log })
    }

    /// agq says on stdout where it listens, when it does.
    fn wait_until_it_listens(&mut self) -> Result<(), Failure> {
        let mut line = String::new();
        if let Some(stdout) = self.child.stdout.take() {
            // An error, too, is that it does not listen.
            let _ended = BufReader::new(stdout).read_line(&mut line);
        }
        if line.contains("listens on") { Ok(()) } else { Err(self.failure()) }
    }

    fn trouble(&mut self) -> Option<Failure> {
        self.child.try_wait().ok().flatten()?;
        Some(self.failure())
    }

    fn failure(&self) -> Failure {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let said: Vec<&str> = log.lines().rev().take(3).collect();
        let said: Vec<&str> = said.into_iter().rev().collect();
        Failure::usage(
            format!("{} of this command has ended: {}", self.name, said.join(" / ")),
            "try again; or start an agq and an agw of your own with `agx up`",
        )
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // The end of its stdin tells it to go; a task that runs has nobody left to write to, and is ended by it.
        drop(self.child.stdin.take());
        let _ended = self.child.wait();
    }
}

/// A program of ours, with the key and nothing else that concerns us in its environment.
fn command(name: &str, key: &str) -> Result<Command, Failure> {
    let mut command = Command::new(program(name)?);
    for name in settings_of_others() {
        command.env_remove(name);
    }
    command.env("AGQ_SESSION_KEY", key);
    Ok(command)
}

/// The variables by which agq and agw are told something: here they are meant for others.
pub(crate) fn settings_of_others() -> impl Iterator<Item = OsString> {
    let is_one = |name: &OsString| {
        name.to_str().is_some_and(|name| name.starts_with("AGQ_") || name.starts_with("AGW_"))
    };
    std::env::vars_os().map(|(name, _)| name).filter(is_one)
}

/// A session key: 64 hex digits, 244 random bits.
pub(crate) fn new_key() -> String {
    let [one, other] = [uuid::Uuid::new_v4(), uuid::Uuid::new_v4()];
    format!("{}{}", one.simple(), other.simple())
}

/// Where agq and agw are: beside this program, or on PATH.
pub(crate) fn program(name: &str) -> Result<PathBuf, Failure> {
    let beside = std::env::current_exe().ok().map(|own| own.with_file_name(name));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).map(|dir| dir.join(name));
    beside.into_iter().chain(on_path).find(|file| file.is_file()).ok_or_else(|| {
        Failure::usage(
            format!("there is no {name} beside agx, and none on PATH"),
            "install all three programs into one directory, or say where an agq is with --agq",
        )
    })
}

fn address(socket: &Path) -> String {
    format!("unix:{}", socket.display())
}

fn cannot(what: &str, error: &std::io::Error) -> Failure {
    Failure::usage(
        format!("cannot {what}: {error}"),
        "look at TMPDIR and at the limits of this shell, or say where an agq is with --agq",
    )
}

/// A directory of our own. Where TMPDIR is too long for a socket, another place is taken.
fn directory() -> std::io::Result<TempDir> {
    let prefix = format!("{PREFIX}{}-", std::process::id());
    let dir = tempfile::Builder::new().prefix(&prefix).tempdir()?;
    if dir.path().as_os_str().len() < MOST_PATH {
        return Ok(dir);
    }
    tempfile::Builder::new().prefix(&prefix).tempdir_in("/tmp")
}

/// Removes what commands left behind that were killed.
fn sweep() {
    let Ok(entries) = fs::read_dir(std::env::temp_dir()) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split_once('-')?.0.parse().ok());
        let Some(pid) = pid.and_then(rustix::process::Pid::from_raw) else { continue };
        // Those of other users stay: they cannot be removed.
        if rustix::process::test_kill_process(pid) == Err(rustix::io::Errno::SRCH) {
            let _of_others = fs::remove_dir_all(entry.path());
        }
    }
}

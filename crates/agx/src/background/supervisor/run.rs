//! Main loop of a supervisor, which runs its programs until a request to end.

use std::{
    fs,
    io::{self, Write},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use agenix_client::Backoff;
use agenix_protocol::{byte_escape::decode_os, documents::parse};
use rustix::{
    fs::FlockOperation,
    process::{Pid, Signal, kill_process},
};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, ChildStdin, Command},
    time::{Instant, sleep},
};

use crate::{
    background::{
        embedded::settings_variables,
        supervisor::{
            directory::{SPEC, ServiceSpec, SupervisorSpec, down_command, lock, log, log_path},
            requests::StopRequests,
        },
    },
    error::{CliError, Result},
};

/// A program that ran for at least this time is restarted at once.
const STEADY: Duration = Duration::from_secs(60);
/// Maximum time for the end of one program: agw gives its jobs 300 s, and its tasks a little more.
const ENDS_WITHIN: Duration = Duration::from_secs(330);

/// Advice for a supervisor that was not started as `agx up` and `agx join` start it.
const START: &str = "start agq and its worker with `agx up`, or a worker with `agx join`";

/// Keeps the programs of `dir` running. The caller passes the lock of `dir` as stdin.
pub(crate) async fn run(dir: &Path) -> Result<()> {
    let failed = |error: io::Error| {
        let problem = format!("the supervisor cannot use its directory {}: {error}", dir.display());
        CliError::usage(problem, "check the permissions and the free space of the directory")
    };
    // The supervisor gets a session of its own, because the terminal may close.
    let _leads_already = rustix::process::setsid();
    check_lock(dir)?;
    let spec: SupervisorSpec = fs::read(dir.join(SPEC)).map_err(failed).and_then(|json| {
        parse(&json).map_err(|error| CliError::usage(format!("{}: {error}", dir.join(SPEC).display()), START))
    })?;
    let mut requests = StopRequests::listen(dir).map_err(failed)?;
    let mut processes = Vec::new();
    let begun = tokio::select! {
        begun = begin(dir, &spec, &mut processes) => begun,
        () = requests.next() => Err(CliError::usage("the supervisor was stopped before agq and its worker had started", START)),
    };
    if begun.is_ok() {
        loop {
            tokio::select! {
                () = requests.next() => break,
                () = ended(&mut processes) => {}
            }
        }
    }
    // Workers end first, so that they can report the jobs that they finish.
    for one in processes.iter_mut().rev() {
        one.end(&mut requests).await;
    }
    // The answer means that the programs have ended.
    requests.answer().await;
    begun
}

/// Checks that stdin is the lock file of `dir`, and that no other process holds the lock.
fn check_lock(dir: &Path) -> Result<()> {
    let failed = |error: io::Error| {
        CliError::usage(format!("the lock of {} cannot be used: {error}", dir.display()), START)
    };
    let file = lock(dir).and_then(|lock| lock.metadata()).map_err(failed)?;
    let stdin = rustix::fs::fstat(io::stdin()).map_err(|error| failed(error.into()))?;
    #[allow(clippy::useless_conversion, reason = "the types differ by the system")]
    let is_lock = u64::try_from(stdin.st_dev).is_ok_and(|dev| dev == file.dev())
        && u64::from(stdin.st_ino) == file.ino();
    if !is_lock {
        return Err(CliError::usage("the stdin of the supervisor is not the lock of its directory", START));
    }
    match rustix::fs::flock(io::stdin(), FlockOperation::NonBlockingLockExclusive) {
        Err(rustix::io::Errno::WOULDBLOCK) => {
            let help = format!("{} ends it", down_command(dir));
            Err(CliError::usage("a supervisor already runs there", help))
        }
        // Any other error passes, because a file system may have no locks.
        _ => Ok(()),
    }
}

async fn begin(dir: &Path, spec: &SupervisorSpec, processes: &mut Vec<SupervisedProcess>) -> Result<()> {
    for service in &spec.services {
        let started = SupervisedProcess::start(dir, service);
        processes.push(started.map_err(|error| {
            CliError::usage(
                format!("cannot start {}: {error}", service.program.display()),
                "check that the program is there and executable; `agx up` finds it beside agx or in PATH",
            )
        })?);
        let Some(one) = processes.last_mut().filter(|one| one.service.name == "agq") else { continue };
        let line = one.first_line().await;
        if !line.contains("listens on") {
            return Err(CliError::usage(
                "agq does not listen",
                format!("look at {}", log_path(dir, "agq").display()),
            ));
        }
        log_line(&line);
    }
    log_line("started");
    Ok(())
}

/// Prints a line to the starting process. The starting process reads one line only, so later errors
/// are ignored.
fn log_line(line: &str) {
    let _nobody_reads = writeln!(io::stdout().lock(), "ok {}", line.trim());
}

struct SupervisedProcess {
    dir: PathBuf,
    service: ServiceSpec,
    child: Option<Child>,
    /// Stdin is separate from the child, because `wait` would close stdin, and the program would
    /// end.
    stdin: Option<ChildStdin>,
    since: Instant,
    backoff: Backoff,
}

/// Waits until a program has ended, and restarts it, with a delay if it ran only briefly.
async fn ended(processes: &mut [SupervisedProcess]) {
    let all = processes.iter_mut().map(|one| Box::pin(one.again()));
    futures_util::future::select_all(all).await;
}

impl SupervisedProcess {
    fn start(dir: &Path, service: &ServiceSpec) -> io::Result<Self> {
        let mut child = spawn(dir, service)?;
        let (dir, service, stdin) = (dir.to_owned(), service.clone(), child.stdin.take());
        Ok(Self {
            dir,
            service,
            child: Some(child),
            stdin,
            since: Instant::now(),
            backoff: Backoff::default(),
        })
    }

    /// Returns the first line of stdout, or an empty text if the program ends before.
    async fn first_line(&mut self) -> String {
        let mut line = String::new();
        if let Some(stdout) = self.child.as_mut().and_then(|child| child.stdout.take()) {
            let _ended = BufReader::new(stdout).read_line(&mut line).await;
        }
        line
    }

    async fn again(&mut self) {
        if let Some(child) = &mut self.child {
            let _status = child.wait().await;
            self.child = None;
        }
        if self.since.elapsed() > STEADY {
            self.backoff.reset();
        }
        sleep(self.backoff.next_wait()).await;
        self.child = spawn(&self.dir, &self.service).ok();
        self.stdin = self.child.as_mut().and_then(|child| child.stdin.take());
        self.since = Instant::now();
    }

    /// Ends the program, which gets each further SIGTERM, and SIGKILL after [`ENDS_WITHIN`].
    async fn end(&mut self, requests: &mut StopRequests) {
        let Some(child) = &mut self.child else { return };
        let pid = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        let signal = |signal| pid.is_some_and(|pid| kill_process(pid, signal).is_ok());
        signal(Signal::TERM);
        // A stopped program would not handle SIGTERM.
        signal(Signal::CONT);
        let late = sleep(ENDS_WITHIN);
        tokio::pin!(late);
        let mut is_killed = false;
        loop {
            tokio::select! {
                _status = child.wait() => return,
                () = requests.terminated_again() => {
                    signal(Signal::TERM);
                }
                () = &mut late, if !is_killed => {
                    signal(Signal::KILL);
                    is_killed = true;
                }
            }
        }
    }
}

fn spawn(dir: &Path, service: &ServiceSpec) -> io::Result<Child> {
    let mut command = Command::new(&*service.program);
    command.args(service.args.iter().map(|arg| decode_os(arg)));
    command.stdin(Stdio::piped()).stderr(log(dir, &service.name)?);
    command.stdout(if service.name == "agq" { Stdio::piped() } else { Stdio::null() });
    for name in settings_variables() {
        command.env_remove(name);
    }
    command.spawn()
}

//! Probe: shows which properties this machine enforces. A task in a real sandbox attacks each
//! property; a property holds only if its mechanism is in force and every attack fails.

mod attempts;

use std::{
    collections::BTreeSet,
    fs::{self, Permissions},
    io::{self, BufRead, BufReader, Read},
    net::TcpListener,
    os::{
        fd::AsFd,
        unix::{
            fs::{PermissionsExt, chown},
            net::UnixListener,
            process::ExitStatusExt,
        },
    },
    path::{Path, PathBuf},
    process::ExitStatus,
    sync::Arc,
};

use agenix_protocol::byte_escape::encode_os;
use serde::{Deserialize, Serialize};

use attempts::MEMORY;
pub(crate) use attempts::attempt;

use crate::{
    client::{Settings, Supervisor, SupervisorError, User},
    control_group::ControlGroups,
    profile::{Profile, ResourceLimits},
    property::{Property, PropertySet},
    protocol::{Sink, Source, TaskStart},
    report::{MissingProperty, Report},
    setup::{ATTEMPT_ARGUMENT, Mechanism, Regime, SUPERVISOR_ARGUMENT},
};

/// Result of the probe of a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// Regime to use. `None` if no supervisor can start.
    pub regime: Option<Regime>,
    /// Properties of the profile `reader` in the regime.
    pub report: Report,
}

/// Targets of attacks, outside the sandbox.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Targets {
    /// File that all users can read.
    secret: PathBuf,
    /// Directory that all users can write.
    directory: PathBuf,
    /// Unix socket that listens.
    socket: PathBuf,
    /// TCP socket that listens.
    address: String,
    /// Process id of the worker.
    worker: i32,
    /// PID namespace of the worker, as `/proc` shows it.
    pid_namespace: Option<PathBuf>,
    /// Limits of the sandbox.
    limits: ResourceLimits,
    /// True if a control group counts processes and memory.
    has_control_group: bool,
}

/// Result of one attack.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Attempt {
    property: Property,
    attack: String,
    is_stopped: bool,
}

/// Means of a worker that a probe tries.
#[derive(Debug, Clone, Copy)]
pub struct Means<'m> {
    /// Executable, as in [`Settings`].
    pub executable: &'m Path,
    /// Empty directory that the user of the tasks owns.
    pub scratch: &'m Path,
    /// User of the tasks, as in [`Settings`].
    pub user: Option<User>,
    /// Control groups, if one is delegated to the worker.
    pub control_groups: Option<&'m ControlGroups>,
    /// Mechanisms to do without, for tests.
    pub without: &'m BTreeSet<Mechanism>,
}

/// Finds the regime that enforces most, and the properties that hold in it.
///
/// # Errors
///
/// Returns an error if the targets cannot be created. A machine without means is no error.
pub fn run(means: Means<'_>) -> io::Result<Machine> {
    let mut faults = Vec::new();
    let mut best: Option<Machine> = None;
    for regime in [Regime::Namespaces, Regime::Subreaper] {
        match attack(means, regime) {
            Ok(report) if Profile::reader().needs().without(&report.properties()).is_empty() => {
                return Ok(Machine { regime: Some(regime), report });
            }
            Ok(report) if is_better(&report, best.as_ref()) => {
                best = Some(Machine { regime: Some(regime), report });
            }
            Ok(_) => {}
            Err(SupervisorError::System(error)) => return Err(error),
            Err(error) => faults.push(error.to_string()),
        }
    }
    let mut machine = best.unwrap_or_else(|| {
        let missing = |property| (property, missing_because(&faults.join("; ")));
        let report =
            Report { missing: Property::ALL.into_iter().map(missing).collect(), ..Report::default() };
        Machine { regime: None, report }
    });
    // Without namespaces, the fault of their set-up is the reason for what is missing.
    if let (Some(fault), Some(missing)) =
        (faults.first(), machine.report.missing.get_mut(&Property::LimitsDisk))
    {
        // The fault names the remedy, too.
        let reason = fault.strip_suffix(&format!("; {}", missing.remedy)).unwrap_or(fault);
        reason.clone_into(&mut missing.reason);
    }
    Ok(machine)
}

fn is_better(report: &Report, than: Option<&Machine>) -> bool {
    than.is_none_or(|best| report.enforced.len() > best.report.enforced.len())
}

fn missing_because(reason: &str) -> MissingProperty {
    let remedy = "follow the remedy in the reason, then start the worker again";
    MissingProperty { reason: reason.to_owned(), remedy: remedy.into() }
}

/// Attacks a sandbox, and returns the properties that hold.
fn attack(means: Means<'_>, regime: Regime) -> Result<Report, SupervisorError> {
    let Means { executable, scratch, user, control_groups, without } = means;
    let limits = ResourceLimits {
        processes: 24,
        memory: 64 << 20,
        file_size: 16 << 20,
        open_files: 64,
        cpu_secs: 20,
        scratch_bytes: 1 << 20,
        scratch_inodes: 32,
        ..ResourceLimits::default()
    };
    let profile = Profile {
        name: "probe".into(),
        needs: Some(PropertySet::default()),
        limits: limits.clone(),
        ..Profile::reader()
    };
    let dir = tempfile::Builder::new()
        .prefix("agenix-probe-")
        .permissions(Permissions::from_mode(0o755))
        .tempdir()?;
    if let Some(User { uid, gid }) = user {
        chown(scratch, Some(uid), Some(gid))?;
    }
    let executable = reachable(executable, dir.path(), user)?;
    let program = encode_os(executable.as_os_str());
    let profile = Profile { read: vec![program.clone()], ..profile };
    let control_group = control_groups.map(|groups| groups.create(&limits)).transpose()?.map(Arc::new);
    let (targets, _listeners) = targets(dir.path(), limits, control_group.is_some())?;
    let settings = Settings {
        executable,
        profile,
        scratch: scratch.to_owned(),
        regime,
        user,
        control_group,
        without: without.clone(),
    };
    let mut supervisor = Supervisor::start(&settings)?;
    supervisor.begin(&[&program])?;
    let (mut attempts, held) = attempts_in(&mut supervisor, program.clone(), &targets)?;
    if targets.has_control_group {
        attempts.push(memory_attempt(&mut supervisor, program, targets.limits.memory)?);
    }
    let cleaned = supervisor.clean()?;
    let mut report = supervisor.report().clone();
    let are_strays_ended = cleaned.strays > 0 && has_ended(held, supervisor)?;
    let leftovers =
        Attempt { property: Property::Leftovers, attack: "a daemon".into(), is_stopped: are_strays_ended };
    for attempt in attempts.iter().chain([&leftovers]).filter(|attempt| !attempt.is_stopped) {
        if let Some(by) = report.enforced.remove(&attempt.property) {
            let reason = format!("an attack succeeded in spite of {by}: {}", attempt.attack);
            let remedy = "report this to the project, with the version of the kernel".into();
            report.missing.insert(attempt.property, MissingProperty { reason, remedy });
        }
    }
    Ok(report)
}

/// Returns a path of the executable that `user` can execute: its own, or that of a copy in `dir` if
/// a directory of its own path is closed to other users, as the home directory of root is.
fn reachable(executable: &Path, dir: &Path, user: Option<User>) -> io::Result<PathBuf> {
    let executable = executable.canonicalize()?;
    let is_open = |path: &Path| path.metadata().is_ok_and(|found| found.permissions().mode() & 0o1 != 0);
    if user.is_none() || executable.ancestors().all(is_open) {
        return Ok(executable);
    }
    let copy = dir.join("executable");
    fs::copy(executable, &copy)?;
    fs::set_permissions(&copy, Permissions::from_mode(0o755))?;
    Ok(copy)
}

/// Runs the attacks as a task. Returns the results of the attacks, and a pipe that a daemon of the
/// task holds.
fn attempts_in(
    supervisor: &mut Supervisor,
    program: String,
    targets: &Targets,
) -> Result<(Vec<Attempt>, io::PipeReader), SupervisorError> {
    let (results, to_results) = io::pipe()?;
    let (held, to_held) = io::pipe()?;
    let targets = serde_json::to_string(targets).map_err(io::Error::from)?;
    let argv = vec![program.clone(), SUPERVISOR_ARGUMENT.into(), ATTEMPT_ARGUMENT.into(), targets];
    let (stdout, stderr) = (Sink::Descriptor, Sink::Descriptor);
    let start = TaskStart { task: 1, program, argv, stdout, stderr, ..quiet_task() };
    supervisor.start_task(start, &[to_results.as_fd(), to_held.as_fd()])?;
    drop((to_results, to_held));
    let lines: Vec<String> = BufReader::new(results).lines().collect::<io::Result<_>>()?;
    let end = supervisor.wait(1)?;
    let parse = |line: &String| serde_json::from_str(line).map_err(io::Error::from);
    let mut attempts: Vec<Attempt> = lines.iter().map(parse).collect::<io::Result<_>>()?;
    // A property without a result did not hold to the end of its attack.
    let attacked: PropertySet = attempts.iter().map(|attempt| attempt.property).collect();
    for property in attempts::ATTACKED.into_iter().filter(|property| !attacked.contains(*property)) {
        let attack = format!("the attacks ended with the wait status {}", end.wait_status);
        attempts.push(Attempt { property, attack, is_stopped: false });
    }
    Ok((attempts, held))
}

/// Runs a task that takes more memory than `limit`. The kernel has to kill the task.
fn memory_attempt(
    supervisor: &mut Supervisor,
    program: String,
    limit: u64,
) -> Result<Attempt, SupervisorError> {
    let task = 2;
    let bytes = (2 * limit).to_string();
    let argv =
        vec![program.clone(), SUPERVISOR_ARGUMENT.into(), ATTEMPT_ARGUMENT.into(), MEMORY.into(), bytes];
    let start = TaskStart { task, program, argv, ..quiet_task() };
    supervisor.start_task(start, &[])?;
    let end = supervisor.wait(task)?;
    let is_stopped = ExitStatus::from_raw(end.wait_status).signal() == Some(libc::SIGKILL);
    Ok(Attempt { property: Property::LimitsMemory, attack: "takes more memory".into(), is_stopped })
}

/// Returns a task without input, output and environment.
fn quiet_task() -> TaskStart {
    TaskStart {
        task: 0,
        program: String::new(),
        argv: Vec::new(),
        env: Vec::new(),
        cwd: None,
        stdin: Source::Empty,
        stdout: Sink::Null,
        stderr: Sink::Null,
        is_last: false,
        worker_env: vec![],
        memory: None,
    }
}

/// Creates the targets in `dir`. The listeners accept nothing, and take connections all the same.
fn targets(
    dir: &Path,
    limits: ResourceLimits,
    has_control_group: bool,
) -> io::Result<(Targets, (UnixListener, TcpListener))> {
    let (secret, directory, socket) = (dir.join("secret"), dir.join("directory"), dir.join("socket"));
    fs::write(&secret, "secret")?;
    fs::set_permissions(&secret, Permissions::from_mode(0o666))?;
    fs::create_dir(&directory)?;
    fs::set_permissions(&directory, Permissions::from_mode(0o777))?;
    let unix = UnixListener::bind(&socket)?;
    fs::set_permissions(&socket, Permissions::from_mode(0o666))?;
    let tcp = TcpListener::bind("127.0.0.1:0")?;
    let targets = Targets {
        secret,
        directory,
        socket,
        address: tcp.local_addr()?.to_string(),
        worker: std::process::id().cast_signed(),
        pid_namespace: fs::read_link("/proc/self/ns/pid").ok(),
        limits,
        has_control_group,
    };
    Ok((targets, (unix, tcp)))
}

/// Waits until no process holds the other end of `held`. The end of the supervisor, which follows,
/// ends the wait if a daemon has survived the end of its job.
fn has_ended(held: io::PipeReader, supervisor: Supervisor) -> io::Result<bool> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    let mut watched = [PollFd::new(&held, PollFlags::IN)];
    // `clean` has waited for the end of all processes, so nothing has to be waited for here.
    let has_ended = poll(&mut watched, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))? > 0;
    supervisor.end()?;
    let mut rest = Vec::new();
    let mut held = held;
    held.read_to_end(&mut rest)?;
    Ok(has_ended)
}

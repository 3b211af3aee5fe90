//! Jobs in real sandboxes, for the tests. Root runs them as the user nobody; other users run them
//! as themselves.

#![allow(dead_code, reason = "each test program uses a part")]

use std::{
    collections::BTreeSet,
    fs::{self, Permissions},
    io::{PipeReader, Read},
    os::{
        fd::AsFd,
        unix::{fs::PermissionsExt, process::ExitStatusExt},
    },
    path::{Path, PathBuf},
    process::{Command, ExitStatus},
    sync::OnceLock,
    thread::JoinHandle,
};

use agenix_sandbox::{
    client::{Settings, Supervisor, SupervisorError, User},
    fault::StepFault,
    profile::Profile,
    protocol::{Sink, Source, TaskStart},
    setup::{Mechanism, Regime},
};
use tempfile::TempDir;

/// The user and the group nobody.
const NOBODY: u32 = 65534;

pub(crate) fn is_root() -> bool {
    rustix::process::getuid().is_root()
}

/// Returns a directory that the user of the tasks owns, and that all users can read.
pub(crate) fn directory() -> TempDir {
    let dir = tempfile::Builder::new().prefix("sandbox-").tempdir().unwrap();
    fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    give(dir.path());
    dir
}

/// Makes the user of the tasks the owner of `path`.
pub(crate) fn give(path: &Path) {
    if is_root() {
        std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    }
}

/// Returns the supervisor at a place that the user of the tasks can execute.
pub(crate) fn executable() -> &'static Path {
    static PLACE: OnceLock<PathBuf> = OnceLock::new();
    PLACE.get_or_init(|| {
        let built = Path::new(env!("CARGO_BIN_EXE_sandbox-supervisor"));
        let is_open = |path: &Path| path.metadata().is_ok_and(|found| found.permissions().mode() & 0o1 != 0);
        if !is_root() || built.ancestors().all(is_open) {
            return built.to_owned();
        }
        // One copy serves all later runs.
        let dir = std::env::temp_dir().join("agenix-sandbox-tests");
        fs::create_dir_all(&dir).unwrap();
        fs::set_permissions(&dir, Permissions::from_mode(0o755)).unwrap();
        let copy = dir.join("sandbox-supervisor");
        install(built, &copy);
        copy
    })
}

/// Puts a copy of `program` at `place`. A separate process writes the copy. A descriptor for
/// writing in this process would reach children of other threads, and nobody could execute the
/// copy.
pub(crate) fn install(program: &Path, place: &Path) {
    let new = place.with_extension(std::process::id().to_string());
    let mut install = Command::new("install");
    assert!(install.args(["-m", "755"]).args([program, &new]).status().unwrap().success());
    fs::rename(new, place).unwrap();
}

/// Returns settings with a scratch directory of their own.
pub(crate) fn settings(profile: Profile, regime: Regime, scratch: &TempDir) -> Settings {
    let user = is_root().then_some(User { uid: NOBODY, gid: NOBODY });
    let (executable, scratch) = (executable().to_owned(), scratch.path().to_owned());
    Settings {
        executable,
        profile,
        scratch,
        regime,
        user,
        control_group: None,
        without: BTreeSet::<Mechanism>::new(),
    }
}

/// A supervisor with its scratch directory.
pub(crate) struct TestSandbox {
    pub(crate) supervisor: Supervisor,
    pub(crate) scratch: TempDir,
    next: u32,
}

/// End of a task with its output.
#[derive(Debug)]
pub(crate) struct FinishedTask {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// A task that runs.
pub(crate) struct PipedTask {
    pub(crate) task: u32,
    outputs: [JoinHandle<String>; 2],
}

impl PipedTask {
    /// Waits until no process has the outputs of the task.
    pub(crate) fn output_ends(self) {
        self.outputs.into_iter().for_each(|output| drop(output.join().unwrap()));
    }
}

impl TestSandbox {
    pub(crate) fn start(profile: Profile, regime: Regime) -> Result<Self, SupervisorError> {
        let scratch = directory();
        let supervisor = Supervisor::start(&settings(profile, regime, &scratch))?;
        Ok(Self { supervisor, scratch, next: 0 })
    }

    pub(crate) fn reader() -> Self {
        Self::start(Profile::reader(), Regime::Namespaces).unwrap()
    }

    /// Starts a supervisor without namespaces. The bound of the scratch directory needs namespaces.
    pub(crate) fn subreaper() -> Self {
        Self::start(without_disk_limit(Profile::reader()), Regime::Subreaper).unwrap()
    }

    pub(crate) fn begin(&mut self, programs: &[&str]) {
        self.supervisor.begin(programs).unwrap();
    }

    pub(crate) fn try_run(&mut self, argv: &[&str]) -> Result<FinishedTask, SupervisorError> {
        let running = self.start_task(argv, |_| {})?;
        self.wait(running)
    }

    pub(crate) fn run(&mut self, argv: &[&str]) -> FinishedTask {
        self.try_run(argv).unwrap()
    }

    /// Runs one job of one task, and cleans.
    pub(crate) fn job(&mut self, argv: &[&str]) -> FinishedTask {
        self.begin(&argv[..1]);
        let ended = self.run(argv);
        self.supervisor.clean().unwrap();
        ended
    }

    pub(crate) fn start_task(
        &mut self,
        argv: &[&str],
        change: impl FnOnce(&mut TaskStart),
    ) -> Result<PipedTask, SupervisorError> {
        self.next += 1;
        let mut start = task(self.next, argv);
        change(&mut start);
        let ((out, to_out), (err, to_err)) = (std::io::pipe().unwrap(), std::io::pipe().unwrap());
        let descriptors: Vec<_> = [(&start.stdout, &to_out), (&start.stderr, &to_err)]
            .into_iter()
            .filter(|(sink, _)| **sink == Sink::Descriptor)
            .map(|(_, pipe)| pipe.as_fd())
            .collect();
        self.supervisor.start_task(start, &descriptors)?;
        Ok(PipedTask { task: self.next, outputs: [out, err].map(read) })
    }

    pub(crate) fn wait(&mut self, running: PipedTask) -> Result<FinishedTask, SupervisorError> {
        let end = self.supervisor.wait(running.task)?;
        let [stdout, stderr] = running.outputs.map(|output| output.join().unwrap());
        Ok(FinishedTask { status: ExitStatus::from_raw(end.wait_status), stdout, stderr })
    }
}

fn read(mut pipe: PipeReader) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        pipe.read_to_end(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Returns a task whose outputs are descriptors.
pub(crate) fn task(task: u32, argv: &[&str]) -> TaskStart {
    TaskStart {
        task,
        program: argv[0].to_owned(),
        argv: argv.iter().map(|&argument| argument.to_owned()).collect(),
        env: Vec::new(),
        cwd: None,
        stdin: Source::Empty,
        stdout: Sink::Descriptor,
        stderr: Sink::Descriptor,
        is_last: false,
        worker_env: vec![],
        memory: None,
    }
}

/// Returns the profile without the need for a bound of the scratch directory.
pub(crate) fn without_disk_limit(profile: Profile) -> Profile {
    let mut needs = profile.needs();
    needs.remove(agenix_sandbox::property::Property::LimitsDisk);
    Profile { needs: Some(needs), ..profile }
}

/// Starts a supervisor with `profile` in `regime`.
pub(crate) fn sandbox(profile: Profile, regime: Regime) -> TestSandbox {
    let profile = if regime == Regime::Subreaper { without_disk_limit(profile) } else { profile };
    TestSandbox::start(profile, regime).unwrap()
}

/// Runs a script as a job, and returns its end and the number of its strays.
pub(crate) fn attack(sandbox: &mut TestSandbox, programs: &[&str], script: &str) -> (FinishedTask, u32) {
    sandbox.begin(&[&["/bin/sh"], programs].concat());
    let ended = sandbox.run(&["/bin/sh", "-c", script]);
    (ended, sandbox.supervisor.clean().unwrap().strays)
}

/// Returns the fault of a step that the supervisor could not take.
pub(crate) fn fault(error: SupervisorError) -> StepFault {
    match error {
        SupervisorError::Fault(fault) => fault,
        other => panic!("{other}"),
    }
}

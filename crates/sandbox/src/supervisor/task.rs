//! Start of a task. The confined supervisor opens the files that a plan names, so the kernel
//! decides by the rules of the task, and no path can change between a check and its use.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs::{File, OpenOptions},
    io,
    os::{
        fd::OwnedFd,
        unix::fs::{FileTypeExt, OpenOptionsExt},
    },
    path::{Path, PathBuf},
    vec,
};

use agenix_protocol::byte_escape::decode_os;
use agenix_sys::ChildProgram;
use rustix::{
    fs::{OFlags, fcntl_setfl},
    process::Pid,
};

use crate::{
    fault::{Step, StepFault},
    mechanisms::interpreters::PATH,
    protocol::{Sink, Source, TaskStart},
    supervisor::sandbox::Sandbox,
};

/// Task that has been started.
pub(super) struct SpawnedTask {
    /// Process id, which is the id of the process group, too.
    pub(super) pid: Pid,
    /// Files that the supervisor has opened for stdout and stderr, in this order.
    pub(super) files: Vec<OwnedFd>,
}

/// Starts a task in a process group of its own. `descriptors` are those of stdin, stdout and
/// stderr, in this order.
pub(super) fn start(
    sandbox: &Sandbox,
    start: &TaskStart,
    descriptors: Vec<OwnedFd>,
) -> Result<SpawnedTask, StepFault> {
    let program = PathBuf::from(decode_os(&start.program));
    if !program.is_absolute() {
        return Err(StepFault::new(Step::Exec, format!("'{}' is not an absolute path", program.display())));
    }
    let environment = environment(sandbox, start)?;
    let cwd = start.cwd.as_ref().map(|cwd| sandbox.scratch.join(decode_os(cwd)));
    let cwd = match cwd {
        Some(cwd) => readable_directory(cwd)?,
        None => sandbox.scratch.clone(),
    };
    let mut descriptors = descriptors.into_iter();
    let stdin = source(&start.stdin, &cwd, &mut descriptors)?;
    let stdout = sink(Step::Stdout, &start.stdout, &cwd, &mut descriptors)?;
    let stderr = match &start.stderr {
        Sink::Stdout => {
            stdout.try_clone().map_err(|error| StepFault::of(Step::Stderr, "copy stdout", error))?
        }
        other => sink(Step::Stderr, other, &cwd, &mut descriptors)?,
    };
    let outputs = [(&start.stdout, &stdout, Step::Stdout), (&start.stderr, &stderr, Step::Stderr)];
    let opened = outputs.into_iter().filter(|(sink, ..)| matches!(sink, Sink::Path(_)));
    let copy = |(_, file, step): (_, &OwnedFd, _)| {
        file.try_clone().map_err(|error| StepFault::of(step, "copy the file", error))
    };
    let files = opened.map(copy).collect::<Result<_, _>>()?;
    let args: Vec<OsString> = start.argv.iter().map(|argument| decode_os(argument)).collect();
    let mut child = ChildProgram::new(&program, &environment, [stdin, stdout, stderr]);
    child.args = args.iter().map(OsString::as_os_str).collect();
    if args.is_empty() {
        child.args.push(program.as_os_str());
    }
    child.cwd = Some(cwd);
    child.data_limit = start.memory;
    let pid = child
        .start()
        .map_err(|error| StepFault::of(Step::Exec, format!("'{}'", program.display()), error))?;
    let pid = Pid::from_raw(pid);
    let pid = pid.ok_or_else(|| StepFault::new(Step::Exec, "the task has no process id"))?;
    Ok(SpawnedTask { pid, files })
}

/// Returns the environment of a task: what the sandbox sets, what the worker passes, what the plan
/// sets, and what the worker sets. A plan sets only variables that the profile names, because
/// others change which code programs load.
fn environment(sandbox: &Sandbox, start: &TaskStart) -> Result<BTreeMap<OsString, OsString>, StepFault> {
    let TaskStart { env: of_plan, worker_env, .. } = start;
    let permitted = &sandbox.setup.profile.env;
    if let Some((name, _)) = of_plan.iter().find(|(name, _)| !permitted.contains(name)) {
        let detail = format!("the profile '{}' does not permit {name}", sandbox.setup.profile.name);
        return Err(StepFault::new(Step::Environment, detail));
    }
    let scratch = || sandbox.scratch.clone().into_os_string();
    let own = [("HOME".into(), scratch()), ("TMPDIR".into(), scratch()), ("PATH".into(), PATH.into())];
    let given = sandbox.setup.variables.iter().chain(of_plan).chain(worker_env);
    let given = given.map(|(name, value)| (decode_os(name), decode_os(value)));
    Ok(own.into_iter().chain(given).collect())
}

/// Checks that the task may list `directory`.
fn readable_directory(directory: PathBuf) -> Result<PathBuf, StepFault> {
    let flags = (OFlags::DIRECTORY | OFlags::NONBLOCK).bits().cast_signed();
    let opened = OpenOptions::new().read(true).custom_flags(flags).open(&directory);
    let fault = |error| StepFault::of(Step::Cwd, format!("'{}'", directory.display()), error);
    opened.map_err(fault)?;
    Ok(directory)
}

fn source(
    source: &Source,
    cwd: &Path,
    descriptors: &mut vec::IntoIter<OwnedFd>,
) -> Result<OwnedFd, StepFault> {
    match source {
        Source::Descriptor => next(Step::Stdin, descriptors),
        Source::Empty => open(Step::Stdin, Path::new("/dev/null"), OpenOptions::new().read(true)),
        Source::Path(path) => open(Step::Stdin, &cwd.join(decode_os(path)), OpenOptions::new().read(true)),
    }
}

fn sink(
    step: Step,
    sink: &Sink,
    cwd: &Path,
    descriptors: &mut vec::IntoIter<OwnedFd>,
) -> Result<OwnedFd, StepFault> {
    match sink {
        Sink::Descriptor => next(step, descriptors),
        Sink::Null => open(step, Path::new("/dev/null"), OpenOptions::new().write(true)),
        Sink::Path(path) => {
            let path = cwd.join(decode_os(path));
            open(step, &path, OpenOptions::new().write(true).create(true).truncate(true))
        }
        Sink::Stdout => Err(StepFault::new(step, "stdout cannot be its own destination")),
    }
}

fn next(step: Step, descriptors: &mut vec::IntoIter<OwnedFd>) -> Result<OwnedFd, StepFault> {
    descriptors.next().ok_or_else(|| StepFault::new(step, "the message has too few descriptors"))
}

/// Opens a file without a wait for the other end of a FIFO, and refuses FIFOs and sockets.
fn open(step: Step, path: &Path, options: &mut OpenOptions) -> Result<OwnedFd, StepFault> {
    let fault = |error: io::Error| StepFault::of(step, format!("'{}'", path.display()), error);
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
    let opened: File = options.custom_flags(flags).open(path).map_err(fault)?;
    let kind = opened.metadata().map_err(fault)?.file_type();
    if !kind.is_file() && !kind.is_char_device() {
        return Err(StepFault::new(step, format!("'{}' is not a file", path.display())));
    }
    fcntl_setfl(&opened, OFlags::empty()).map_err(|error| fault(error.into()))?;
    Ok(opened.into())
}

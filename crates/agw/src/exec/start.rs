//! Starts the processes of a stage. A start that meets a shortage is repeated
//! ([`retry_on_shortage`]).

use std::{collections::HashMap, fs::File, io, os::fd::OwnedFd, path::Path, sync::Arc, time::Duration};

use agenix_protocol::{
    blob::BlobHash,
    byte_escape::{decode, decode_os},
    documents::{JobDocument, PlanCache},
};
use rustix::io::Errno;
use tokio::sync::Semaphore;

use crate::exec::{
    admission::AdmissionControl,
    cancel::CancelToken,
    ended::Ended,
    idle::WrittenOutput,
    input_space::UnwrittenInputs,
    job_resources::JobResources,
    launch::{Launcher, TaskProcess},
    live_output::OutputStreams,
    memory_bound::MemoryBounds,
    output_quota::Quota,
    pipe::{CountedPipe, PipeCounter, counted_pipe},
    processor_time::{LimitSource, ProcessorLimit},
    programs::OfferedPrograms,
    provenance::{ProvenanceSigner, TaskRecord},
    resource_wait::{Shortage, Unstarted, is_shortage, retry_on_shortage},
    sandbox::sandboxes::Sandboxes,
    secrets::{MaskRelay, Secrets, masked_pipe},
    spool::{Spool, SpoolFile},
    stages::{StageCommand, Stderr, Stdin, Stdout},
    streams::{Input, Output, Streams},
    user_files,
};

/// Context that all jobs of the worker share.
#[derive(Debug, Clone)]
pub(crate) struct ExecContext {
    pub(crate) programs: OfferedPrograms,
    pub(crate) plans: PlanCache,
    pub(crate) spool: Spool,
    /// Maximum number of bytes of a stream that are kept for the result.
    pub(crate) kept_bytes: usize,
    /// True if an output that agq cannot store for minutes is given up.
    pub(crate) gives_up_outputs: bool,
    /// Time between SIGTERM and SIGKILL.
    pub(crate) kill_grace: Duration,
    pub(crate) quota: Quota,
    pub(crate) unwritten_inputs: UnwrittenInputs,
    /// Maximum processor time of the job, if it has one.
    pub(crate) processor_limit: Option<ProcessorLimit>,
    /// Permits for the open files of running jobs, at most as many as the system allows.
    pub(crate) files: Arc<Semaphore>,
    pub(crate) most_files: u32,
    pub(crate) shortage: Arc<Shortage>,
    /// Sandboxes of the worker, if it runs jobs in one.
    pub(crate) sandboxes: Option<Arc<Sandboxes>>,
    pub(crate) admission: Arc<AdmissionControl>,
    /// Secrets of the worker, if it has any.
    pub(crate) secrets: Option<Arc<Secrets>>,
    /// Key that signs provenance, if the worker does so.
    pub(crate) provenance: Option<Arc<ProvenanceSigner>>,
    /// Means by which the memory of a job is bounded.
    pub(crate) memory_bounds: MemoryBounds,
    /// Resources of the job, if it wants quantities.
    pub(crate) resources: Option<Arc<JobResources>>,
}

impl ExecContext {
    /// Returns the context of a job with the limits of its budget and with `resources`.
    pub(crate) fn of_job(
        self: Arc<Self>,
        job: &JobDocument,
        resources: Option<Arc<JobResources>>,
    ) -> Arc<Self> {
        if job.max_output_bytes.is_none() && job.max_cpu_ms.is_none() && resources.is_none() {
            return self;
        }
        let quota = Quota { of_budget: job.max_output_bytes, ..self.quota };
        let limit = |ms| ProcessorLimit { time: Duration::from_millis(ms), source: LimitSource::Budget };
        let processor_limit = job.max_cpu_ms.map(limit);
        Arc::new(Self { quota, processor_limit, resources, ..Self::clone(&self) })
    }
}

#[cfg(test)]
impl ExecContext {
    /// Returns a context without limits of jobs, with spool files in `spool`.
    pub(crate) fn for_tests(spool: &Path, programs: OfferedPrograms) -> Self {
        const FILES: u32 = 100;
        Self {
            programs,
            plans: PlanCache::default(),
            spool: Spool::new(spool),
            kept_bytes: 1 << 16,
            gives_up_outputs: false,
            kill_grace: Duration::from_secs(1),
            quota: Quota { of_job: u64::MAX, reserve: 0, of_budget: None },
            unwritten_inputs: UnwrittenInputs::default(),
            processor_limit: None,
            files: Arc::new(Semaphore::new(FILES as usize)),
            most_files: FILES,
            shortage: Arc::default(),
            sandboxes: None,
            admission: Arc::default(),
            secrets: None,
            provenance: None,
            memory_bounds: MemoryBounds::default(),
            resources: None,
        }
    }
}

/// Files that tasks of a job read.
#[derive(Default)]
pub(crate) struct TaskInputs {
    /// Outputs of earlier tasks, by task number.
    pub(crate) outputs: HashMap<u32, Arc<SpoolFile>>,
    /// Blobs that the input of the job names.
    pub(crate) blobs: HashMap<BlobHash, Arc<SpoolFile>>,
}

pub(crate) struct StartedProcess {
    pub(crate) task_number: u32,
    pub(crate) process: TaskProcess,
    pub(crate) stdout: Out,
    /// File of the stderr of the process, if the result keeps stderr.
    pub(crate) stderr: Option<Arc<SpoolFile>>,
    /// Output whose size the idle timeout watches.
    pub(crate) written: Arc<WrittenOutput>,
    pub(crate) idle_timeout: Option<Duration>,
    /// True once the idle timeout is over, which then is the cause of the end of the process.
    pub(crate) idle_timed_out: bool,
    /// Relays that mask the output of a process of a job with secrets.
    pub(crate) masks: Vec<MaskRelay>,
    /// Record for the statement about the process, if this worker signs provenance.
    pub(crate) record: Option<TaskRecord>,
}

impl StartedProcess {
    /// Waits for the task. After the timeout of the task, its processes get SIGTERM, and SIGKILL
    /// after `grace`.
    pub(crate) async fn wait(&mut self, grace: Duration) -> io::Result<Ended> {
        // A dropped call may have begun to end the task.
        let ended = if self.idle_timed_out {
            self.process.end_now(grace).await
        } else {
            self.process.wait(grace).await
        };
        self.with_cause(ended)
    }

    /// Ends the task: SIGTERM, then SIGKILL after `grace` for what still runs.
    pub(crate) async fn end_now(&mut self, grace: Duration) -> io::Result<Ended> {
        let ended = self.process.end_now(grace).await;
        self.with_cause(ended)
    }

    fn with_cause(&self, ended: io::Result<Ended>) -> io::Result<Ended> {
        let idle_timed_out = self.idle_timed_out;
        ended.map(|ended| Ended { timed_out: ended.timed_out || idle_timed_out, idle_timed_out, ..ended })
    }

    /// Returns the output files that users can follow.
    pub(crate) fn written(&self, command: &StageCommand) -> OutputStreams {
        let stdout = match &self.stdout {
            Out::File(file) if command.stdout == Stdout::Spool => Some(Arc::clone(file)),
            _ => None,
        };
        let reads = match command.stdin {
            Stdin::Task(from) => Some(from),
            _ => None,
        };
        let (task_number, command) = (command.task_number, command.program.clone());
        OutputStreams { task_number, command, reads, stdout, stderr: self.stderr.clone() }
    }
}

pub(crate) enum Out {
    File(Arc<SpoolFile>),
    Pipe(PipeCounter),
}

/// Starts a command, waiting out a shortage of resources as a part of the timeout of the task. A
/// shortage ends the sandbox supervisors that wait for a job.
pub(crate) async fn start_with_retry(
    command: &StageCommand,
    before: Option<&io::PipeReader>,
    context: &ExecContext,
    (inputs, launcher): (&TaskInputs, Launcher<'_>),
    cancel: &CancelToken,
) -> Result<(StartedProcess, Option<io::PipeReader>), Unstarted> {
    let start = || async {
        let started = start(command, before, context, (inputs, launcher)).await;
        if let (Err(error), Some(sandboxes)) = (&started, &context.sandboxes)
            && is_shortage(error)
        {
            sandboxes.end_idle();
        }
        started
    };
    let starting = retry_on_shortage(start, command.timeout, &context.shortage, cancel);
    let started = match before {
        None => starting.await?,
        // The job has the processes before the pipe, which wait for this one.
        Some(_) => tokio::select! {
            biased;
            started = starting => started?,
            error = context.shortage.sole_holder_fails() => return Err(Unstarted::Failed(error)),
        },
    };
    context.shortage.over();
    Ok(started)
}

async fn start(
    command: &StageCommand,
    before: Option<&io::PipeReader>,
    context: &ExecContext,
    (inputs, launcher): (&TaskInputs, Launcher<'_>),
) -> io::Result<(StartedProcess, Option<io::PipeReader>)> {
    let program = match launcher.sandbox {
        Some(_) => context.programs.absolute(command)?.into(),
        None => context.programs.of_command(&command.program)?,
    };
    let missing_cwd = |cwd: &&str| !launcher.opens_files() && !Path::new(&decode_os(cwd)).is_dir();
    if let Some(cwd) = command.cwd.as_deref().filter(missing_cwd) {
        return Err(io::Error::other(format!("its cwd '{cwd}' is not a directory on this worker")));
    }
    let stdin = stdin(command, before, context, (inputs, launcher))?;
    let mut masks = Vec::new();
    let (mut out, stdout, to_next) = match &command.stdout {
        Stdout::Pipe => {
            let CountedPipe { from_task, to_task, counter } = counted_pipe()?;
            (Some(Out::Pipe(counter)), Output::Descriptor(from_task.into()), Some(to_task))
        }
        Stdout::File(path) if launcher.opens_files() => (None, Output::Path(path), None),
        Stdout::File(path) => {
            let file = user_files::create(command, "stdout", path)?;
            let out = Out::File(Arc::new(file.try_clone()?.into()));
            (Some(out), Output::Descriptor(file.into()), None)
        }
        Stdout::Spool => {
            let (file, opened) = spool_file(context, launcher, &mut masks)?;
            (Some(Out::File(file)), Output::Descriptor(opened), None)
        }
    };
    let mut written = WrittenOutput::default();
    let (stderr_file, stderr) = match &command.stderr {
        Stderr::Spool => {
            let (file, opened) = spool_file(context, launcher, &mut masks)?;
            (Some(file), Output::Descriptor(opened))
        }
        Stderr::File(path) if launcher.opens_files() => (None, Output::Path(path)),
        Stderr::File(path) => {
            let file = user_files::create(command, "stderr", path)?;
            // The idle timeout may be that of another task of the stage.
            written.files.push(Arc::new(file.try_clone()?.into()));
            (None, Output::Descriptor(file.into()))
        }
        Stderr::Stdout => (None, Output::Stdout),
    };
    let record = launcher.record.map(|record| record.task(command, &context.programs));
    let started = launcher.start(&program, command, Streams { stdin, stdout, stderr }).await;
    let (process, files) = started.map_err(|error| unstartable(&command.program, error))?;
    let mut files = files.into_iter().map(|file| Arc::new(SpoolFile::from(File::from(file))));
    let stdout = out.take().or_else(|| files.next().map(Out::File));
    let stdout = stdout.ok_or_else(|| io::Error::other("the sandbox has not returned the file of stdout"))?;
    written.files.extend(files.chain(stderr_file.clone()));
    match &stdout {
        Out::File(file) => written.files.push(Arc::clone(file)),
        Out::Pipe(counter) => written.counter = Some(counter.so_far()),
    }
    let started = StartedProcess {
        task_number: command.task_number,
        process,
        stdout,
        stderr: stderr_file,
        written: Arc::new(written),
        idle_timeout: command.idle_timeout,
        idle_timed_out: false,
        masks,
        record,
    };
    Ok((started, to_next))
}

fn stdin<'c>(
    command: &'c StageCommand,
    before: Option<&io::PipeReader>,
    context: &ExecContext,
    (inputs, launcher): (&TaskInputs, Launcher<'_>),
) -> io::Result<Input<'c>> {
    let file: OwnedFd = match (&command.stdin, before) {
        // The task gets a copy of the pipe, because the start may have to be repeated.
        (Stdin::Pipe, Some(pipe)) => pipe.try_clone()?.into(),
        (Stdin::Text(text), _) => context.spool.file_with(&decode(text))?.into(),
        (Stdin::File(path), _) if launcher.opens_files() => return Ok(Input::Path(path)),
        (Stdin::File(path), _) => user_files::open(command, "stdin_file", path)?.into(),
        (Stdin::Task(from), _) => match inputs.outputs.get(from) {
            Some(file) => file.open()?.into(),
            None => context.spool.nothing()?.into(),
        },
        (Stdin::Blob(hash), _) => match inputs.blobs.get(hash) {
            Some(file) => file.open()?.into(),
            None => return Err(io::Error::other(format!("the blob {hash} was not fetched"))),
        },
        (Stdin::Empty | Stdin::Pipe, _) => context.spool.nothing()?.into(),
    };
    Ok(Input::Descriptor(file))
}

/// Returns an empty spool file, and what the task writes to: the same file, or the pipe of a new
/// relay in `masks` if the job has secrets.
fn spool_file(
    context: &ExecContext,
    launcher: Launcher<'_>,
    masks: &mut Vec<MaskRelay>,
) -> io::Result<(Arc<SpoolFile>, OwnedFd)> {
    let file = context.spool.file()?;
    let opened = file.open()?;
    let Some(patterns) = launcher.patterns else { return Ok((Arc::new(file), opened.into())) };
    let (pipe, mask) = masked_pipe(opened, Arc::clone(patterns))?;
    masks.push(mask);
    Ok((Arc::new(file), pipe))
}

/// Names the path of a program that the system cannot start, and the usual remedy.
fn unstartable(program: &str, error: io::Error) -> io::Error {
    if !program.contains('/') {
        return error;
    }
    let remedy = match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOENT) => "there is no such file, or the interpreter in its first line is missing",
        Some(Errno::ACCESS) => "it may not be executed: chmod +x",
        Some(Errno::NOEXEC) => "a script needs a first line that names its interpreter, as #!/bin/sh",
        _ => return error,
    };
    io::Error::new(error.kind(), format!("'{program}': {error}; {remedy}"))
}

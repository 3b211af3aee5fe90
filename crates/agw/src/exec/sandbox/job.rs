//! Job in a sandbox: starts its tasks in one supervisor, and cleans up after them.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use agenix_protocol::{
    byte_escape::encode_os,
    documents::{MemoryLimit, MemoryLimitKind, TaskResult, TaskSandbox},
};
use agenix_sandbox::{
    profile::Profile,
    property::Property,
    protocol::{Cleaned, Sink, Source, TaskStart},
    report::Report,
};
use rustix::process::Pid;
use tokio::{
    sync::oneshot,
    time::{Instant, timeout},
};
use tracing::warn;

use super::{
    denials::denied,
    pool::SupervisorPool,
    replies::{CleanedJob, DueReplies},
    supervisor::{ReadySupervisor, ended_unexpectedly},
    task::{SandboxedTask, error_of},
};
use crate::exec::{
    job_resources::TaskResources,
    out_of_memory,
    stages::StageCommand,
    streams::{Input, Output, Streams},
};

/// Maximum time for an answer of a supervisor, on a busy machine.
const ANSWER_TIME: Duration = Duration::from_secs(60);

/// Job that runs in a sandbox. A drop before [`JobSandbox::end`] ends the supervisor.
#[derive(Debug)]
pub(crate) struct JobSandbox {
    profile: Profile,
    supervisor: Arc<ReadySupervisor>,
    replies: DueReplies,
    end: oneshot::Receiver<CleanedJob>,
    /// Programs of a job whose first task has not started.
    programs: Mutex<Option<Vec<String>>>,
    next_task: AtomicU32,
    /// True once the last task has started, so that the supervisor ends the job by itself.
    has_last_task: AtomicBool,
    /// Pool that gets the supervisor back. Without a pool, the supervisor ends with the job.
    pool: Option<SupervisorPool>,
    /// Bound of the memory of the job, if it wants a quantity of memory.
    memory: Option<MemoryLimit>,
}

/// Task that a supervisor has started, and the files that it has opened for stdout and stderr.
pub(crate) type StartedTask = (SandboxedTask, Vec<OwnedFd>);

impl JobSandbox {
    /// Prepares a job in `supervisor` that may execute `programs`. The job begins with its first
    /// task.
    pub(super) fn begin(
        mut supervisor: ReadySupervisor,
        (profile, pool): (&Profile, Option<SupervisorPool>),
        programs: Vec<String>,
    ) -> io::Result<Self> {
        let replies = supervisor.replies.take().ok_or_else(ended_unexpectedly)?;
        let due = DueReplies::default();
        let end = due.receive(replies)?;
        let (profile, supervisor) = (profile.clone(), Arc::new(supervisor));
        Ok(Self {
            profile,
            supervisor,
            replies: due,
            end,
            programs: Mutex::new(Some(programs)),
            next_task: AtomicU32::new(1),
            has_last_task: AtomicBool::new(false),
            pool,
            memory: None,
        })
    }

    /// Returns the process of the supervisor, an ancestor of all processes of the job.
    pub(crate) fn supervisor(&self) -> Option<Pid> {
        self.supervisor.pid()
    }

    /// Bounds the memory of the job to `bytes`, before its first task: by the control group of its
    /// supervisor, or else of each process. A lower limit of the profile stays.
    pub(crate) fn bound_memory(&mut self, bytes: u64) -> io::Result<MemoryLimit> {
        let bytes = bytes.min(self.profile.limits.memory);
        let by = match self.supervisor.control_group() {
            Some(group) => {
                group.limit_memory(bytes)?;
                MemoryLimitKind::Cgroup
            }
            None => MemoryLimitKind::Rlimit,
        };
        Ok(*self.memory.insert(MemoryLimit { bytes, by }))
    }

    /// Starts a task. The supervisor opens the files that the plan names.
    pub(crate) async fn start(
        &self,
        program: &Path,
        command: &StageCommand,
        (streams, resources): (&Streams<'_>, Option<TaskResources<'_>>),
    ) -> io::Result<StartedTask> {
        let task = self.next_task.fetch_add(1, Ordering::Relaxed);
        let (start, end) = self.replies.expect(task);
        // A start that returns files may be repeated, so the job does not end with the task.
        let ends_job = command.is_last && !streams.have_paths();
        let (mut request, descriptors) = request(task, program, (command, ends_job), streams);
        request.worker_env = resources.map(|resources| resources.environment.to_vec()).unwrap_or_default();
        request.memory =
            self.memory.filter(|limit| limit.by == MemoryLimitKind::Rlimit).map(|limit| limit.bytes);
        let descriptors: Vec<_> = descriptors.into_iter().map(AsFd::as_fd).collect();
        let programs = self.programs.lock().unwrap_or_else(PoisonError::into_inner).take();
        match programs {
            Some(programs) => self.supervisor.commands.begin_with(programs, request, &descriptors)?,
            None => self.supervisor.commands.start(request, &descriptors)?,
        }
        let (started, oom_kills) = (Instant::now(), self.supervisor.oom_kills());
        let mut task = SandboxedTask {
            task,
            supervisor: Arc::clone(&self.supervisor),
            start: Some(start),
            answer: None,
            end,
            started,
            timeout: command.timeout,
            oom_kills,
            timed_out: false,
            ended: None,
        };
        let files = if streams.have_paths() { self.files(&mut task).await? } else { Vec::new() };
        if ends_job {
            self.has_last_task.store(true, Ordering::Relaxed);
        }
        Ok((task, files))
    }

    /// Waits for the start of a task, and returns the files that the supervisor has opened for it.
    async fn files(&self, task: &mut SandboxedTask) -> io::Result<Vec<OwnedFd>> {
        let Some(start) = task.start.take() else { return Ok(Vec::new()) };
        let Ok(answer) = timeout(ANSWER_TIME, start).await else {
            self.supervisor.kill();
            return Err(ended_unexpectedly());
        };
        let files = answer.map_err(|_| ended_unexpectedly())?.map_err(|fault| error_of(&fault))?;
        task.answer = Some(Ok(()));
        Ok(files)
    }

    /// Ends the job: its processes end, and its scratch directory is emptied. Adds a report of the
    /// sandbox to the result of each task.
    pub(crate) async fn end(self, results: &mut [TaskResult]) {
        for result in results.iter_mut() {
            result.sandbox = Some(self.report(result));
        }
        match self.cleaned().await {
            Ok(cleaned) => {
                if let Some(last) = results.last_mut().and_then(|last| last.sandbox.as_mut()) {
                    (last.strays, last.scratch_bytes) = (cleaned.strays.into(), cleaned.scratch_bytes);
                }
            }
            Err(error) => warn!("at the end of a job: {error}"),
        }
    }

    fn report(&self, result: &TaskResult) -> TaskSandbox {
        let Report { enforced, missing } = &self.supervisor.report;
        let mut denied = denied(result, &self.profile);
        if enforced.contains_key(&Property::LimitsMemory) && out_of_memory::is_named_in(&result.stderr.bytes)
        {
            let Profile { name, limits, .. } = &self.profile;
            denied.push(format!(
                "the job took more than limits.memory = {} bytes of profile {name}",
                limits.memory
            ));
        }
        TaskSandbox {
            profile: self.profile.name.clone(),
            enforced: enforced.iter().map(|(property, by)| (property.to_string(), by.clone())).collect(),
            missing: missing
                .iter()
                .map(|(property, why)| (property.to_string(), why.reason.clone()))
                .collect(),
            denied,
            ..TaskSandbox::default()
        }
    }

    async fn cleaned(self) -> io::Result<Cleaned> {
        let Self { profile, supervisor, end, has_last_task, pool, memory, .. } = self;
        if !has_last_task.into_inner() {
            supervisor.commands.clean()?;
        }
        let Ok(ended) = timeout(ANSWER_TIME, end).await else {
            supervisor.kill();
            return Err(ended_unexpectedly());
        };
        let (cleaned, replies) = ended.map_err(|_| ended_unexpectedly())?;
        // The next job of the supervisor has the limit of the profile again.
        let group = supervisor.control_group().filter(|_| memory.is_some());
        let is_restored = group.is_none_or(|group| group.limit_memory(profile.limits.memory).is_ok());
        if !cleaned.retires
            && is_restored
            && let Some(pool) = pool
            && let Some(mut supervisor) = Arc::into_inner(supervisor)
        {
            supervisor.replies = Some(replies);
            supervisor.set_hold(None);
            pool.put(&profile.name, supervisor);
        }
        Ok(cleaned)
    }
}

fn request<'s>(
    task: u32,
    program: &Path,
    (command, is_last): (&StageCommand, bool),
    streams: &'s Streams<'_>,
) -> (TaskStart, Vec<&'s OwnedFd>) {
    let mut descriptors = Vec::new();
    let stdin = match &streams.stdin {
        Input::Descriptor(file) => {
            descriptors.push(file);
            Source::Descriptor
        }
        Input::Path(path) => Source::Path((*path).to_owned()),
    };
    let mut sink = |output: &'s Output<'_>| match output {
        Output::Descriptor(file) => {
            descriptors.push(file);
            Sink::Descriptor
        }
        Output::Path(path) => Sink::Path((*path).to_owned()),
        Output::Stdout => Sink::Stdout,
    };
    let (stdout, stderr) = (sink(&streams.stdout), sink(&streams.stderr));
    let argv = [&command.program].into_iter().chain(&command.args).cloned().collect();
    let start = TaskStart {
        task,
        program: encode_os(program.as_os_str()),
        argv,
        env: command.environment().map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
        cwd: command.cwd.clone(),
        stdin,
        stdout,
        stderr,
        is_last,
        worker_env: Vec::new(),
        memory: None,
    };
    (start, descriptors)
}

//! Launch of the tasks of a job: as children of this worker, or in a sandbox.

use std::{io, os::fd::OwnedFd, path::Path, sync::Arc, time::Duration};

use crate::exec::{
    ended::Ended,
    job_mark::JobMark,
    job_resources::TaskResources,
    process::Process,
    processor_time::{LeaderProcess, ProcessorMeter},
    provenance::JobRecord,
    sandbox::{job::JobSandbox, task::SandboxedTask},
    secrets::Patterns,
    stages::StageCommand,
    streams::{Input, Output, Streams},
};

/// Way in which the tasks of a job start.
#[derive(Clone, Copy)]
pub(crate) struct Launcher<'j> {
    pub(crate) mark: &'j JobMark,
    /// Sandbox of the job. `None` for a job whose tasks are children of this worker.
    pub(crate) sandbox: Option<&'j JobSandbox>,
    /// Secrets of the job, which its output may not have.
    pub(crate) patterns: Option<&'j Arc<Patterns>>,
    /// Processor time of the job, if it has a limit.
    pub(crate) processor: Option<&'j ProcessorMeter>,
    /// Record of the tasks, if this worker signs provenance.
    pub(crate) record: Option<&'j JobRecord>,
    /// Resources of the job, if it wants quantities.
    pub(crate) resources: Option<TaskResources<'j>>,
}

/// Running task, whose process group is killed by a drop before the end of the task.
pub(crate) enum TaskProcess {
    Child(Process),
    Sandboxed(SandboxedTask),
}

impl Launcher<'_> {
    /// Returns true if the sandbox opens the files that the plan names.
    pub(crate) fn opens_files(&self) -> bool {
        self.sandbox.is_some()
    }

    /// Starts a task. Returns the files that the sandbox has opened for stdout and stderr, too, in
    /// this order.
    pub(crate) async fn start(
        &self,
        program: &Path,
        command: &StageCommand,
        streams: Streams<'_>,
    ) -> io::Result<(TaskProcess, Vec<OwnedFd>)> {
        if let Some(sandbox) = self.sandbox {
            let (task, files) = sandbox.start(program, command, (&streams, self.resources)).await?;
            return Ok((TaskProcess::Sandboxed(task), files));
        }
        let process = Process::start(program, command, (self.mark, self.resources), stdio(streams)?)?;
        Ok((TaskProcess::Child(process), Vec::new()))
    }
}

fn stdio(Streams { stdin, stdout, stderr }: Streams<'_>) -> io::Result<[OwnedFd; 3]> {
    let unopened = || io::Error::other("a file of the plan is not open");
    let (Input::Descriptor(stdin), Output::Descriptor(stdout)) = (stdin, stdout) else {
        return Err(unopened());
    };
    let stderr = match stderr {
        Output::Descriptor(stderr) => stderr,
        Output::Stdout => stdout.try_clone()?,
        Output::Path(_) => return Err(unopened()),
    };
    Ok([stdin, stdout, stderr])
}

impl TaskProcess {
    /// Returns the first process of a task that is a child of this worker, until it is reaped.
    pub(crate) fn leader(&self) -> Option<LeaderProcess> {
        match self {
            Self::Child(process) => process.leader(),
            Self::Sandboxed(_) => None,
        }
    }

    /// Returns true if the task is known to have started. A sandbox may not have answered yet.
    pub(crate) fn has_started(&self) -> bool {
        match self {
            Self::Child(_) => true,
            Self::Sandboxed(task) => task.has_started(),
        }
    }

    /// Waits for the task. After the timeout of the task, its processes get SIGTERM, and SIGKILL
    /// after `grace`.
    pub(crate) async fn wait(&mut self, grace: Duration) -> io::Result<Ended> {
        match self {
            Self::Child(process) => process.wait(grace).await,
            Self::Sandboxed(task) => task.wait(grace).await,
        }
    }

    /// Ends the task: SIGTERM, then SIGKILL after `grace` for what still runs.
    pub(crate) async fn end_now(&mut self, grace: Duration) -> io::Result<Ended> {
        match self {
            Self::Child(process) => process.end_now(grace).await,
            Self::Sandboxed(task) => task.end_now(grace).await,
        }
    }
}

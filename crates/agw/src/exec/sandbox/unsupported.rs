//! Systems other than Linux, on which no sandbox can start.

/// Sandboxes of the worker.
pub(crate) mod sandboxes {
    use std::{io, path::Path, time::Duration};

    use agenix_protocol::documents::{PlanSandbox, WorkerSandbox};
    use agenix_sandbox::{client, profile::Profile};
    use anyhow::bail;

    use super::{
        super::settings::{Mode, SandboxSettings},
        job::JobSandbox,
    };
    use crate::exec::{job_resources::ResourceHold, memory_bound::MemoryBounds};

    /// Sandboxes, which cannot exist here.
    #[derive(Debug)]
    pub(crate) enum Sandboxes {}

    impl Sandboxes {
        pub(crate) fn prepare(
            settings: SandboxSettings,
            (_spool, _slots): (&Path, u32),
        ) -> anyhow::Result<Option<Self>> {
            if settings.mode == Mode::Off {
                return Ok(None);
            }
            bail!("{}", client::refusal())
        }

        pub(crate) fn registration(&self) -> WorkerSandbox {
            match *self {}
        }

        pub(crate) fn memory_bounds(&self) -> MemoryBounds {
            match *self {}
        }

        pub(crate) fn profile_of(&self, _wanted: Option<&PlanSandbox>) -> Result<Option<&Profile>, String> {
            match *self {}
        }

        pub(crate) fn strangers(&self) -> &str {
            match *self {}
        }

        pub(crate) fn confine_all(&self) -> bool {
            match *self {}
        }

        pub(crate) async fn begin(
            &self,
            _profile: &Profile,
            _programs: Vec<String>,
            _hold: Option<ResourceHold>,
        ) -> io::Result<JobSandbox> {
            match *self {}
        }

        pub(crate) async fn begin_description(&self, _unit: &Path) -> io::Result<JobSandbox> {
            match *self {}
        }

        pub(crate) fn end_idle(&self) {
            match *self {}
        }

        pub(crate) fn shut_down(&self, _bound: Duration) {
            match *self {}
        }
    }
}

/// Job in a sandbox.
pub(crate) mod job {
    use std::{io, os::fd::OwnedFd, path::Path};

    use agenix_protocol::documents::{MemoryLimit, TaskResult};
    use rustix::process::Pid;

    use super::task::SandboxedTask;
    use crate::exec::{job_resources::TaskResources, stages::StageCommand, streams::Streams};

    /// Job in a sandbox, which cannot exist here.
    #[derive(Debug)]
    pub(crate) enum JobSandbox {}

    impl JobSandbox {
        pub(crate) fn supervisor(&self) -> Option<Pid> {
            match *self {}
        }

        pub(crate) async fn start(
            &self,
            _program: &Path,
            _command: &StageCommand,
            _resources: (&Streams<'_>, Option<TaskResources<'_>>),
        ) -> io::Result<(SandboxedTask, Vec<OwnedFd>)> {
            match *self {}
        }

        pub(crate) fn bound_memory(&mut self, _bytes: u64) -> io::Result<MemoryLimit> {
            match *self {}
        }

        pub(crate) async fn end(self, _results: &mut [TaskResult]) {
            match self {}
        }
    }
}

/// Task in a sandbox.
pub(crate) mod task {
    use std::{io, time::Duration};

    use crate::exec::ended::Ended;

    /// Task in a sandbox, which cannot exist here.
    #[derive(Debug)]
    pub(crate) enum SandboxedTask {}

    impl SandboxedTask {
        pub(crate) fn has_started(&self) -> bool {
            match *self {}
        }

        pub(crate) async fn wait(&mut self, _grace: Duration) -> io::Result<Ended> {
            match *self {}
        }

        pub(crate) async fn end_now(&mut self, _grace: Duration) -> io::Result<Ended> {
            match *self {}
        }
    }
}

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

    /// Sandboxes, which cannot exist here.
    #[derive(Debug)]
    pub(crate) enum Sandboxes {}

    impl Sandboxes {
        pub(crate) fn prepare(settings: SandboxSettings, _spool: &Path) -> anyhow::Result<Option<Self>> {
            if settings.mode == Mode::Off {
                return Ok(None);
            }
            bail!("{}", client::refusal())
        }

        pub(crate) fn registration(&self) -> WorkerSandbox {
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
        ) -> io::Result<JobSandbox> {
            match *self {}
        }

        pub(crate) async fn begin_description(&self, _unit: &Path) -> io::Result<JobSandbox> {
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

    use agenix_protocol::documents::TaskResult;
    use rustix::process::Pid;

    use super::task::SandboxedTask;
    use crate::exec::{stages::StageCommand, streams::Streams};

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
            _streams: &Streams<'_>,
        ) -> io::Result<(SandboxedTask, Vec<OwnedFd>)> {
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
        pub(crate) async fn wait(&mut self, _grace: Duration) -> io::Result<Ended> {
            match *self {}
        }

        pub(crate) async fn end_now(&mut self, _grace: Duration) -> io::Result<Ended> {
            match *self {}
        }
    }
}

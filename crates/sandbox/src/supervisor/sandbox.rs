//! Confinement of a supervisor, as far as jobs need to know it.

use std::{os::fd::OwnedFd, path::PathBuf};

use agenix_protocol::byte_escape::decode_os;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};

use crate::{
    fault::{Step, StepFault},
    mechanisms::landlock::Landlock,
    setup::Setup,
};

/// Confinement of this process, as far as jobs need to know it.
#[derive(Debug)]
pub(super) struct Sandbox {
    pub(super) setup: Setup,
    pub(super) scratch: PathBuf,
    /// Landlock for the programs of a job. `None` without Landlock, or if any program may be
    /// executed.
    pub(super) landlock: Option<Landlock>,
    /// The outer process, as a descriptor that becomes readable at its end. `None` with a PID
    /// namespace, because the kernel then ends this process with the outer one, and all tasks with
    /// this process. Otherwise, this process has to end the tasks.
    pub(super) parent: Option<OwnedFd>,
}

impl Sandbox {
    /// Returns the paths that tasks write.
    pub(super) fn written(&self) -> Vec<PathBuf> {
        let written = self.setup.profile.write.iter().map(|path| PathBuf::from(decode_os(path)));
        written.chain([self.scratch.clone()]).collect()
    }

    /// Waits until one of `others` is ready, or for `timeout`. Returns false if the outer process
    /// has ended.
    pub(super) fn wait<'fd>(
        &'fd self,
        others: &mut Vec<PollFd<'fd>>,
        timeout: Option<&Timespec>,
    ) -> Result<bool, StepFault> {
        others.extend(self.parent.iter().map(|parent| PollFd::new(parent, PollFlags::IN)));
        match poll(others, timeout) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(StepFault::of(Step::Protocol, "wait for events", error)),
        }
        let parent = self.parent.as_ref().and_then(|_| others.pop());
        Ok(parent.is_none_or(|parent| parent.revents().is_empty()))
    }
}

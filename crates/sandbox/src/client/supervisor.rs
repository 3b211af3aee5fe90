//! Supervisor with its process, for callers that do one thing after the other.

use std::{
    io,
    os::fd::BorrowedFd,
    process::{Child, ExitStatus},
    sync::Arc,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, PidfdFlags, pidfd_open},
};

use super::{Commands, Replies, Settings, SupervisorError, prepare};
use crate::{
    control_group::ControlGroup,
    protocol::{Cleaned, SupervisorReply, TaskExit, TaskStart},
    report::Report,
};

/// Time that a supervisor has to end after its connection is closed, before it is killed.
const END_TIMEOUT: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };

/// Supervisor with its process, for callers that do one thing after the other. The drop ends the
/// supervisor.
#[derive(Debug)]
pub struct Supervisor {
    process: Child,
    commands: Commands,
    replies: Replies,
    report: Report,
    /// Control group, which is removed after the end of the process.
    _control_group: Option<Arc<ControlGroup>>,
    /// Ends of tasks that arrived while the caller waited for something else.
    ended: Vec<TaskExit>,
}

impl Supervisor {
    /// Starts a supervisor, and waits until its confinement is complete.
    ///
    /// # Errors
    ///
    /// Returns the fault of the step that failed.
    pub fn start(settings: &Settings) -> Result<Self, SupervisorError> {
        let (mut command, connection) = prepare(settings)?;
        let mut process = command.spawn()?;
        drop(command);
        match connection.ready() {
            Ok((commands, replies, report)) => {
                let _control_group = settings.control_group.clone();
                Ok(Self { process, commands, replies, report, _control_group, ended: Vec::new() })
            }
            Err(error) => {
                let _has_ended = end(&mut process);
                Err(error)
            }
        }
    }

    /// Returns the properties that hold.
    #[must_use]
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// Returns the process id of the outer process.
    #[must_use]
    pub fn process_id(&self) -> u32 {
        self.process.id()
    }

    /// Returns the requests that need no answer.
    #[must_use]
    pub fn commands(&self) -> &Commands {
        &self.commands
    }

    /// Returns both directions of the connection, for callers that do several things at once.
    pub fn split(&mut self) -> (&Commands, &mut Replies) {
        (&self.commands, &mut self.replies)
    }

    /// Begins a job that may execute `programs`.
    ///
    /// # Errors
    ///
    /// Returns the fault of the step that failed.
    pub fn begin(&mut self, programs: &[&str]) -> Result<(), SupervisorError> {
        self.commands.begin(programs.iter().map(|&program| program.to_owned()).collect())?;
        match self.reply()? {
            SupervisorReply::Begun => Ok(()),
            reply => Err(error_of(reply)),
        }
    }

    /// Starts a task, as [`Commands::start`].
    ///
    /// # Errors
    ///
    /// Returns the fault of the step that failed.
    pub fn start_task(
        &mut self,
        start: TaskStart,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(), SupervisorError> {
        self.commands.start(start, descriptors)?;
        match self.reply()? {
            SupervisorReply::Started { .. } => Ok(()),
            reply => Err(error_of(reply)),
        }
    }

    /// Waits for the end of a task.
    ///
    /// # Errors
    ///
    /// Returns an error if the supervisor ends before.
    pub fn wait(&mut self, task: u32) -> Result<TaskExit, SupervisorError> {
        loop {
            if let Some(at) = self.ended.iter().position(|end| end.task == task) {
                return Ok(self.ended.swap_remove(at));
            }
            match self.replies.next()? {
                Some(SupervisorReply::Ended(end)) => self.ended.push(end),
                Some(reply) => return Err(error_of(reply)),
                None => return Err(SupervisorError::Ended),
            }
        }
    }

    /// Ends the job.
    ///
    /// # Errors
    ///
    /// Returns the fault of the step that failed. The supervisor has then ended.
    pub fn clean(&mut self) -> Result<Cleaned, SupervisorError> {
        self.commands.clean()?;
        match self.reply()? {
            SupervisorReply::Cleaned(cleaned) => Ok(cleaned),
            reply => Err(error_of(reply)),
        }
    }

    /// Ends the supervisor and all its processes.
    ///
    /// # Errors
    ///
    /// Returns the error of the system.
    pub fn end(mut self) -> io::Result<ExitStatus> {
        self.commands.close();
        end(&mut self.process)
    }

    /// Returns the next reply that is not the end of a task.
    fn reply(&mut self) -> Result<SupervisorReply, SupervisorError> {
        loop {
            match self.replies.next()? {
                Some(SupervisorReply::Ended(end)) => self.ended.push(end),
                Some(reply) => return Ok(reply),
                None => return Err(SupervisorError::Ended),
            }
        }
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.commands.close();
        let _has_ended = end(&mut self.process);
    }
}

fn error_of(reply: SupervisorReply) -> SupervisorError {
    match reply {
        SupervisorReply::Refused(fault) | SupervisorReply::Failed { fault, .. } => fault.into(),
        reply => SupervisorError::OutOfOrder(Box::new(reply)),
    }
}

/// Waits for the end of a supervisor whose connection is closed, and kills it if it does not end.
fn end(process: &mut Child) -> io::Result<ExitStatus> {
    let pid = Pid::from_raw(process.id().cast_signed());
    if let Some(pidfd) = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()) {
        let mut watched = [PollFd::new(&pidfd, PollFlags::IN)];
        if poll(&mut watched, Some(&END_TIMEOUT)) == Ok(0) {
            process.kill()?;
        }
    }
    process.wait()
}

//! Jobs of a supervisor. The thread that serves a job restricts itself to the programs of the job.
//!
//! A separate thread is needed, because a domain of Landlock never becomes wider, and other jobs
//! have other programs. A new supervisor for each job would cost far more. Tasks of the job are in
//! the same domain as the thread, so Landlock alone would let them signal the thread. As PID 1 of a
//! namespace, the supervisor is immune to such signals. As a subreaper, the supervisor is not
//! immune, but its outer process is, and then ends the job.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::PathBuf,
};

use agenix_protocol::byte_escape::decode_os;
use rustix::{
    event::{PollFd, PollFlags, Timespec},
    io::Errno,
    process::{Pid, PidfdFlags, pidfd_open},
};

use crate::{
    fault::{Step, StepFault},
    mechanisms::{interpreters::executed_files, limits, scratch},
    protocol::{
        Channel, Cleaned, ReceiveError, SupervisorReply, SupervisorRequest, TaskExit, TaskStart, queue, send,
        send_frames,
    },
    setup::Regime,
    supervisor::{processes::Tasks, sandbox::Sandbox, task},
};

/// Interval between two polls for orphans that have ended, because nothing announces the end of an
/// orphan.
const POLL_INTERVAL: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// Maximum delay of the reply to the start of the last task, so that the end of a short task needs
/// no message of its own.
const REPLY_DELAY: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };

/// Reason why the thread of a job ends.
#[derive(Debug)]
pub(super) enum JobThreadEnd {
    /// The worker has closed the connection, or the supervisor retires.
    Closed,
    /// The job did not begin, and the worker knows it.
    NotBegun,
    /// The next job has other programs.
    Next(Vec<String>),
}

/// Serves a job that may execute `programs`, and further jobs with the same programs.
pub(super) fn serve(
    channel: &mut Channel<SupervisorRequest>,
    sandbox: &Sandbox,
    programs: Vec<String>,
) -> Result<JobThreadEnd, StepFault> {
    if let Err(fault) = restrict(sandbox, &programs) {
        // The thread may be restricted in part, so it ends.
        reply(channel, &SupervisorReply::Failed { task: None, fault })?;
        return Ok(JobThreadEnd::NotBegun);
    }
    let (tasks, exits) = (Tasks::default(), Vec::new());
    let (is_between_jobs, has_last_task) = (false, false);
    let mut server = JobServer {
        channel,
        sandbox,
        programs,
        tasks,
        exits,
        is_between_jobs,
        has_last_task,
        replies: Vec::new(),
    };
    server.reply(&SupervisorReply::Begun)?;
    let served = server.run()?;
    server.flush(&[])?;
    Ok(served)
}

fn restrict(sandbox: &Sandbox, programs: &[String]) -> Result<(), StepFault> {
    let Some(landlock) = sandbox.landlock else { return Ok(()) };
    let paths: Vec<PathBuf> = programs.iter().map(|program| PathBuf::from(decode_os(program))).collect();
    if let Some(relative) = paths.iter().find(|path| !path.is_absolute()) {
        return Err(StepFault::new(
            Step::Programs,
            format!("'{}' is not an absolute path", relative.display()),
        ));
    }
    let files = executed_files(&paths)
        .map_err(|(path, error)| StepFault::of(Step::Programs, format!("'{}'", path.display()), error))?;
    landlock
        .restrict_programs(&files, &sandbox.written())
        .map_err(|fault| StepFault { step: Step::Programs, ..fault })
}

/// Returns the replies to a request between two jobs. The worker sends ahead, so requests for a job
/// that did not begin, and signals for tasks that have ended, are no errors.
pub(super) fn answer_outside(request: &SupervisorRequest) -> Result<Vec<SupervisorReply>, StepFault> {
    let cleaned = || SupervisorReply::Cleaned(Cleaned { strays: 0, scratch_bytes: 0, retires: false });
    match request {
        SupervisorRequest::Start(start) => {
            let fault = StepFault::new(Step::Programs, "the job has not begun");
            let failed = SupervisorReply::Failed { task: Some(start.task), fault };
            Ok([failed].into_iter().chain(start.is_last.then(cleaned)).collect())
        }
        SupervisorRequest::Clean => Ok(vec![cleaned()]),
        SupervisorRequest::Signal { .. } => Ok(Vec::new()),
        SupervisorRequest::Begin { .. } => {
            Err(StepFault::new(Step::Protocol, "a job begins before the end of another one"))
        }
    }
}

struct JobServer<'c> {
    channel: &'c mut Channel<SupervisorRequest>,
    sandbox: &'c Sandbox,
    programs: Vec<String>,
    tasks: Tasks,
    /// Descriptors that become readable when a first process has ended, by task.
    exits: Vec<(u32, OwnedFd)>,
    is_between_jobs: bool,
    /// True if the worker starts no further task of the job.
    has_last_task: bool,
    /// Frames of replies that are sent together before the next wait.
    replies: Vec<u8>,
}

impl JobServer<'_> {
    fn run(&mut self) -> Result<JobThreadEnd, StepFault> {
        loop {
            while let Some((request, descriptors)) = self.channel.received().map_err(malformed)? {
                match request {
                    SupervisorRequest::Begin { programs } if self.is_between_jobs => {
                        if programs != self.programs {
                            return Ok(JobThreadEnd::Next(programs));
                        }
                        self.is_between_jobs = false;
                        self.reply(&SupervisorReply::Begun)?;
                    }
                    request if self.is_between_jobs => self.answer_outside(&request)?,
                    SupervisorRequest::Start(start) => self.start(&start, descriptors)?,
                    SupervisorRequest::Signal { task, signal } => self.tasks.signal(task, signal),
                    SupervisorRequest::Clean => {
                        if self.clean()? {
                            return Ok(JobThreadEnd::Closed);
                        }
                    }
                    request @ SupervisorRequest::Begin { .. } => self.answer_outside(&request)?,
                }
            }
            // The next task of a pipeline may have arrived meanwhile.
            let may_have_more = !self.has_last_task && !self.replies.is_empty();
            if may_have_more && self.fill_now()? {
                continue;
            }
            let has_ended = self.has_last_task && !self.tasks.are_running() && !self.is_between_jobs;
            if has_ended && self.clean()? {
                return Ok(JobThreadEnd::Closed);
            }
            // The worker starts nothing else, so a short task is reported by one message.
            let is_delayed = self.has_last_task && !self.replies.is_empty();
            if !is_delayed {
                self.flush(&[])?;
            }
            if !self.wait(is_delayed)? {
                return Ok(JobThreadEnd::Closed);
            }
            if self.tasks.are_running() {
                self.flush(&[])?;
            }
        }
    }

    /// Receives what has arrived. Returns false if nothing has arrived.
    fn fill_now(&mut self) -> Result<bool, StepFault> {
        match self.channel.try_fill() {
            Err(ReceiveError::System(error)) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            filled => filled.map_err(malformed),
        }
    }

    fn answer_outside(&mut self, request: &SupervisorRequest) -> Result<(), StepFault> {
        answer_outside(request)?.iter().try_for_each(|answer| self.reply(answer))
    }

    /// Adds a reply to those that are sent before the next wait.
    fn reply(&mut self, reply: &SupervisorReply) -> Result<(), StepFault> {
        queue(&mut self.replies, reply, 0).map_err(unsent)
    }

    /// Sends the replies, with the descriptors of the last one.
    fn flush(&mut self, descriptors: &[BorrowedFd<'_>]) -> Result<(), StepFault> {
        if self.replies.is_empty() {
            return Ok(());
        }
        let replies = std::mem::take(&mut self.replies);
        send_frames(self.channel.socket(), &replies, descriptors).map_err(unsent)
    }

    fn start(&mut self, start: &TaskStart, descriptors: Vec<OwnedFd>) -> Result<(), StepFault> {
        let task = start.task;
        if self.tasks.has(task) {
            return Err(StepFault::new(Step::Protocol, format!("the job has had a task {task}")));
        }
        self.has_last_task |= start.is_last;
        let started = task::start(self.sandbox, start, descriptors).and_then(|started| {
            self.tasks.add(task, started.pid);
            self.watch(task, started.pid).map(|()| started.files)
        });
        match started {
            Ok(files) => self.started(task, &files),
            Err(fault) => self.reply(&SupervisorReply::Failed { task: Some(task), fault }),
        }
    }

    fn started(&mut self, task: u32, files: &[OwnedFd]) -> Result<(), StepFault> {
        let count = u8::try_from(files.len()).unwrap_or(u8::MAX);
        let files: Vec<_> = files.iter().map(AsFd::as_fd).collect();
        queue(&mut self.replies, &SupervisorReply::Started { task, files: count }, files.len())
            .map_err(unsent)?;
        // The files are closed when this function returns.
        if files.is_empty() { Ok(()) } else { self.flush(&files) }
    }

    /// Watches the first process of a task. A task that cannot be watched is killed by `clean`.
    fn watch(&mut self, task: u32, pid: Pid) -> Result<(), StepFault> {
        match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(pidfd) => self.exits.push((task, pidfd)),
            // The regular poll finds the end of the task, a little later.
            Err(Errno::MFILE | Errno::NFILE) => {}
            Err(error) => return Err(StepFault::of(Step::Exec, "watch the task", error)),
        }
        Ok(())
    }

    /// Waits for messages and for ends of processes, and only briefly if replies are delayed.
    /// Returns false at the end of the connection.
    fn wait(&mut self, is_delayed: bool) -> Result<bool, StepFault> {
        let socket = self.channel.socket().clone();
        let mut watched = vec![PollFd::new(&socket, PollFlags::IN)];
        watched.extend(self.exits.iter().map(|(_, pidfd)| PollFd::new(pidfd, PollFlags::IN)));
        let timeout = match (is_delayed, self.is_between_jobs) {
            (true, _) => Some(&REPLY_DELAY),
            (false, true) => None,
            (false, false) => Some(&POLL_INTERVAL),
        };
        if !self.sandbox.wait(&mut watched, timeout)? {
            return Ok(false);
        }
        let mut is_ready = watched.iter().map(|watched| !watched.revents().is_empty());
        let has_message = is_ready.next().unwrap_or_default();
        // After the timeout, nothing is ready, and orphans may have ended.
        if is_ready.any(|is_ready| is_ready) || !has_message {
            let ends = self.tasks.reap()?;
            self.report(&ends)?;
        }
        if has_message { self.channel.fill().map_err(malformed) } else { Ok(true) }
    }

    fn report(&mut self, ends: &[TaskExit]) -> Result<(), StepFault> {
        for end in ends {
            self.exits.retain(|(task, _)| *task != end.task);
            self.reply(&SupervisorReply::Ended(*end))?;
        }
        Ok(())
    }

    /// Ends the job. Returns true if the supervisor retires.
    fn clean(&mut self) -> Result<bool, StepFault> {
        let (ends, strays) = self.tasks.end()?;
        self.report(&ends)?;
        self.exits.clear();
        let scratch_bytes = scratch::empty(&self.sandbox.scratch)?;
        let setup = &self.sandbox.setup;
        let retires = setup.regime == Regime::Subreaper || limits::is_worn(&setup.profile.limits);
        self.reply(&SupervisorReply::Cleaned(Cleaned { strays, scratch_bytes, retires }))?;
        (self.is_between_jobs, self.has_last_task) = (true, false);
        Ok(retires)
    }
}

/// Sends a reply at once.
pub(super) fn reply(channel: &Channel<SupervisorRequest>, reply: &SupervisorReply) -> Result<(), StepFault> {
    send(channel.socket(), reply, &[]).map_err(unsent)
}

fn unsent(error: io::Error) -> StepFault {
    StepFault::of(Step::Protocol, "reply", error)
}

#[expect(clippy::needless_pass_by_value, reason = "the argument of map_err")]
fn malformed(error: ReceiveError) -> StepFault {
    StepFault::new(Step::Protocol, error.to_string())
}

//! Side of the worker: starts supervisors, and tasks in them.
//!
//! All calls are synchronous. An asynchronous worker uses [`Commands`], whose calls only write a
//! message, and [`Replies`], which one blocking thread reads. `Replies` gives its descriptor, so an
//! event loop can wait for it as well, and then call [`Replies::try_receive`]. The same holds for
//! [`Connection`] and [`Connection::ready`], because a supervisor writes each message at once. A
//! supervisor that does not read fills its socket; a call then waits for [`SEND_TIMEOUT`] and fails.
//!
//! The worker starts the process itself with the [`Command`] of [`prepare`], because it may have to
//! register its children. [`Supervisor`] does all that for callers without such rules.

use std::{
    collections::BTreeSet,
    io,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd},
        unix::process::CommandExt,
    },
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use agenix_protocol::byte_escape::encode_os;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    net::{
        Shutdown, shutdown,
        sockopt::{Timeout, set_socket_timeout},
    },
    process::{Pid, PidfdFlags, pidfd_open},
};

use crate::{
    fault::Fault,
    profile::{InvalidProfile, Profile},
    protocol::{Channel, Cleaned, ReceiveError, Reply, Request, TaskEnd, TaskSignal, TaskStart, pair, send},
    report::Report,
    setup::{Mechanism, Regime, SETUP_VARIABLE, SUPERVISOR_ARGUMENT, Setup},
};

/// Time that a supervisor has to end after its connection is closed, before it is killed.
const END_TIMEOUT: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };

/// Maximum time that a call waits for a supervisor that does not read.
pub const SEND_TIMEOUT: Duration = Duration::from_secs(10);

/// User of the tasks, for a worker that runs as root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct User {
    /// User id.
    pub uid: u32,
    /// Group id. The tasks have no further groups.
    pub gid: u32,
}

impl User {
    /// User and group without files, `nobody` of most systems.
    pub const NOBODY: Self = Self { uid: 65_534, gid: 65_534 };

    /// Returns the user `name` of this machine, or the user and the group with the id `name`.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such user, and if the system cannot look for it.
    pub fn find(name: &str) -> io::Result<Self> {
        if let Ok(id) = name.parse() {
            return Ok(Self { uid: id, gid: id });
        }
        let found = nix::unistd::User::from_name(name)?;
        let found = found.map(|user| Self { uid: user.uid.as_raw(), gid: user.gid.as_raw() });
        found.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("there is no user '{name}'")))
    }
}

/// Settings of a supervisor.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Executable that calls [`crate::supervisor::main`]. `/proc/self/exe` for the worker itself.
    pub executable: PathBuf,
    /// Profile of the jobs.
    pub profile: Profile,
    /// Scratch directory: an empty directory that the user of the tasks owns. With
    /// [`Regime::Namespaces`], several supervisors may share it, because each mounts its own file
    /// system over it.
    pub scratch: PathBuf,
    /// Regime, as [`crate::probe::run`] found it.
    pub regime: Regime,
    /// User of the tasks. `None` for the user of the worker, which must not be root.
    pub user: Option<User>,
    /// Mechanisms to do without, for tests.
    pub without: BTreeSet<Mechanism>,
}

/// Error of a supervisor, as the worker sees it.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The profile is invalid.
    #[error(transparent)]
    Profile(#[from] InvalidProfile),
    /// The supervisor could not take a step.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// The supervisor sent something else than a message.
    #[error("from the sandbox supervisor: {0}")]
    Receive(#[from] ReceiveError),
    /// The system refused a call.
    #[error("sandbox supervisor: {0}")]
    System(#[from] io::Error),
    /// The supervisor ended.
    #[error("the sandbox supervisor has ended unexpectedly")]
    Ended,
    /// The supervisor sent another reply than the one due.
    #[error("the sandbox supervisor replied out of order: {0:?}")]
    OutOfOrder(Box<Reply>),
}

/// Returns the command that starts a supervisor, and the connection to it. The caller starts the
/// command, drops it, and waits with [`Connection::ready`]. The end of the connection is the end of
/// the supervisor, which the caller then reaps.
///
/// # Errors
///
/// Returns an error for an invalid profile, and if the system refuses a socket.
pub fn prepare(settings: &Settings) -> Result<(Command, Connection), ClientError> {
    settings.profile.check()?;
    let variable = |name: &String| Some((name.clone(), encode_os(&std::env::var_os(name)?)));
    let setup = Setup {
        profile: settings.profile.clone(),
        scratch: encode_os(settings.scratch.as_os_str()),
        regime: settings.regime,
        without: settings.without.clone(),
        variables: settings.profile.env.iter().filter_map(variable).collect(),
    };
    let setup = serde_json::to_string(&setup).map_err(io::Error::from)?;
    let (ours, theirs) = pair()?;
    set_socket_timeout(&ours, Timeout::Send, Some(SEND_TIMEOUT)).map_err(io::Error::from)?;
    let mut command = Command::new(&settings.executable);
    command
        .arg(SUPERVISOR_ARGUMENT)
        .env_clear()
        .env(SETUP_VARIABLE, setup)
        .current_dir("/")
        .stdin(Stdio::from(theirs))
        .stdout(Stdio::null());
    if let Some(User { uid, gid }) = settings.user {
        command.uid(uid).gid(gid);
    }
    Ok((command, Connection(Channel::new(ours))))
}

/// Connection to a supervisor that sets up its confinement.
#[derive(Debug)]
pub struct Connection(Channel<Reply>);

impl Connection {
    /// Waits until the confinement is complete. Returns both directions of the connection, and the
    /// properties that hold.
    ///
    /// # Errors
    ///
    /// Returns the fault of the step that failed.
    pub fn ready(mut self) -> Result<(Commands, Replies, Report), ClientError> {
        match self.0.receive()?.map(|(reply, _)| reply) {
            Some(Reply::Ready(report)) => {
                let commands = Commands { socket: Arc::clone(self.0.socket()), sending: Mutex::new(()) };
                Ok((commands, Replies { channel: self.0 }, report))
            }
            Some(Reply::Refused(fault)) => Err(fault.into()),
            Some(reply) => Err(ClientError::OutOfOrder(Box::new(reply))),
            None => Err(ClientError::Ended),
        }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Connection {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

/// Requests to a supervisor. Each call sends one message; the answer is among the [`Replies`].
#[derive(Debug)]
pub struct Commands {
    socket: Arc<OwnedFd>,
    /// Keeps the messages of several threads apart.
    sending: Mutex<()>,
}

impl Commands {
    /// Begins a job that may execute `programs`: byte-escaped absolute paths.
    ///
    /// # Errors
    ///
    /// Returns the error of the system. `EPIPE` means that the supervisor has ended.
    pub fn begin(&self, programs: Vec<String>) -> io::Result<()> {
        self.send(&Request::Begin { programs }, &[])
    }

    /// Starts a task. `descriptors` are those for each `Descriptor` of stdin, stdout and stderr, in
    /// this order. The supervisor gets copies.
    ///
    /// # Errors
    ///
    /// Returns the error of the system, and `InvalidInput` for another number of descriptors.
    pub fn start(&self, start: TaskStart, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        self.send(&Request::Start(start), descriptors)
    }

    /// Signals the process group of a task. A task that has ended is no error.
    ///
    /// # Errors
    ///
    /// Returns the error of the system.
    pub fn signal(&self, task: u32, signal: TaskSignal) -> io::Result<()> {
        self.send(&Request::Signal { task, signal }, &[])
    }

    /// Ends the job: kills all its processes, and empties the scratch directory.
    ///
    /// # Errors
    ///
    /// Returns the error of the system.
    pub fn clean(&self) -> io::Result<()> {
        self.send(&Request::Clean, &[])
    }

    /// Closes the connection, which ends the supervisor and all its processes.
    pub fn close(&self) {
        let _is_closed = shutdown(&*self.socket, Shutdown::Both);
    }

    fn send(&self, request: &Request, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let _one_at_a_time = self.sending.lock().unwrap_or_else(PoisonError::into_inner);
        send(&self.socket, request, descriptors)
    }
}

/// Reply of a supervisor, and the files that travelled with it.
pub type ReceivedReply = (Reply, Vec<OwnedFd>);

/// Replies of a supervisor.
#[derive(Debug)]
pub struct Replies {
    channel: Channel<Reply>,
}

impl Replies {
    /// Waits for the next reply. Returns `None` when nothing of the supervisor is left.
    ///
    /// # Errors
    ///
    /// Returns an error for a malformed reply, and for errors of the system. The caller then closes
    /// the connection.
    #[expect(clippy::should_implement_trait, reason = "the end is not the end of an iteration")]
    pub fn next(&mut self) -> Result<Option<Reply>, ReceiveError> {
        Ok(self.channel.receive()?.map(|(reply, _)| reply))
    }

    /// Receives once without waiting, and returns the replies that have arrived completely, each
    /// with the files that travelled with it. Returns `None` when nothing of the supervisor is left.
    ///
    /// # Errors
    ///
    /// Returns an error as [`Replies::next`] does, and `WouldBlock` if nothing has arrived.
    pub fn try_receive(&mut self) -> Result<Option<Vec<ReceivedReply>>, ReceiveError> {
        if !self.channel.try_fill()? {
            return Ok(None);
        }
        let mut replies = Vec::new();
        while let Some(reply) = self.channel.received()? {
            replies.push(reply);
        }
        Ok(Some(replies))
    }

    /// Returns true if the supervisor has ended, or has sent what is not received.
    #[must_use]
    pub fn is_readable(&self) -> bool {
        let mut watched = [PollFd::new(&self.channel, PollFlags::IN)];
        poll(&mut watched, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }
}

impl AsFd for Replies {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

impl AsRawFd for Replies {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

/// Supervisor with its process, for callers that do one thing after the other. The drop ends it.
#[derive(Debug)]
pub struct Supervisor {
    process: Child,
    commands: Commands,
    replies: Replies,
    report: Report,
    /// Ends of tasks that arrived while the caller waited for something else.
    ended: Vec<TaskEnd>,
}

impl Supervisor {
    /// Starts a supervisor, and waits until its confinement is complete.
    ///
    /// # Errors
    ///
    /// Returns the fault of the step that failed.
    pub fn start(settings: &Settings) -> Result<Self, ClientError> {
        let (mut command, connection) = prepare(settings)?;
        let mut process = command.spawn()?;
        drop(command);
        match connection.ready() {
            Ok((commands, replies, report)) => {
                Ok(Self { process, commands, replies, report, ended: Vec::new() })
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
    pub fn begin(&mut self, programs: &[&str]) -> Result<(), ClientError> {
        self.commands.begin(programs.iter().map(|&program| program.to_owned()).collect())?;
        match self.reply()? {
            Reply::Begun => Ok(()),
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
    ) -> Result<(), ClientError> {
        self.commands.start(start, descriptors)?;
        match self.reply()? {
            Reply::Started { .. } => Ok(()),
            reply => Err(error_of(reply)),
        }
    }

    /// Waits for the end of a task.
    ///
    /// # Errors
    ///
    /// Returns an error if the supervisor ends before.
    pub fn wait(&mut self, task: u32) -> Result<TaskEnd, ClientError> {
        loop {
            if let Some(at) = self.ended.iter().position(|end| end.task == task) {
                return Ok(self.ended.swap_remove(at));
            }
            match self.replies.next()? {
                Some(Reply::Ended(end)) => self.ended.push(end),
                Some(reply) => return Err(error_of(reply)),
                None => return Err(ClientError::Ended),
            }
        }
    }

    /// Ends the job.
    ///
    /// # Errors
    ///
    /// Returns the fault of the step that failed. The supervisor has then ended.
    pub fn clean(&mut self) -> Result<Cleaned, ClientError> {
        self.commands.clean()?;
        match self.reply()? {
            Reply::Cleaned(cleaned) => Ok(cleaned),
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
    fn reply(&mut self) -> Result<Reply, ClientError> {
        loop {
            match self.replies.next()? {
                Some(Reply::Ended(end)) => self.ended.push(end),
                Some(reply) => return Ok(reply),
                None => return Err(ClientError::Ended),
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

fn error_of(reply: Reply) -> ClientError {
    match reply {
        Reply::Refused(fault) | Reply::Failed { fault, .. } => fault.into(),
        reply => ClientError::OutOfOrder(Box::new(reply)),
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

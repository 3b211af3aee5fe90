//! Side of the worker: starts supervisors, and tasks in them.
//!
//! All calls are synchronous. An asynchronous worker uses [`Commands`], whose calls only write a
//! message, and [`Replies`], which one blocking thread reads. `Replies` gives its descriptor, so an
//! event loop can wait for it as well, and then call [`Replies::try_receive`]. The same holds for
//! [`SupervisorConnection`] and [`SupervisorConnection::ready`], because a supervisor writes each
//! message at once. A supervisor that does not read fills its socket. A call then waits for
//! [`SEND_TIMEOUT`], and fails.
//!
//! The worker starts the process itself with the [`Command`] of [`prepare`], because it may have to
//! register its children. [`Supervisor`] starts the process for callers without such rules.

mod connection;
mod supervisor;

use std::{
    collections::BTreeSet,
    io,
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};

use agenix_protocol::byte_escape::encode_os;
pub use connection::{Commands, ReceivedReply, Replies, SupervisorConnection};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
pub use supervisor::Supervisor;

use crate::{
    control_group::ControlGroup,
    fault::StepFault,
    profile::{InvalidProfile, Profile},
    protocol::{Channel, ReceiveError, SupervisorReply, pair},
    setup::{Mechanism, Regime, SETUP_VARIABLE, SUPERVISOR_ARGUMENT, Setup},
};

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
    /// Returns an error if there is no such user, and if the system cannot search its users.
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
    /// Control group of the supervisor and its tasks, with the limits of the profile.
    pub control_group: Option<Arc<ControlGroup>>,
    /// Mechanisms to do without, for tests.
    pub without: BTreeSet<Mechanism>,
}

/// Error of a supervisor, as the worker sees it.
#[derive(Debug, thiserror::Error)]
pub enum SupervisorError {
    /// The profile is invalid.
    #[error(transparent)]
    Profile(#[from] InvalidProfile),
    /// The supervisor could not take a step.
    #[error(transparent)]
    Fault(#[from] StepFault),
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
    OutOfOrder(Box<SupervisorReply>),
}

/// Returns the command that starts a supervisor, and the connection to it. The caller starts the
/// command, drops it, and waits with [`SupervisorConnection::ready`]. The end of the connection is
/// the end of the supervisor, which the caller then reaps.
///
/// # Errors
///
/// Returns an error for an invalid profile, and if the system refuses a socket.
pub fn prepare(settings: &Settings) -> Result<(Command, SupervisorConnection), SupervisorError> {
    settings.profile.check()?;
    let variable = |name: &String| Some((name.clone(), encode_os(&std::env::var_os(name)?)));
    let setup = Setup {
        profile: settings.profile.clone(),
        scratch: encode_os(settings.scratch.as_os_str()),
        regime: settings.regime,
        control_group: settings.control_group.as_ref().map(|group| encode_os(group.path().as_os_str())),
        without: settings.without.clone(),
        variables: settings.profile.env.iter().filter_map(variable).collect(),
    };
    let setup = serde_json::to_string(&setup).map_err(io::Error::from)?;
    let (ours, theirs) = pair()?;
    set_socket_timeout(&ours, Timeout::Send, Some(SEND_TIMEOUT)).map_err(io::Error::from)?;
    let entrance = settings.control_group.as_ref().map(|group| group.entrance()).transpose()?;
    let mut command = Command::new(&settings.executable);
    command
        .arg(SUPERVISOR_ARGUMENT)
        .env_clear()
        .env(SETUP_VARIABLE, setup)
        .current_dir("/")
        .stdin(Stdio::from(theirs))
        .stdout(entrance.map_or_else(Stdio::null, Stdio::from));
    if let Some(User { uid, gid }) = settings.user {
        command.uid(uid).gid(gid);
    }
    Ok((command, SupervisorConnection::new(Channel::new(ours))))
}

//! Supervisor: a process that confines itself, and starts the tasks of untrusted jobs. A supervisor
//! is the executable of the worker, started again with [`SUPERVISOR_ARGUMENT`].
//!
//! A supervisor is two processes. The outer process creates the namespaces, or becomes a child
//! subreaper, and is out of reach of every task. The inner process confines itself, serves the
//! protocol and starts the tasks. When the inner process ends for any reason, or the worker closes
//! the connection or ends, the outer process ends everything that is left. The outer process holds
//! the connection until then, so the worker sees the end of the connection only when no process of
//! the sandbox is left.

mod inner;
mod job;
mod outer;
mod processes;
mod sandbox;
mod task;

use std::{
    ffi::OsString,
    os::fd::{AsFd, OwnedFd},
    process::ExitCode,
};

use crate::{
    fault::{Step, StepFault},
    probe,
    protocol::{SupervisorReply, send},
    setup::{ATTEMPT_ARGUMENT, SETUP_VARIABLE, SUPERVISOR_ARGUMENT, Setup},
};

/// Second argument of the inner process.
const INNER: &str = "inner";

/// Returns true if the arguments of this executable, with argument 0, ask for a supervisor. The
/// executable then has to call [`main`] before it starts a thread, and to end with its result.
#[must_use]
pub fn is_requested(arguments: impl IntoIterator<Item = OsString>) -> bool {
    arguments.into_iter().nth(1).is_some_and(|argument| argument == SUPERVISOR_ARGUMENT)
}

/// Runs the supervisor until its end. The stdin of the supervisor is the connection to the worker.
#[must_use]
pub fn main() -> ExitCode {
    let role = std::env::args_os().nth(2);
    if role.as_ref().is_some_and(|role| role == ATTEMPT_ARGUMENT) {
        return probe::attempt();
    }
    let is_inner = role.is_some_and(|role| role == INNER);
    let Ok(connection) = std::io::stdin().as_fd().try_clone_to_owned() else { return ExitCode::FAILURE };
    let ended = if is_inner { inner::run(&connection) } else { outer::run(&connection) };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            // The worker may be gone.
            let _gone = send(&connection, &SupervisorReply::Refused(fault), &[]);
            ExitCode::FAILURE
        }
    }
}

fn setup() -> Result<Setup, StepFault> {
    let invalid = |detail: String| StepFault::new(Step::Setup, detail);
    let text =
        std::env::var(SETUP_VARIABLE).map_err(|error| invalid(format!("{SETUP_VARIABLE}: {error}")))?;
    let setup: Setup = serde_json::from_str(&text).map_err(|error| invalid(error.to_string()))?;
    setup.profile.check().map_err(|error| invalid(error.to_string()))?;
    Ok(setup)
}

fn copy(connection: &OwnedFd) -> Result<OwnedFd, StepFault> {
    connection.try_clone().map_err(|error| StepFault::of(Step::Descriptors, "copy the connection", error))
}

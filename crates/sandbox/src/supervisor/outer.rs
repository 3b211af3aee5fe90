//! Outer process of a supervisor: creates what needs a process of its own, and ends what is left.

use std::{
    os::{fd::OwnedFd, unix::process::ExitStatusExt},
    process::{Child, Command, Stdio},
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    io::retry_on_intr,
    process::{Pid, PidfdFlags, getpid, getppid, pidfd_open, set_child_subreaper, test_kill_process},
};

use crate::{
    fault::{Step, StepFault},
    mechanisms::{control_group, landlock::Landlock, namespaces, privileges},
    profile::Network,
    setup::{Mechanism, Regime, SUPERVISOR_ARGUMENT, Setup},
    supervisor::{INNER, processes, setup},
};

/// Runs until nothing of the sandbox is left.
pub(super) fn run(connection: &OwnedFd) -> Result<(), StepFault> {
    let setup = setup()?;
    control_group::join(&setup)?;
    privileges::refuse_root()?;
    agenix_sys::keep_from_children();
    privileges::prefer_for_out_of_memory();
    // A terminal that interrupts the worker must not end this process before the worker decides.
    privileges::leave_terminal()?;
    match setup.regime {
        Regime::Namespaces => enter_namespaces(&setup)?,
        Regime::Subreaper => adopt_descendants(&setup)?,
    }
    privileges::protect()?;
    let mut inner = start_inner()?;
    let watched = watch(connection, &inner);
    // In a PID namespace, the call ends all processes of the namespace.
    let _has_ended = inner.kill();
    let status =
        inner.wait().map_err(|error| StepFault::of(Step::Clean, "wait for the supervisor", error))?;
    if setup.regime == Regime::Subreaper {
        processes::end_all()?;
    }
    watched?;
    match status.signal() {
        Some(signal) if signal != libc::SIGKILL => {
            Err(StepFault::new(Step::Clean, format!("signal {signal} ended the supervisor")))
        }
        _ => Ok(()),
    }
}

fn enter_namespaces(setup: &Setup) -> Result<(), StepFault> {
    if setup.without.contains(&Mechanism::Namespaces) {
        return Err(StepFault::new(
            Step::Namespaces,
            format!("they are switched off; {}", namespaces::REMEDY),
        ));
    }
    namespaces::enter(setup.profile.network == Network::On)
}

/// Makes this process adopt orphans of the sandbox, and restricts the signals of this process to
/// the orphans. Otherwise, the signal to all processes would reach those of the user outside the
/// sandbox.
fn adopt_descendants(setup: &Setup) -> Result<(), StepFault> {
    let landlock = Landlock::of_kernel().filter(|_| !setup.without.contains(&Mechanism::Landlock));
    let landlock = landlock.ok_or_else(|| {
        StepFault::new(
            Step::Landlock,
            "the kernel has no Landlock; use Linux 6.12 or later with lsm=landlock",
        )
    })?;
    set_child_subreaper(Some(getpid()))
        .map_err(|error| StepFault::of(Step::Clean, "become a subreaper", error))?;
    landlock.restrict_signals()?;
    check_signal_scope()
}

/// Checks that a signal to the worker fails.
fn check_signal_scope() -> Result<(), StepFault> {
    let reaches = |pid: Option<Pid>| pid.is_some_and(|pid| test_kill_process(pid).is_ok());
    if reaches(getppid()) {
        return Err(StepFault::new(Step::Landlock, "the signal scope does not hold"));
    }
    Ok(())
}

fn start_inner() -> Result<Child, StepFault> {
    let mut command = Command::new("/proc/self/exe");
    command.args([SUPERVISOR_ARGUMENT, INNER]).stdout(Stdio::null());
    command.spawn().map_err(|error| StepFault::of(Step::Setup, "start the supervisor", error))
}

/// Waits until the worker closes the connection or the inner process ends.
fn watch(connection: &OwnedFd, inner: &Child) -> Result<(), StepFault> {
    let fault = |error: rustix::io::Errno| StepFault::of(Step::Setup, "watch the supervisor", error);
    let pid = Pid::from_raw(inner.id().cast_signed());
    let pid = pid.ok_or_else(|| StepFault::new(Step::Setup, "the supervisor has no process id"))?;
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).map_err(fault)?;
    // Without events, poll reports the closed connection, and no messages.
    let mut watched = [PollFd::new(connection, PollFlags::empty()), PollFd::new(&pidfd, PollFlags::IN)];
    retry_on_intr(|| poll(&mut watched, None)).map_err(fault)?;
    Ok(())
}

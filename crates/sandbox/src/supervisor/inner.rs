//! Inner process of a supervisor: confines itself, and serves jobs one after the other.

use std::{
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    thread,
};

use agenix_protocol::byte_escape::decode_os;
use rustix::{
    event::{PollFd, PollFlags},
    io::Errno,
    process::{PidfdFlags, getpid, getppid, pidfd_open, set_child_subreaper},
};

use crate::{
    fault::{Step, StepFault},
    mechanisms::{
        control_group,
        facts::{self, Facts},
        landlock::{Landlock, PermittedFiles},
        limits, namespaces, privileges, scratch, seccomp,
    },
    profile::{Execute, Network},
    protocol::{Channel, ReceiveError, SupervisorReply, SupervisorRequest, send},
    report::Report,
    setup::{Mechanism, Regime, Setup},
    supervisor::{
        copy,
        job::{self, JobThreadEnd},
        processes,
        sandbox::Sandbox,
        setup,
    },
};

/// Stack of the thread of a job, which bounds the address space that the supervisor needs.
const JOB_STACK_BYTES: usize = 512 << 10;

/// Runs until the worker closes the connection, or the supervisor retires.
pub(super) fn run(connection: &OwnedFd) -> Result<(), StepFault> {
    let mut channel = Channel::new(copy(connection)?);
    detach_stdin()?;
    let (sandbox, report) = confine(setup()?)?;
    let needs = sandbox.setup.profile.needs();
    let unmet = report.unmet(&needs);
    if !unmet.is_empty() {
        return Err(StepFault::new(Step::Properties, unmet.join("; ")));
    }
    send(channel.socket(), &SupervisorReply::Ready(report), &[])
        .map_err(|error| StepFault::of(Step::Protocol, "report", error))?;
    let served = serve(&mut channel, &sandbox);
    // All processes end also after an error: nothing outlives the supervisor.
    processes::end_all()?;
    served
}

/// Frees descriptor 0, which a task gets, from the connection.
fn detach_stdin() -> Result<(), StepFault> {
    let fault = |error| StepFault::of(Step::Descriptors, "/dev/null", error);
    let null = std::fs::File::open("/dev/null").map_err(fault)?;
    rustix::stdio::dup2_stdin(&null).map_err(|error| fault(error.into()))
}

/// Applies all mechanisms to this process.
fn confine(setup: Setup) -> Result<(Sandbox, Report), StepFault> {
    privileges::refuse_root()?;
    let scratch = PathBuf::from(decode_os(&setup.scratch));
    scratch::check(&scratch)?;
    let has_namespaces = setup.regime == Regime::Namespaces;
    let mut has_own_proc = false;
    if has_namespaces {
        if getpid().as_raw_pid() != 1 {
            return Err(StepFault::new(
                Step::Namespaces,
                "the supervisor is not the first process of its namespace",
            ));
        }
        has_own_proc = namespaces::mount_scratch_and_proc(&scratch, &setup.profile.limits)?;
    } else {
        set_child_subreaper(Some(getpid()))
            .map_err(|error| StepFault::of(Step::Clean, "become a subreaper", error))?;
    }
    let has_control_group = control_group::check(&setup)?;
    privileges::drop_all()?;
    privileges::leave_terminal()?;
    agenix_sys::keep_from_children();
    limits::set(&setup.profile.limits, setup.regime, has_control_group)?;
    std::env::set_current_dir(&scratch).map_err(|error| StepFault::of(Step::Scratch, "enter it", error))?;
    let landlock = restrict_files(&setup, &scratch, has_own_proc)?;
    // The signal to all processes, which ends a job, must not reach those of the user.
    if !has_namespaces && !landlock.is_some_and(Landlock::scopes_signals) {
        return Err(StepFault::new(Step::Landlock, "there is no signal scope; use Linux 6.12 or later"));
    }
    let has_filter = !setup.without.contains(&Mechanism::Seccomp);
    if has_filter {
        seccomp::filter(setup.profile.network == Network::On)?;
        if !privileges::are_calls_filtered() {
            return Err(StepFault::new(Step::Seccomp, "the kernel filters no calls"));
        }
    }
    privileges::protect()?;
    let parent = if has_namespaces {
        privileges::follow_parent()?;
        None
    } else {
        Some(parent()?)
    };
    let facts = Facts {
        has_namespaces,
        landlock: landlock.map(Landlock::version),
        scopes_signals: landlock.is_some_and(Landlock::scopes_signals),
        has_filter,
        has_control_group,
    };
    let report = facts::report(&setup.profile, facts);
    let landlock = landlock.filter(|_| setup.profile.execute == Execute::Listed);
    Ok((Sandbox { setup, scratch, landlock, parent }, report))
}

/// Restricts files if the kernel has Landlock. Without Landlock, the report lacks the properties of
/// Landlock.
fn restrict_files(setup: &Setup, scratch: &Path, has_own_proc: bool) -> Result<Option<Landlock>, StepFault> {
    let landlock = Landlock::of_kernel().filter(|_| !setup.without.contains(&Mechanism::Landlock));
    let Some(landlock) = landlock else { return Ok(None) };
    let paths =
        |paths: &[String]| paths.iter().map(|path| PathBuf::from(decode_os(path))).collect::<Vec<_>>();
    landlock.restrict_files(&PermittedFiles {
        read: paths(&setup.profile.read),
        write: [paths(&setup.profile.write), vec![scratch.to_owned()]].concat(),
        has_own_proc,
        has_network: setup.profile.network == Network::On,
    })?;
    Ok(Some(landlock))
}

/// Serves jobs. A thread restricts itself to the programs of a job, and serves the job and the next
/// jobs with the same programs.
fn serve(channel: &mut Channel<SupervisorRequest>, sandbox: &Sandbox) -> Result<(), StepFault> {
    let mut next = None;
    loop {
        let programs = match next.take() {
            Some(programs) => programs,
            None => match next_request(channel, sandbox)? {
                None => return Ok(()),
                Some(SupervisorRequest::Begin { programs }) => programs,
                Some(request) => {
                    for answer in job::answer_outside(&request)? {
                        job::reply(channel, &answer)?;
                    }
                    continue;
                }
            },
        };
        let served = thread::scope(|scope| {
            let thread = thread::Builder::new().name("job".into()).stack_size(JOB_STACK_BYTES);
            let job = thread.spawn_scoped(scope, || job::serve(channel, sandbox, programs));
            let job =
                job.map_err(|error| StepFault::of(Step::Programs, "start the thread of the job", error))?;
            job.join().unwrap_or_else(|_| Err(StepFault::new(Step::Clean, "the thread of the job panicked")))
        })?;
        match served {
            JobThreadEnd::Closed => return Ok(()),
            JobThreadEnd::NotBegun => {}
            JobThreadEnd::Next(programs) => next = Some(programs),
        }
    }
}

/// Waits for the next request. Returns `None` when the supervisor has to end.
fn next_request(
    channel: &mut Channel<SupervisorRequest>,
    sandbox: &Sandbox,
) -> Result<Option<SupervisorRequest>, StepFault> {
    let malformed = |error: ReceiveError| StepFault::new(Step::Protocol, error.to_string());
    loop {
        if let Some((request, _)) = channel.received().map_err(malformed)? {
            return Ok(Some(request));
        }
        let socket = channel.socket().clone();
        let mut watched = vec![PollFd::new(&socket, PollFlags::IN)];
        if !sandbox.wait(&mut watched, None)? {
            return Ok(None);
        }
        if !watched[0].revents().is_empty() && !channel.fill().map_err(malformed)? {
            return Ok(None);
        }
    }
}

/// Returns a descriptor of the outer process, which must not have ended.
fn parent() -> Result<OwnedFd, StepFault> {
    let fault = |error| StepFault::of(Step::Privileges, "watch the outer process", error);
    let parent = getppid().ok_or_else(|| fault(Errno::SRCH))?;
    let opened = pidfd_open(parent, PidfdFlags::empty()).map_err(fault)?;
    // Another process may have got the id of a parent that has ended.
    if getppid() == Some(parent) { Ok(opened) } else { Err(fault(Errno::SRCH)) }
}

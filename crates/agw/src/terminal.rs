//! Controlling terminal. Tasks must have none: the terminal could stop tasks, and tasks could type
//! into the terminal (`TIOCSTI`).
//!
//! A worker in the session of another process gives up the terminal for itself, and still gets the
//! signals of keys such as Ctrl-C. A session leader, as in `docker run -it`, cannot give up the
//! terminal: the kernel would take the terminal and its signals from the whole session. So a leader
//! starts the worker as a child in a session of its own, forwards signals to the worker, and ends
//! as the worker ends.

#[cfg(target_os = "linux")]
pub(crate) use linux::leave_session;

/// Gives up the controlling terminal of a worker that does not lead its session.
pub(crate) fn give_up() {
    if let Err(error) = agenix_sys::leave_terminal() {
        tracing::warn!(%error, "tasks may be stopped when they use the terminal; start agw by setsid(1)");
    }
}

/// Does nothing, because tasks cannot lose a terminal here.
#[cfg(not(target_os = "linux"))]
pub(crate) fn leave_session(_parent: Option<i32>) -> std::io::Result<Option<std::process::ExitCode>> {
    Ok(None)
}

#[cfg(target_os = "linux")]
mod linux {
    use std::{
        env,
        ffi::OsString,
        fs::{self, File},
        io,
        os::unix::process::CommandExt,
        process::{Command, ExitCode},
    };

    use nix::unistd;
    use rustix::process::{
        Pid, Signal, WaitOptions, WaitStatus, getpid, getppid, kill_process, set_parent_process_death_signal,
        setsid, wait,
    };
    use tokio::{
        runtime::Builder,
        signal::unix::{SignalKind, signal},
    };

    /// Option of the worker in a session of its own. The value of the option is the process id of
    /// the leader.
    const OPTION: &str = "--leave-session-of";
    /// Names of the processes, so that `pkill agw` signals the worker alone, and once.
    const LEADER_NAME: &str = "session-leader";
    const WORKER_NAME: &str = "agw";
    /// Signals that the leader forwards: those of a terminal, and those that users send.
    const FORWARDED: [Signal; 8] = [
        Signal::HUP,
        Signal::INT,
        Signal::QUIT,
        Signal::TERM,
        Signal::USR1,
        Signal::USR2,
        Signal::TSTP,
        Signal::CONT,
    ];

    /// Returns `None` if this process is the worker. If this process leads a session with a
    /// terminal, starts the worker as a child, waits for its end, and returns its exit code.
    /// `parent` is the value of the option.
    pub(crate) fn leave_session(parent: Option<i32>) -> io::Result<Option<ExitCode>> {
        if let Some(parent) = parent {
            setsid()?;
            set_name(WORKER_NAME);
            set_parent_process_death_signal(Some(Signal::KILL))?;
            let is_orphan = getppid().map(Pid::as_raw_pid) != Some(parent);
            return Ok(is_orphan.then_some(ExitCode::FAILURE));
        }
        let has_terminal = || File::options().read(true).write(true).open("/dev/tty").is_ok();
        // The call is not that of rustix, which has no value for a leader in another PID namespace.
        let is_leader = unistd::getsid(None)? == unistd::Pid::this();
        if is_leader && has_terminal() { lead().map(Some) } else { Ok(None) }
    }

    fn lead() -> io::Result<ExitCode> {
        set_name(LEADER_NAME);
        crate::hide_environment();
        Builder::new_current_thread().enable_io().build()?.block_on(async {
            let mut child_ends = signal(SignalKind::child())?;
            // The signals are caught before the start, so that none ends this process alone.
            let caught = FORWARDED.map(|number| Ok((number, signal(SignalKind::from_raw(number.as_raw()))?)));
            let caught: Vec<_> = caught.into_iter().collect::<io::Result<_>>()?;
            let worker = start()?;
            for (number, mut signals) in caught {
                tokio::spawn(async move {
                    while signals.recv().await.is_some() {
                        let _has_ended = kill_process(worker, number);
                    }
                });
            }
            loop {
                // The first process of a container reaps orphans of others, too.
                while let Some((pid, status)) = wait(WaitOptions::NOHANG)? {
                    if pid == worker {
                        return Ok(code(status));
                    }
                }
                child_ends.recv().await;
            }
        })
    }

    /// Sets the name of this process in lists of processes.
    fn set_name(name: &str) {
        let _without_proc = fs::write("/proc/self/comm", name);
    }

    fn start() -> io::Result<Pid> {
        let mut arguments = env::args_os();
        let name = arguments.next().unwrap_or_else(|| OsString::from("agw"));
        let mut command = Command::new("/proc/self/exe");
        command.arg0(name).arg(OPTION).arg(getpid().to_string()).args(arguments);
        let pid = Pid::from_raw(command.spawn()?.id().cast_signed());
        Ok(pid.expect("a process id is a positive 32-bit integer"))
    }

    /// Returns the exit code as a shell does: 128 plus the signal number after a signal.
    fn code(status: WaitStatus) -> ExitCode {
        let code = status.exit_status().or_else(|| status.terminating_signal().map(|signal| 128 + signal));
        code.and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from)
    }
}

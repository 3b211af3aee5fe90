//! Exit of a child process. The wait leaves the child unreaped, so that no other process can get
//! the id of the child or of its process group meanwhile.

use std::io;

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use tokio::signal::unix::{Signal, SignalKind, signal};
#[cfg(target_os = "linux")]
use {
    rustix::process::{PidfdFlags, pidfd_open},
    std::os::fd::OwnedFd,
    tokio::io::unix::AsyncFd,
};

#[cfg(target_os = "linux")]
use crate::exec::readiness::readable;

pub(crate) struct Exit {
    pid: Pid,
    notice: ExitNotice,
}

/// Source of the notice that a child may have exited.
enum ExitNotice {
    /// Readable once the child has exited.
    #[cfg(target_os = "linux")]
    Pidfd(AsyncFd<OwnedFd>),
    /// SIGCHLD, which arrives for every child.
    Signal(Signal),
}

impl Exit {
    /// Prepares the wait for the child `pid`, which the caller has not reaped.
    pub(crate) fn of(pid: Pid) -> io::Result<Self> {
        Ok(Self { pid, notice: ExitNotice::of(pid)? })
    }

    /// Waits until the child has exited. The call can be repeated, and may be dropped at any time.
    pub(crate) async fn wait(&mut self) -> io::Result<()> {
        while !has_exited(self.pid)? {
            match &mut self.notice {
                #[cfg(target_os = "linux")]
                ExitNotice::Pidfd(pidfd) => {
                    // The pidfd stays readable, so the notice is not lost if the call is dropped.
                    let _ready = pidfd.readable().await?;
                }
                ExitNotice::Signal(signal) => {
                    let _signal = signal.recv().await;
                }
            }
        }
        Ok(())
    }
}

impl ExitNotice {
    fn of(pid: Pid) -> io::Result<Self> {
        // The limit of open files, or an old kernel, may refuse a pidfd.
        #[cfg(target_os = "linux")]
        if let Ok(pidfd) =
            pidfd_open(pid, PidfdFlags::NONBLOCK).or_else(|_| pidfd_open(pid, PidfdFlags::empty()))
            && let Ok(pidfd) = readable(pidfd)
        {
            return Ok(Self::Pidfd(pidfd));
        }
        #[cfg(not(target_os = "linux"))]
        let _unused = pid;
        Ok(Self::Signal(signal(SignalKind::child())?))
    }
}

/// Returns true if the child `pid` has exited, and leaves the child unreaped.
fn has_exited(pid: Pid) -> io::Result<bool> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    loop {
        match waitid(WaitId::Pid(pid), options) {
            Ok(status) => return Ok(status.is_some()),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use rustix::process::Pid;
    use tokio::signal::unix::{SignalKind, signal};

    use super::{Exit, ExitNotice, has_exited};

    fn start(script: &str) -> (Child, Pid) {
        let child = Command::new("sh").args(["-c", script]).spawn().unwrap();
        let pid = Pid::from_raw(child.id().cast_signed()).unwrap();
        (child, pid)
    }

    #[tokio::test]
    async fn exit_wait_leaves_the_child_unreaped() {
        let (mut child, pid) = start("exit 3");
        let mut exit = Exit::of(pid).unwrap();
        exit.wait().await.unwrap();
        exit.wait().await.unwrap();
        assert!(rustix::process::test_kill_process(pid).is_ok(), "the process id is not free");
        assert_eq!(child.wait().unwrap().code(), Some(3));
        assert!(exit.wait().await.is_err(), "nothing is left to wait for");
    }

    #[tokio::test]
    async fn exit_wait_falls_back_to_sigchld() {
        let notice = ExitNotice::Signal(signal(SignalKind::child()).unwrap());
        let (mut child, pid) = start("read line < /dev/null; exit 4");
        let mut exit = Exit { pid, notice };
        exit.wait().await.unwrap();
        assert!(has_exited(pid).unwrap());
        assert_eq!(child.wait().unwrap().code(), Some(4));
    }
}

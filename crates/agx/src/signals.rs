//! The signals by which agx is asked to end.

use std::{io, time::Duration};

use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    time::timeout,
};

/// The exit code of a command that a signal ended.
const INTERRUPTED: i32 = 130;
/// How long after the second signal this process may take to end by itself.
const LAST_WAIT: Duration = Duration::from_secs(2);

/// SIGINT, SIGTERM and SIGHUP.
struct Asked {
    interrupt: Signal,
    terminate: Signal,
    /// None where SIGHUP is ignored, as `nohup` has it: it stays so.
    hangup: Option<Signal>,
}

impl Asked {
    fn listen() -> io::Result<Self> {
        let hangup = (!is_hangup_ignored()).then(|| signal(SignalKind::hangup())).transpose()?;
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup,
        })
    }

    async fn next(&mut self) {
        let hung_up = async {
            match &mut self.hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = hung_up => {}
        }
    }
}

/// Waits for Ctrl-C, SIGTERM, or the end of the terminal.
pub(crate) async fn asked_to_end() {
    match Asked::listen() {
        Ok(mut asked) => asked.next().await,
        Err(_) => std::future::pending().await,
    }
}

/// Ends this process after the second signal that asks for it, whatever the process waits for then. The first one is left to
/// [`asked_to_end`].
pub(crate) fn end_at_the_second_signal() {
    let Ok(mut asked) = Asked::listen() else { return };
    tokio::spawn(async move {
        asked.next().await;
        asked.next().await;
        // It may still end by itself, and remove its directory. A third signal leaves no time for that.
        let _late_or_again = timeout(LAST_WAIT, asked.next()).await;
        std::process::exit(INTERRUPTED);
    });
}

/// Whether this process was started with SIGHUP ignored.
#[cfg(target_os = "linux")]
fn is_hangup_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    ignores(&status, SignalKind::hangup().as_raw_value())
}

/// Elsewhere it cannot be found out: the signal keeps the meaning that it had at the start.
#[cfg(not(target_os = "linux"))]
fn is_hangup_ignored() -> bool {
    true
}

/// Whether the text of `/proc/PID/status` says that the signal is ignored. A text that says nothing says so, too.
#[cfg(target_os = "linux")]
fn ignores(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_none_or(|mask| mask >> (signal - 1) & 1 == 1)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::ignores;

    #[test]
    fn what_nohup_ignores_is_seen() {
        let status = |mask: &str| format!("Name:\tagx\nSigBlk:\t0000000000000000\nSigIgn:\t{mask}\n");
        assert!(ignores(&status("0000000000001001"), 1));
        assert!(!ignores(&status("0000000000001000"), 1));
        assert!(!ignores(&status("0000000000000001"), 15));
        assert!(ignores("", 1), "where nothing is known, nothing is changed");
    }
}

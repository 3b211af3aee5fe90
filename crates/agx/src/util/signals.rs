//! Signals that ask agx to end.

use std::{io, time::Duration};

use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::watch,
    time::timeout,
};

/// Exit code of a command that was ended by a signal.
const INTERRUPTED: i32 = 130;
/// Time for this process to end by itself after the second signal.
const LAST_WAIT: Duration = Duration::from_secs(2);

/// Listeners for SIGINT, SIGTERM and SIGHUP. A listener is `None` if its signal is ignored, for
/// example by `nohup` or by a shell that starts a command in the background, because the signal
/// must stay ignored.
struct SignalListeners {
    interrupt: Option<Signal>,
    terminate: Option<Signal>,
    hangup: Option<Signal>,
}

impl SignalListeners {
    fn listen() -> io::Result<Self> {
        Ok(Self {
            interrupt: listener(SignalKind::interrupt())?,
            terminate: listener(SignalKind::terminate())?,
            hangup: listener(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = received(&mut self.interrupt) => {}
            _ = received(&mut self.terminate) => {}
            _ = received(&mut self.hangup) => {}
        }
    }
}

/// Returns `None` if the signal is ignored.
fn listener(kind: SignalKind) -> io::Result<Option<Signal>> {
    (!is_ignored(kind)).then(|| signal(kind)).transpose()
}

async fn received(listener: &mut Option<Signal>) -> Option<()> {
    match listener {
        Some(listener) => listener.recv().await,
        None => std::future::pending().await,
    }
}

/// Waits for the next SIGINT, SIGTERM or SIGHUP.
pub(crate) async fn stop_requested() {
    match SignalListeners::listen() {
        Ok(mut asked) => asked.next().await,
        Err(_) => std::future::pending().await,
    }
}

/// Waits for the next SIGINT.
pub(crate) async fn interrupted() {
    // Without a listener, the signal ends the process.
    let mut interrupt = listener(SignalKind::interrupt()).unwrap_or_default();
    let _received = received(&mut interrupt).await;
}

/// Keeps SIGINT and SIGQUIT from ending this process from now on. They still end the programs that
/// this process starts.
pub(crate) fn outlive_interrupts() {
    for kind in [SignalKind::interrupt(), SignalKind::quit()] {
        // The handler stays without its listener. Without a handler, the signal ends the process.
        let _handled = listener(kind);
    }
}

/// The first signal that asks this process to end, even if it arrives before the wait.
pub(crate) struct FirstSignal(watch::Receiver<bool>);

impl FirstSignal {
    /// Waits for the signal. Returns at once if the signal has arrived before.
    pub(crate) async fn arrived(&mut self) {
        if self.0.wait_for(|has_come| *has_come).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Listens from now on. The caller handles the first signal; the second one ends this process.
pub(crate) fn listen() -> FirstSignal {
    let (sender, receiver) = watch::channel(false);
    if let Ok(mut asked) = SignalListeners::listen() {
        tokio::spawn(async move {
            asked.next().await;
            sender.send_replace(true);
            asked.next().await;
            // During the wait, the process may remove its directory. A third signal ends the
            // process at once.
            let _late_or_again = timeout(LAST_WAIT, asked.next()).await;
            std::process::exit(INTERRUPTED);
        });
    }
    FirstSignal(receiver)
}

/// Returns true if this process was started with the signal ignored.
#[cfg(target_os = "linux")]
fn is_ignored(kind: SignalKind) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    ignores(&status, kind.as_raw_value()).unwrap_or(kind == SignalKind::hangup())
}

/// Returns true for SIGHUP, which then keeps its disposition, because other systems do not show
/// ignored signals.
#[cfg(not(target_os = "linux"))]
fn is_ignored(kind: SignalKind) -> bool {
    kind == SignalKind::hangup()
}

/// Returns whether `/proc/PID/status` has `signal` among the ignored ones, or `None` if `status`
/// lacks the line.
#[cfg(target_os = "linux")]
fn ignores(status: &str, signal: i32) -> Option<bool> {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
    let mask = u64::from_str_radix(mask.trim(), 16).ok()?;
    Some(mask >> (signal - 1) & 1 == 1)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::ignores;

    #[test]
    fn signals_detect_ignored_ones() {
        let status = |mask: &str| format!("Name:\tagx\nSigBlk:\t0000000000000000\nSigIgn:\t{mask}\n");
        assert_eq!(ignores(&status("0000000000001001"), 1), Some(true));
        assert_eq!(ignores(&status("0000000000001000"), 1), Some(false));
        assert_eq!(ignores(&status("0000000000000002"), 2), Some(true));
        assert_eq!(ignores(&status("0000000000000001"), 15), Some(false));
        assert_eq!(ignores("", 1), None);
    }
}

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

/// Listeners for SIGINT, SIGTERM and SIGHUP.
struct SignalListeners {
    interrupt: Signal,
    terminate: Signal,
    /// `None` if SIGHUP is ignored, for example by `nohup`, because it must stay ignored.
    hangup: Option<Signal>,
}

impl SignalListeners {
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

/// Waits for the next SIGINT, SIGTERM or SIGHUP.
pub(crate) async fn stop_requested() {
    match SignalListeners::listen() {
        Ok(mut asked) => asked.next().await,
        Err(_) => std::future::pending().await,
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
            // Until then the process may remove its directory. A third signal ends it at once.
            let _late_or_again = timeout(LAST_WAIT, asked.next()).await;
            std::process::exit(INTERRUPTED);
        });
    }
    FirstSignal(receiver)
}

/// Returns true if this process was started with SIGHUP ignored.
#[cfg(target_os = "linux")]
fn is_hangup_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    ignores(&status, SignalKind::hangup().as_raw_value())
}

/// Returns true, because other systems do not tell. SIGHUP keeps its disposition.
#[cfg(not(target_os = "linux"))]
fn is_hangup_ignored() -> bool {
    true
}

/// Returns true if `/proc/PID/status` has `signal` among the ignored ones, or lacks that line.
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
    fn signals_detect_an_ignored_sighup() {
        let status = |mask: &str| format!("Name:\tagx\nSigBlk:\t0000000000000000\nSigIgn:\t{mask}\n");
        assert!(ignores(&status("0000000000001001"), 1));
        assert!(!ignores(&status("0000000000001000"), 1));
        assert!(!ignores(&status("0000000000000001"), 15));
        assert!(ignores("", 1), "where nothing is known, nothing is changed");
    }
}

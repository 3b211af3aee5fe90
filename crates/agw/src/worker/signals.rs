//! Signals of this process that control the worker.

use rustix::process::Signal as Number;
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::watch,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SignalAction {
    /// Claim no more jobs, finish the running jobs, then end.
    Drain,
    /// End at once.
    Force,
    /// Claim no more jobs, and stay registered.
    Quiet,
    /// Claim jobs again.
    Resume,
    /// Search PATH again.
    Reload,
}

/// Signal handlers. The first SIGTERM or SIGINT drains, the second forces the end. SIGTSTP pauses
/// claiming, SIGCONT resumes it, SIGHUP reloads PATH.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    pause: Signal,
    resume: Signal,
    hangup: Signal,
    /// Becomes true once stdin has ended, if the worker watches stdin.
    orphaned: watch::Receiver<bool>,
    is_draining: bool,
}

impl Signals {
    /// Installs the handlers, which replace the default actions of the signals. `hangup` has that
    /// of SIGHUP. With `with_stdin`, the end of stdin forces the end too, because the process that
    /// started the worker has exited.
    pub(crate) fn listen(with_stdin: bool, hangup: Signal) -> std::io::Result<Self> {
        let (tell, orphaned) = watch::channel(false);
        if with_stdin {
            let listen = move || {
                let _at_its_end = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
                tell.send_replace(true);
            };
            std::thread::Builder::new().name("stdin".into()).spawn(listen)?;
        }
        Ok(Self {
            orphaned,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            pause: signal(SignalKind::from_raw(Number::TSTP.as_raw()))?,
            resume: signal(SignalKind::from_raw(Number::CONT.as_raw()))?,
            hangup,
            is_draining: false,
        })
    }

    /// Waits for the next signal. Cancel-safe: dropping the future loses no signal.
    pub(crate) async fn next(&mut self) -> SignalAction {
        tokio::select! {
            _ = self.terminate.recv() => self.end(),
            _ = self.interrupt.recv() => self.end(),
            _ = self.pause.recv() => SignalAction::Quiet,
            _ = self.resume.recv() => SignalAction::Resume,
            _ = self.hangup.recv() => SignalAction::Reload,
            () = gone(&mut self.orphaned) => SignalAction::Force,
        }
    }

    fn end(&mut self) -> SignalAction {
        if std::mem::replace(&mut self.is_draining, true) { SignalAction::Force } else { SignalAction::Drain }
    }
}

/// Makes the worker survive two signals from its start on, and returns the stream of SIGHUP, which
/// also has a SIGHUP during the start. A write beyond the file size limit (`ulimit -f`) fails with
/// an error, which then fails only the job whose file is written; its signal has a handler, because
/// tasks would inherit an ignored signal. The caller is in a runtime.
pub(crate) fn survive_start() -> std::io::Result<Signal> {
    // This handler stays when the value is dropped.
    drop(signal(SignalKind::from_raw(Number::XFSZ.as_raw()))?);
    signal(SignalKind::hangup())
}

/// Waits for the end of stdin, or for ever if the worker does not watch stdin.
async fn gone(orphaned: &mut watch::Receiver<bool>) {
    if orphaned.wait_for(|&orphaned| orphaned).await.is_err() {
        std::future::pending::<()>().await;
    }
}

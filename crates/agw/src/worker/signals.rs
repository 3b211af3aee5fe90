//! What the signals of this process ask of the worker.

use rustix::process::Signal as Number;
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::watch,
};

/// What a signal asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SignalAction {
    /// Take no more jobs, finish those that run, end.
    Drain,
    /// End now.
    Force,
    /// Take no more jobs, and stay.
    Quiet,
    /// Take jobs again.
    Resume,
    /// Look at PATH again.
    Reload,
}

/// SIGTERM and SIGINT: the first drains, the next force. SIGTSTP and SIGCONT: quiet and resume. SIGHUP: reload.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    pause: Signal,
    resume: Signal,
    hangup: Signal,
    /// Becomes true when stdin has ended, where that means something.
    orphaned: watch::Receiver<bool>,
    is_draining: bool,
}

impl Signals {
    /// From now on these signals do nothing but this. With `with_stdin`, the end of stdin is heard as well: whoever started us has
    /// gone.
    pub(crate) fn listen(with_stdin: bool) -> std::io::Result<Self> {
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
            hangup: signal(SignalKind::hangup())?,
            is_draining: false,
        })
    }

    /// The next wish. Dropped before it is there, it is not lost.
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

/// Ready when whoever started us has gone, if anyone looks out for that.
async fn gone(orphaned: &mut watch::Receiver<bool>) {
    if orphaned.wait_for(|&orphaned| orphaned).await.is_err() {
        std::future::pending::<()>().await;
    }
}

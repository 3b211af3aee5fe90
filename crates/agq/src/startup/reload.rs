//! SIGHUP: the keys and the certificates are read again, the audit log is opened anew. Whoever is connected notices
//! nothing, and what cannot be read stays as it was.

use std::{
    io::{IsTerminal, stdin},
    sync::Arc,
};

use tokio::signal::unix::Signal;
use tracing::{error, info};

use crate::{app::AppState, auth::keyring::Keyring, config::KeySource, net::TlsAcceptance};

/// What is read again.
pub(crate) struct Reload {
    pub(crate) key_source: KeySource,
    pub(crate) keyring: Arc<Keyring>,
    pub(crate) tls: Option<Arc<TlsAcceptance>>,
    pub(crate) app: Arc<AppState>,
}

impl Reload {
    /// Obeys SIGHUP for as long as agq runs. Comes back only when the terminal that agq was started on has gone, which
    /// SIGHUP tells, too.
    pub(crate) async fn run(&self, mut hangups: Signal) {
        let was_on_terminal = stdin().is_terminal();
        while hangups.recv().await.is_some() {
            if was_on_terminal && !stdin().is_terminal() {
                return;
            }
            self.once();
        }
        std::future::pending::<()>().await;
    }

    fn once(&self) {
        let keys = self.key_source.read().map(|keys| self.keyring.replace(keys));
        report("keys", "read again; who is connected stays, others need a key that is listed now", keys);
        if let Some(tls) = &self.tls {
            report("certificates", "read again; new connections get the new ones", tls.reload());
        }
        if self.app.audit.is_on() {
            report("audit log", "a new file where the old one was moved away", self.app.audit.reopen());
        }
    }
}

fn report(what: &str, meaning: &str, outcome: anyhow::Result<()>) {
    match outcome {
        Ok(()) => info!("SIGHUP, {what}: {meaning}"),
        Err(error) => error!("SIGHUP, {what}: all stays as it was, for {error:#}"),
    }
}

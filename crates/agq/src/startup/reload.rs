//! Reload on SIGHUP: reads keys, certificates and the policy again, and reopens the audit log.
//! Connections stay open, and a file that cannot be read changes nothing.

use std::{
    io::{IsTerminal, stdin},
    sync::Arc,
};

use anyhow::Context;
use tokio::signal::unix::Signal;
use tracing::{error, info};

use crate::{app::AppState, auth::keyring::Keyring, config::KeySource, net::TlsAcceptance, service::budgets};

/// Parts of the server that SIGHUP reloads.
pub(crate) struct Reload {
    pub(crate) key_source: KeySource,
    pub(crate) keyring: Arc<Keyring>,
    pub(crate) tls: Option<Arc<TlsAcceptance>>,
    pub(crate) app: Arc<AppState>,
}

impl Reload {
    /// Returns only when the terminal of agq is gone, because that sends SIGHUP as well.
    pub(crate) async fn run(&self, mut hangups: Signal) {
        let was_on_terminal = stdin().is_terminal();
        while hangups.recv().await.is_some() {
            if was_on_terminal && !stdin().is_terminal() {
                return;
            }
            self.once().await;
        }
        std::future::pending::<()>().await;
    }

    async fn once(&self) {
        let keys = self.reload_keys().await;
        report("keys", "read again; connections stay open, new logins need a key that is listed now", keys);
        if let Some(tls) = &self.tls {
            report("certificates", "read again; new connections use them", tls.reload());
        }
        if self.app.plan_policy.is_on() {
            let meaning = "read again; it applies to new plans";
            report("policy", meaning, self.app.plan_policy.reload());
        }
        if self.app.audit.is_on() {
            let meaning = "reopened; a file that was moved away is created again";
            report("audit log", meaning, self.app.audit.reopen());
        }
    }
}

impl Reload {
    async fn reload_keys(&self) -> anyhow::Result<()> {
        let keys = self.key_source.read()?;
        let budgets = keys.budgets().clone();
        self.app.shares.set_keys(keys.shares());
        self.keyring.replace(keys);
        budgets::set_all(&self.app, budgets).await.context("the budgets of stored jobs are not changed")
    }
}

fn report(what: &str, meaning: &str, outcome: anyhow::Result<()>) {
    match outcome {
        Ok(()) => info!("SIGHUP, {what}: {meaning}"),
        Err(error) => error!("SIGHUP, {what}: all stays as it was, for {error:#}"),
    }
}

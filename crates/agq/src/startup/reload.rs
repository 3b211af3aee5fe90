//! Reload on SIGHUP: reads keys, certificates and the policy again, and reopens the audit log.
//! Connections stay open, and a part with a file that cannot be read stays as it was.

use std::{
    io::{IsTerminal, stdin},
    sync::Arc,
};

use tokio::signal::unix::Signal;
use tracing::{error, info};

use crate::{
    app::AppState, auth::keyring::Keyring, config::KeySource, net::TlsAcceptance,
    registry::budgets::BudgetTerms, service::budgets,
};

/// Parts of the server that SIGHUP reloads.
pub(crate) struct Reload {
    pub(crate) key_source: KeySource,
    pub(crate) keyring: Arc<Keyring>,
    pub(crate) tls: Option<Arc<TlsAcceptance>>,
    pub(crate) app: Arc<AppState>,
}

impl Reload {
    /// Reloads on each of `hangups`. Returns only when the terminal on which agq was started is
    /// gone, because that sends SIGHUP as well.
    pub(crate) async fn run(&self, mut hangups: Signal, was_on_terminal: bool) {
        while hangups.recv().await.is_some() {
            if was_on_terminal && !stdin().is_terminal() {
                return;
            }
            self.once().await;
        }
        std::future::pending::<()>().await;
    }

    async fn once(&self) {
        let replaced = self.replace_keys();
        let terms = replaced.as_ref().ok().cloned();
        let meaning = "read again; connections stay open, new logins need a key that is listed now";
        report("keys", meaning, replaced.map(drop));
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
        // The budgets come last, because this change waits for the store.
        if let Some(terms) = terms
            && let Err(error) = budgets::set_all(&self.app, terms).await
        {
            error!(
                "SIGHUP, budgets: not all of stored jobs are changed, for {error}; send SIGHUP again when the store answers"
            );
        }
    }
}

impl Reload {
    /// Replaces the keys with their shares and budgets, and returns the budgets. Does not wait for
    /// the store, so that a removed key is refused while the store is away.
    fn replace_keys(&self) -> anyhow::Result<BudgetTerms> {
        let keys = self.key_source.read()?;
        let terms = keys.budgets().clone();
        self.app.shares.set_keys(keys.shares());
        self.app.budgets.set(terms.clone());
        self.keyring.replace(keys);
        Ok(terms)
    }
}

fn report(subject: &str, meaning: &str, outcome: anyhow::Result<()>) {
    match outcome {
        Ok(()) => info!("SIGHUP, {subject}: {meaning}"),
        Err(error) => error!("SIGHUP, {subject}: not reloaded, because {error:#}"),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{self, Write},
        path::Path,
        sync::{Arc, Mutex},
    };

    use clap::Parser;

    use super::Reload;
    use crate::{
        auth::{audit_log::AuditLog, keyring::Keyring},
        config::Cli,
        startup::services::with_audit_log,
        store::{DocumentChange, DocumentKind},
    };

    #[derive(Clone, Default)]
    struct Buffer(Arc<Mutex<Vec<u8>>>);

    impl Write for Buffer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    async fn log_of(reload: &Reload) -> String {
        let buffer = Buffer::default();
        let writer = buffer.clone();
        let subscriber =
            tracing_subscriber::fmt().with_writer(move || writer.clone()).with_ansi(false).finish();
        let scope = tracing::subscriber::set_default(subscriber);
        reload.once().await;
        drop(scope);
        let bytes = buffer.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    fn write_key(config: &Path, key: &str) {
        let text = format!("[clients]\nalice = {{ key = '{key}', budget = {{ per = '1h', jobs = 5 }} }}\n");
        std::fs::write(config, text).unwrap();
    }

    #[tokio::test]
    async fn reload_replaces_keys_and_says_so_if_the_store_cannot_change_budgets() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("agq.toml");
        let keys = ["1".repeat(64), "2".repeat(64)];
        write_key(&file, &keys[0]);
        let args = ["agq", "--data-dir", "unused", "--config"].map(str::to_owned);
        let cli = Cli::try_parse_from(args.into_iter().chain([file.display().to_string()])).unwrap();
        let config = cli.resolve().unwrap();
        let audit = AuditLog::open(Some(&dir.path().join("audit.log"))).unwrap();
        let app = with_audit_log(dir.path(), audit);
        let unreadable = |_: Option<&str>| Ok(DocumentChange::Put("{".into()));
        let stored = app.store.update_document(DocumentKind::Budget, "bob", Box::new(unreadable)).await;
        stored.unwrap().unwrap();
        let keyring = Arc::new(Keyring::new(config.keys));
        let (key_source, app_of_reload) = (config.key_source, Arc::clone(&app));
        let reload = Reload { key_source, keyring: Arc::clone(&keyring), tls: None, app: app_of_reload };
        let is_known = |key: &String| keyring.identify(key.as_bytes()).is_some();

        write_key(&file, &keys[1]);
        let log = log_of(&reload).await;
        assert_eq!([is_known(&keys[0]), is_known(&keys[1])], [false, true]);
        assert_eq!(app.budgets.of("alice").unwrap().jobs, Some(5));
        let expected =
            "SIGHUP, budgets: not all of stored jobs are changed, for the store failed: the budget of bob";
        assert!(log.contains("SIGHUP, keys: read again") && log.contains(expected), "{log}");
        assert!(!log.contains("not reloaded"), "{log}");
        let reopened = "SIGHUP, audit log: reopened";
        assert!(
            log.find(reopened).unwrap() < log.find(expected).unwrap(),
            "the store holds up nothing: {log}"
        );

        std::fs::write(&file, "[clients").unwrap();
        let log = log_of(&reload).await;
        assert!(is_known(&keys[1]));
        assert!(log.contains("SIGHUP, keys: not reloaded, because") && !log.contains("budgets"), "{log}");
        assert!(log.contains(reopened), "the other parts are reloaded: {log}");
    }
}

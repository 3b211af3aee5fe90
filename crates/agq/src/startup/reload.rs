//! Reload on SIGHUP: reads keys, certificates and the policy again, and reopens the audit log.
//! Connections stay open, and a part with a file that cannot be read stays as it was.

use std::{
    io::{IsTerminal, stdin},
    sync::Arc,
};

use anyhow::ensure;
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
        let (terms, change) = replaced.as_ref().ok().cloned().unzip();
        let meaning = format!(
            "read again: {}; connections stay open, new logins need a key that is listed now",
            change.unwrap_or_default()
        );
        report("keys", &meaning, replaced.map(drop));
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
    /// Replaces the keys with their shares and budgets, and returns the budgets and a description
    /// of the change. Fails without an admin, as agq never starts without one. Does not wait for
    /// the store, so that a removed key is refused while the store is away.
    fn replace_keys(&self) -> anyhow::Result<(BudgetTerms, String)> {
        let keys = self.key_source.read()?;
        ensure!(
            keys.has_admin(),
            "no key of an admin would be left, neither a session key nor one in [admins]; restart agq if that is meant"
        );
        let (terms, numbers) = (keys.budgets().clone(), keys.numbers());
        self.app.shares.set_keys(keys.shares());
        self.app.budgets.set(terms.clone());
        let gone = self.keyring.replace(keys);
        let change = if gone.is_empty() { numbers } else { format!("{numbers}; gone: {}", gone.join(", ")) };
        Ok((terms, change))
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

    use super::Reload;
    use crate::{
        auth::{audit_log::AuditLog, keyring::Keyring},
        config::KeySource,
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

    fn key(digit: &str) -> String {
        digit.repeat(64)
    }

    /// Returns the table of a config file with the key 0 of an admin.
    fn admin() -> String {
        format!("[admins]\nroot = '{}'\n", key("0"))
    }

    /// Returns the table of a config file with the key `digit` of a client that has a budget.
    fn client(digit: &str) -> String {
        format!("[clients]\nalice = {{ key = '{}', budget = {{ per = '1h', jobs = 5 }} }}\n", key(digit))
    }

    /// Returns the reload of an agq with the config file `file` and its data in `dir`.
    fn reload_of(dir: &Path, file: &Path) -> Reload {
        let key_source = KeySource::of_config(file);
        let keyring = Arc::new(Keyring::new(key_source.read().unwrap()));
        let app = with_audit_log(dir, AuditLog::open(Some(&dir.join("audit.log"))).unwrap());
        Reload { key_source, keyring, tls: None, app }
    }

    fn is_known(reload: &Reload, digit: &str) -> bool {
        reload.keyring.identify(key(digit).as_bytes()).is_some()
    }

    #[tokio::test]
    async fn reload_replaces_keys_and_says_so_if_the_store_cannot_change_budgets() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("agq.toml");
        std::fs::write(&file, admin() + &client("1")).unwrap();
        let reload = reload_of(dir.path(), &file);
        let unreadable = |_: Option<&str>| Ok(DocumentChange::Put("{".into()));
        let store = &reload.app.store;
        let stored = store.update_document(DocumentKind::Budget, "bob", Box::new(unreadable)).await;
        stored.unwrap().unwrap();

        std::fs::write(&file, admin() + &client("2")).unwrap();
        let log = log_of(&reload).await;
        assert_eq!(["1", "2"].map(|digit| is_known(&reload, digit)), [false, true]);
        assert_eq!(reload.app.budgets.of("alice").unwrap().jobs, Some(5));
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
        assert!(is_known(&reload, "2"));
        assert!(log.contains("SIGHUP, keys: not reloaded, because") && !log.contains("budgets"), "{log}");
        assert!(log.contains(reopened), "the other parts are reloaded: {log}");
    }

    #[tokio::test]
    async fn reload_without_a_key_of_an_admin_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("agq.toml");
        std::fs::write(&file, admin() + &client("1")).unwrap();
        let reload = reload_of(dir.path(), &file);
        log_of(&reload).await;
        for without_admin in [String::new(), client("2")] {
            std::fs::write(&file, without_admin).unwrap();
            let log = log_of(&reload).await;
            let expected = "SIGHUP, keys: not reloaded, because no key of an admin would be left";
            assert!(log.contains(expected), "{log}");
            assert_eq!(["0", "1", "2"].map(|digit| is_known(&reload, digit)), [true, true, false]);
            assert_eq!(reload.app.budgets.of("alice").unwrap().jobs, Some(5));
        }

        std::fs::write(&file, admin()).unwrap();
        let log = log_of(&reload).await;
        let expected = "1 admin, 0 clients, 0 workers, 0 agents; gone: client alice; connections stay";
        assert!(log.contains(expected), "{log}");
        assert_eq!(["0", "1"].map(|digit| is_known(&reload, digit)), [true, false]);
    }
}

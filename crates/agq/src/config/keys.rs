//! Sources of the keys: the session key is in a variable or a file of its own, and all other keys
//! are in the config file.

use std::path::PathBuf;

use secrecy::{ExposeSecret, SecretString};

use super::{file, options::Options};
use crate::auth::{
    keyring::{Role, SessionKeys},
    session_key::KeyHash,
};

#[derive(Debug)]
pub(crate) struct KeySource {
    config: Option<PathBuf>,
    /// Path of the session key file from a flag or a variable.
    key_file: Option<PathBuf>,
    variable: Option<SecretString>,
    /// Hash of the key that was generated for this run.
    random: Option<KeyHash>,
}

impl KeySource {
    pub(super) fn new(config: Option<PathBuf>, key_file: Option<PathBuf>) -> Self {
        let variable = std::env::var("AGQ_SESSION_KEY").ok().filter(|text| !text.trim().is_empty());
        Self { config, key_file, variable: variable.map(Into::into), random: None }
    }

    /// Returns the source of the keys of the config file `config` alone.
    #[cfg(test)]
    pub(crate) fn of_config(config: &std::path::Path) -> Self {
        Self { config: Some(config.to_owned()), key_file: None, variable: None, random: None }
    }

    /// Keeps the generated key among the keys of every later read.
    pub(super) fn set_generated(&mut self, random: KeyHash) {
        self.random = Some(random);
    }

    pub(crate) fn read(&self) -> anyhow::Result<SessionKeys> {
        let file = self.config.as_deref().map(file::read).transpose()?.unwrap_or_default();
        self.keys_in(&file)
    }

    /// Returns all keys, with those of the config file `file`.
    pub(super) fn keys_in(&self, file: &Options) -> anyhow::Result<SessionKeys> {
        let mut keys = SessionKeys::default();
        if let Some(hash) = self.session_key(file)? {
            keys.add_session_key(hash)?;
        }
        if let Some(hash) = &self.random {
            keys.add_session_key(hash.clone())?;
        }
        for (name, client) in &file.clients {
            keys.add(Role::Client, name, client.key.expose_secret())?;
            keys.set_budget(name, client.budget);
            keys.set_shares(Role::Client, name, client.shares.clone());
        }
        for (role, table) in [(Role::Admin, &file.admins), (Role::Worker, &file.workers)] {
            for (name, key) in table {
                keys.add(role, name, key.expose_secret())?;
            }
        }
        for (name, agent) in &file.agents {
            keys.add_agent(name, agent.key.expose_secret(), agent.terms.clone())?;
            keys.set_budget(name, agent.budget);
            keys.set_shares(Role::Agent, name, agent.shares.clone());
        }
        Ok(keys)
    }

    fn session_key(&self, file: &Options) -> anyhow::Result<Option<KeyHash>> {
        if let Some(text) = &self.variable {
            return KeyHash::read(text.expose_secret(), "AGQ_SESSION_KEY").map(Some);
        }
        let path = self.key_file.as_deref().or(file.session_key_file.as_deref());
        path.map(KeyHash::from_file).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::KeySource;
    use crate::auth::{
        keyring::{Keyring, Role},
        session_key::KeyHash,
    };

    #[test]
    fn key_source_reads_tables_and_reloads_them() {
        let dir = tempfile::tempdir().unwrap();
        let (config, key_file) = (dir.path().join("agq.toml"), dir.path().join("key"));
        std::fs::write(&key_file, format!("{}\n", "s".repeat(64))).unwrap();
        let write = |worker: &str| {
            let key_file = key_file.display();
            let text = format!("session-key-file = '{key_file}'\n[workers]\nw1 = '{worker}'\n");
            std::fs::write(&config, text).unwrap();
        };
        write(&"1".repeat(32));
        let source = KeySource::of_config(&config);
        let keyring = Keyring::new(source.read().unwrap());
        assert_eq!(keyring.identify("s".repeat(64).as_bytes()).unwrap().role, Role::Admin);
        assert_eq!(&*keyring.identify("1".repeat(32).as_bytes()).unwrap().name, "w1");
        write(&"2".repeat(32));
        keyring.replace(source.read().unwrap());
        assert!(keyring.identify("1".repeat(32).as_bytes()).is_none());
        assert_eq!(&*keyring.identify("2".repeat(32).as_bytes()).unwrap().name, "w1");
        write(&"3".repeat(31));
        let error = format!("{:#}", source.read().unwrap_err());
        assert!(error.contains("[workers] 'w1' has 31 bytes") && !error.contains("333"), "{error}");
    }

    #[test]
    fn generated_key_survives_a_reload_and_the_variable_wins_over_files() {
        let dir = tempfile::tempdir().unwrap();
        let config = dir.path().join("agq.toml");
        std::fs::write(&config, "session-key-file = '/nowhere/key'\n").unwrap();
        let mut source = KeySource::of_config(&config);
        source.variable = Some("v".repeat(32).into());
        source.set_generated(KeyHash::of(b"random"));
        let keyring = Keyring::new(source.read().unwrap());
        assert!(keyring.identify(b"random").is_some());
        assert!(keyring.identify("v".repeat(32).as_bytes()).is_some());
        source.variable = None;
        let error = format!("{:#}", source.read().unwrap_err());
        assert!(error.contains("cannot read the key file /nowhere/key"), "{error}");
    }
}

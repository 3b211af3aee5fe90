//! File of `--config`: decisions of the owner of the worker. Neither agq nor a plan can change the
//! file.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use anyhow::{Context, anyhow, bail};
use serde::Deserialize;

use crate::exec::{
    admission::{AskedPlans, TrustSettings},
    sandbox::settings::SandboxTable,
    secrets::SecretTable,
};

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ConfigFile {
    pub(crate) sandbox: SandboxTable,
    pub(crate) profiles: BTreeMap<String, toml::Table>,
    policy: PolicyTable,
    /// Tables of secrets by name.
    pub(crate) secrets: BTreeMap<String, SecretTable>,
    trust: Option<TrustConfigTable>,
    provenance: Option<ProvenanceTable>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ProvenanceTable {
    key: PathBuf,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TrustConfigTable {
    file: PathBuf,
    cluster: String,
    serials: Option<PathBuf>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct PolicyTable {
    file: Option<PathBuf>,
    ask: AskedPlans,
}

impl ConfigFile {
    /// Returns the content of the file `path`. Without a path, every setting has its default.
    pub(crate) fn read(path: Option<&Path>) -> anyhow::Result<Self> {
        let Some(path) = path else { return Ok(Self::default()) };
        let shown = path.display();
        let text = std::fs::read_to_string(path).with_context(|| format!("--config: cannot read {shown}"))?;
        Self::parse(&text).with_context(|| format!("--config {shown}"))
    }

    /// Parses the file. The error has no line of the file, because a line may be that of a secret.
    fn parse(text: &str) -> anyhow::Result<Self> {
        toml::from_str(text).map_err(|error: toml::de::Error| {
            let until = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
            let line = until.matches('\n').count() + 1;
            anyhow!("line {line}: {}", error.message())
        })
    }

    pub(crate) fn asked_plans(&self) -> AskedPlans {
        self.policy.ask
    }

    /// Returns the file of the policy. The option `option` takes precedence.
    pub(crate) fn policy(&self, option: Option<&Path>) -> anyhow::Result<Option<PathBuf>> {
        if let Some(file) = self.policy.file.as_ref().filter(|file| !file.is_absolute()) {
            bail!("policy.file is '{}': give an absolute path", file.display());
        }
        Ok(option.map(Path::to_path_buf).or_else(|| self.policy.file.clone()))
    }
}

impl ConfigFile {
    /// Returns the settings of signed orders.
    pub(crate) fn trust(&self) -> anyhow::Result<Option<TrustSettings>> {
        let Some(TrustConfigTable { file, cluster, serials }) = &self.trust else { return Ok(None) };
        for (field, path) in [("file", Some(file)), ("serials", serials.as_ref())] {
            if let Some(path) = path.filter(|path| !path.is_absolute()) {
                bail!("trust.{field} is '{}': give an absolute path", path.display());
            }
        }
        if !agenix_order::is_name(cluster) {
            let shown = cluster.escape_debug();
            bail!("trust.cluster is '{shown}': use 1 to 64 letters, digits, '.', '_', '-' and ':'");
        }
        Ok(Some(TrustSettings { file: file.clone(), cluster: cluster.clone(), serials: serials.clone() }))
    }

    /// Returns the file of the key that signs provenance.
    pub(crate) fn provenance_key(&self) -> anyhow::Result<Option<PathBuf>> {
        let key = self.provenance.as_ref().map(|table| table.key.clone());
        if let Some(key) = key.as_ref().filter(|key| !key.is_absolute()) {
            bail!("provenance.key is '{}': give an absolute path", key.display());
        }
        Ok(key)
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::ConfigFile;

    #[test]
    fn policy_of_the_option_takes_precedence_over_the_file() {
        let config: ConfigFile = toml::from_str("[policy]\nfile = '/etc/policy.toml'").unwrap();
        assert_eq!(config.policy(None).unwrap(), Some(PathBuf::from("/etc/policy.toml")));
        assert_eq!(config.policy(Some(Path::new("own.toml"))).unwrap(), Some(PathBuf::from("own.toml")));
        assert_eq!(ConfigFile::default().policy(None).unwrap(), None);
        let relative: ConfigFile = toml::from_str("[policy]\nfile = 'policy.toml'").unwrap();
        let error = relative.policy(None).unwrap_err().to_string();
        assert_eq!(error, "policy.file is 'policy.toml': give an absolute path");
        assert!(toml::from_str::<ConfigFile>("[policy]\nfiles = '/x'").is_err());
    }

    #[test]
    fn trust_needs_a_file_and_a_cluster() {
        let of = |text: &str| toml::from_str::<ConfigFile>(&format!("[trust]\n{text}"));
        let both = of("file = '/etc/trust.toml'\ncluster = 'prod-eu'").unwrap().trust().unwrap().unwrap();
        assert_eq!((both.cluster.as_str(), both.serials), ("prod-eu", None));
        assert!(ConfigFile::default().trust().unwrap().is_none());
        assert!(of("file = '/x'").is_err() && of("cluster = 'a'").is_err());
        assert!(of("file = '/x'\ncluster = 'a'\nkeys = []").is_err());
        for (wrong, expected) in [
            ("file = 'x'\ncluster = 'a'", "trust.file is 'x': give an absolute path"),
            ("file = '/x'\ncluster = 'a'\nserials = 's'", "trust.serials is 's': give an absolute path"),
            ("file = '/x'\ncluster = 'a b'", "trust.cluster is 'a b': use 1 to 64"),
        ] {
            let error = of(wrong).unwrap().trust().unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[test]
    fn fault_is_named_by_its_line_without_the_text_of_the_line() {
        for (text, line) in [
            ("[secrets.TOKEN]\nvalue = \"hunter2\nfile = 'x'", 2),
            ("\n\n[secrets]\nTOKEN = { fill = 'hunter2' }", 4),
            ("[secrets]\nTOKEN = 'hunter2' x", 2),
            ("[secrets]\nTOKEN = 'hunter2'", 2),
            ("[secrets.TOKEN]\ntools = 'hunter2'", 1),
        ] {
            let error = format!("{:#}", ConfigFile::parse(text).unwrap_err());
            assert!(error.starts_with(&format!("line {line}: ")), "{error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn key_of_provenance_is_an_absolute_path() {
        let of = |text: &str| toml::from_str::<ConfigFile>(&format!("[provenance]\n{text}"));
        assert_eq!(of("key = '/k'").unwrap().provenance_key().unwrap(), Some(PathBuf::from("/k")));
        assert_eq!(ConfigFile::default().provenance_key().unwrap(), None);
        let relative = of("key = 'k'").unwrap().provenance_key().unwrap_err().to_string();
        assert_eq!(relative, "provenance.key is 'k': give an absolute path");
        assert!(of("").is_err() && of("key = '/k'\nkeys = []").is_err());
    }

    #[test]
    fn unreadable_file_is_named() {
        let missing = format!("{:#}", ConfigFile::read(Some(Path::new("/no/such"))).unwrap_err());
        assert!(missing.starts_with("--config: cannot read /no/such: "), "{missing}");
    }
}

//! Secrets of the worker's owner, which plans refer to by name. A task gets the value in a variable
//! of its environment, and agw masks the value in the output of the job.
//!
//! agq knows the names only. A job whose plan names a secret goes to workers whose tags declare
//! that the workers give the secret to the tool.

mod masked_pipe;
mod masker;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    fs::File,
    io::{self, Read},
    os::unix::ffi::OsStringExt,
    path::PathBuf,
    sync::Arc,
};

use agenix_protocol::{byte_escape::encode, documents::secret_tag, template::is_secret_name};
use serde::Deserialize;
use tracing::warn;

pub(crate) use self::{
    masked_pipe::{MaskRelay, masked_pipe},
    masker::Patterns,
};

/// Minimum number of bytes of a secret: a shorter text would be masked in the middle of words.
const MIN_BYTES: usize = 8;
/// Maximum number of bytes of a secret. A variable of Linux has at most 131,072.
const MAX_BYTES: usize = 65_536;

/// Table of a secret in the file of `--config`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "toml::Value")]
pub(crate) struct SecretTable {
    /// Tools that get the secret.
    tools: BTreeSet<String>,
    file: Option<PathBuf>,
    env: Option<String>,
}

impl TryFrom<toml::Value> for SecretTable {
    type Error = &'static str;

    /// Reads the fields. The error shows no value, because the value may be the secret.
    fn try_from(value: toml::Value) -> Result<Self, Self::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct SecretTableFields {
            tools: BTreeSet<String>,
            file: Option<PathBuf>,
            env: Option<String>,
        }
        let fields = value.try_into::<SecretTableFields>();
        let SecretTableFields { tools, file, env } = fields.map_err(|_may_show_the_secret| {
            "a secret is a table with a list `tools` and a text `file` or `env`, and nothing else; the \
             file or the variable has its value"
        })?;
        Ok(Self { tools, file, env })
    }
}

/// Place of a secret.
#[derive(Debug, PartialEq, Eq)]
enum SecretSource {
    File(PathBuf),
    Variable(String),
}

#[derive(Debug)]
struct SecretDefinition {
    source: SecretSource,
    tools: BTreeSet<String>,
}

/// Secrets of the worker by name.
#[derive(Debug)]
pub(crate) struct Secrets(BTreeMap<String, SecretDefinition>);

/// Reason for which a task does not get a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SecretError {
    #[error("this worker has no secret '{0}'")]
    Unknown(String),
    #[error("the owner of this worker does not give the secret '{0}' to the tool '{1}'")]
    NotForTool(String, String),
    #[error("the secret '{0}' cannot be used: {1}")]
    Unusable(String, String),
}

/// Value of a secret, as a byte escape. `Debug` does not show the value.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct SecretValue(Arc<str>);

impl SecretValue {
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl Secrets {
    /// Checks the tables, and that every secret can be read now. Returns `None` without tables.
    pub(crate) fn of(tables: BTreeMap<String, SecretTable>) -> anyhow::Result<Option<Self>> {
        let secret = |(name, SecretTable { tools, file, env }): (String, SecretTable)| {
            let source = match (file, env) {
                (Some(file), None) if file.is_absolute() => SecretSource::File(file),
                (Some(file), None) => {
                    anyhow::bail!("secrets.{name}.file is '{}': give an absolute path", file.display())
                }
                (None, Some(env)) => SecretSource::Variable(env),
                _ => anyhow::bail!("secrets.{name} needs one of file and env"),
            };
            if !is_secret_name(&name) {
                anyhow::bail!("secrets.{name}: the name has to be 1 to 64 letters, digits or '_'");
            }
            if tools.is_empty() || tools.contains("") {
                anyhow::bail!("secrets.{name}.tools names no tool: name those that get the secret");
            }
            if let Err(reason) = source.read() {
                anyhow::bail!("secrets.{name}: {reason}");
            }
            source.warn_if_exposed(&name);
            Ok((name, SecretDefinition { source, tools }))
        };
        let secrets = tables.into_iter().map(secret).collect::<anyhow::Result<BTreeMap<_, _>>>()?;
        Ok((!secrets.is_empty()).then_some(Self(secrets)))
    }

    /// Returns the tags that declare to agq which tools get which secret.
    pub(crate) fn tags(&self) -> impl Iterator<Item = String> {
        let tags = |(name, secret): (&String, &SecretDefinition)| {
            secret.tools.iter().map(|tool| secret_tag(name, tool)).collect::<Vec<_>>()
        };
        self.0.iter().flat_map(tags)
    }

    /// Returns the variables of agw that are secrets, which no child inherits.
    pub(crate) fn variables(&self) -> impl Iterator<Item = &str> {
        self.0.values().filter_map(|secret| match &secret.source {
            SecretSource::Variable(name) => Some(name.as_str()),
            SecretSource::File(_) => None,
        })
    }

    fn value(&self, name: &str, tool: &str) -> Result<Vec<u8>, SecretError> {
        let secret = self.0.get(name).ok_or_else(|| SecretError::Unknown(name.to_owned()))?;
        if !secret.tools.contains(tool) {
            return Err(SecretError::NotForTool(name.to_owned(), tool.to_owned()));
        }
        secret.source.read().map_err(|reason| SecretError::Unusable(name.to_owned(), reason))
    }
}

impl SecretSource {
    /// Returns the secret without a line feed at its end. The reason of an error has no part of the
    /// secret, and no path.
    fn read(&self) -> Result<Vec<u8>, String> {
        let mut bytes = match self {
            Self::File(path) => read_file(path).map_err(|error| format!("its file: {error}"))?,
            Self::Variable(name) => std::env::var_os(name).ok_or("its variable is not set")?.into_vec(),
        };
        if bytes.last() == Some(&b'\n') {
            bytes.pop();
            bytes.pop_if(|last| *last == b'\r');
        }
        match bytes.len() {
            0..MIN_BYTES => Err(format!(
                "it has {} bytes, and needs {MIN_BYTES}: agw could not mask a shorter one without destroying output",
                bytes.len()
            )),
            MIN_BYTES..=MAX_BYTES if bytes.contains(&0) => {
                Err("it has a NUL byte, which no variable can have".into())
            }
            MIN_BYTES..=MAX_BYTES => Ok(bytes),
            _ => Err(format!("it has more than {MAX_BYTES} bytes")),
        }
    }

    /// Warns of a file that other users can read.
    fn warn_if_exposed(&self, name: &str) {
        use std::os::unix::fs::MetadataExt;
        if let Self::File(path) = self
            && std::fs::metadata(path).is_ok_and(|metadata| metadata.mode() & 0o077 != 0)
        {
            warn!("the secret {name}: other users can access {}; chmod 600 it", path.display());
        }
    }
}

/// Reads a regular file, of at most one byte more than a secret and its line feed may have.
fn read_file(path: &PathBuf) -> io::Result<Vec<u8>> {
    // A pipe would block this thread.
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_BYTES as u64 + 3).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Secrets that the tasks of a job get. Each secret is read once.
pub(crate) struct JobSecrets<'s> {
    secrets: Option<&'s Secrets>,
    values: BTreeMap<String, Vec<u8>>,
}

impl<'s> JobSecrets<'s> {
    pub(crate) fn new(secrets: Option<&'s Secrets>) -> Self {
        Self { secrets, values: BTreeMap::new() }
    }

    /// Returns the value of a secret for a task of `tool`.
    pub(crate) fn get(&mut self, name: &str, tool: &str) -> Result<SecretValue, SecretError> {
        let secrets = self.secrets.ok_or_else(|| SecretError::Unknown(name.to_owned()))?;
        let value = secrets.value(name, tool)?;
        let value = self.values.entry(name.to_owned()).or_insert(value);
        Ok(SecretValue(encode(value).into()))
    }

    /// Returns the patterns to mask in the output of the job, or `None` if no task gets a secret.
    pub(crate) fn patterns(&self) -> Option<Arc<Patterns>> {
        let values = self.values.values().map(Vec::as_slice);
        (!self.values.is_empty()).then(|| Arc::new(Patterns::of(values)))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{JobSecrets, SecretError, SecretTable, Secrets};

    fn secrets(text: &str) -> anyhow::Result<Secrets> {
        let tables: BTreeMap<String, SecretTable> = toml::from_str(text)?;
        Secrets::of(tables).map(|secrets| secrets.expect("there is a table"))
    }

    fn file(bytes: impl AsRef<[u8]>) -> (tempfile::TempDir, String) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret");
        std::fs::write(&path, bytes).unwrap();
        let text = format!("TOKEN = {{ file = '{}', tools = ['curl', 'git'] }}", path.display());
        (dir, text)
    }

    #[test]
    fn secret_is_read_for_its_tools_only() {
        let (dir, text) = file("s3cret-\u{e9}\n");
        let secrets = secrets(&text).unwrap();
        assert_eq!(secrets.tags().collect::<Vec<_>>(), ["secret:TOKEN:curl", "secret:TOKEN:git"]);
        let mut job = JobSecrets::new(Some(&secrets));
        assert!(job.patterns().is_none());
        let value = job.get("TOKEN", "curl").unwrap();
        assert_eq!((value.expose(), &*format!("{value:?}")), ("s3cret-\u{e9}", "***"));
        assert!(job.patterns().is_some());
        let wrong = job.get("TOKEN", "sh").unwrap_err();
        assert_eq!(wrong, SecretError::NotForTool("TOKEN".into(), "sh".into()));
        assert_eq!(job.get("OTHER", "curl"), Err(SecretError::Unknown("OTHER".into())));
        assert_eq!(JobSecrets::new(None).get("TOKEN", "curl"), Err(SecretError::Unknown("TOKEN".into())));
        // All tasks of a job have one value, and the next job has the new one.
        std::fs::write(dir.path().join("secret"), "another-one").unwrap();
        assert_eq!(job.get("TOKEN", "git").unwrap().expose(), "s3cret-\u{e9}");
        assert_eq!(JobSecrets::new(Some(&secrets)).get("TOKEN", "git").unwrap().expose(), "another-one");
        drop(dir);
        let error = JobSecrets::new(Some(&secrets)).get("TOKEN", "git").unwrap_err().to_string();
        assert!(error.starts_with("the secret 'TOKEN' cannot be used: its file: No such file"), "{error}");
    }

    #[test]
    fn secret_may_be_a_variable_of_the_worker() {
        let secrets = secrets("SEARCH = { env = 'PATH', tools = ['curl'] }").unwrap();
        assert_eq!(secrets.variables().collect::<Vec<_>>(), ["PATH"]);
        let value = JobSecrets::new(Some(&secrets)).get("SEARCH", "curl").unwrap();
        assert_eq!(value.expose(), std::env::var("PATH").unwrap());
    }

    #[test]
    fn secrets_that_cannot_be_masked_or_given_are_refused() {
        for (bytes, expected) in [
            (b"1234567\n".to_vec(), "secrets.TOKEN: it has 7 bytes, and needs 8"),
            (b"".to_vec(), "it has 0 bytes"),
            (b"1234\x005678".to_vec(), "it has a NUL byte"),
            (vec![b'x'; 65_537], "it has more than 65536 bytes"),
        ] {
            let (_dir, text) = file(bytes);
            let error = secrets(&text).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        let (_dir, text) = file([&[b'x'; 65_536][..], b"\r\n"].concat());
        assert!(secrets(&text).is_ok());
        for (text, expected) in [
            ("A = { file = '/x' }", "a secret is a table with a list `tools`"),
            ("A = { file = '/dev/null', tools = ['curl'] }", "it is not a regular file"),
            ("A = { file = '/x', tools = [] }", "secrets.A.tools names no tool"),
            ("A = { file = 'x', tools = ['curl'] }", "give an absolute path"),
            ("A = { tools = ['curl'] }", "needs one of file and env"),
            ("A = { file = '/x', env = 'X', tools = ['curl'] }", "needs one of file and env"),
            ("A = { env = 'NOT_SET_HERE', tools = ['curl'] }", "secrets.A: its variable is not set"),
            ("'a b' = { env = 'PATH', tools = ['curl'] }", "the name has to be"),
            ("A = { env = 'PATH', tools = ['curl'], tool = 'x' }", "and nothing else"),
        ] {
            let error = secrets(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}

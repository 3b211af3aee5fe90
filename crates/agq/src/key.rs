//! The session key: in memory only, compared in constant time, in no log (seed 003 §8.1).

use std::path::Path;

use anyhow::{Context, bail};
use secrecy::{ExposeSecret, SecretString};
use subtle::ConstantTimeEq;

/// Fewest bytes of a session key.
const MIN_BYTES: usize = 32;

/// A session key. Its `Debug` shows nothing of it.
#[derive(Debug, Clone)]
pub(crate) struct SessionKey(SecretString);

impl SessionKey {
    /// Checks a key that was given; `origin` says where it came from.
    pub(crate) fn new(text: &str, origin: &str) -> anyhow::Result<Self> {
        let text = text.trim();
        if text.len() < MIN_BYTES {
            let length = text.len();
            bail!(
                "the session key in {origin} has {length} bytes, it needs at least {MIN_BYTES}: make one with `openssl rand -hex 32`"
            );
        }
        Ok(Self(text.into()))
    }

    /// Reads a key file.
    pub(crate) fn from_file(path: &Path) -> anyhow::Result<Self> {
        let shown = path.display();
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read the session key file {shown}"))?;
        Self::new(&text, &format!("the file {shown}"))
    }

    /// A new random key of 32 bytes, in hex.
    pub(crate) fn random() -> anyhow::Result<Self> {
        let mut bytes = [0u8; 32];
        getrandom::fill(&mut bytes).context("the system gave no random bytes for a session key")?;
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self(hex.into()))
    }

    /// Whether `told` is the key. Takes the same time wherever they differ.
    pub(crate) fn matches(&self, told: &[u8]) -> bool {
        self.0.expose_secret().as_bytes().ct_eq(told).into()
    }

    /// The key itself, for the one place that prints it to the person who started agq.
    pub(crate) fn reveal(&self) -> &str {
        self.0.expose_secret()
    }
}

#[cfg(test)]
mod tests {
    use super::SessionKey;

    #[test]
    fn a_key_is_compared_and_never_shown() {
        let key = SessionKey::random().unwrap();
        let text = key.reveal().to_owned();
        assert_eq!(text.len(), 64);
        assert!(key.matches(text.as_bytes()) && !key.matches(b"") && !key.matches(&text.as_bytes()[1..]));
        assert!(!format!("{key:?}").contains(&text));
    }

    #[test]
    fn thirty_two_bytes_are_enough_and_one_less_is_not() {
        assert!(SessionKey::new(&"k".repeat(32), "a test").is_ok());
        let error = SessionKey::new(&"k".repeat(31), "a test").unwrap_err().to_string();
        assert!(error.contains("has 31 bytes, it needs at least 32") && !error.contains("kkk"), "{error}");
    }
}

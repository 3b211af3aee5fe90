//! Key of a client: hashed as soon as it is read, compared in constant time, and never logged (RESP
//! spec §8.1).

use std::{fmt, path::Path};

use anyhow::{Context, bail};
use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};

pub(crate) const MIN_KEY_BYTES: usize = 32;
const HASHED: &str = "sha256:";

/// SHA-256 hash of a key, fast and without salt, because keys are 32 random bytes that cannot be
/// guessed. A slow hash for passwords would only delay AUTH.
#[derive(Clone)]
pub(crate) struct KeyHash([u8; 32]);

impl KeyHash {
    pub(crate) fn of(key: &[u8]) -> Self {
        Self(Sha256::digest(key).into())
    }

    /// Parses a key, or `sha256:` and its hash in hexadecimal. `origin` names the source in errors.
    pub(crate) fn read(text: &str, origin: &str) -> anyhow::Result<Self> {
        let text = text.trim();
        if let Some(hex) = hash_in(text) {
            let Some(hash) = bytes_of(hex) else {
                bail!("the hash in {origin} is not `{HASHED}` and 64 hex digits");
            };
            return Ok(Self(hash));
        }
        if text.len() < MIN_KEY_BYTES {
            let length = text.len();
            bail!(
                "the key in {origin} has {length} bytes, it needs at least {MIN_KEY_BYTES}: make one with `openssl rand -hex 32`"
            );
        }
        Ok(Self::of(text.as_bytes()))
    }

    pub(crate) fn from_file(path: &Path) -> anyhow::Result<Self> {
        let shown = path.display();
        let text =
            std::fs::read_to_string(path).with_context(|| format!("cannot read the key file {shown}"))?;
        Self::read(&text, &format!("the file {shown}"))
    }

    pub(crate) fn bytes(&self) -> [u8; 32] {
        self.0
    }

    /// Compares two hashes in constant time.
    pub(crate) fn matches(&self, other: &Self) -> Choice {
        self.0.as_slice().ct_eq(other.0.as_slice())
    }
}

impl fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyHash([REDACTED])")
    }
}

/// Key that was generated for one run. `Debug` does not show it.
#[derive(Debug, Clone)]
pub(crate) struct GeneratedKey(SecretString);

impl GeneratedKey {
    /// Generates a key of 32 random bytes, in hexadecimal digits.
    pub(crate) fn new() -> anyhow::Result<Self> {
        let mut bytes = [0u8; 32];
        getrandom::fill(&mut bytes).context("the system gave no random bytes for a session key")?;
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self(hex.into()))
    }

    pub(crate) fn hash(&self) -> KeyHash {
        KeyHash::of(self.reveal().as_bytes())
    }

    /// Returns the key. Only the banner may print it, for the person who started agq.
    pub(crate) fn reveal(&self) -> &str {
        self.0.expose_secret()
    }
}

/// Returns the digits behind `sha256:`, also behind a byte order mark, which editors on Windows put
/// before a text. A plain key keeps such a mark, because all programs that read its file send it.
pub(crate) fn hash_in(text: &str) -> Option<&str> {
    text.trim_start_matches('\u{feff}').strip_prefix(HASHED)
}

fn bytes_of(hex: &str) -> Option<[u8; 32]> {
    let digits: Option<Vec<u32>> = hex.chars().map(|digit| digit.to_digit(16)).collect();
    let digits = digits?;
    let mut bytes = [0; 32];
    if digits.len() != bytes.len() * 2 {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = u8::try_from(pair[0] * 16 + pair[1]).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::{GeneratedKey, KeyHash};

    fn is_same(one: &KeyHash, other: &KeyHash) -> bool {
        one.matches(other).into()
    }

    #[test]
    fn key_hash_compares_and_debug_hides_it() {
        let key = GeneratedKey::new().unwrap();
        let text = key.reveal().to_owned();
        assert_eq!(text.len(), 64);
        assert!(is_same(&key.hash(), &KeyHash::of(text.as_bytes())));
        assert!(!is_same(&key.hash(), &KeyHash::of(b"")));
        assert!(!is_same(&key.hash(), &KeyHash::of(&text.as_bytes()[1..])));
        assert!(!format!("{key:?} {:?}", key.hash()).contains(&text[..8]));
    }

    #[test]
    fn key_needs_at_least_32_bytes() {
        assert!(KeyHash::read(&"k".repeat(32), "a test").is_ok());
        let error = KeyHash::read(&"k".repeat(31), "a test").unwrap_err().to_string();
        assert!(error.contains("has 31 bytes, it needs at least 32") && !error.contains("kkk"), "{error}");
    }

    #[test]
    fn hash_is_accepted_in_place_of_a_key() {
        // Hash as printed by `printf %s KEY | sha256sum`.
        let hashed = "sha256:2CF24DBA5FB0A30E26E83B2AC5B9E29E1B161E5C1FA7425E73043362938B9824";
        for text in [format!(" {hashed}\n"), format!("\u{feff}{hashed}\r\n")] {
            assert!(is_same(&KeyHash::read(&text, "a test").unwrap(), &KeyHash::of(b"hello")), "{text:?}");
        }
        for wrong in [hashed[..70].to_owned(), format!("{hashed}0"), hashed.replace('F', "G")] {
            let error = KeyHash::read(&wrong, "a test").unwrap_err().to_string();
            assert!(error.contains("64 hex digits") && !error.contains("2CF24"), "{error}");
        }
    }
}

//! Keys of Ed25519: texts of public keys, lines of private keys, signatures.

use std::{fmt, str::FromStr};

use base64::{Engine, engine::general_purpose::STANDARD};
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use sha2::{Digest, Sha256};

use crate::error::InvalidKey;

/// Bytes of a public key, and of the seed of a private one.
const KEY_BYTES: usize = 32;
/// Prefix of the text of a public key.
const PREFIX: &str = "ed25519:";
/// Type of keys of OpenSSH that are read.
const SSH_TYPE: &str = "ssh-ed25519";
/// Prefix of the line of a private key.
const PRIVATE_PREFIX: &str = "agenix-ed25519-private:";
/// PKCS#8 of a seed (RFC 8410): everything before the seed.
const PKCS8_HEAD: [u8; 16] = [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];

/// Public key. The text of a key is `ed25519:` and the base64 of its 32 bytes.
///
/// ```
/// use agenix_order::PublicKey;
///
/// let ours = "ed25519:11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo= alice";
/// let blob = "AAAAC3NzaC1lZDI1NTE5AAAAINdamAGCsQq31Uv+08lkBzoO4XLz2qYjJa8CGmj3B1Ea";
/// assert_eq!(ours.parse::<PublicKey>()?, format!("ssh-ed25519 {blob} a@b").parse()?);
/// assert!("ssh-rsa AAAAB3NzaC1yc2E a@b".parse::<PublicKey>().is_err());
/// # Ok::<(), agenix_order::InvalidKey>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey([u8; KEY_BYTES]);

/// Id of a key: the first 16 hexadecimal digits of the SHA-256 of its bytes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyId(String);

impl KeyId {
    /// Returns the digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl PublicKey {
    /// Returns the id of the key.
    pub fn keyid(&self) -> KeyId {
        let digest = Sha256::digest(self.0);
        KeyId(digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect())
    }

    pub(crate) fn has_signed(&self, message: &[u8], signature: &[u8]) -> bool {
        UnparsedPublicKey::new(&ED25519, self.0).verify(message, signature).is_ok()
    }
}

impl AsRef<PublicKey> for PublicKey {
    fn as_ref(&self) -> &PublicKey {
        self
    }
}

impl FromStr for PublicKey {
    type Err = InvalidKey;

    /// Parses `ed25519:BASE64`, or `ssh-ed25519 BASE64` of OpenSSH, with an optional name.
    fn from_str(text: &str) -> Result<Self, InvalidKey> {
        let mut words = text.split_whitespace();
        let first = words.next().unwrap_or_default();
        let bytes = if let Some(encoded) = first.strip_prefix(PREFIX) {
            decoded(encoded)?
        } else if first == SSH_TYPE {
            of_ssh(&decoded(words.next().unwrap_or_default())?)?
        } else {
            return Err(InvalidKey::Type(
                first.split(':').next().unwrap_or_default().chars().take(40).collect(),
            ));
        };
        bytes.try_into().map(Self).map_err(|_| InvalidKey::Damaged("it does not have 32 bytes"))
    }
}

fn decoded(text: &str) -> Result<Vec<u8>, InvalidKey> {
    STANDARD.decode(text).map_err(|_| InvalidKey::Damaged("it is not base64"))
}

/// Returns the bytes of the key in the encoding of OpenSSH: two texts, each after its length.
fn of_ssh(blob: &[u8]) -> Result<Vec<u8>, InvalidKey> {
    let wrong = InvalidKey::Damaged("it is not a key of type ssh-ed25519");
    let Some((algorithm, rest)) = text_of_ssh(blob) else { return Err(wrong) };
    match text_of_ssh(rest) {
        Some((key, [])) if algorithm == SSH_TYPE.as_bytes() => Ok(key.to_vec()),
        _ => Err(wrong),
    }
}

fn text_of_ssh(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    rest.split_at_checked(u32::from_be_bytes(*length) as usize)
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", STANDARD.encode(self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Private key. The line of a key is `agenix-ed25519-private:` and the base64 of its PKCS#8.
pub struct SigningKey {
    pair: Ed25519KeyPair,
    seed: [u8; KEY_BYTES],
}

impl SigningKey {
    /// Returns the key of 32 random bytes.
    pub fn from_seed(seed: &[u8; KEY_BYTES]) -> Self {
        let pair = Ed25519KeyPair::from_seed_unchecked(seed).expect("every seed of 32 bytes is a key");
        Self { pair, seed: *seed }
    }

    /// Parses the line of a private key.
    ///
    /// # Errors
    ///
    /// Returns [`InvalidKey`] for another text. The error never quotes the text.
    pub fn parse(line: &str) -> Result<Self, InvalidKey> {
        let encoded = line.trim().strip_prefix(PRIVATE_PREFIX);
        let encoded = encoded.ok_or(InvalidKey::Damaged("it is not the line of a private key"))?;
        let wrong = InvalidKey::Damaged("it is not PKCS#8 of Ed25519");
        let pkcs8 = decoded(encoded)?;
        let seed = pkcs8.strip_prefix(&PKCS8_HEAD).ok_or(wrong.clone())?;
        Ok(Self::from_seed(seed.try_into().map_err(|_| wrong)?))
    }

    /// Returns the line of the key, which is a secret.
    pub fn to_line(&self) -> String {
        format!("{PRIVATE_PREFIX}{}", STANDARD.encode([&PKCS8_HEAD[..], &self.seed].concat()))
    }

    /// Returns the public key.
    pub fn public(&self) -> PublicKey {
        let bytes = self.pair.public_key().as_ref();
        PublicKey(bytes.try_into().expect("a public key has 32 bytes"))
    }

    pub(crate) fn sign(&self, message: &[u8]) -> Vec<u8> {
        self.pair.sign(message).as_ref().to_vec()
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey({})", self.public())
    }
}

#[cfg(test)]
mod tests {
    use super::{InvalidKey, PublicKey, SigningKey};

    /// First test of RFC 8032, section 7.1.
    const SEED: [u8; 32] = [
        0x9d, 0x61, 0xb1, 0x9d, 0xef, 0xfd, 0x5a, 0x60, 0xba, 0x84, 0x4a, 0xf4, 0x92, 0xec, 0x2c, 0xc4, 0x44,
        0x49, 0xc5, 0x69, 0x7b, 0x32, 0x69, 0x19, 0x70, 0x3b, 0xac, 0x03, 0x1c, 0xae, 0x7f, 0x60,
    ];

    #[test]
    fn key_of_rfc_8032_signs_as_there() {
        let key = SigningKey::from_seed(&SEED);
        assert_eq!(key.public().to_string(), "ed25519:11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=");
        let signature = key.sign(b"");
        let shown: String = signature.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            shown,
            "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b"
        );
        assert!(key.public().has_signed(b"", &signature) && !key.public().has_signed(b"x", &signature));
    }

    #[test]
    fn keyid_is_a_prefix_of_the_hash_of_the_key() {
        // sha256 of the 32 bytes.
        assert_eq!(SigningKey::from_seed(&SEED).public().keyid().as_str(), "21fe31dfa154a261");
    }

    #[test]
    fn private_key_is_one_line_and_is_not_shown() {
        let key = SigningKey::from_seed(&SEED);
        let line = key.to_line();
        assert!(!line.contains('\n') && line.starts_with("agenix-ed25519-private:MC4CAQAwBQYDK2VwBCIEI"));
        assert_eq!(SigningKey::parse(&format!("{line}\n")).unwrap().public(), key.public());
        assert!(!format!("{key:?}").contains("nWGxne"));
        for wrong in ["", "ed25519:AAAA", &line[..line.len() - 4], &line.replace("MC4C", "MC5C")] {
            assert!(SigningKey::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn keys_of_other_types_are_refused() {
        let parse = |text: &str| text.parse::<PublicKey>().unwrap_err();
        assert_eq!(parse("ssh-rsa AAAAB3NzaC1yc2E= x"), InvalidKey::Type("ssh-rsa".into()));
        assert_eq!(parse("rsa:AAAA"), InvalidKey::Type("rsa".into()));
        assert_eq!(parse(""), InvalidKey::Type(String::new()));
        for damaged in [
            "ed25519:AAAA",
            "ed25519:",
            "ed25519:!",
            "ssh-ed25519",
            // An ssh-rsa blob behind the word of Ed25519.
            "ssh-ed25519 AAAAB3NzaC1yc2EAAAADAQAB",
            // A byte after the key.
            "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAINdamAGCsQq31Uv+08lkBzoO4XLz2qYjJa8CGmj3B1EaAA==",
        ] {
            assert!(matches!(parse(damaged), InvalidKey::Damaged(_)), "{damaged}");
        }
    }
}

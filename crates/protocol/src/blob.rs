//! Name of a blob, and the stream of a task that a blob holds.

use std::{fmt, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// BLAKE3 hash of the content of a blob, which is its name. As text, 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct BlobHash(pub [u8; 32]);

impl BlobHash {
    /// Returns the hash of a content that is in memory.
    pub fn of(content: &[u8]) -> Self {
        Self(*blake3::hash(content).as_bytes())
    }
}

/// Hash of a content that comes in chunks.
#[derive(Debug, Clone, Default)]
pub struct BlobHasher(blake3::Hasher);

impl BlobHasher {
    /// Adds the next bytes of the content.
    pub fn update(&mut self, chunk: &[u8]) {
        self.0.update(chunk);
    }

    /// Returns the hash of all bytes.
    pub fn finish(self) -> BlobHash {
        BlobHash(*self.0.finalize().as_bytes())
    }
}

/// Error for a text that is not the name of a blob.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("blake3 '{0}' is not valid: use 64 hexadecimal digits")]
pub struct BadBlobHash(String);

impl FromStr for BlobHash {
    type Err = BadBlobHash;

    fn from_str(text: &str) -> Result<Self, BadBlobHash> {
        let bad = || BadBlobHash(text.chars().take(80).collect::<String>().escape_debug().to_string());
        let mut bytes = [0; 32];
        if text.len() != 2 * bytes.len() || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(bad());
        }
        for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
            let digits = std::str::from_utf8(digits).map_err(|_| bad())?;
            *byte = u8::from_str_radix(digits, 16).map_err(|_| bad())?;
        }
        Ok(Self(bytes))
    }
}

impl fmt::Display for BlobHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for BlobHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl TryFrom<String> for BlobHash {
    type Error = BadBlobHash;

    fn try_from(text: String) -> Result<Self, BadBlobHash> {
        text.parse()
    }
}

impl From<BlobHash> for String {
    fn from(hash: BlobHash) -> Self {
        hash.to_string()
    }
}

/// Output stream of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the names say it")]
pub enum OutputStream {
    Stdout,
    Stderr,
}

impl OutputStream {
    /// Returns the word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

impl FromStr for OutputStream {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        match word {
            "stdout" => Ok(Self::Stdout),
            "stderr" => Ok(Self::Stderr),
            _ => Err(format!("'{}' is not a stream: use stdout or stderr", word.escape_debug())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{BlobHash, BlobHasher, OutputStream};

    #[test]
    fn blob_hash_is_the_blake3_hash_of_all_chunks() {
        let mut hasher = BlobHasher::default();
        ["hello", "", " world"].iter().for_each(|chunk| hasher.update(chunk.as_bytes()));
        assert_eq!(hasher.clone().finish(), BlobHash::of(b"hello world"));
        let known = "d74981efa70a0c880b8d8c1985d075dbcbf679b99a5f9914e5aaf96b831a9e24";
        assert_eq!(hasher.finish().to_string(), known);
    }

    #[test]
    fn blob_hash_is_64_hexadecimal_digits() {
        let text = "d74981efa70a0c880b8d8c1985d075dbcbf679b99a5f9914e5aaf96b831a9e24";
        let hash: BlobHash = text.parse().unwrap();
        assert_eq!((hash.0[0], hash.to_string().as_str()), (0xd7, text));
        assert_eq!(text.to_uppercase().parse(), Ok(hash));
        for wrong in ["", &text[1..], &format!("{text}0"), &text.replace('b', "g"), &text.replace('b', "+")] {
            assert!(wrong.parse::<BlobHash>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn output_streams_have_words() {
        for stream in [OutputStream::Stdout, OutputStream::Stderr] {
            assert_eq!(stream.as_str().parse(), Ok(stream));
        }
        assert!("STDOUT".parse::<OutputStream>().unwrap_err().contains("use stdout or stderr"));
    }
}

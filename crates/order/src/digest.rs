//! Digests of SHA-256.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Digest of SHA-256, in hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DigestSet {
    /// Digits.
    pub sha256: String,
}

impl DigestSet {
    /// Returns the digest of bytes.
    pub fn of(bytes: &[u8]) -> Self {
        let mut hasher = StreamHasher::default();
        hasher.update(bytes);
        hasher.finish().0
    }
}

/// Returns the digest of bytes, as `sha256:` and hexadecimal digits.
pub fn sha256(bytes: &[u8]) -> String {
    format!("sha256:{}", DigestSet::of(bytes).sha256)
}

/// Digest of bytes that come in chunks, and their number.
#[derive(Debug, Clone, Default)]
pub struct StreamHasher {
    hash: Sha256,
    bytes: u64,
}

impl StreamHasher {
    /// Adds the next bytes.
    pub fn update(&mut self, chunk: &[u8]) {
        self.hash.update(chunk);
        self.bytes += chunk.len() as u64;
    }

    /// Returns the digest of all bytes, and their number.
    pub fn finish(self) -> (DigestSet, u64) {
        let sha256 = self.hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        (DigestSet { sha256 }, self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::{DigestSet, StreamHasher, sha256};

    #[test]
    fn digest_is_that_of_fips_180() {
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sha256(b"abc"), format!("sha256:{abc}"));
        let mut hasher = StreamHasher::default();
        hasher.update(b"a");
        hasher.update(b"bc");
        assert_eq!(hasher.finish(), (DigestSet { sha256: abc.into() }, 3));
    }
}

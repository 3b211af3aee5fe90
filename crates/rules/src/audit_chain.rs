//! Hash chain of an audit log: each line has the hash of the bytes before it in `prev`.
//!
//! `prev` is the SHA-256 of the line before, without its line feed. After a torn line, which is one
//! that was only written in part, the hash also covers a line feed and the torn line. The first
//! line of a chain has [`ChainHead::START`]. A changed, removed or moved line therefore shows in
//! the line after it, and missing lines at the end show only by a head that was kept elsewhere.

mod verifier;

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize, Serializer};
use sha2::{Digest, Sha256};

pub use self::verifier::{ChainVerifier, Misfit};

/// Hash of the end of a chain, in hexadecimal digits as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChainHead([u8; 32]);

impl ChainHead {
    /// Head of a chain without lines.
    pub const START: Self = Self([0; 32]);
}

impl fmt::Display for ChainHead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl Serialize for ChainHead {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Error for a text that is not a hash.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("a hash has 64 hexadecimal digits")]
pub struct BadHead;

impl FromStr for ChainHead {
    type Err = BadHead;

    fn from_str(text: &str) -> Result<Self, BadHead> {
        let digits = text.as_bytes();
        if digits.len() != 64 || !digits.iter().all(u8::is_ascii_hexdigit) {
            return Err(BadHead);
        }
        let mut head = [0; 32];
        for (byte, pair) in head.iter_mut().zip(digits.chunks_exact(2)) {
            let pair = std::str::from_utf8(pair).map_err(|_error| BadHead)?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_error| BadHead)?;
        }
        Ok(Self(head))
    }
}

/// End of a chain, to which lines are appended.
#[derive(Debug, Clone)]
pub struct AuditChain(ChainState);

#[derive(Debug, Clone)]
enum ChainState {
    /// Only the hash is known, because the line is in another file.
    Known(ChainHead),
    Hashing(Sha256),
}

impl Default for AuditChain {
    fn default() -> Self {
        Self::after(ChainHead::START)
    }
}

impl AuditChain {
    /// Returns the chain that ends with the hash `head`.
    pub fn after(head: ChainHead) -> Self {
        Self(ChainState::Known(head))
    }

    /// Returns the chain at the last whole line of an audit log that ends with `bytes`, with the
    /// torn lines after it. `are_all` is true if the log has no other bytes. Returns `None` if
    /// `bytes` have no whole line.
    pub fn of_end(bytes: &[u8], are_all: bool) -> Option<Self> {
        // The first line of a part of the log may be incomplete.
        let lines: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').skip(usize::from(!are_all)).collect();
        let is_whole = |line: &&[u8]| !matches!(AuditLine::of(line), AuditLine::Empty | AuditLine::Torn);
        let last = lines.iter().rposition(is_whole)?;
        let mut chain = Self::default();
        chain.push_line(lines[last]);
        chain.push_all_torn(&lines[last + 1..]);
        Some(chain)
    }

    /// Returns the chain at the end of an audit log without a whole line, whose bytes are `bytes`:
    /// its torn lines go on with the chain of the log before.
    #[must_use]
    pub fn after_torn(mut self, bytes: &[u8]) -> Self {
        let lines: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
        self.push_all_torn(&lines);
        self
    }

    fn push_all_torn(&mut self, lines: &[&[u8]]) {
        let torn = lines.iter().filter(|line| AuditLine::of(line) == AuditLine::Torn);
        torn.for_each(|line| self.push_torn(line));
    }

    /// Appends a whole line, without its line feed.
    pub fn push_line(&mut self, line: &[u8]) {
        self.0 = ChainState::Hashing(Sha256::new_with_prefix(line));
    }

    /// Appends a torn line, without its line feed.
    pub fn push_torn(&mut self, torn: &[u8]) {
        let mut hash = match &self.0 {
            ChainState::Known(head) => Sha256::new_with_prefix(head.0),
            ChainState::Hashing(hash) => hash.clone(),
        };
        hash.update(b"\n");
        hash.update(torn);
        self.0 = ChainState::Hashing(hash);
    }

    /// Returns the hash that the next line has in `prev`.
    pub fn head(&self) -> ChainHead {
        match &self.0 {
            ChainState::Known(head) => *head,
            ChainState::Hashing(hash) => ChainHead(hash.clone().finalize().into()),
        }
    }
}

/// A line of an audit log, by what it is for the chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuditLine {
    /// Only white space.
    Empty,
    /// Text that is no JSON object, as a crash or a full disk leaves it.
    Torn,
    /// An entry of an agq that had no chain.
    Unchained,
    /// An entry whose `prev` is no hash.
    Invalid,
    /// An entry with `prev`.
    Chained(ChainHead),
}

impl AuditLine {
    /// Classifies a line, without its line feed.
    pub fn of(line: &[u8]) -> Self {
        #[derive(Deserialize)]
        struct Entry {
            prev: Option<serde_json::Value>,
        }
        if line.trim_ascii().is_empty() {
            return Self::Empty;
        }
        if !line.starts_with(b"{") {
            return Self::Torn;
        }
        match serde_json::from_slice(line) {
            Err(_error) => Self::Torn,
            Ok(Entry { prev: None }) => Self::Unchained,
            Ok(Entry { prev: Some(prev) }) => {
                prev.as_str().and_then(|prev| prev.parse().ok()).map_or(Self::Invalid, Self::Chained)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{AuditChain, AuditLine, BadHead, ChainHead};

    #[test]
    fn chain_head_is_the_sha256_of_the_line() {
        let mut chain = AuditChain::default();
        chain.push_line(b"abc");
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(chain.head().to_string(), expected);
        assert_eq!(expected.parse(), Ok(chain.head()));
        for bad in ["", "00", &"0".repeat(63), &"g".repeat(64), &"\u{e9}".repeat(32), &"+0".repeat(32)] {
            assert_eq!(bad.parse::<ChainHead>(), Err(BadHead), "{bad}");
        }
    }

    #[test]
    fn lines_are_whole_torn_or_without_prev() {
        let hash = "a".repeat(64);
        let chained = format!(r#"{{"prev":"{hash}","order":"sha256:1","verdict":{{"a":[1]}}}}"#);
        assert_eq!(AuditLine::of(chained.as_bytes()), AuditLine::Chained(hash.parse().unwrap()));
        let twice = format!(r#"{{"prev":"{hash}","prev":"{hash}"}}"#);
        for (line, expected) in [
            ("", AuditLine::Empty),
            ("\r", AuditLine::Empty),
            ("{}", AuditLine::Unchained),
            (r#"{"prev":null}"#, AuditLine::Unchained),
            (r#"{"prev":1}"#, AuditLine::Invalid),
            (r#"{"prev":"a"}"#, AuditLine::Invalid),
            (r#"{"prev":"a""#, AuditLine::Torn),
            (r#"["a"]"#, AuditLine::Torn),
            (r#"{} {}"#, AuditLine::Torn),
            ("null", AuditLine::Torn),
            (&twice, AuditLine::Torn),
        ] {
            assert_eq!(AuditLine::of(line.as_bytes()), expected, "{line}");
        }
    }

    #[test]
    fn chain_is_found_at_the_end_of_a_log() {
        let mut chain = AuditChain::default();
        let is_at = |bytes: &str, are_all, chain: &AuditChain| {
            AuditChain::of_end(bytes.as_bytes(), are_all).map(|found| found.head()) == Some(chain.head())
        };
        assert!(["", "{", "{\n{\n"].iter().all(|bytes| AuditChain::of_end(bytes.as_bytes(), true).is_none()));
        chain.push_line(b"{}");
        assert!(
            is_at("{}", true, &chain) && is_at("x\n{}\n", true, &chain) && is_at("}\n{}\n", false, &chain)
        );
        assert!(AuditChain::of_end(b"{}\n", false).is_none(), "the line may have begun before");
        let before = chain.clone();
        chain.push_torn(b"{");
        assert!(is_at("{}\n{", true, &chain) && is_at("\n{}\n\n{\n", false, &chain));
        assert_eq!(before.clone().after_torn(b"\n{\n").head(), chain.head(), "the line is in another log");
        assert_eq!(before.clone().after_torn(b"").head(), before.head());
        assert!(AuditChain::of_end(b"{\n{\n{", false).is_none());
    }
}

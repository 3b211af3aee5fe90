//! Hashes of JSON documents.

use std::fmt::Write;

use agenix_protocol::documents::to_json;
use serde::Serialize;
use sha2::{Digest, Sha256};

/// Returns the SHA-256 hash of the JSON of a value, in hexadecimal digits.
pub(crate) fn of_json(value: &impl Serialize) -> String {
    let mut hash = String::with_capacity(64);
    for byte in Sha256::digest(to_json(value)) {
        let _infallible = write!(hash, "{byte:02x}");
    }
    hash
}

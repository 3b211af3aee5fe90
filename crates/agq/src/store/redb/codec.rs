//! Records to bytes and back: MessagePack, fields by position. New fields are appended with `#[serde(default)]`.

use redb::Error;
use serde::{Serialize, de::DeserializeOwned};

pub(super) fn encode<T: Serialize>(record: &T) -> Result<Vec<u8>, Error> {
    rmp_serde::to_vec(record)
        .map_err(|error| Error::Corrupted(format!("a record cannot be written: {error}")))
}

pub(super) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Error> {
    rmp_serde::from_slice(bytes)
        .map_err(|error| Error::Corrupted(format!("a record cannot be read: {error}")))
}

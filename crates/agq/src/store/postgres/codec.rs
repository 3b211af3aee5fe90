//! Records to bytes and back: MessagePack, as in redb.

use serde::{Serialize, de::DeserializeOwned};
use sqlx::Error;

pub(super) fn encode<T: Serialize>(record: &T) -> Result<Vec<u8>, Error> {
    rmp_serde::to_vec(record).map_err(|error| Error::Encode(Box::new(error)))
}

pub(super) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Error> {
    rmp_serde::from_slice(bytes).map_err(|error| Error::Decode(Box::new(error)))
}

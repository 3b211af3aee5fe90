//! Parses replies of agq.

use agenix_protocol::documents;
use redis::{FromRedisValue, Value};
use serde::de::DeserializeOwned;

use crate::error::ClientError;

pub(crate) fn unexpected(error: &impl ToString) -> ClientError {
    ClientError::Unexpected(error.to_string())
}

pub(crate) fn document<T: DeserializeOwned>(json: &str) -> Result<T, ClientError> {
    documents::parse(json.as_bytes()).map_err(|error| unexpected(&error))
}

pub(crate) fn optional_document<T: DeserializeOwned>(reply: Value) -> Result<Option<T>, ClientError> {
    let text = Option::<String>::from_redis_value(reply).map_err(|error| unexpected(&error))?;
    text.map(|text| document(&text)).transpose()
}

pub(crate) fn texts(reply: Value) -> Result<Vec<String>, ClientError> {
    Vec::<String>::from_redis_value(reply).map_err(|error| unexpected(&error))
}

pub(crate) fn ids<T: std::str::FromStr<Err: std::fmt::Display>>(reply: Value) -> Result<Vec<T>, ClientError> {
    texts(reply)?.iter().map(|text| text.parse().map_err(|error: T::Err| unexpected(&error))).collect()
}

/// Parses a field of `OK name=value name=value`.
pub(crate) fn field<T: std::str::FromStr>(reply: &Value, name: &str) -> Result<T, ClientError> {
    let text = match reply {
        Value::SimpleString(text) => text.as_str(),
        _ => "",
    };
    let found = text.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    let missing = || ClientError::Unexpected(format!("'{text}' has no {name}"));
    found.and_then(|value| value.parse().ok()).ok_or_else(missing)
}

//! Fields of a submitted document, each with the text that the submitter wrote.

use std::collections::BTreeMap;

use serde_json::{Value, value::RawValue};

use super::options::invalid;
use crate::rejection::Rejection;

/// Fields of a document, each as the submitter wrote it.
pub(super) type JobDocumentFields = BTreeMap<String, Box<RawValue>>;

/// Returns the value of a field, or `None` if the field is missing or null.
pub(super) fn value_of(document: &JobDocumentFields, field: &str) -> Result<Option<Value>, Rejection> {
    let read = |raw: &RawValue| {
        serde_json::from_str(raw.get()).map_err(|error| invalid(format!("{field}: {error}")))
    };
    Ok(document.get(field).map(|raw| read(raw)).transpose()?.filter(|value: &Value| !value.is_null()))
}

/// Checks that a field is an object, null or missing.
pub(super) fn check_object(document: &JobDocumentFields, field: &str) -> Result<(), Rejection> {
    match document.get(field).map(|raw| raw.get()) {
        Some(text) if text != "null" && !text.starts_with('{') => {
            Err(invalid(format!("{field} is not an object")))
        }
        _ => Ok(()),
    }
}

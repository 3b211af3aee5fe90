//! Parser of the option `unique`: the fields and states by which a job is a duplicate
//! (ojs-unique-jobs).

use std::collections::BTreeMap;

use serde_json::{Value, value::RawValue};

use super::{
    fields::{JobDocumentFields, value_of},
    options::{OptionReader, invalid},
};
use crate::{
    hash,
    job::{JobState, Unique},
    rejection::Rejection,
};

/// Default states in which an earlier job counts as a duplicate: all in which a job has not ended.
pub(crate) const COUNTING: [&str; 5] = ["available", "active", "scheduled", "retryable", "pending"];

/// Parses the option `unique` of a submitted job.
pub(super) fn read_unique(
    unique: &OptionReader<'_>,
    document: &JobDocumentFields,
    job_type: &str,
    queue: &str,
) -> Result<Unique, Rejection> {
    let keys = unique_keys(unique)?;
    let exact_of = |field: &str| -> Result<Value, Rejection> {
        let is_there = value_of(document, field)?.is_some();
        Ok(document.get(field).filter(|_| is_there).map(|raw| exact(raw)).unwrap_or_default())
    };
    let (args, meta) = (exact_of("args")?, exact_of("meta")?);
    let mut common: BTreeMap<String, Value> = BTreeMap::new();
    for key in keys {
        let value = match key.as_str() {
            "type" => job_type.into(),
            "queue" => queue.into(),
            "args" => chosen(&args[0], unique.texts("args_keys")?).unwrap_or_else(|| args.clone()),
            "meta" => chosen(&meta, unique.texts("meta_keys")?).unwrap_or_else(|| meta.clone()),
            other => {
                return Err(invalid(format!(
                    "options.unique.keys has '{other}': use type, queue, args and meta"
                )));
            }
        };
        common.insert(key, value);
    }
    Ok(Unique {
        key: hash::of_json(&common),
        on_conflict: unique.on_conflict()?,
        states: unique_states(unique)?,
        period_ms: unique.period()?,
    })
}

/// Returns the names of the compared fields. A list of fields of `args` or `meta` without effect is
/// refused, because jobs that differ in these fields would count as duplicates.
fn unique_keys(unique: &OptionReader<'_>) -> Result<Vec<String>, Rejection> {
    let parts = [("args", "args_keys"), ("meta", "meta_keys")];
    let Some(keys) = unique.texts("keys")? else {
        let mut keys = ["type", "queue", "args"].map(String::from).to_vec();
        keys.extend(unique.texts("meta_keys")?.map(|_| "meta".to_owned()));
        return Ok(keys);
    };
    if keys.is_empty() {
        let text = "options.unique.keys is empty: name at least one of type, queue, args and meta";
        return Err(invalid(text.into()));
    }
    for (key, list) in parts {
        if unique.texts(list)?.is_some() && !keys.iter().any(|named| named == key) {
            return Err(invalid(format!(
                "options.unique.{list} has no effect without '{key}' in options.unique.keys: add it there"
            )));
        }
    }
    Ok(keys)
}

fn unique_states(unique: &OptionReader<'_>) -> Result<Vec<String>, Rejection> {
    let Some(states) = unique.texts("states")? else { return Ok(COUNTING.map(String::from).into()) };
    match states.iter().find(|state| !JobState::ALL.iter().any(|known| known.ojs_name() == **state)) {
        Some(unknown) => {
            let known = JobState::ALL.map(JobState::ojs_name).join(", ");
            let shown: String = unknown.chars().take(40).collect();
            Err(invalid(format!("options.unique.states has '{}': use {known}", shown.escape_debug())))
        }
        None => Ok(states),
    }
}

/// Converts JSON so that different integers differ; one that fits no type becomes a string.
pub(crate) fn exact(raw: &RawValue) -> Value {
    let text = raw.get();
    match text.as_bytes().first() {
        Some(b'{') => {
            let fields: JobDocumentFields = serde_json::from_str(text).unwrap_or_default();
            Value::Object(fields.into_iter().map(|(name, value)| (name, exact(&value))).collect())
        }
        Some(b'[') => {
            let items: Vec<Box<RawValue>> = serde_json::from_str(text).unwrap_or_default();
            items.iter().map(|item| exact(item)).collect()
        }
        _ => match serde_json::from_str(text).unwrap_or_default() {
            Value::Number(number) if number.is_f64() && !text.contains(['.', 'e', 'E']) => {
                Value::String(format!("\0{text}"))
            }
            other => other,
        },
    }
}

/// Returns the chosen fields of an object.
fn chosen(object: &Value, fields: Option<Vec<String>>) -> Option<Value> {
    let picked = |field: String| (field.clone(), object.get(&field).cloned().unwrap_or_default());
    fields.map(|fields| Value::Object(fields.into_iter().map(picked).collect()))
}

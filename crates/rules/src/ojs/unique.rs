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

/// Fields of the option. Any other one is refused, because its author believes that jobs are
/// compared in another way than they are (ojs-unique-jobs §2.2).
const FIELDS: [&str; 8] =
    ["keys", "key", "args_keys", "meta_keys", "states", "period", "period_ms", "on_conflict"];

/// Attributes of a job that can be compared.
const ATTRIBUTES: [&str; 4] = ["type", "queue", "args", "meta"];

/// Attributes that are compared, and the compared fields of two of them. `None` means all fields.
struct ComparedFields {
    keys: Vec<String>,
    args_keys: Option<Vec<String>>,
    meta_keys: Option<Vec<String>>,
}

/// Parses the option `unique` of a submitted job.
pub(super) fn read_unique(
    unique: &OptionReader<'_>,
    document: &JobDocumentFields,
    job_type: &str,
    queue: &str,
) -> Result<Unique, Rejection> {
    unique.check_fields(&FIELDS)?;
    let exact_of = |field: &str| -> Result<Value, Rejection> {
        let is_there = value_of(document, field)?.is_some();
        Ok(document.get(field).filter(|_| is_there).map(|raw| exact(raw)).unwrap_or_default())
    };
    let (args, meta) = (exact_of("args")?, exact_of("meta")?);
    let ComparedFields { keys, args_keys, meta_keys } = unique_fields(unique, &args[0])?;
    let mut common: BTreeMap<String, Value> = BTreeMap::new();
    for key in keys {
        let value = match key.as_str() {
            "type" => job_type.into(),
            "queue" => queue.into(),
            "args" => chosen(&args[0], args_keys.as_deref()).unwrap_or_else(|| args.clone()),
            "meta" => chosen(&meta, meta_keys.as_deref()).unwrap_or_else(|| meta.clone()),
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

/// Returns the compared fields. `argument` is the first argument of the job.
fn unique_fields(unique: &OptionReader<'_>, argument: &Value) -> Result<ComparedFields, Rejection> {
    let (mut keys, mut args_keys) = (unique.texts("keys")?, unique.texts("args_keys")?);
    let meta_keys = unique.texts("meta_keys")?;
    if let Some(key) = unique.texts("key")? {
        if keys.is_some() {
            return Err(invalid("options.unique has both key and keys: give keys alone".into()));
        }
        if key.iter().all(|name| ATTRIBUTES.contains(&name.as_str())) {
            keys = Some(key);
        } else if args_keys.is_some() {
            return Err(invalid("options.unique has both key and args_keys: give args_keys alone".into()));
        } else {
            check_argument(argument, &key)?;
            args_keys = Some(key);
        }
    }
    let keys = unique_keys(keys, args_keys.is_some(), meta_keys.is_some())?;
    Ok(ComparedFields { keys, args_keys, meta_keys })
}

/// Checks that an argument has the fields that `unique.key` names. Without them, all jobs would
/// count as duplicates.
fn check_argument(argument: &Value, key: &[String]) -> Result<(), Rejection> {
    let Some(missing) = key.iter().find(|field| argument.get(field.as_str()).is_none()) else {
        return Ok(());
    };
    let shown: String = missing.chars().take(40).collect();
    Err(invalid(format!(
        "options.unique.key has '{}': use type, queue, args and meta, or fields of the first argument",
        shown.escape_debug()
    )))
}

/// Returns the names of the compared attributes. A list of fields of `args` or `meta` without
/// effect is refused, because jobs that differ in these fields would count as duplicates.
fn unique_keys(
    keys: Option<Vec<String>>,
    has_args_keys: bool,
    has_meta_keys: bool,
) -> Result<Vec<String>, Rejection> {
    let Some(keys) = keys else {
        let mut keys = ["type", "queue", "args"].map(String::from).to_vec();
        keys.extend(has_meta_keys.then(|| "meta".to_owned()));
        return Ok(keys);
    };
    if keys.is_empty() {
        let text = "options.unique.keys is empty: name at least one of type, queue, args and meta";
        return Err(invalid(text.into()));
    }
    let lists = [("args", "args_keys", has_args_keys), ("meta", "meta_keys", has_meta_keys)];
    for (key, list, is_given) in lists {
        if is_given && !keys.iter().any(|named| named == key) {
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
fn chosen(object: &Value, fields: Option<&[String]>) -> Option<Value> {
    let picked = |field: &String| (field.clone(), object.get(field).cloned().unwrap_or_default());
    fields.map(|fields| Value::Object(fields.iter().map(picked).collect()))
}

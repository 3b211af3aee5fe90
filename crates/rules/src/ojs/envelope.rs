//! Parser of submitted jobs: the fields of a job, and their bounds (ojs-core, ojs-json-format).

use std::collections::BTreeMap;

use agenix_protocol::{
    documents::to_json,
    ids::{JobId, PlanId},
    reserved_keys::SCHEDULED,
    time::Timestamp,
};
use serde_json::{
    Map, Value,
    value::{RawValue, to_raw_value},
};

use super::{
    DEFAULT_QUEUE, PLAN_PREFIX, VISIBILITY_MS,
    fields::{JobDocumentFields, check_object, value_of},
    options::{OptionReader, invalid},
    unique::read_unique,
};
use crate::{
    job::{Ojs, Unique},
    limit::LimitTerms,
    rejection::Rejection,
};

/// Maximum number of bytes of a job type, and of the name of a queue.
const MAX_NAME_BYTES: usize = 128;

/// Submitted job that passed all checks.
#[derive(Debug, Clone)]
pub struct JobSubmission {
    /// Id that the submitter chose.
    pub job_id: Option<JobId>,
    /// Plan that the job runs, if its type names one.
    pub plan_id: Option<PlanId>,
    /// Queue that the submitter named.
    pub queue: Option<String>,
    /// Priority, -100 to 100.
    pub priority: i32,
    /// Earliest time of a run.
    pub run_at: Option<Timestamp>,
    /// True if the job is staged: it waits until it is released.
    pub is_staged: bool,
    /// Timeout of an attempt, in milliseconds.
    pub timeout_ms: Option<u64>,
    /// Data of the Open Job Spec.
    pub ojs: Ojs,
    /// Uniqueness constraint.
    pub unique: Option<Unique>,
    /// Terms of the limit that applies to the job.
    pub limit: Option<LimitTerms>,
    /// Input: that of the plan if the job runs a plan, otherwise the whole document.
    pub input: String,
}

/// Fields that only agq sets. Submitted values of these fields are ignored.
const OWN: [&str; 20] = [
    "specversion",
    "state",
    "attempt",
    "max_attempts",
    "created_at",
    "enqueued_at",
    "started_at",
    "completed_at",
    "cancelled_at",
    "discarded_at",
    "next_attempt_at",
    "retry_delay_ms",
    "error",
    "errors",
    "result",
    "progress",
    "parent_results",
    "workflow_id",
    "worker_id",
    "action_id",
];

/// Options that a submitter may also give as fields of the job, as ojs-core does.
const FIELD_OPTIONS: [&str; 12] = [
    "queue",
    "priority",
    "timeout",
    "timeout_ms",
    "visibility_timeout_ms",
    "scheduled_at",
    "expires_at",
    "tags",
    "retry",
    "unique",
    "rate_limit",
    "metadata",
];

impl JobSubmission {
    /// Adds the results of the previous steps to the document, each as JSON.
    pub fn with_parents(self, results: &[String]) -> Self {
        let list = format!("[{}]", results.join(","));
        let (target, is_input) = match &self.ojs.document {
            Some(document) => (document.clone(), false),
            None => (self.input.clone(), true),
        };
        let Ok(mut document) = serde_json::from_str::<JobDocumentFields>(&target) else { return self };
        let Ok(list) = RawValue::from_string(list) else { return self };
        document.insert("parent_results".into(), list);
        let text = to_json(&document);
        if is_input {
            Self { input: text, ..self }
        } else {
            Self { ojs: Ojs { document: Some(text), ..self.ojs }, ..self }
        }
    }
}

/// Parses a job that is submitted at `now`. The error names the first invalid field.
pub fn read(mut document: JobDocumentFields, now: Timestamp) -> Result<JobSubmission, Rejection> {
    let job_type = read_type(&document)?;
    let job_id = value_of(&document, "id")?.map(|id| read_id(&id)).transpose()?;
    document.retain(|field, _| field != "id" && !OWN.contains(&field.as_str()));
    move_to_options(&mut document)?;
    let args = document.get("args").filter(|args| args.get() != "null");
    let args = args.ok_or_else(|| {
        invalid("args is missing: a job has a list of arguments, which may be empty".into())
    })?;
    if !args.get().starts_with('[') {
        return Err(invalid("args is not a list: put the arguments into one".into()));
    }
    check_object(&document, "meta")?;
    let options: Map<String, Value> = match value_of(&document, "options")? {
        Some(Value::Object(options)) => options,
        _ => Map::new(),
    };
    let options = OptionReader::of("options", &options);
    let queue =
        options.text("queue")?.map(|queue| check_queue(queue).map(|()| queue.to_owned())).transpose()?;
    let in_queue = queue.as_deref().unwrap_or(DEFAULT_QUEUE);
    let plan_id = job_type
        .strip_prefix(PLAN_PREFIX)
        .map(|id| PlanId::new(id).map_err(|error| invalid(format!("type: {error}"))));
    let plan_id = plan_id.transpose()?;
    let limit = options.object("rate_limit")?.map(|limit| limit.limit(in_queue)).transpose()?;
    let scheduled_at = options.moment("scheduled_at", now)?.or(options.moment("delay_until", now)?);
    options.texts("tags")?;
    let retry = options.object("retry")?.map(|retry| retry.retry()).transpose()?;
    let visibility_ms = options.ms("visibility_timeout_ms")?;
    let directive = match options.object("metadata")? {
        Some(metadata) => metadata.text("test_directive")?.map(str::to_owned),
        None => None,
    };
    let unique = options
        .object("unique")?
        .map(|unique| read_unique(&unique, &document, &job_type, in_queue))
        .transpose()?;
    let ojs = Ojs {
        // Without a policy, the retries of the plan count.
        retry: if plan_id.is_none() { Some(retry.unwrap_or_default()) } else { retry },
        visibility_ms: if plan_id.is_none() { visibility_ms.unwrap_or(VISIBILITY_MS) } else { 0 },
        expires_at: options.moment("expires_at", now)?,
        scheduled_at: scheduled_at.filter(|at| *at > now),
        limit: limit.as_ref().map(|(key, _)| key.clone()),
        unique: unique.as_ref().map(|unique| unique.key.clone()),
        directive,
        ..Ojs::of(job_type)
    };
    let (input, plan_document) = match &plan_id {
        None => (to_json(&document), None),
        Some(_) => (plan_input(args)?, Some(to_json(&without_args(&document)))),
    };
    let (priority, is_pending) = (options.priority()?, options.flag("pending")?.unwrap_or_default());
    Ok(JobSubmission {
        job_id,
        plan_id,
        priority,
        run_at: scheduled_at,
        is_staged: is_pending,
        timeout_ms: options.ms("timeout_ms")?.or(options.seconds("timeout")?),
        ojs: Ojs { document: plan_document, is_pending, ..ojs },
        unique,
        limit: limit.map(|(_, terms)| terms),
        input,
        queue,
    })
}

/// Moves fields that are options into the options of the job. An option takes precedence over the
/// field of its name.
fn move_to_options(document: &mut JobDocumentFields) -> Result<(), Rejection> {
    check_object(document, "options")?;
    let is_null = |raw: &RawValue| raw.get() == "null";
    let fields = FIELD_OPTIONS.iter().filter_map(|name| document.remove_entry(*name));
    let fields: Vec<_> = fields.filter(|(_, raw)| !is_null(raw)).collect();
    if fields.is_empty() {
        return Ok(());
    }
    let given = document.get("options").map_or("null", |raw| raw.get());
    let wrong = |error: serde_json::Error| invalid(format!("options: {error}"));
    let mut options =
        serde_json::from_str::<Option<JobDocumentFields>>(given).map_err(wrong)?.unwrap_or_default();
    options.retain(|_, raw| !is_null(raw));
    for (name, raw) in fields {
        options.entry(name).or_insert(raw);
    }
    document.insert("options".into(), to_raw_value(&options).map_err(wrong)?);
    Ok(())
}

fn read_type(document: &JobDocumentFields) -> Result<String, Rejection> {
    let name = match value_of(document, "type")? {
        None => {
            return Err(invalid("type is missing: a job names its work, such as email.send".into()));
        }
        Some(Value::String(name)) => name,
        Some(_) => return Err(invalid("type is not a string".into())),
    };
    // The text after `plan.` is the id of a plan, with the rules of such ids.
    let checked = if name.starts_with(PLAN_PREFIX) { "plan" } else { name.as_str() };
    let is_part = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_lowercase())
            && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_' || b == b'-')
    };
    if name.len() > MAX_NAME_BYTES || !checked.split('.').all(is_part) {
        let shown: String = name.chars().take(40).collect();
        return Err(invalid(format!(
            "type '{}' is not valid: use at most {MAX_NAME_BYTES} lower-case letters, digits, '_' and '-' in parts that begin with a letter, with dots between them",
            shown.escape_debug()
        )));
    }
    Ok(name)
}

/// Returns true if the text is a UUID of version 7 in lower case (RFC 9562).
pub fn is_uuid_v7(text: &str) -> bool {
    let bytes = text.as_bytes();
    let is_fine = |(at, byte): (usize, &u8)| match at {
        8 | 13 | 18 | 23 => *byte == b'-',
        14 => *byte == b'7',
        19 => matches!(byte, b'8' | b'9' | b'a' | b'b'),
        _ => byte.is_ascii_digit() || (b'a'..=b'f').contains(byte),
    };
    bytes.len() == 36 && bytes.iter().enumerate().all(is_fine)
}

fn read_id(id: &Value) -> Result<JobId, Rejection> {
    let text = id.as_str().filter(|text| is_uuid_v7(text));
    let id = text.and_then(|text| JobId::new(text).ok());
    id.ok_or_else(|| {
        invalid("id must be a UUID of version 7 in lower case; leave it out to be given one".into())
    })
}

/// Checks the name of a queue.
pub fn check_queue(name: &str) -> Result<(), Rejection> {
    let legal = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'.' || b == b'-';
    let begins = name.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
    if !begins || name.len() > MAX_NAME_BYTES || !name.bytes().all(legal) {
        let shown: String = name.chars().take(40).collect();
        return Err(invalid(format!(
            "options.queue '{}' is not valid: use at most {MAX_NAME_BYTES} lower-case letters, digits, '.' and '-', and begin with a letter or a digit",
            shown.escape_debug()
        )));
    }
    if name == SCHEDULED {
        return Err(invalid("options.queue is scheduled, where no job is fetched: use another name, and scheduled_at for a time".into()));
    }
    Ok(())
}

/// Returns the input of a job that runs a plan: its only argument.
fn plan_input(args: &RawValue) -> Result<String, Rejection> {
    let inputs: Vec<Box<RawValue>> =
        serde_json::from_str(args.get()).map_err(|error| invalid(format!("args: {error}")))?;
    match inputs.as_slice() {
        [input] if input.get().starts_with('{') => Ok(input.get().to_owned()),
        _ => Err(invalid("args of a job that runs a plan is a list of one object, the plan's input".into())),
    }
}

fn without_args(document: &JobDocumentFields) -> BTreeMap<&str, &RawValue> {
    document.iter().filter(|(name, _)| *name != "args").map(|(name, raw)| (name.as_str(), &**raw)).collect()
}

#[cfg(test)]
mod tests;

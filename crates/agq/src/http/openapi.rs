//! OpenAPI document of the HTTP interface. The paths are in a table here; the schemas of most
//! bodies are derived from their types.

use std::sync::LazyLock;

use agenix_protocol::documents::{
    OjsAck, OjsEnqueue, OjsError, OjsFetch, OjsHeartbeat, OjsJob, OjsNack, OjsProgress, OjsRegistration,
};
use axum::{body::Body, http::Response};
use schemars::{JsonSchema, SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};

use crate::http::response::ok;

/// Method, path below `/ojs/v1` (or from the root, after `//`), role, summary, schema of the body,
/// and status of success.
pub(super) type OperationRow =
    (&'static str, &'static str, &'static str, &'static str, Option<&'static str>, u16);

#[rustfmt::skip]
pub(super) const ROWS: &[OperationRow] = &[
    ("get", "//ojs/manifest", "all", "Lists what agq implements of the Open Job Spec.", None, 200),
    ("get", "//health", "none", "Reports the health of agq.", None, 200),
    ("get", "//ready", "none", "Reports whether agq is ready for requests.", None, 200),
    ("get", "//metrics", "all", "Returns metrics in the text format of Prometheus.", None, 200),
    ("get", "/health", "none", "Reports the health of agq.", None, 200),
    ("get", "/openapi.json", "all", "Returns this document.", None, 200),
    ("post", "/jobs", "client", "Submits a job.", Some("OjsEnqueue"), 201),
    ("get", "/jobs", "client", "Lists jobs, the newest first.", None, 200),
    ("post", "/jobs/batch", "client", "Submits jobs, all or none.", Some("OjsEnqueueAll"), 201),
    ("post", "/jobs/fetch", "worker", "Claims jobs for a worker.", Some("OjsFetch"), 200),
    ("get", "/jobs/{id}", "all", "Shows a job.", None, 200),
    ("delete", "/jobs/{id}", "client", "Cancels a job.", None, 200),
    ("post", "/jobs/{id}/ack", "worker", "Reports a job as completed.", Some("OjsAck"), 200),
    ("post", "/jobs/{id}/nack", "worker", "Reports a job as failed, or returns it to its queue.", Some("OjsNack"), 200),
    ("post", "/jobs/{id}/fail", "worker", "Reports a job as failed, or returns it to its queue.", Some("OjsNack"), 200),
    ("post", "/jobs/{id}/activate", "client", "Releases a pending job.", None, 200),
    ("post", "/jobs/{id}/retry", "client", "Retries a discarded job.", None, 200),
    ("put", "/jobs/{id}/progress", "worker", "Reports the progress of a job.", Some("OjsProgress"), 200),
    ("get", "/jobs/{id}/progress", "all", "Shows the progress of a job.", None, 200),
    ("get", "/jobs/{id}/tasks/{task}/{stream}", "client", "Returns the stdout or stderr of a task, whole or a range.", None, 200),
    ("get", "/dead-letter", "client", "Lists dead letters.", None, 200),
    ("get", "/dead-letter/{id}", "client", "Shows a dead letter.", None, 200),
    ("delete", "/dead-letter/{id}", "client", "Deletes a dead letter.", None, 200),
    ("post", "/dead-letter/{id}/retry", "client", "Retries a dead letter.", None, 200),
    ("get", "/events", "client", "Lists recent events.", None, 200),
    ("get", "/events/stream", "client", "Streams events of jobs as server-sent events.", None, 200),
    ("get", "/workers", "client", "Lists workers.", None, 200),
    ("post", "/workers/register", "worker", "Registers a worker.", Some("OjsRegistration"), 200),
    ("post", "/workers/deregister", "worker", "Deregisters a worker.", Some("OjsDeregistration"), 200),
    ("post", "/workers/fetch", "worker", "Claims jobs for a worker.", Some("OjsFetch"), 200),
    ("post", "/workers/ack", "worker", "Reports a job as completed.", Some("OjsAck"), 200),
    ("post", "/workers/nack", "worker", "Reports a job as failed, or returns it to its queue.", Some("OjsNack"), 200),
    ("post", "/workers/progress", "worker", "Reports the progress of a job.", Some("OjsProgress"), 200),
    ("post", "/workers/heartbeat", "worker", "Sends a heartbeat.", Some("OjsHeartbeat"), 200),
    ("post", "/workers/beat", "worker", "Sends a heartbeat with the state of the worker.", Some("OjsHeartbeat"), 200),
    ("get", "/workers/{id}", "client", "Shows a worker.", None, 200),
    ("delete", "/workers/{id}", "worker", "Deregisters a worker.", None, 200),
    ("get", "/workers/{id}/health", "all", "Shows the health of a worker.", None, 200),
    ("get", "/queues", "all", "Lists queues.", None, 200),
    ("get", "/queues/{queue}", "all", "Shows a queue.", None, 200),
    ("get", "/queues/{queue}/stats", "all", "Shows a queue.", None, 200),
    ("post", "/queues/{queue}/pause", "admin", "Pauses a queue.", None, 200),
    ("post", "/queues/{queue}/resume", "admin", "Resumes a queue.", None, 200),
    ("get", "/approvals", "client", "Lists plans that need an approval.", None, 200),
    ("post", "/approvals/{plan}/approve", "admin", "Approves a plan.", Some("Decision"), 200),
    ("post", "/approvals/{plan}/reject", "admin", "Rejects a plan.", Some("Decision"), 200),
    ("get", "/budgets", "client", "Shows budgets.", None, 200),
    ("get", "/budgets/{name}", "client", "Shows a budget.", None, 200),
    ("get", "/rate-limits", "client", "Lists limits.", None, 200),
    ("get", "/rate-limits/{key}", "client", "Shows a limit.", None, 200),
    ("post", "/cron", "client", "Creates a schedule.", Some("OjsCron"), 201),
    ("get", "/cron", "client", "Lists schedules.", None, 200),
    ("get", "/cron/{name}", "client", "Shows a schedule.", None, 200),
    ("put", "/cron/{name}", "client", "Creates or replaces a schedule.", Some("OjsCron"), 200),
    ("delete", "/cron/{name}", "client", "Deletes a schedule.", None, 200),
    ("post", "/workflows", "client", "Submits a workflow.", Some("OjsWorkflow"), 201),
    ("get", "/workflows", "client", "Lists workflows.", None, 200),
    ("get", "/workflows/{id}", "client", "Shows a workflow.", None, 200),
    ("delete", "/workflows/{id}", "client", "Cancels a workflow.", None, 200),
    ("get", "/admin/stats", "admin", "Returns statistics of all queues.", None, 200),
    ("get", "/admin/queues", "admin", "Lists queues.", None, 200),
    ("get", "/admin/queues/{queue}", "admin", "Shows a queue with its settings.", None, 200),
    ("post", "/admin/queues/{queue}/pause", "admin", "Pauses a queue.", None, 200),
    ("post", "/admin/queues/{queue}/resume", "admin", "Resumes a queue.", None, 200),
    ("get", "/admin/queues/{queue}/config", "admin", "Shows the settings of a queue.", None, 200),
    ("put", "/admin/queues/{queue}/config", "admin", "Sets the bound of a queue.", Some("OjsQueueConfig"), 200),
    ("get", "/admin/jobs", "admin", "Lists jobs.", None, 200),
    ("post", "/admin/jobs/bulk/retry", "admin", "Retries all discarded jobs, or those that match the filter.", Some("OjsBulk"), 200),
    ("get", "/admin/jobs/{id}", "admin", "Shows a job.", None, 200),
    ("post", "/admin/jobs/{id}/retry", "admin", "Retries a discarded job.", None, 200),
    ("post", "/admin/jobs/{id}/cancel", "admin", "Cancels a job.", None, 200),
    ("get", "/admin/workers", "client", "Lists workers.", None, 200),
    ("get", "/admin/workers/{id}", "client", "Shows a worker.", None, 200),
    ("post", "/admin/workers/{id}/{order}", "admin", "Sends a worker the directive quiet, terminate or resume.", None, 200),
    ("get", "/admin/dead-letter", "admin", "Lists dead letters.", None, 200),
    ("get", "/admin/dead-letter/stats", "admin", "Counts dead letters.", None, 200),
    ("get", "/admin/dead-letter/{id}", "admin", "Shows a dead letter.", None, 200),
    ("delete", "/admin/dead-letter/{id}", "admin", "Deletes a dead letter.", None, 204),
    ("post", "/admin/dead-letter/{id}/retry", "admin", "Retries a dead letter.", None, 200),
];

static DOCUMENT: LazyLock<Value> = LazyLock::new(document);

pub(super) async fn openapi(_: crate::http::auth::role::Authenticated) -> Response<Body> {
    ok(&*DOCUMENT)
}

fn document() -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for row in ROWS {
        let at = paths.entry(path_of(row.1)).or_insert_with(|| json!({}));
        at[row.0] = operation(row);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "agq",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "The Open Job Spec over HTTP, as agq implements it. docs/ojs.md describes each part.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas(),
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    })
}

/// Returns the whole path of a row.
pub(super) fn path_of(path: &str) -> String {
    let rest = path.strip_prefix('/').filter(|rest| rest.starts_with('/'));
    rest.map_or_else(|| format!("/ojs/v1{path}"), str::to_owned)
}

fn operation((method, path, callers, summary, body, status): &OperationRow) -> Value {
    let media = |schema: &str| {
        let schema = json!({"schema": {"$ref": format!("#/components/schemas/{schema}")}});
        json!({"application/openjobspec+json": schema, "application/json": schema})
    };
    let name = |part: &str| part.strip_prefix('{').and_then(|part| part.strip_suffix('}')).map(str::to_owned);
    let parameter =
        |name| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}});
    let parameters: Vec<Value> = path.split('/').filter_map(name).map(parameter).collect();
    let error = json!({"description": "An error.", "content": {
        "application/openjobspec+json": {"schema": {"$ref": "#/components/schemas/Error"}},
    }});
    let words: Vec<&str> = path.split(['/', '{', '}', '-', '.']).filter(|word| !word.is_empty()).collect();
    let mut operation = json!({
        "operationId": format!("{method}_{}", words.join("_")),
        "summary": summary,
        "description": format!("For: {callers}."),
        "parameters": parameters,
        "responses": {status.to_string(): {"description": "Success."}, "default": error},
    });
    if *callers != "none" {
        operation["security"] = json!([{"key": []}]);
    }
    if let Some(body) = body {
        operation["requestBody"] = json!({"required": true, "content": media(body)});
    }
    operation
}

fn schemas() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut generator = settings.into_generator();
    let text = json!({"type": "string"});
    let any = json!({"type": "object"});
    json!({
        "OjsEnqueue": of::<OjsEnqueue>(&mut generator),
        "OjsEnqueueAll": {"type": "object", "required": ["jobs"], "properties": {
            "jobs": {"type": "array", "minItems": 1, "items": of::<OjsEnqueue>(&mut generator)},
        }},
        "OjsJob": of::<OjsJob>(&mut generator),
        "OjsError": of::<OjsError>(&mut generator),
        "OjsFetch": of::<OjsFetch>(&mut generator),
        "OjsAck": of::<OjsAck>(&mut generator),
        "OjsNack": of::<OjsNack>(&mut generator),
        "OjsProgress": of::<OjsProgress>(&mut generator),
        "OjsHeartbeat": of::<OjsHeartbeat>(&mut generator),
        "OjsRegistration": of::<OjsRegistration>(&mut generator),
        "OjsDeregistration": {"type": "object", "required": ["worker_id"], "properties": {"worker_id": text}},
        "OjsCron": {"type": "object", "required": ["name"], "properties": {
            "name": text, "expression": text, "timezone": text, "job_template": any, "action": any,
            "cron": text, "type": text, "args": {"type": "array"}, "meta": any, "options": any,
            "overlap_policy": {"enum": ["skip", "allow"]}, "enabled": {"type": "boolean"},
        }},
        "OjsWorkflow": {"type": "object", "properties": {
            "type": {"enum": ["chain", "group", "batch"]}, "name": text, "callbacks": any,
            "steps": {"type": "array", "items": any}, "jobs": {"type": "array", "items": any},
        }},
        "OjsQueueConfig": {"type": "object", "properties": {"backpressure": {"type": "object", "required": ["max_depth"],
            "properties": {"max_depth": {"type": "integer", "minimum": 0}, "strategy": {"enum": ["reject"]},
                "warning_threshold": {"type": "number", "minimum": 0, "maximum": 1}}}}},
        "OjsBulk": {"type": "object", "required": ["confirm"], "properties": {
            "confirm": {"type": "boolean"},
            "filter": {"type": "object", "properties": {"queue": text, "type": text}},
        }},
        "Decision": {"type": "object", "required": ["digest"], "properties": {"digest": text}},
        "Error": {"type": "object", "required": ["error"], "properties": {"error": {"type": "object",
            "required": ["code", "message", "retryable", "request_id"],
            "properties": {"code": text, "type": text, "message": text, "retryable": {"type": "boolean"},
                "hint": text, "docs_url": text, "request_id": text}}}},
    })
}

fn of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Value {
    T::json_schema(generator).to_value()
}

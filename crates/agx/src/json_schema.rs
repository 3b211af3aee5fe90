//! Kinds of `--json` documents, and the JSON Schema of all of them, published in
//! docs/agx-1.schema.json.

use agenix_policy::TaskJudgement;
use agenix_protocol::{
    documents::{
        ActionStatus, Approval, BudgetStatus, Explanation, JobStatus, Plan, PlanStatus, QueueStats,
        WorkerStatus,
    },
    ids::{JobId, PlanId},
};
use schemars::{JsonSchema, Schema, SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};

use crate::{
    documents::{
        ActionCancelled, ActionClosed, ActionExtended, ActionRetried, ActionSubmitted, AuditVerified,
        DoctorFinding, Down, ErrorDocument, JobRef, Joined, KeyRotated, KeyShown, MapCommand, NameRef,
        OverviewDocument, PlanAsked, PlanChecked, PlanDecided, PlanRef, PlanSigned, PlanVerified,
        PolicyChecked, ProfileListed, ProfileSet, ProvenanceShown, ProvenanceVerified, QueueRef,
        ResultDifference, ScaleStep, ScheduleSet, Up, WorkerRef, WorkflowBegun, WorkflowRef,
    },
    logs::OutputDocument,
    output::SCHEMA,
};

/// Name of a kind, and the schema of its data.
type DocumentSchema = (&'static str, fn(&mut SchemaGenerator) -> Schema);

fn of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

/// All kinds except errors. Data that agx passes on from agq unread are any object.
const KINDS: [DocumentSchema; 65] = [
    ("action.add", of::<ActionExtended>),
    ("action.cancel", of::<ActionCancelled>),
    ("action.close", of::<ActionClosed>),
    ("action.diff", of::<Vec<ResultDifference>>),
    ("action.list", of::<Vec<ActionStatus>>),
    ("action.result", of::<JobStatus>),
    ("action.retry", of::<ActionRetried>),
    ("action.status", of::<ActionStatus>),
    ("action.submit", of::<ActionSubmitted>),
    ("approval.approve", of::<PlanDecided>),
    ("approval.list", of::<Vec<Approval>>),
    ("approval.reject", of::<PlanDecided>),
    ("audit.verify", of::<AuditVerified>),
    ("budget", of::<Vec<BudgetStatus>>),
    ("doctor", of::<Vec<DoctorFinding>>),
    ("down", of::<Down>),
    ("history", of::<Vec<ActionStatus>>),
    ("job.cancel", of::<JobRef>),
    ("job.explain", of::<Explanation>),
    ("job.forget", of::<JobRef>),
    ("job.list", of::<Vec<JobId>>),
    ("job.retry", of::<JobRef>),
    ("job.status", of::<JobStatus>),
    ("join", of::<Joined>),
    ("key.list", of::<Vec<KeyShown>>),
    ("key.new", of::<KeyShown>),
    ("key.rotate", of::<KeyRotated>),
    ("key.show", of::<KeyShown>),
    ("logs", of::<OutputDocument>),
    ("map.command", of::<MapCommand>),
    ("overview", of::<OverviewDocument>),
    ("plan.check", of::<PlanChecked>),
    ("plan.delete", of::<PlanRef>),
    ("plan.get", of::<Plan>),
    ("plan.list", of::<Vec<PlanId>>),
    ("plan.new", of::<PlanAsked>),
    ("plan.sign", of::<PlanSigned>),
    ("plan.status", of::<PlanStatus>),
    ("plan.submit", of::<PlanRef>),
    ("plan.verify", of::<PlanVerified>),
    ("policy.check", of::<PolicyChecked>),
    ("policy.test", of::<TaskJudgement>),
    ("profile.list", of::<Vec<ProfileListed>>),
    ("profile.remove", of::<NameRef>),
    ("profile.set", of::<ProfileSet>),
    ("profile.use", of::<NameRef>),
    ("provenance.show", of::<ProvenanceShown>),
    ("provenance.verify", of::<ProvenanceVerified>),
    ("queue.pause", of::<QueueRef>),
    ("queue.resume", of::<QueueRef>),
    ("queue.stats", of::<QueueStats>),
    ("scale", of::<ScaleStep>),
    ("schedule.delete", of::<NameRef>),
    ("schedule.get", of::<Map<String, Value>>),
    ("schedule.list", of::<Vec<String>>),
    ("schedule.set", of::<ScheduleSet>),
    ("up", of::<Up>),
    ("worker.drain", of::<WorkerRef>),
    ("worker.get", of::<WorkerStatus>),
    ("worker.list", of::<Vec<WorkerStatus>>),
    ("worker.resume", of::<WorkerRef>),
    ("workflow.cancel", of::<WorkflowRef>),
    ("workflow.list", of::<Vec<String>>),
    ("workflow.status", of::<Map<String, Value>>),
    ("workflow.submit", of::<WorkflowBegun>),
];

/// Returns the schema of any line that `--json` prints.
pub(crate) fn document() -> Value {
    let mut generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
    let line = |kind: &str, name: &str, schema: Schema| {
        json!({
            "type": "object",
            "properties": {"schema": {"const": SCHEMA}, "kind": {"const": kind}, name: schema},
            "required": ["schema", "kind", name],
        })
    };
    let mut lines: Vec<Value> =
        KINDS.iter().map(|(kind, data)| line(kind, "data", data(&mut generator))).collect();
    lines.push(line("error", "error", of::<ErrorDocument>(&mut generator)));
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": format!("{}/blob/main/docs/agx-1.schema.json", env!("CARGO_PKG_REPOSITORY")),
        "title": "A line that agx prints with --json",
        "oneOf": lines,
        "$defs": generator.take_definitions(true),
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn json_schema_equals_the_published_one() {
        let published = include_str!("../../../docs/agx-1.schema.json");
        let shown = serde_json::to_string_pretty(&super::document()).unwrap() + "\n";
        assert!(
            published == shown,
            "What --json shows has changed. Where fields have come, and nothing else, publish it: `agx json-schema > \
             docs/agx-1.schema.json`. Where one has gone or means something else, it is agx/2."
        );
    }

    #[test]
    fn json_schema_kinds_are_sorted() {
        assert!(super::KINDS.is_sorted_by_key(|(kind, _)| *kind));
    }
}

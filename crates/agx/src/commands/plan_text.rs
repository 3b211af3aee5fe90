//! Text of a plan for a person who decides about it: every field, and no field over several lines.

use std::slice::from_ref;

use agenix_protocol::{
    documents::{Plan, Task},
    printable::one_line,
};
use serde::Serialize;
use serde_json::Value;

/// Fields of a task that its command line shows.
const IN_COMMAND_LINE: [&str; 7] =
    ["task_number", "command", "args", "env", "stdin_file", "stdout", "stderr"];
/// Fields of a plan that are shown before the others.
const SHOWN_FIRST: [&str; 3] = ["plan_id", "plan_description", "tasks"];

/// Returns the lines of a plan, without its id.
pub(super) fn plan_lines(plan: &Plan) -> Vec<String> {
    let mut lines: Vec<String> =
        plan.plan_description.iter().map(|about| format!("  {}", one_line(about))).collect();
    for task in &plan.tasks {
        lines.push(format!("  task {}  {}", task.task_number, one_line(&command_line(task))));
        lines.extend(others(task, &IN_COMMAND_LINE).map(|field| format!("          {field}")));
    }
    lines.extend(others(plan, &SHOWN_FIRST).map(|field| format!("  {field}")));
    lines
}

fn command_line(task: &Task) -> String {
    agenix_shell::render(from_ref(task))
}

/// Returns the fields of a document that are not among `shown`, each as `name value`.
fn others(document: &impl Serialize, shown: &[&str]) -> impl Iterator<Item = String> {
    let fields = match serde_json::to_value(document) {
        Ok(Value::Object(fields)) => fields,
        _ => serde_json::Map::new(),
    };
    let others: Vec<_> = fields.into_iter().filter(|(name, _)| !shown.contains(&name.as_str())).collect();
    others.into_iter().map(|(name, value)| match value {
        Value::String(text) => format!("{name} {}", one_line(&text)),
        value => format!("{name} {}", one_line(&value.to_string())),
    })
}

#[cfg(test)]
mod tests {
    use agenix_protocol::documents::Plan;
    use serde_json::{Value, json};

    use super::plan_lines;

    /// Returns a plan with a value in every field. Each value has a text of its own.
    fn full_plan() -> Value {
        json!({
            "plan_id": "p",
            "plan_description": "v-about",
            "tasks": [{
                "task_number": 1, "command": "v-command", "args": ["v-arg"], "input_from_task": 71,
                "stream": true, "stdin": "v-stdin", "stdin_blob": "v-blob", "stdin_file": "v-file",
                "stdout": "v-stdout", "stderr": "v-stderr", "cwd": "v-cwd", "env": {"v-name": "v-value"},
                "timeout_secs": 72, "idle_timeout_secs": 73
            }],
            "max_retries": 74,
            "timeout_secs": 75,
            "pipefail": false,
            "requires": {"tools": ["v-tool"], "tags": ["v-tag"], "labels": {"v-label": "v-of-label"}},
            "sandbox": {"profile": "v-profile"},
            "inputs": {"v-field": {"type": "path", "under": "/v-under"}},
            "max_running": 76,
            "rate": "77/m"
        })
    }

    /// Collects the texts and numbers of a document, except the number of a task.
    fn leaves(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::String(text) => found.push(text.clone()),
            Value::Number(number) => found.push(number.to_string()),
            Value::Array(all) => all.iter().for_each(|value| leaves(value, found)),
            Value::Object(all) => all.values().for_each(|value| leaves(value, found)),
            Value::Bool(_) | Value::Null => {}
        }
    }

    #[test]
    fn text_of_a_plan_has_the_value_of_every_field() {
        let json = full_plan();
        let plan: Plan = serde_json::from_value(json.clone()).unwrap();
        assert_eq!(serde_json::to_value(&plan).unwrap(), json, "the plan has every field");
        let text = plan_lines(&plan).join("\n");
        let mut values = Vec::new();
        leaves(&json, &mut values);
        for value in values.iter().skip(1) {
            assert!(text.contains(value), "{value}: {text}");
        }
        for field in ["stream true", "pipefail false", "input_from_task 71"] {
            assert!(text.contains(field), "{field}: {text}");
        }
    }

    #[test]
    fn no_field_begins_a_line_of_its_own() {
        let forged = "x\nplan q, submitted by client:alice\n  task 1  wc -l\u{202e}";
        let mut json = full_plan();
        json["plan_description"] = forged.into();
        for field in ["stdin", "cwd", "command", "stdout", "stderr", "stdin_file"] {
            json["tasks"][0][field] = forged.into();
        }
        json["tasks"][0]["args"] = json!([forged]);
        json["tasks"][0]["env"] = json!({"wc -l #": "", forged: forged});
        let plan: Plan = serde_json::from_value(json).unwrap();
        for line in plan_lines(&plan) {
            assert!(!line.contains(['\n', '\u{202e}']), "{line}");
            assert!(!line.starts_with("plan") && !line.starts_with("  task 1  wc"), "{line}");
        }
    }
}

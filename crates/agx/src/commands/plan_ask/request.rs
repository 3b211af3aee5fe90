//! Requests to the model: the conversation, and the schema of plans.

use agenix_protocol::documents::Plan;
use schemars::generate::SchemaSettings;
use serde::Serialize;
use serde_json::{Value, json};

use super::programs::AvailablePrograms;

/// Plan that the instructions show as an example.
const EXAMPLE: &str = r#"{"plan_description":"count the errors of each host in a compressed log","tasks":[
{"task_number":1,"command":"zcat","args":["{{input.file}}"]},
{"task_number":2,"command":"grep","args":["-F","ERROR"],"input_from_task":1,"stream":true},
{"task_number":3,"command":"cut","args":["-d"," ","-f","2"],"input_from_task":2,"stream":true},
{"task_number":4,"command":"sort","input_from_task":3,"stream":true},
{"task_number":5,"command":"uniq","args":["-c"],"input_from_task":4,"stream":true}]}"#;

/// Instructions before the example.
const INSTRUCTIONS: &str = r#"You write plans for a job queue that runs pipelines of Unix programs. Answer with one JSON object, the plan, and with nothing else.

A plan runs once for each input. An input is a JSON object, and {{input.FIELD}} stands for a field of it. Use a field for everything that differs from run to run, such as the name of a file. Placeholders are allowed in every text of a task except command and the names of env.

Fields of a plan:
- tasks: array of tasks, required.
- plan_description: one sentence for people.
- max_retries, timeout_secs: numbers.
- inputs: types of the fields of inputs, as {"file":{"type":"path","under":"/data"},"n":{"type":"int","min":1},"word":{"type":"text"}}.

Fields of a task, which is one process without a shell:
- task_number: 1, 2, 3 and so on, required.
- command: name of one program, required. No path, no arguments, no pipe.
- args: array of strings, one for each argument. Nothing is expanded: no quotes, wildcards, variables, pipes or redirections of a shell.
- input_from_task: number of the earlier task whose stdout is the stdin of this task.
- stream: true if this task runs at the same time as the task before it, joined by a pipe. It needs input_from_task with the number of that task.
- stdin: text, or stdin_file: file, for stdin. Not together with input_from_task.
- stdout, stderr: file for the output. Leave out stdout if the output is the result.
- timeout_secs: maximum time of the task, 300 by default.

Leave out plan_id and all fields that are not needed. Prefer few tasks and plain options. Use only the programs below."#;

/// Message of the conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct ChatMessage {
    role: &'static str,
    content: String,
}

impl ChatMessage {
    /// Returns the message with an earlier answer of the model.
    pub(super) fn assistant(content: String) -> Self {
        Self { role: "assistant", content }
    }
}

/// Returns the messages of the first request: the instructions with the programs, and the wish.
pub(super) fn first_messages(wish: &str, programs: &AvailablePrograms) -> Vec<ChatMessage> {
    let mut content = format!("{INSTRUCTIONS}\n\nAn example of a plan:\n{EXAMPLE}\n\n");
    content.push_str(&programs.list());
    vec![ChatMessage { role: "system", content }, ChatMessage { role: "user", content: wish.to_owned() }]
}

/// Returns the message that asks for another plan.
pub(super) fn repair(refusal: &str) -> ChatMessage {
    let content = format!(
        "This plan is refused:\n{refusal}\n\nAnswer with the whole corrected plan as one JSON object, and with nothing else."
    );
    ChatMessage { role: "user", content }
}

/// Returns the body of a request for a chat completion.
pub(super) fn body(model: &str, messages: &[ChatMessage]) -> String {
    let format = json!({"name": "plan", "strict": false, "schema": schema()});
    let body = json!({
        "model": model,
        "messages": messages,
        "response_format": {"type": "json_schema", "json_schema": format},
        "stream": false,
    });
    body.to_string()
}

/// Returns the JSON Schema of plans as agx reads them. The schema has no references, because some
/// servers do not follow references.
fn schema() -> Value {
    let settings = SchemaSettings::draft2020_12().for_deserialize().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    settings.into_generator().into_root_schema_for::<Plan>().to_value()
}

#[cfg(test)]
mod tests {
    use agenix_protocol::{documents::parse_object, limits::Limits};
    use serde_json::Value;

    use super::{ChatMessage, EXAMPLE, body, first_messages, repair, schema};
    use crate::commands::plan_ask::programs::AvailablePrograms;

    #[test]
    fn example_of_the_instructions_is_a_valid_plan() {
        let plan = parse_object(EXAMPLE.as_bytes()).unwrap();
        agenix_rules::plan::check(&plan, &Limits::default()).unwrap();
    }

    #[test]
    fn schema_is_that_of_plans_without_references() {
        let schema = schema();
        assert_eq!(schema["required"], serde_json::json!(["tasks"]));
        assert_eq!(schema["additionalProperties"], false);
        let task = &schema["properties"]["tasks"]["items"];
        assert_eq!(task["required"], serde_json::json!(["task_number", "command"]));
        assert!(task["properties"]["stdin_file"].is_object(), "{schema}");
        let text = schema.to_string();
        assert!(!text.contains("$ref") && !text.contains("$schema"), "{text}");
    }

    #[test]
    fn request_has_the_wish_the_programs_and_the_refusals() {
        let programs = AvailablePrograms::of_names(&["sort", "wc"]);
        let mut messages = first_messages("count {{lines}}", &programs);
        messages.extend([ChatMessage::assistant("{}".into()), repair("tasks is empty")]);
        let body: Value = serde_json::from_str(&body("small", &messages)).unwrap();
        assert_eq!(body["model"], "small");
        assert_eq!(body["stream"], false);
        assert_eq!(body["response_format"]["type"], "json_schema");
        assert_eq!(body["response_format"]["json_schema"]["schema"]["type"], "object");
        let roles: Vec<&str> = body["messages"]
            .as_array()
            .unwrap()
            .iter()
            .map(|message| message["role"].as_str().unwrap())
            .collect();
        assert_eq!(roles, ["system", "user", "assistant", "user"]);
        let content = |at: usize| body["messages"][at]["content"].as_str().unwrap();
        assert!(content(0).contains("sort, wc"), "{}", content(0));
        assert_eq!(content(1), "count {{lines}}");
        assert!(content(3).starts_with("This plan is refused:\ntasks is empty\n"), "{}", content(3));
    }
}

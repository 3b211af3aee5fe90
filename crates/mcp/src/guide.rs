//! Guide for agents: one page, made from the definitions of the tools, so that both always agree.

use serde_json::Value;

use crate::catalog::{INSTRUCTIONS, ToolName};

/// Front matter of a skill file for coding agents.
const SKILL: &str = "---\nname: agenix\ndescription: Run pipelines of Unix programs over many files or records, in parallel and durably, with \
    results that survive a restart. Use it for hundreds of inputs, for long jobs, and for several machines.\n---\n\n";

/// Text about the command line, for agents that have a shell.
const SHELL: &str = "## With a shell\n\n\
    An agent that has a shell can use the command line of agx as well:\n\n\
    ```sh\n\
    agx map 'zcat {} | grep -c ERROR' ::: logs/*.gz     # results in the order of the inputs: -k\n\
    agx plan check plan.json                            # checks a plan, and stores nothing\n\
    agx action submit PLAN --lines files.txt --json     # submits, and prints the id of the action\n\
    agx action watch ACTION                             # waits for the end\n\
    agx logs ACTION                                     # outputs\n\
    ```\n\n\
    `--json` prints documents with a published schema (`agx json-schema`). Exit code 1 says that a job failed, 3 that agx cannot \
    reach agq or the model, or log in, 4 that agq refused the request.\n";

/// Returns the page in Markdown.
pub fn agent_guide() -> String {
    let mut page = format!("# AGEniX for agents\n\n{INSTRUCTIONS}\n\n## Tools\n");
    for tool in ToolName::ALL {
        page.push_str(&tool_section(tool));
    }
    format!("{page}\n{SHELL}")
}

/// Returns the page as a skill file.
pub fn agent_skill() -> String {
    format!("{SKILL}{}", agent_guide())
}

fn tool_section(tool: ToolName) -> String {
    let definition = tool.definition();
    let mut section = format!("\n### `{}`\n\n{}\n", tool.name(), definition.description.unwrap_or_default());
    let Some(Value::Object(arguments)) = definition.input_schema.get("properties") else { return section };
    let required = definition.input_schema.get("required").and_then(Value::as_array);
    if !arguments.is_empty() {
        section.push_str("\n| Argument | |\n|---|---|\n");
    }
    for (name, schema) in arguments {
        let is_required = required.is_some_and(|names| names.contains(&Value::String(name.clone())));
        let text = schema.get("description").and_then(Value::as_str).unwrap_or_default();
        let text = text.replace('\n', " ").replace('|', "\\|");
        let need = if is_required { " (required)" } else { "" };
        section.push_str(&format!("| `{name}`{need} | {text} |\n"));
    }
    section
}

#[cfg(test)]
mod tests {
    use super::{agent_guide, agent_skill};
    use crate::catalog::ToolName;

    #[test]
    fn guide_names_all_tools_with_their_arguments() {
        let guide = agent_guide();
        assert!(ToolName::ALL.iter().all(|tool| guide.contains(&format!("### `{}`", tool.name()))));
        assert!(guide.contains("| `action_id` (required) | Action that `agx_run` has returned."), "{guide}");
        assert!(guide.contains("`zcat {} \\| grep -c ERROR`"), "a bar does not end the cell");
        assert!(agent_skill().starts_with("---\nname: agenix\n"));
    }
}

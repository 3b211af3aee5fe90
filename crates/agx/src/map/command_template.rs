//! Command of a map as a template, and its instances.

use std::collections::{BTreeMap, BTreeSet};

use agenix_protocol::{documents::Task, template};
use serde_json::{json, value::RawValue};

use crate::map::placeholders::Placeholder;

/// Command of the map, with placeholders for its inputs.
#[derive(Debug)]
pub(crate) struct CommandTemplate {
    tasks: Vec<Task>,
    placeholders: BTreeSet<Placeholder>,
}

impl CommandTemplate {
    pub(crate) fn new(tasks: Vec<Task>, placeholders: BTreeSet<Placeholder>) -> Self {
        Self { tasks, placeholders }
    }

    /// Returns the command of one job as a shell would read it.
    pub(crate) fn of(&self, args: &[String], seq: u64) -> String {
        let value = |one: &Placeholder| (one.field(), one.value(args, seq));
        let fields: BTreeMap<_, _> = self.placeholders.iter().map(value).collect();
        agenix_shell::render(&filled(&self.tasks, &json!(fields).to_string()))
    }
}

/// Returns the tasks with the placeholders replaced by the values of `input`.
pub(crate) fn filled(tasks: &[Task], input: &str) -> Vec<Task> {
    let input = serde_json::from_str::<&RawValue>(input).unwrap_or(RawValue::NULL);
    let fill = |text: &String| template::fill(text, input).unwrap_or_else(|_| text.clone());
    let filled = |task: &Task| Task {
        args: task.args.iter().map(fill).collect(),
        env: task.env.iter().map(|(name, value)| (name.clone(), fill(value))).collect(),
        stdin_file: task.stdin_file.as_ref().map(fill),
        stdout: task.stdout.as_ref().map(fill),
        stderr: task.stderr.as_ref().map(fill),
        ..task.clone()
    };
    tasks.iter().map(filled).collect()
}

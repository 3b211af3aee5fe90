//! Command of a map as a template, and its instances.

use agenix_protocol::{
    documents::Task,
    template::{self, Values},
};
use serde_json::{Value, value::RawValue};

use crate::map::fields::InputFields;

/// Command of the map, with placeholders for its inputs.
#[derive(Debug)]
pub(crate) struct CommandTemplate {
    tasks: Vec<Task>,
    fields: InputFields,
}

impl CommandTemplate {
    pub(crate) fn new(tasks: Vec<Task>, fields: InputFields) -> Self {
        Self { tasks, fields }
    }

    /// Returns true if the command of a job depends on more of its input than the number.
    pub(crate) fn shows_inputs(&self) -> bool {
        self.fields.placeholders.iter().any(|placeholder| !placeholder.is_number())
    }

    /// Returns the command of one job as a shell would read it.
    pub(crate) fn of(&self, args: &[String], seq: u64) -> String {
        let input = Value::Object(self.fields.of(args, seq)).to_string();
        agenix_shell::render(&filled(&self.tasks, &input))
    }
}

/// Text that stands for the slot, because agx does not know in which slot a job ran.
const SLOT: &str = "{%}";

/// Returns the words with the placeholders replaced by the values of `input`.
pub(super) fn filled_args(words: &[String], input: &str) -> Vec<String> {
    let input = serde_json::from_str::<&RawValue>(input).unwrap_or(RawValue::NULL);
    template::fill_args(words, Values { input, slot: SLOT }).unwrap_or_else(|_| words.to_vec())
}

/// Returns the tasks with the placeholders replaced by the values of `input`.
pub(crate) fn filled(tasks: &[Task], input: &str) -> Vec<Task> {
    let input = serde_json::from_str::<&RawValue>(input).unwrap_or(RawValue::NULL);
    let values = Values { input, slot: SLOT };
    let fill = |text: &String| template::fill(text, values).unwrap_or_else(|_| text.clone());
    let filled = |task: &Task| Task {
        args: template::fill_args(&task.args, values).unwrap_or_else(|_| task.args.clone()),
        env: task.env.iter().map(|(name, value)| (name.clone(), fill(value))).collect(),
        stdin_file: task.stdin_file.as_ref().map(fill),
        stdout: task.stdout.as_ref().map(fill),
        stderr: task.stderr.as_ref().map(fill),
        ..task.clone()
    };
    tasks.iter().map(filled).collect()
}

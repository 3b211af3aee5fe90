//! Sandboxes: options of commands, properties of this machine, and texts about workers and tasks.

mod machine;
mod options;
mod texts;

pub(crate) use self::{
    machine::examine,
    options::{DEFAULT_PROFILE, ProfileArg, SandboxArgs, parse_profile, worker_option_texts},
    texts::{denial, profiles_text, property_lines, task_lines, worker_lines},
};

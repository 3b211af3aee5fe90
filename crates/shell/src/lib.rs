//! Compiles a shell pipeline to the tasks of a plan: `sort {} | uniq -c` becomes two tasks with
//! arguments and a pipe between them.
//!
//! A construct that a plan can express is translated with its POSIX meaning. Other constructs, such
//! as variables, globs, `$(…)`, `&&` and loops, are refused with their position and an alternative.
//! The crate expands nothing, reads no file, and runs no shell.
//!
//! ```
//! use agenix_shell::{Braces, Meaning, Placeholders, Programs, compile};
//!
//! let meaning = |braces: &Braces<'_>| match braces.inside {
//!     "" => Meaning::Placeholder("{{input.file}}".into()),
//!     _ => Meaning::Text,
//! };
//! let placeholders = Placeholders { only: None, meaning: &meaning };
//!
//! let named = Programs::Named;
//! let tasks = compile("sort {} | uniq -c", placeholders, named).expect("the pipeline is valid");
//! assert_eq!(tasks[0].command, "sort");
//! assert_eq!(tasks[0].args, ["{{input.file}}"]);
//! assert_eq!(tasks[1].input_from_task, Some(tasks[0].task_number));
//!
//! let refusal = compile("sort $HOME", placeholders, named).expect_err("a plan has no variables");
//! assert_eq!(refusal.marked(), "sort $HOME\n     ^^^^^");
//! ```

#![forbid(unsafe_code)]

mod braces;
mod compile;
mod interpreter;
mod nesting;
mod own_braces;
mod redirect;
mod refusal;
mod render;
mod role;
mod script;
mod word;
mod wrapper;

pub use braces::{Braces, Meaning, Placeholders};
pub use compile::{Programs, argv, compile};
pub use own_braces::BraceFiller;
pub use refusal::Refusal;
pub use render::render;
pub use role::{WordRole, next_word};
pub use script::Language;

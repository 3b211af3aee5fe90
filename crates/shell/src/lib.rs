//! A shell pipeline as the tasks of a plan: `sort {} | uniq -c` becomes two tasks with arguments, joined by a pipe.
//!
//! What a plan can say is translated with the meaning that POSIX gives it; what it cannot (variables, globs, `$(…)`, `&&`, loops)
//! is refused, with its place and what to write instead. Nothing is expanded, no file is looked at, no shell is ever run.

#![forbid(unsafe_code)]

mod braces;
mod compile;
mod interpreter;
mod redirect;
mod refusal;
mod render;
mod role;
mod script;
mod word;
mod wrapper;

pub use braces::{Braces, Meaning, Placeholders};
pub use compile::{argv, compile};
pub use refusal::Refusal;
pub use render::{is_hidden, render};
pub use role::{WordRole, next_word};
pub use script::Language;

//! Servers and workers that agx runs in the background or for one command.

pub(crate) mod embedded;
mod log_lines;
pub(crate) mod supervisor;

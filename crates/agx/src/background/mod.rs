//! Servers and workers that agx runs in the background or for one command.

pub(crate) mod embedded;
pub(crate) mod local_cluster;
mod log_lines;
pub(crate) mod supervisor;

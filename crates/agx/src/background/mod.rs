//! Servers and workers that agx runs in the background or for one command.

pub(crate) mod embedded;
pub(crate) mod supervisor;

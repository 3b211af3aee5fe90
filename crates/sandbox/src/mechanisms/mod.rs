//! Mechanisms of Linux that a supervisor applies to itself, and that its tasks inherit.

pub(crate) mod control_group;
pub(crate) mod facts;
pub(crate) mod interpreters;
pub(crate) mod landlock;
pub(crate) mod limits;
pub(crate) mod namespaces;
pub(crate) mod privileges;
pub(crate) mod scratch;
pub(crate) mod seccomp;
mod syscalls;

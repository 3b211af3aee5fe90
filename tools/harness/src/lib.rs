//! Parts that `cargo xtask`, the benchmark and the chaos test share: running commands, building the
//! programs, installing the tools that a check needs, and a small RESP client.

#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "progress of commands goes to stdout")]

pub mod binaries;
pub mod environment;
pub mod generated;
pub mod pgo;
pub mod report;
pub mod resp;
pub mod tools;

//! End-to-end tests with the real binaries, one file for each use.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]
#![expect(clippy::print_stdout, reason = "what a failing test printed is shown with it")]

mod action_bounds;
mod agents;
mod agq_away;
mod agq_killed;
mod agx_errors;
mod approvals;
mod ask;
mod at_hand;
#[cfg(target_os = "linux")]
mod attacks;
mod audit_chain;
mod background;
mod backup;
mod bad_input;
mod bucket;
mod budgets;
mod capabilities;
mod certificates;
mod clients;
mod directives;
mod drain;
mod events;
mod gigabyte;
mod gone_claimant;
mod halts;
mod http;
mod json;
mod lifecycle;
mod like_redis;
mod limits_and_tls;
mod load;
mod log_lines;
mod logs;
mod lost_outputs;
mod map;
#[cfg(target_os = "linux")]
mod map_bytes;
mod map_ends;
mod map_interrupted;
mod map_joblog;
mod map_like_others;
mod map_live;
mod map_programs;
mod map_text;
mod mcp;
mod mcp_conformance;
mod nodes;
mod open_action;
mod outputs;
mod pages;
mod pipelining;
mod policies;
mod provenance;
mod replies;
mod resources;
mod roles;
mod run;
mod running;
#[cfg(target_os = "linux")]
mod sandbox;
mod sandbox_options;
#[cfg(target_os = "linux")]
mod sandboxed_jobs;
#[cfg(target_os = "linux")]
mod scale;
mod secrets;
mod session_leader;
mod settings;
mod shared_action;
mod shares;
mod signals;
mod signed_orders;
mod specifications;
#[cfg(target_os = "linux")]
mod spool_disk;
mod standard_streams;
#[cfg(target_os = "linux")]
mod stray_processes;
mod submit_to_result;
mod support;
mod surroundings;
mod terminal;
mod tls;
mod tour;
mod transcripts;
mod unwritable_log;
mod worker_killed;
#[cfg(target_os = "linux")]
mod worker_limits;

//! What is legal. Pure: no clock, no randomness, no IO; time, ids and randomness are arguments, decisions are values.

#![forbid(unsafe_code)]

pub mod action;
pub mod capability;
pub mod cron;
pub mod explain;
pub mod job;
pub mod limit;
pub mod ojs;
pub mod plan;
pub mod quarantine;
pub mod rejection;
pub mod retry;
pub mod worker;
pub mod workflow;

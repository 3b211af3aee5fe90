//! RESP commands, one file for each group. A handler parses the arguments, calls an operation of
//! `service`, and shapes the reply.

pub(crate) mod action;
pub(crate) mod backup;
pub(crate) mod budget;
pub(crate) mod capability;
pub(crate) mod challenge;
pub(crate) mod info;
pub(crate) mod job;
pub(crate) mod keyspace;
pub(crate) mod metrics;
pub(crate) mod output;
pub(crate) mod outputs;
pub(crate) mod plan;
pub(crate) mod queue;
pub(crate) mod schedule;
pub(crate) mod virtual_keys;
pub(crate) mod worker;
pub(crate) mod workflow;

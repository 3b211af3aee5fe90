//! Reports about jobs to agq: the queue of finished jobs, and the connections that carry reports.

pub(crate) mod batch_timer;
pub(crate) mod download;
pub(crate) mod end_report;
pub(crate) mod link;
pub(crate) mod queue;
pub(crate) mod registration;
pub(crate) mod reporter;
mod storage_failures;
pub(crate) mod upload;

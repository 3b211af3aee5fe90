//! Background tasks: event publisher, reaper with the requeue of orphaned jobs, sweeps of blobs,
//! and pause detector.

pub(crate) mod blob_sweeper;
pub(crate) mod event_publisher;
mod orphaned_jobs;
pub(crate) mod pause_detector;
pub(crate) mod reaper;

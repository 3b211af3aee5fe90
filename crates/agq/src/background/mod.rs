//! Background tasks: event publisher, reaper, sweeps of blobs, and pause detector.

pub(crate) mod blob_sweeper;
pub(crate) mod event_publisher;
pub(crate) mod pause_detector;
pub(crate) mod reaper;

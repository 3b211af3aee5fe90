//! Background tasks: event publisher, reaper, and pause detector.

pub(crate) mod event_publisher;
pub(crate) mod pause_detector;
pub(crate) mod reaper;

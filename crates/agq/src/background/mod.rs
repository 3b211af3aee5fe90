//! Tasks that run beside the connections.

pub(crate) mod event_publisher;
pub(crate) mod pause_detector;
pub(crate) mod reaper;

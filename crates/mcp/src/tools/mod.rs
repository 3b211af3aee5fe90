//! The tools, one module for each. The tools know agq, and nothing of the protocol.

pub(crate) mod budget;
pub(crate) mod cancel;
pub(crate) mod check;
pub(crate) mod joined_outputs;
pub(crate) mod list;
pub(crate) mod logs;
pub(crate) mod plan_source;
pub(crate) mod results;
pub(crate) mod retry;
pub(crate) mod run;
pub(crate) mod status;
pub(crate) mod target;
pub(crate) mod wait;

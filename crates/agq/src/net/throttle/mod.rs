//! Limits on wrong keys, on commands, and on waiting for a client. The modules are pure: the time
//! is an argument, and the caller waits.

mod auth_guard;
mod command_rate;
mod timeouts;

pub(crate) use auth_guard::AuthGuard;
pub(crate) use command_rate::{CommandRate, RateDecision};
pub(crate) use timeouts::{ClientTimeouts, TimedOut, TimeoutLimits};

//! How much one connection or one address may ask of agq. Pure: the time is an argument, and waiting is the caller's
//! business.

mod auth_guard;
mod command_rate;
mod timeouts;

pub(crate) use auth_guard::AuthGuard;
pub(crate) use command_rate::{CommandRate, RateDecision};
pub(crate) use timeouts::{ClientTimeouts, TimedOut, TimeoutLimits};

//! How much one connection or one address may ask of agq. Pure: the time is an argument, and waiting is the caller's
//! business.

mod auth_guard;
mod command_rate;
mod patience;

pub(super) use auth_guard::AuthGuard;
pub(super) use command_rate::{CommandRate, RateDecision};
pub(super) use patience::{ClientTimeouts, TimedOut, TimeoutLimits};

//! Connections to the database: opening, sessions, health checks and the meaning of errors.

pub(crate) mod dedicated;
pub(crate) mod errors;
pub(crate) mod health_check;
pub(crate) mod open;
pub(crate) mod pool;
pub(crate) mod round_trip;
pub(crate) mod session;
pub(crate) mod timeout;

pub(crate) use self::{
    dedicated::DedicatedConnection,
    errors::{is_disconnect, is_read_only, message},
    health_check::HealthCheck,
    open::ConnectOptions,
    pool::Pool,
    round_trip::{Answers, Param, PreparedStatement, RoundTrip, RoundTripFailure},
    session::DatabaseSession,
    timeout::within,
};

//! Connections to the database: opening, sessions, health checks and the meaning of errors.

pub(crate) mod dedicated;
pub(crate) mod errors;
pub(crate) mod flight;
pub(crate) mod health_check;
pub(crate) mod open;
pub(crate) mod pool;
pub(crate) mod session;

pub(crate) use self::{
    dedicated::DedicatedConnection,
    errors::{is_disconnect, is_read_only, message},
    flight::{Answers, Flight, FlightFailure, Param, Statement},
    health_check::HealthCheck,
    open::ConnectOptions,
    pool::Pool,
    session::{DatabaseSession, within},
};

//! Connections to the database: opening, sessions, health checks and the meaning of errors.

pub(crate) mod dedicated;
pub(crate) mod errors;
pub(crate) mod health_check;
pub(crate) mod open;
pub(crate) mod pool;
pub(crate) mod session;

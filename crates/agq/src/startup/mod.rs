//! Start of the server: opens the store, builds the services, starts logs, and reloads settings on SIGHUP.

pub(crate) mod logging;
pub(crate) mod reload;
pub(crate) mod services;

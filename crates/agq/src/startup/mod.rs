//! Start of the server: opens the store, builds the services, starts logs, and reloads settings on
//! SIGHUP.

pub(crate) mod banner;
pub(crate) mod hardening;
pub(crate) mod logging;
pub(crate) mod open_store;
pub(crate) mod reload;
pub(crate) mod server;
pub(crate) mod services;
pub(crate) mod signals;

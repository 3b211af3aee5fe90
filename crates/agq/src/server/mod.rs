//! The RESP door: sockets and sessions. It knows no rule and no record.

mod accept;
mod access_control;
mod auth_errors;
mod connection;
mod guests;
mod heard;
mod listen;
mod outlet;
mod session;
mod subscriptions;
mod throttle;
mod tls;
mod transaction;
mod unproven;

pub(crate) use accept::{ProtocolHandler, resp_handler, serve};
pub(crate) use access_control::AccessControl;
pub(crate) use guests::ConnectionPermit;
pub(crate) use listen::{ClientStream, ListenAddresses, Listeners};
pub(crate) use outlet::{SlowClient, TimeoutWriter};
pub(crate) use tls::{TlsAcceptance, TlsFiles};

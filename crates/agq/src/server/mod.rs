//! The RESP door: sockets and sessions. It knows no rule and no record.

mod accept;
mod auth_errors;
mod connection;
mod door;
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

pub(crate) use accept::{Manner, resp, serve};
pub(crate) use door::Door;
pub(crate) use guests::Guest;
pub(crate) use listen::{Accepted, Entrance, Places};
pub(crate) use outlet::{Outlet, Unread};
pub(crate) use tls::{TlsDoor, TlsFiles};

//! The RESP door: sockets and sessions. It knows no rule and no record.

mod accept;
mod connection;
mod session;

pub(crate) use accept::serve;

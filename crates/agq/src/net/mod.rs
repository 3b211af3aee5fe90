//! Connections, whatever their protocol: listeners, TLS, access control, limits and time-outs.

pub(crate) mod accept;
pub(crate) mod access_control;
pub(crate) mod connection_limit;
pub(crate) mod listener;
pub(crate) mod read_notify;
pub(crate) mod throttle;
pub(crate) mod tls;
pub(crate) mod write_timeout;

pub(crate) use accept::{ProtocolHandler, serve};
pub(crate) use access_control::AccessControl;
pub(crate) use connection_limit::ConnectionPermit;
pub(crate) use listener::{ClientStream, Listeners};
pub(crate) use tls::TlsAcceptance;
pub(crate) use write_timeout::{SlowClient, TimeoutWriter};

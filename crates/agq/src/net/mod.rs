//! Transport layer of agq: everything about a connection that does not depend on its protocol. This
//! module has the listeners, TLS, access control, limits and time-outs. The protocols are in `resp`
//! and `http`.
//!
//! Life of a connection:
//!
//! 1. [`Listeners`] accept a TCP connection or a connection to the Unix socket.
//! 2. [`accept`] asks the limiter of the address for a [`ConnectionPermit`]. A client beyond the
//!    limit gets the rejection of the protocol, and agq closes the connection.
//! 3. With TLS, [`TlsAcceptance`] performs the handshake. The
//!    [`Keyring`](crate::auth::keyring::Keyring) may derive an identity from the client's
//!    certificate.
//! 4. The [`ProtocolHandler`] of the listener serves the resulting [`ClientStream`] until the
//!    client closes it, a time-out or a limit ends it, or agq stops.
//! 5. The permit is dropped, so that another connection of the address can have the place.

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

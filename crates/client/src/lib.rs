//! How agw, agx and the tests speak to agq: typed calls over the `redis` crate.
//!
//! It knows the wire and nothing else: it never decides what a failure means for the caller, and never retries a command
//! by itself.

#![forbid(unsafe_code)]

mod address;
mod backoff;
mod backup;
mod calls;
mod connection;
mod error;
mod key;
mod orders;
mod refusal;
mod schedules;
mod tls;
mod token;

pub use address::{Address, Tls};
pub use backoff::Backoff;
pub use calls::{RegisteredWorker, SubmittedAction};
pub use connection::{Connection, Server};
pub use error::ClientError;
pub use key::{KEY_HELP, SessionKeyError, key_in, session_key};
pub use orders::{OrderMessage, OrderSubscription};
pub use schedules::{SavedSchedule, SubmittedWorkflow};
pub use token::Token;

//! Client of agq for agw, agx and the tests: typed calls over the `redis` crate.
//!
//! The client implements the wire protocol only. The client leaves the reaction to an error to the
//! caller, and never repeats a command by itself.
//!
//! ```no_run
//! use agenix_client::{ClientError, Connection, Server, session_key};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let server = Server::new("127.0.0.1:6380", session_key(None)?)?;
//! let mut connection = Connection::open(&server).await?;
//! match connection.workers().await {
//!     Ok(workers) => println!("{} workers", workers.len()),
//!     Err(ClientError::Unreachable { reason, .. }) => println!("connect again: {reason}"),
//!     Err(error) => return Err(error.into()),
//! }
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

mod actions;
mod address;
mod backoff;
mod backup;
mod connection;
mod directives;
mod error;
mod jobs;
mod key;
mod outputs;
mod plans;
mod queues;
mod refusal;
mod replies;
mod schedules;
mod tls;
mod token;
mod workers;

pub use actions::SubmittedAction;
pub use address::{Address, Tls};
pub use backoff::Backoff;
pub use connection::{Connection, Server, choose_cryptography};
pub use directives::{DirectiveMessage, DirectiveSubscription};
pub use error::ClientError;
pub use key::{KEY_HELP, SessionKeyError, is_key_in_variable, key_in, session_key};
pub use schedules::{SavedSchedule, SubmittedWorkflow};
pub use tls::{TlsDefect, TlsDefectKind, tls_defect};
pub use token::Token;
pub use workers::RegisteredWorker;

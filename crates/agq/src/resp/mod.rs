//! RESP server: connections, sessions, and handlers that present the operations of `service`.
//!
//! A command passes these modules:
//!
//! 1. [`connection`] reads the frame, and decides when the command starts: backpressure, rate
//!    limit, state of the pipeline.
//! 2. [`session`] parses the command, checks the key and its role, and answers commands that
//!    concern the session alone: AUTH, HELLO, CLIENT, MULTI ([`transaction`]), SUBSCRIBE
//!    ([`subscriptions`]).
//! 3. [`dispatch`] finds the handler, and [`audit`] prepares the audit entry. For an agent,
//!    [`ownership`] answers a command on a record that the agent does not own.
//! 4. [`handlers`] parse the arguments, call an operation of `service`, and shape the reply.
//! 5. [`outcome`] is the reply, with its effect on the session: a registration, a claim
//!    ([`unacked_claims`]), or the end of the connection.
//! 6. [`connection`] sends the replies in the order of the commands.

pub(crate) mod audit;
pub(crate) mod auth_errors;
pub(crate) mod connection;
pub(crate) mod dispatch;
pub(crate) mod handlers;
pub(crate) mod outcome;
pub(crate) mod ownership;
pub(crate) mod session;
pub(crate) mod subscriptions;
pub(crate) mod transaction;
pub(crate) mod unacked_claims;

use std::sync::Arc;

use futures_util::future::BoxFuture;

use crate::{
    app::AppState,
    net::{AccessControl, ProtocolHandler},
};

pub(crate) fn handler(app: Arc<AppState>, access_control: Arc<AccessControl>) -> ProtocolHandler {
    let serve = move |accepted, number, stop| -> BoxFuture<'static, ()> {
        Box::pin(connection::serve(accepted, number, Arc::clone(&app), Arc::clone(&access_control), stop))
    };
    ProtocolHandler { serve: Box::new(serve), rejection: |reason| format!("-{reason}\r\n") }
}

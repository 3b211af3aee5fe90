//! RESP: connections, sessions, and handlers that present the operations of `service`.

pub(crate) mod audit;
pub(crate) mod auth_errors;
pub(crate) mod connection;
pub(crate) mod dispatch;
pub(crate) mod handlers;
pub(crate) mod outcome;
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

/// Returns the handler of RESP connections.
pub(crate) fn handler(app: Arc<AppState>, access_control: Arc<AccessControl>) -> ProtocolHandler {
    let serve = move |accepted, number, stop| -> BoxFuture<'static, ()> {
        Box::pin(connection::serve(accepted, number, Arc::clone(&app), Arc::clone(&access_control), stop))
    };
    ProtocolHandler { serve: Box::new(serve), rejection: |reason| format!("-{reason}\r\n") }
}

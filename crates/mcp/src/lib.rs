//! Model Context Protocol (MCP) server over agq: agents run plans over many inputs, and read the
//! results.
//!
//! The server keeps nothing but connections. The id of an MCP task is the id of an action, so that
//! any process of this server, on any machine, answers for it, also after a restart.
//!
//! `handler` implements the protocol with the crate `rmcp`, which no other module names, except
//! `catalog` for the definitions of tools, `links`, `tasks`, `progress` and `http`. `tools` has one
//! module for each tool, and `queue` the access to agq. `fixtures`, with the feature of that name,
//! serves the conformance suite of MCP.

#![forbid(unsafe_code)]

mod action;
mod arguments;
mod catalog;
mod error;
#[cfg(feature = "fixtures")]
pub mod fixtures;
mod guide;
mod handler;
mod http;
mod links;
mod program_text;
mod progress;
mod queue;
mod reports;
mod resources;
mod settings;
mod tasks;
mod tools;

pub use guide::{agent_guide, agent_skill};
pub use http::HttpListener;
pub use settings::McpServerSettings;

/// Serves MCP over stdin and stdout until stdin ends. Nothing else may write to stdout.
///
/// # Errors
///
/// The client does not begin with a message of MCP, or the connection to it fails.
pub async fn serve_stdio(settings: McpServerSettings) -> Result<(), ServeError> {
    handler::serve_stdio(settings).await
}

/// Failure of the server.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ServeError(String);

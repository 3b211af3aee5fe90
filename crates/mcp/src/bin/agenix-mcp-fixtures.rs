//! MCP server with fixtures for the conformance suite of MCP. The program is for tests, and is no
//! part of the product.
//!
//! The server uses the agq of `AGQ_ADDR` with the key `AGQ_SESSION_KEY`, listens on a free port of
//! the loopback interface, and prints its URL.

#![forbid(unsafe_code)]

use std::{error::Error, io::Write, time::SystemTime};

use agenix_client::Server;
use agenix_mcp::{HttpListener, McpServerSettings, fixtures};
use agenix_protocol::{documents::Task, time::Timestamp};
use agenix_shell::{Meaning, Placeholders, Programs, Refusal, compile};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let (address, key) = (std::env::var("AGQ_ADDR")?, std::env::var("AGQ_SESSION_KEY")?);
    let settings = McpServerSettings {
        server: Server::new(&address, key.into())?,
        version: env!("CARGO_PKG_VERSION"),
        queue: None,
        profile: None,
        cwd: None,
        now,
        compile: tasks_of,
    };
    let listener = HttpListener::bind(([127, 0, 0, 1], 0).into()).await?;
    writeln!(std::io::stdout(), "{}", listener.url())?;
    match fixtures::serve(listener, settings).await {}
}

/// Returns the time.
fn now() -> Timestamp {
    #[expect(clippy::disallowed_methods, reason = "this is the clock of the program")]
    let now = SystemTime::now();
    now.into()
}

fn tasks_of(pipeline: &str) -> Result<Vec<Task>, Refusal> {
    compile(pipeline, Placeholders { only: None, meaning: &|_| Meaning::Text }, Programs::Named)
}

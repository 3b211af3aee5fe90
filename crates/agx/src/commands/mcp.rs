//! `agx mcp`: an MCP server, through which agents run plans on agq.

use std::io::IsTerminal;

use agenix_mcp::Settings;
use agenix_protocol::{documents::Task, ids::QueueName};
use agenix_shell::{Braces, Placeholders, Programs, Refusal, compile};
use clap::Args;
use serde_json::json;

use crate::{
    error::{CliError, Result},
    map::in_plan,
    output::Output,
    sandbox::ProfileArg,
    server_args::ServerArgs,
    util::text::any_bytes,
};

#[derive(Debug, Args)]
pub(crate) struct McpArgs {
    /// Queue of all jobs; a key that may use some queues alone needs one of them
    #[arg(long, value_name = "NAME")]
    queue: Option<QueueName>,
    #[command(flatten)]
    sandbox: ProfileArg,
    /// Directory of the tasks on the workers
    #[arg(long, value_name = "DIR", value_parser = any_bytes())]
    cwd: Option<String>,
    /// Print the configuration with which an MCP client starts this server
    #[arg(long)]
    print_config: bool,
}

pub(crate) async fn run(server: &ServerArgs, args: McpArgs, output: Output) -> Result<()> {
    if args.print_config {
        output.raw(config(&args).as_bytes())?;
        return output.flush();
    }
    if std::io::stdin().is_terminal() {
        return Err(CliError::usage(
            "an MCP client starts `agx mcp`, and talks to it over stdin and stdout",
            "`agx mcp --print-config` shows how to configure a client",
        ));
    }
    let settings = Settings {
        server: server.server()?,
        version: env!("CARGO_PKG_VERSION"),
        queue: args.queue,
        profile: args.sandbox.name().map(str::to_owned),
        cwd: args.cwd,
        compile: tasks_of,
    };
    let served = agenix_mcp::serve_stdio(settings).await;
    served.map_err(|error| CliError::usage(error.to_string(), "start `agx mcp` from an MCP client"))
}

/// Compiles a pipeline as `agx plan from` does.
fn tasks_of(pipeline: &str) -> std::result::Result<Vec<Task>, Refusal> {
    let meaning = |braces: &Braces<'_>| in_plan(braces, false);
    compile(pipeline, Placeholders { only: None, meaning: &meaning }, Programs::Named)
}

/// Returns the configuration in the form that most clients read.
fn config(args: &McpArgs) -> String {
    let mut words = vec!["mcp".to_owned()];
    let options = [
        ("queue", args.queue.as_ref().map(ToString::to_string)),
        ("sandbox", args.sandbox.name().map(str::to_owned)),
        ("cwd", args.cwd.clone()),
    ];
    words.extend(options.into_iter().filter_map(|(name, value)| Some(format!("--{name}={}", value?))));
    let program = std::env::current_exe().map_or_else(|_| "agx".into(), |path| path.display().to_string());
    let variables = ["AGQ_ADDR", "AGQ_SESSION_KEY_FILE", "AGX_PROFILE"];
    let env: serde_json::Map<_, _> = variables
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), std::env::var(name).ok()?.into())))
        .collect();
    let config = json!({"mcpServers": {"agenix": {"command": program, "args": words, "env": env}}});
    format!("{}\n", serde_json::to_string_pretty(&config).unwrap_or_default())
}

//! `agx mcp`: an MCP server, through which agents run plans on agq. `agx agent-guide`: a page about
//! the server for agents.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    io::{self, IsTerminal},
    net::SocketAddr,
    path::PathBuf,
};

use agenix_client::Server;
use agenix_mcp::{HttpListener, McpServerSettings};
use agenix_protocol::{
    byte_escape::{decode_os, encode_os},
    documents::Task,
    ids::QueueName,
};
use agenix_shell::{Braces, Placeholders, Programs, Refusal, compile};
use clap::Args;
use serde_json::json;

use super::{command_plan, project_cluster};
use crate::{
    connection_args::ConnectionArgs,
    error::{CliError, Result},
    map::in_plan,
    output::OutputFormat,
    sandbox::ProfileArg,
    util::{clock::now, text::any_bytes},
};

#[derive(Debug, Args)]
pub(crate) struct McpArgs {
    /// Queue of all jobs; a key that may use some queues alone needs one of them
    #[arg(long, value_name = "NAME")]
    queue: Option<QueueName>,
    #[command(flatten)]
    sandbox: ProfileArg,
    /// Directory of the tasks on the workers; a worker that agx starts for them lets them read it
    /// [default: the current directory, on a worker of this machine]
    #[arg(long, value_name = "DIR", value_parser = any_bytes())]
    cwd: Option<String>,
    /// Serve over HTTP on a loopback address instead of stdin and stdout, as 127.0.0.1:6390;
    /// clients send the session key as a bearer token
    #[arg(long, value_name = "ADDRESS")]
    http: Option<SocketAddr>,
    /// Also accept this name in the Host header of HTTP, as a proxy with TLS sends it
    #[arg(long, value_name = "NAME", requires = "http")]
    http_host: Vec<String>,
    /// Print the configuration with which an MCP client starts this server
    #[arg(long)]
    print_config: bool,
}

#[derive(Debug, Args)]
pub(crate) struct GuideArgs {
    /// Print a skill file for coding agents, which has the page and a header
    #[arg(long)]
    skill: bool,
}

/// Prints the page for agents.
pub(crate) fn guide(args: &GuideArgs, output: OutputFormat) -> Result<()> {
    let page = if args.skill { agenix_mcp::agent_skill() } else { agenix_mcp::agent_guide() };
    output.raw(page.as_bytes())?;
    output.flush()
}

pub(crate) async fn run(server: &ConnectionArgs, mut args: McpArgs, output: OutputFormat) -> Result<()> {
    if args.print_config {
        output.raw(config(server, &args)?.as_bytes())?;
        return output.flush();
    }
    if args.http.is_none() && std::io::stdin().is_terminal() {
        return Err(CliError::usage(
            "an MCP client starts `agx mcp`, and talks to it over stdin and stdout",
            "`agx mcp --print-config` shows how to configure a client",
        ));
    }
    let (server, cwd) = match server.given()? {
        Some(server) => {
            let cwd = command_plan::cwd(args.cwd.as_ref(), Some(&server), false)?;
            (server, cwd)
        }
        None => {
            command_plan::ignore_queue(&mut args.queue, "--queue", output);
            own_server(args.cwd.as_deref(), output).await?
        }
    };
    let settings = McpServerSettings {
        server,
        version: env!("CARGO_PKG_VERSION"),
        queue: args.queue,
        profile: args.sandbox.name().map(str::to_owned),
        cwd,
        now,
        compile: tasks_of,
    };
    let Some(address) = args.http else {
        let served = agenix_mcp::serve_stdio(settings).await;
        return served
            .map_err(|error| CliError::usage(error.to_string(), "start `agx mcp` from an MCP client"));
    };
    let listener = HttpListener::bind(address).await.map_err(|error| {
        CliError::usage(
            error.to_string(),
            "choose a free port of 127.0.0.1; a proxy with TLS can stand in front of it",
        )
    })?;
    output.note(&format!("agx: MCP at {}; clients send the session key as a bearer token", listener.url()));
    match listener.serve(settings, args.http_host).await {}
}

/// Returns the agq of a directory, which is started if it does not run, and the directory.
async fn own_server(cwd: Option<&str>, output: OutputFormat) -> Result<(Server, Option<String>)> {
    let given = PathBuf::from(decode_os(cwd.unwrap_or(".")));
    let directory = given.canonicalize().map_err(|error| {
        let problem = format!("the directory of the tasks, {}, cannot be found: {error}", given.display());
        CliError::usage(problem, "name one with --cwd")
    })?;
    let server = project_cluster::ensure(&directory, output).await?;
    Ok((server, Some(encode_os(directory.as_os_str()))))
}

/// Compiles a pipeline as `agx plan from` does.
fn tasks_of(pipeline: &str) -> std::result::Result<Vec<Task>, Refusal> {
    let meaning = |braces: &Braces<'_>| in_plan(braces, false);
    compile(pipeline, Placeholders { only: None, meaning: &meaning }, Programs::Named)
}

/// Returns the configuration in the form that most clients read. A client starts the server in a
/// directory of its own, so paths are absolute.
fn config(server: &ConnectionArgs, args: &McpArgs) -> Result<String> {
    let absolute = |path: &OsStr| std::path::absolute(path).map_err(|error| no_path(path, &error));
    // The worker of a named agq has a directory of its own, in which relative paths begin.
    let cwd = match &args.cwd {
        Some(cwd) if !server.is_given()? => Some(encode_os(absolute(&decode_os(cwd))?.as_os_str())),
        cwd => cwd.clone(),
    };
    let mut words = vec!["mcp".to_owned()];
    let options = [
        ("queue", args.queue.as_ref().map(ToString::to_string)),
        ("sandbox", args.sandbox.name().map(str::to_owned)),
        ("cwd", cwd),
    ];
    words.extend(options.into_iter().filter_map(|(name, value)| Some(format!("--{name}={}", value?))));
    let program = std::env::current_exe().map_or_else(|_| "agx".into(), |path| path.display().to_string());
    let home = std::env::var_os("AGX_HOME").filter(|home| !home.is_empty());
    let home = home.map(|home| absolute(&home)).transpose()?;
    let home = home.map(|home| ("AGX_HOME", home.display().to_string()));
    let settings = server.settings()?;
    words.extend(settings.arguments);
    let env: BTreeMap<_, _> = settings.variables.into_iter().chain(home).collect();
    let config = json!({"mcpServers": {"agenix": {"command": program, "args": words, "env": env}}});
    Ok(format!("{}\n", serde_json::to_string_pretty(&config).unwrap_or_default()))
}

fn no_path(path: &OsStr, error: &io::Error) -> CliError {
    CliError::usage(format!("{} is no path: {error}", path.display()), "name an absolute path")
}

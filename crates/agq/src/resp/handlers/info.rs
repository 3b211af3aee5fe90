//! INFO and COMMAND: description of the server in the format of Redis.

use agenix_protocol::{
    request::{Command, CommandAccess, CommandKind},
    resp::Reply,
};

use super::keyspace;
use crate::{app::AppState, resp::outcome::CommandResult};

/// The commands on keys have the semantics of this version. Client libraries check the version.
const REDIS_VERSION: &str = "7.0.15";

pub(crate) async fn info(app: &AppState, sections: &[String]) -> CommandResult {
    let uptime = app.clock.now().ms_since(app.started_at) / 1000;
    let (connected, connections, commands) = app.connections.counts();
    let keys = keyspace::count(app).await?;
    let totals = app.store.totals().await?.now;
    let stats =
        format!("total_connections_received:{connections}\r\ntotal_commands_processed:{commands}\r\n");
    let keyspace = if keys == 0 { String::new() } else { format!("db0:keys={keys},expires=0,avg_ttl=0\r\n") };
    let audit = app.audit.head().map_or_else(String::new, |head| format!("audit_log_head:{head}\r\n"));
    let all = [
        (
            "Server",
            format!(
                "redis_version:{REDIS_VERSION}\r\nredis_mode:standalone\r\nserver_name:agq\r\nagq_version:{}\r\nos:{}\r\nprocess_id:{}\r\nuptime_in_seconds:{uptime}\r\nserver_time_usec:{}\r\n",
                env!("CARGO_PKG_VERSION"),
                std::env::consts::OS,
                std::process::id(),
                app.clock.now().0.saturating_mul(1000)
            ),
        ),
        ("Clients", format!("connected_clients:{connected}\r\n")),
        ("Stats", stats),
        ("Replication", "role:master\r\nconnected_slaves:0\r\n".into()),
        (
            "Jobs",
            format!(
                "jobs_pending:{}\r\njobs_running:{}\r\njobs_completed:{}\r\njobs_failed:{}\r\njobs_dead:{}\r\njobs_cancelled:{}\r\n",
                totals[0], totals[1], totals[2], totals[3], totals[4], totals[5]
            ),
        ),
        ("Audit", audit),
        ("Keyspace", keyspace),
    ];
    let is_all =
        |word: &String| ["all", "default", "everything"].iter().any(|all| word.eq_ignore_ascii_case(all));
    let wanted = |name: &str| {
        sections.is_empty() || sections.iter().any(|word| is_all(word) || word.eq_ignore_ascii_case(name))
    };
    let is_there = |name: &str| name != "Audit" || app.audit.is_on();
    let shown = all.into_iter().filter(|(name, _)| wanted(name) && is_there(name));
    let texts: Vec<String> = shown.map(|(name, text)| format!("# {name}\r\n{text}")).collect();
    Ok(Reply::bulk(texts.join("\r\n")))
}

/// COMMAND, COMMAND INFO
pub(crate) fn commands(names: Option<&[String]>) -> Reply {
    match names {
        None => Reply::Array(Command::all().map(row).collect()),
        Some(names) => {
            Reply::Array(names.iter().map(|name| find(name).map_or(Reply::NilArray, row)).collect())
        }
    }
}

/// COMMAND DOCS
pub(crate) fn docs(names: &[String]) -> Reply {
    let doc = |command: &'static Command| (Reply::bulk(command.name.to_ascii_lowercase()), doc(command));
    Reply::Map(if names.is_empty() {
        Command::all().map(doc).collect()
    } else {
        names.iter().filter_map(|name| find(name)).map(doc).collect()
    })
}

fn find(name: &str) -> Option<&'static Command> {
    Command::find(&name.to_ascii_uppercase())
}

/// Returns name, arity, flags, first key, last key and step, and empty categories, tips, key
/// specifications and subcommands.
fn row(command: &'static Command) -> Reply {
    let flags: &[&str] = match command.kind {
        CommandKind::Session => &["noscript", "fast"],
        CommandKind::Read => &["readonly"],
        CommandKind::Write | CommandKind::Steps => &["write"],
        CommandKind::Blocking => &["write", "blocking"],
    };
    let admin = (command.access == CommandAccess::Admin).then_some("admin");
    let flags = flags.iter().copied().chain(admin).map(|flag| Reply::Simple(flag.into())).collect();
    let (first, last, step) = command.keys;
    Reply::Array(vec![
        Reply::bulk(command.name.to_ascii_lowercase()),
        Reply::Integer(command.arity.into()),
        Reply::Set(flags),
        Reply::Integer(first.into()),
        Reply::Integer(last.into()),
        Reply::Integer(step.into()),
        Reply::Set(Vec::new()),
        Reply::Array(Vec::new()),
        Reply::Array(Vec::new()),
        Reply::Array(Vec::new()),
    ])
}

/// The syntax is one argument, because COMMAND DOCS has no field for it.
fn arguments(command: &'static Command) -> Vec<Reply> {
    if command.syntax.is_empty() {
        return Vec::new();
    }
    let field = |name: &'static str, value: &'static str| (Reply::bulk(name), Reply::bulk(value));
    vec![Reply::Map(vec![
        field("name", command.syntax),
        field("type", "string"),
        field("display_text", command.syntax),
    ])]
}

fn doc(command: &'static Command) -> Reply {
    let field = |name: &'static str, value: &'static str| (Reply::bulk(name), Reply::bulk(value));
    let group = command.name.split_once('.').map_or("redis", |(group, _)| group);
    Reply::Map(vec![
        field("summary", command.summary),
        (Reply::bulk("group"), Reply::bulk(group.to_ascii_lowercase())),
        // redis-cli shows the arguments beside the name.
        (Reply::bulk("arguments"), Reply::Array(arguments(command))),
    ])
}

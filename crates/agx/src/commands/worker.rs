//! `agx worker`

use agenix_protocol::{documents::WorkerStatus, ids::WorkerId};
use clap::Subcommand;
use serde_json::Value;

use crate::{
    connection_args::ConnectionArgs,
    documents::WorkerRef,
    error::{CliError, Result},
    output::{OutputFormat, table},
    remote::worker_resources::worker_resources_text,
    sandbox::{profiles_text, worker_lines},
    util::printable::one_line,
};

#[derive(Debug, Subcommand)]
pub(crate) enum WorkerCommand {
    /// List the workers, their states and jobs
    List,
    /// Show a worker: its machine, its tags, and the sandbox profiles that it offers
    Get { worker_id: WorkerId },
    /// Drain a worker: it finishes its jobs and takes no new ones
    Drain { worker_id: WorkerId },
    /// Resume a drained or quarantined worker
    Resume { worker_id: WorkerId },
}

pub(crate) async fn run(server: &ConnectionArgs, command: WorkerCommand, output: OutputFormat) -> Result<()> {
    match command {
        WorkerCommand::List => list(server, output).await,
        WorkerCommand::Get { worker_id } => get(server, &worker_id, output).await,
        WorkerCommand::Drain { worker_id } => set_draining(server, &worker_id, true, output).await,
        WorkerCommand::Resume { worker_id } => set_draining(server, &worker_id, false, output).await,
    }
}

async fn list(server: &ConnectionArgs, output: OutputFormat) -> Result<()> {
    let workers = server.connect().await?.workers().await?;
    output.show("worker.list", &workers, |workers| text(workers))
}

fn text(workers: &[WorkerStatus]) -> String {
    if workers.is_empty() {
        return "there is no worker: start one with `agw`".into();
    }
    let row = |worker: &WorkerStatus| {
        vec![
            worker.worker_id.to_string(),
            worker.state.clone(),
            worker.hostname.clone(),
            format!("{}/{}", worker.active_jobs, worker.max_concurrent_jobs),
            worker.capabilities.commands().count().to_string(),
            worker.last_seen_at.to_string(),
            worker_resources_text(worker),
            worker.sandbox.as_ref().map(profiles_text).unwrap_or_default(),
        ]
    };
    let rows: Vec<_> = workers.iter().map(row).collect();
    table(&["WORKER", "STATE", "HOST", "JOBS", "TOOLS", "LAST SEEN", "RESOURCES", "SANDBOX"], &rows)
}

async fn get(server: &ConnectionArgs, id: &WorkerId, output: OutputFormat) -> Result<()> {
    let workers = server.connect().await?.workers().await?;
    let worker = workers.into_iter().find(|worker| worker.worker_id == *id);
    let help = "see the workers with `agx worker list`";
    let worker = worker.ok_or_else(|| CliError::not_found("worker", id, help))?;
    output.show("worker.get", &worker, worker_text)
}

fn worker_text(worker: &WorkerStatus) -> String {
    let mut lines = vec![format!("worker {}: {}", worker.worker_id, worker.state)];
    let mut add = |name: &str, value: &str| lines.push(format!("  {name:<11} {}", one_line(value)));
    if let Some(reason) = &worker.quarantine_reason {
        add("reason", reason);
    }
    if let Some(mark) = &worker.drained {
        add("drained", &format!("by {} at {}", mark.by, mark.at));
    }
    add("host", &worker.hostname);
    add("platform", &worker.platform);
    add("agw", &worker.agw_version);
    add("jobs", &format!("{} of {}", worker.active_jobs, worker.max_concurrent_jobs));
    let resources = worker_resources_text(worker);
    add("resources", if resources.is_empty() { "none" } else { &resources });
    add("tools", &worker.capabilities.commands().count().to_string());
    let tag = |(name, value): (&String, &Value)| match value {
        Value::Bool(true) => name.clone(),
        value => format!("{name}={}", value.as_str().map_or_else(|| value.to_string(), str::to_owned)),
    };
    if !worker.tags.is_empty() {
        add("tags", &worker.tags.iter().map(tag).collect::<Vec<_>>().join(", "));
    }
    add("registered", &worker.registered_at.to_string());
    add("last seen", &worker.last_seen_at.to_string());
    match &worker.sandbox {
        Some(sandbox) => {
            lines.push("  sandbox".into());
            lines.extend(worker_lines(sandbox).into_iter().map(|line| format!("    {line}")));
        }
        None => add("sandbox", "none: it offers no profile"),
    }
    lines.join("\n")
}

async fn set_draining(
    server: &ConnectionArgs,
    id: &WorkerId,
    drains: bool,
    output: OutputFormat,
) -> Result<()> {
    let mut agq = server.connect().await?;
    if drains {
        agq.drain_worker(id, None).await?;
    } else {
        agq.resume_worker(id).await?;
    }
    let (kind, effect) = if drains {
        ("worker.drain", "accepts no more jobs, and completes the ones that it has")
    } else {
        ("worker.resume", "takes jobs again")
    };
    output.show(kind, &WorkerRef { worker_id: id.clone() }, |_| format!("the worker {id} {effect}"))
}

#[cfg(test)]
mod tests {
    use agenix_protocol::{
        documents::{DrainMark, WorkerSandbox, WorkerStatus, parse},
        time::Timestamp,
    };

    use super::{text, worker_text};

    fn worker() -> WorkerStatus {
        let json = br#"{"worker_id":"w1","state":"active","hostname":"h\u001b","platform":"linux-x86_64","agw_version":"0.1.0",
            "capabilities":{"tools":["sort","wc"],"agentic_units":[]},"max_concurrent_jobs":4,"active_jobs":1,
            "registered_at":"2026-01-31T08:00:00.000Z","last_seen_at":"2026-01-31T08:00:01.000Z","stats":null,
            "tags":{"gpu":true,"zone":"eu"},"resources":{"cpus":4,"memory":2147483648},"used_resources":{"cpus":1.5}}"#;
        parse(json).unwrap()
    }

    #[test]
    fn worker_text_names_the_program_that_has_drained_it() {
        let drained = Some(DrainMark { by: "agx-scale".into(), at: Timestamp(0) });
        let shown = worker_text(&WorkerStatus { state: "draining".into(), drained, ..worker() });
        let lines = "worker w1: draining\n  drained     by agx-scale at 1970-01-01T00:00:00.000Z\n";
        assert!(shown.starts_with(lines), "{shown}");
    }

    #[test]
    fn worker_text_shows_its_machine_and_its_sandbox() {
        let shown = "worker w1: active
  host        h\\x1b
  platform    linux-x86_64
  agw         0.1.0
  jobs        1 of 4
  resources   cpus 1.5/4, memory 0/2G
  tools       2
  tags        gpu, zone=eu
  registered  2026-01-31T08:00:00.000Z
  last seen   2026-01-31T08:00:01.000Z";
        assert_eq!(worker_text(&worker()), format!("{shown}\n  sandbox     none: it offers no profile"));
        let sandbox =
            br#"{"default_profile":"reader","profiles":{"reader":[]},"enforced":{"exec":"Landlock"}}"#;
        let sandbox: WorkerSandbox = parse(sandbox).unwrap();
        let worker = WorkerStatus { sandbox: Some(sandbox), ..worker() };
        assert_eq!(
            worker_text(&worker),
            format!(
                "{shown}
  sandbox
    profile reader
    plans without a profile run with reader
    PROPERTY        ENFORCED BY
    exec            Landlock"
            )
        );
        assert!(
            text(&[worker]).trim_end().ends_with("2026-01-31T08:00:01.000Z  cpus 1.5/4, memory 0/2G  reader")
        );
    }
}

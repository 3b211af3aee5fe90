//! `agx doctor`: checks the installation, and reports each failed check with advice.

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime},
};

use agenix_client::{ClientError, Connection};
use agenix_protocol::{
    documents::{QueueStats, WorkerStatus},
    errors::ErrorKind,
};
use tokio::time::Instant;

use crate::{
    background::embedded::program,
    connection_args::ConnectionArgs,
    documents::{DoctorFinding, MachineSandbox},
    error::{CliError, Result},
    output::{OutputFormat, counted},
    sandbox::{self, profiles_text, property_lines},
    watch::unmet_needs,
};

/// Maximum difference between two clocks without a warning.
const MAX_SKEW_MS: u64 = 2000;
/// Maximum number of workers whose profiles are named.
const MAX_NAMED: usize = 10;
/// Minimum limit of open files.
const MIN_FILES: u64 = 1024;

impl DoctorFinding {
    fn well(check: &'static str, found: impl Into<String>) -> Self {
        Self { what: check, is_well: true, found: found.into(), help: None, sandbox: None }
    }

    fn wrong(check: &'static str, found: impl Into<String>, help: impl Into<String>) -> Self {
        Self { what: check, is_well: false, found: found.into(), help: Some(help.into()), sandbox: None }
    }

    /// Returns the finding about a check that agx could not make.
    fn failed(check: &'static str, failure: &CliError) -> Self {
        Self::wrong(check, failure.to_string(), failure.help().unwrap_or_default())
    }

    /// Returns the finding about a check that agq did not answer. A key with few rights is no
    /// problem.
    fn unanswered(check: &'static str, error: ClientError) -> Self {
        let is_refused = |reason: &String| ErrorKind::of(reason) == ErrorKind::NotPermitted;
        match error {
            ClientError::Rejected(reason) if is_refused(&reason) => {
                Self::well(check, format!("not checked, because agq refuses this key: {reason}"))
            }
            error => Self::failed(check, &error.into()),
        }
    }
}

pub(crate) async fn run(server: &ConnectionArgs, output: OutputFormat) -> Result<()> {
    let mut findings = vec![programs(), files()];
    match server.connect_if_any().await {
        Ok(None) => findings.push(DoctorFinding::well(
            "agq",
            "none is configured: `agx map` starts a private one; `agx up` starts a permanent one",
        )),
        Ok(Some((mut connection, address))) => findings.extend(reached(&mut connection, &address).await),
        Err(failure) => findings.push(DoctorFinding::failed("agq", &failure)),
    }
    findings.push(machine(sandbox::examine().await));
    output.show("doctor", &findings, |findings| findings.iter().map(text).collect())?;
    let wrong = findings.iter().filter(|finding| !finding.is_well).count();
    if wrong == 0 {
        Ok(())
    } else {
        Err(CliError::ChecksFailed(counted(wrong as u64, "check failed", "checks failed")))
    }
}

/// Returns a line for a finding, and further lines for its advice and the table of a sandbox.
fn text(finding: &DoctorFinding) -> String {
    let sign = if finding.is_well { "ok   " } else { "WRONG" };
    let properties = finding.sandbox.iter().flat_map(|found| property_lines(&found.enforced, &found.missing));
    let more: String =
        finding.help.clone().into_iter().chain(properties).map(|line| format!("{:14}{line}\n", "")).collect();
    format!("{sign} {:<7} {}\n{more}", finding.what, finding.found)
}

/// Returns the finding about the sandbox of this machine. A machine without one is no problem,
/// because only jobs that ask for a sandbox need one.
fn machine(found: Result<MachineSandbox, String>) -> DoctorFinding {
    let found = match found {
        Ok(found) => found,
        Err(why) => {
            let problem = format!("`agw sandbox` has failed: {why}");
            return DoctorFinding::wrong("sandbox", problem, "install the same version of all three");
        }
    };
    let summary = if found.enforces_reader {
        "this machine can enforce the profile reader"
    } else {
        "this machine cannot enforce the profile reader; only jobs with --sandbox need that"
    };
    DoctorFinding { sandbox: Some(found), ..DoctorFinding::well("sandbox", summary) }
}

/// Returns the finding about the sandboxes of the workers of agq.
fn offers(workers: &[WorkerStatus]) -> DoctorFinding {
    let live = || workers.iter().filter(|worker| worker.state != "dead");
    let offers: Vec<String> = live()
        .filter_map(|worker| Some((worker, worker.sandbox.as_ref()?)))
        .filter(|(_, sandbox)| !sandbox.profiles.is_empty())
        .map(|(worker, sandbox)| format!("{} offers {}", worker.worker_id, profiles_text(sandbox)))
        .collect();
    let more = offers.len().saturating_sub(MAX_NAMED);
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    if offers.is_empty() {
        return DoctorFinding::well(
            "sandbox",
            "no worker of agq offers a profile, so a job with --sandbox would wait",
        );
    }
    let all = counted(live().count() as u64, "worker", "workers");
    let named = offers[..offers.len().min(MAX_NAMED)].join("; ");
    DoctorFinding::well("sandbox", format!("{} of {all}: {named}{more}", offers.len()))
}

fn programs() -> DoctorFinding {
    match ["agq", "agw"].into_iter().find(|name| program(name).is_err()) {
        None => DoctorFinding::well("install", "agx, agq and agw are there"),
        Some(missing) => DoctorFinding::wrong(
            "install",
            format!("there is no {missing} beside agx, and none on PATH"),
            "install all three together",
        ),
    }
}

fn files() -> DoctorFinding {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    match limit {
        Some(limit) if limit < MIN_FILES => DoctorFinding::wrong(
            "limits",
            format!("a process may open {limit} files"),
            "raise it with `ulimit -n 4096`",
        ),
        _ => DoctorFinding::well("limits", "a process may open enough files"),
    }
}

async fn reached(connection: &mut Connection, address: &str) -> Vec<DoctorFinding> {
    let asked = Instant::now();
    let info = connection.info().await;
    let took = asked.elapsed();
    let mut findings = match info {
        Ok(info) => info_findings(&info, address, took),
        Err(error) => vec![DoctorFinding::unanswered("agq", error)],
    };
    let workers = match connection.workers().await {
        Ok(workers) => workers,
        Err(error) => {
            findings.push(DoctorFinding::unanswered("workers", error));
            return findings;
        }
    };
    findings.push(workers_finding(&workers));
    match connection.queue_stats().await {
        Ok(queues) => findings.extend(unmet(&queues, &workers)),
        Err(error) => findings.push(DoctorFinding::unanswered("tools", error)),
    }
    findings.push(offers(&workers));
    findings
}

/// Returns the findings about the version and the clock of agq, which answered within `took`.
fn info_findings(info: &BTreeMap<String, String>, address: &str, took: Duration) -> Vec<DoctorFinding> {
    let version = info.get("agq_version").cloned().unwrap_or_default();
    let own = env!("CARGO_PKG_VERSION");
    let mut findings = vec![if version == own {
        DoctorFinding::well("agq", format!("version {version} at {address}, {} ms away", took.as_millis()))
    } else {
        DoctorFinding::wrong(
            "agq",
            format!("it has version {version}, agx has {own}"),
            "install the same version of all three",
        )
    }];
    let theirs =
        info.get("server_time_usec").and_then(|time| time.parse::<u64>().ok()).map(|usec| usec / 1000);
    findings.extend(theirs.map(|theirs| clock(theirs, now_ms())));
    findings
}

fn now_ms() -> u64 {
    #[expect(clippy::disallowed_methods, reason = "the check concerns the clock itself")]
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

fn clock(theirs: u64, ours: u64) -> DoctorFinding {
    let apart = theirs.abs_diff(ours);
    if apart <= MAX_SKEW_MS {
        return DoctorFinding::well("clock", format!("agq's clock is {apart} ms from this machine's"));
    }
    DoctorFinding::wrong(
        "clock",
        format!("agq's clock is {} s from this machine's", apart / 1000),
        "times that agx shows and --run-at are those of agq; let both machines ask a time server",
    )
}

fn workers_finding(workers: &[WorkerStatus]) -> DoctorFinding {
    let (active, other): (Vec<_>, Vec<_>) = workers.iter().partition(|worker| worker.state == "active");
    if active.is_empty() {
        return DoctorFinding::wrong(
            "workers",
            "none takes jobs",
            "start one with `agw`, or here with `agx up`",
        );
    }
    let strange = other.iter().find(|worker| matches!(worker.state.as_str(), "dead" | "quarantined"));
    match strange {
        None => DoctorFinding::well("workers", format!("{} take jobs", active.len())),
        Some(worker) => {
            let last_seen = || format!("last seen {}", worker.last_seen_at);
            let why = worker.quarantine_reason.clone().unwrap_or_else(last_seen);
            DoctorFinding::wrong(
                "workers",
                format!("{} is {}: {why}", worker.worker_id, worker.state),
                "see its log, and start it again; agq removes a worker after a long absence",
            )
        }
    }
}

/// Returns a finding for each kind of job that no worker can run.
fn unmet(queues: &QueueStats, workers: &[WorkerStatus]) -> Vec<DoctorFinding> {
    let all = std::iter::once(&queues.ready).chain(queues.others.values());
    let unmet: Vec<_> = all
        .flat_map(|queue| &queue.needs)
        .filter(|demand| demand.workers == 0 && demand.length > 0)
        .collect();
    if unmet.is_empty() {
        return vec![DoctorFinding::well("tools", "every job that waits finds a worker that can run it")];
    }
    let finding = |demand: &&agenix_protocol::documents::Demand| {
        DoctorFinding::wrong(
            "tools",
            unmet_needs::describe(demand, workers),
            if demand.sandbox.is_some() {
                "start a worker with the profile (`agw --sandbox PROFILE`), or cancel the jobs; `agx job explain JOB` says what each worker lacks"
            } else {
                "install it on a worker and send that SIGHUP, or cancel the jobs; `agx job explain JOB` names the closest worker"
            },
        )
    };
    unmet.iter().map(finding).collect()
}

#[cfg(test)]
mod tests {
    use agenix_client::ClientError;
    use agenix_protocol::documents::{WorkerSandbox, WorkerStatus, parse};

    use super::{MAX_NAMED, MAX_SKEW_MS, clock, machine, offers, text};
    use crate::documents::{DoctorFinding, MachineSandbox};

    fn worker(id: &str, profiles: &str) -> WorkerStatus {
        let json = format!(
            r#"{{"worker_id":"{id}","state":"active","hostname":"h","platform":"","agw_version":"",
                "capabilities":{{"tools":[],"agentic_units":[]}},"max_concurrent_jobs":1,"active_jobs":0,
                "registered_at":"2026-01-31T08:00:00.000Z","last_seen_at":"2026-01-31T08:00:00.000Z","stats":null}}"#
        );
        let sandbox: WorkerSandbox = parse(format!(r#"{{"profiles":{{{profiles}}}}}"#).as_bytes()).unwrap();
        WorkerStatus { sandbox: Some(sandbox), ..parse(json.as_bytes()).unwrap() }
    }

    #[test]
    fn doctor_shows_the_table_of_this_machine_and_no_problem_without_a_sandbox() {
        let json = r#"{"regime":null,"enforced":{"exec":"Landlock"},"missing":{"network":{"reason":"a","remedy":"b"}}}"#;
        let found: MachineSandbox = parse(json.as_bytes()).unwrap();
        let shown = text(&machine(Ok(found)));
        let expected =
            "ok    sandbox this machine cannot enforce the profile reader; only jobs with --sandbox need that
              exec            Landlock
              network         nothing: a; b
";
        assert_eq!(shown, expected);
        let failed = machine(Err("no such file".into()));
        assert!(!failed.is_well && failed.found.ends_with("has failed: no such file"), "{}", failed.found);
    }

    #[test]
    fn doctor_names_the_workers_that_offer_profiles() {
        let builder = r#""builder":[],"reader":["exec is not enforced"]"#;
        let workers = [worker("w1", builder), worker("w2", "")];
        assert_eq!(offers(&workers).found, "1 of 2 workers: w1 offers builder, reader (unmet)");
        assert!(offers(&workers[1..]).found.starts_with("no worker of agq offers a profile"));
        let dead = WorkerStatus { state: "dead".into(), ..worker("w3", builder) };
        assert!(offers(&[dead]).found.starts_with("no worker of agq offers a profile"));
        let many: Vec<WorkerStatus> = (0..MAX_NAMED + 2).map(|n| worker(&format!("w{n}"), builder)).collect();
        assert!(offers(&many).found.ends_with("; and 2 more"));
    }

    #[test]
    fn doctor_continues_where_the_key_may_not_ask() {
        let refused = "NOPERM This key is a worker's and may not use WORKER.LIST";
        let finding = DoctorFinding::unanswered("workers", ClientError::Rejected(refused.into()));
        assert!(finding.is_well && finding.found.ends_with(refused), "{}", finding.found);
        let finding = DoctorFinding::unanswered("workers", ClientError::Unexpected("x".into()));
        assert!(!finding.is_well && finding.help.is_some(), "{}", finding.found);
    }

    #[test]
    fn doctor_tolerates_a_small_clock_skew() {
        assert!(clock(1000, 1000 + MAX_SKEW_MS).is_well && clock(1000 + MAX_SKEW_MS, 1000).is_well);
        assert!(!clock(1000, 1001 + MAX_SKEW_MS).is_well);
    }
}

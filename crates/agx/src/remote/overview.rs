//! Overview of workers, queues and actions at one moment, and short texts about them.

use std::collections::BTreeMap;

use agenix_client::{ClientError, Connection};
use agenix_protocol::{
    byte_escape,
    documents::{
        ActionStatus, CapturedOutput, JobStatus, MEMORY, MemoryLimit, MemoryLimitKind, QueueStats,
        ResourceUse, TaskAdmission, TaskResult, TaskSandbox, WorkerStatus, amount_text,
    },
    errors::ErrorKind,
    ids::PlanId,
};
use futures_util::future::try_join_all;

use crate::{
    remote::command_pace::{CALLS_AT_ONCE, CommandPace},
    sandbox,
    util::printable::{one_line, printable},
};

/// Maximum number of actions whose plans are fetched.
const MAX_DESCRIBED: usize = 100;

/// Text in place of workers and queues that the key may not see.
pub(crate) const NOT_SHOWN: &str = "not shown: this key may not list workers and queues";

/// Workers, queues and actions.
#[derive(Debug)]
pub(crate) struct ClusterOverview {
    pub(crate) address: String,
    /// False if the key may not see workers and queues, which are empty then.
    pub(crate) sees_workers: bool,
    pub(crate) workers: Vec<WorkerStatus>,
    pub(crate) queues: QueueStats,
    /// Latest first.
    pub(crate) actions: Vec<ActionStatus>,
    /// Descriptions of the plans of the latest actions.
    pub(crate) plans: BTreeMap<PlanId, String>,
}

pub(crate) async fn fetch(
    connection: &mut Connection,
    address: String,
) -> Result<ClusterOverview, ClientError> {
    let workers = permitted(connection.workers().await)?;
    let queues = if workers.is_some() { permitted(connection.queue_stats().await)? } else { None };
    let sees_workers = queues.is_some();
    let (workers, queues) = (workers.unwrap_or_default(), queues.unwrap_or_default());
    let actions = actions(connection).await?;
    let plans = descriptions(connection, &actions[..actions.len().min(MAX_DESCRIBED)]).await?;
    Ok(ClusterOverview { address, sees_workers, workers, queues, actions, plans })
}

/// Returns the answer, or `None` if the key may not use the command.
pub(crate) fn permitted<T>(answer: Result<T, ClientError>) -> Result<Option<T>, ClientError> {
    match answer {
        Err(ClientError::Rejected(reason)) if ErrorKind::of(&reason) == ErrorKind::NotPermitted => Ok(None),
        answer => answer.map(Some),
    }
}

/// Returns all actions, latest first.
pub(crate) async fn actions(connection: &Connection) -> Result<Vec<ActionStatus>, ClientError> {
    actions_with(connection, BTreeMap::new()).await
}

/// Returns the actions that have all of `labels`, latest first.
pub(crate) async fn actions_with(
    connection: &Connection,
    labels: BTreeMap<String, String>,
) -> Result<Vec<ActionStatus>, ClientError> {
    let ids = connection.clone().actions_with(labels).await?;
    let mut pace = CommandPace::begin();
    let mut actions: Vec<ActionStatus> = Vec::new();
    for part in ids.chunks(CALLS_AT_ONCE) {
        pace.keep().await;
        let asked = part.iter().map(|id| {
            let mut connection = connection.clone();
            async move { connection.action(id).await }
        });
        actions.extend(try_join_all(asked).await?.into_iter().flatten());
    }
    actions.sort_by_key(|action| std::cmp::Reverse(action.created_at));
    Ok(actions)
}

/// Returns the descriptions of the plans of `actions`.
pub(crate) async fn descriptions(
    connection: &Connection,
    actions: &[ActionStatus],
) -> Result<BTreeMap<PlanId, String>, ClientError> {
    let mut found = BTreeMap::new();
    for action in actions {
        if !found.contains_key(&action.plan_id) {
            let plan = connection.clone().plan(&action.plan_id).await?;
            let text =
                plan.and_then(|plan| plan.plan_description).unwrap_or_else(|| action.plan_id.to_string());
            found.insert(action.plan_id.clone(), text);
        }
    }
    Ok(found)
}

/// Returns the state of an action in one word.
pub(crate) fn state(action: &ActionStatus) -> &'static str {
    match action {
        _ if action.completed_jobs_at.is_none() && action.running > 0 => "running",
        _ if action.completed_jobs_at.is_none() => "waiting",
        _ if action.cancelled > 0 && action.cancelled == action.unsuccessful() => "cancelled",
        _ if action.unsuccessful() > 0 => "failed",
        _ => "completed",
    }
}

/// Returns the duration of an ended action, or an empty text.
pub(crate) fn took(action: &ActionStatus) -> String {
    let Some(ended) = action.completed_jobs_at else { return String::new() };
    let ms = ended.ms_since(action.created_at);
    match ms / 1000 {
        0..60 => format!("{}.{} s", ms / 1000, ms % 1000 / 100),
        secs @ 60..3600 => format!("{} m {} s", secs / 60, secs % 60),
        secs => format!("{} h {} m", secs / 3600, secs % 3600 / 60),
    }
}

/// Formats a job with the short outputs of its tasks.
pub(crate) fn job_text(job: &JobStatus) -> String {
    let mut lines = vec![
        format!("job {}: {}", job.job_id, job.status.as_str()),
        format!("  input      {}", one_line(job.inputs.get())),
        format!("  action     {} (input {})", job.action_id, job.index),
        format!("  plan       {}", job.plan_id),
        format!("  attempt    {}", job.attempt),
        format!("  submitted  {}", job.created_at),
    ];
    let mut more = |name: &str, value: Option<String>| {
        lines.extend(value.map(|value| format!("  {name:<10} {}", one_line(&value))));
    };
    more("owner", job.owner.clone());
    more("resources", (!job.resources.is_empty()).then(|| job.resources.to_string()));
    more("started", job.started_at.map(|at| at.to_string()));
    more("waited", job.queue_wait_ms.map(|ms| format!("{ms} ms in the queue")));
    more("ended", job.completed_at.map(|at| at.to_string()));
    more("worker", job.worker_id.clone());
    more("error", job.error.clone());
    for result in job.results() {
        lines.push(task_text(&result));
    }
    lines.join("\n")
}

fn task_text(result: &TaskResult) -> String {
    let stream = |name: &str, kept: &CapturedOutput| {
        let cut = if kept.bytes.is_empty() {
            ", passed on".to_owned()
        } else if kept.is_truncated() {
            format!(", the first {} kept", kept.bytes.len())
        } else {
            String::new()
        };
        let text = byte_escape::encode(&kept.bytes);
        let shown: String =
            text.lines().take(10).map(|line| format!("\n      {}", printable(line))).collect();
        let more = text.lines().count().saturating_sub(10);
        let more =
            if more > 0 { format!("\n      … {more} lines more, see --json") } else { String::new() };
        if kept.total == 0 {
            String::new()
        } else {
            format!("\n    {name}: {} bytes{cut}{shown}{more}", kept.total)
        }
    };
    let bound = result.memory_limit.map_or_else(String::new, memory_limit_text);
    let head = format!(
        "  task {} {}: exit code {}, {} ms{}{bound}",
        result.task_number,
        one_line(&result.command),
        result.exit_code,
        result.duration_ms,
        resources_text(&result.resources)
    );
    let sandbox: String = result.sandbox.iter().map(sandbox_text).collect();
    let admission: String = result.admission.iter().map(admission_text).collect();
    head + &stream("stdout", &result.stdout) + &stream("stderr", &result.stderr) + &admission + &sandbox
}

/// Returns the lines about the policy and the order by which a task ran, each after a line feed.
pub(crate) fn admission_text(admission: &TaskAdmission) -> String {
    let TaskAdmission { policy, rule, order, signers, approvers } = admission;
    let rule = rule.as_ref().map_or(String::new(), |rule| format!("{rule} of "));
    let policy = policy.as_ref().map(|policy| format!("admitted by {rule}the policy {policy}"));
    let names = |verb: &str, names: &[String]| match names {
        [] => String::new(),
        names => format!(", {verb} by {}", names.join(", ")),
    };
    let order = order.as_ref().map(|order| {
        let (signers, approvers) = (names("signed", signers), names("approved", approvers));
        format!("admitted by the order {order}{signers}{approvers}")
    });
    policy.into_iter().chain(order).map(|line| format!("\n    {}", one_line(&line))).collect()
}

/// Returns the lines about the sandbox of a task, each after a line feed.
pub(crate) fn sandbox_text(report: &TaskSandbox) -> String {
    let lines = sandbox::task_lines(report).into_iter().enumerate();
    lines.map(|(at, line)| format!("\n{}{line}", if at == 0 { "    " } else { "      " })).collect()
}

/// Returns the bound of the memory of a task after a comma.
fn memory_limit_text(MemoryLimit { bytes, by }: MemoryLimit) -> String {
    let by = match by {
        MemoryLimitKind::Cgroup => "its control group",
        MemoryLimitKind::Rlimit => "a limit of each process",
    };
    format!(", at most {} of memory by {by}", amount_text(MEMORY, bytes))
}

/// Returns the known figures, each after a comma.
fn resources_text(resources: &ResourceUse) -> String {
    let ResourceUse { peak_memory_bytes, user_ms, system_ms, read_bytes, written_bytes } = resources;
    let figure = |value: Option<String>| value.map(|value| format!(", {value}")).unwrap_or_default();
    figure(user_ms.map(|ms| format!("{ms} ms user")))
        + &figure(system_ms.map(|ms| format!("{ms} ms system")))
        + &figure(peak_memory_bytes.map(|bytes| format!("{} MiB peak memory", bytes >> 20)))
        + &figure(read_bytes.map(|bytes| format!("{bytes} bytes read")))
        + &figure(written_bytes.map(|bytes| format!("{bytes} bytes written")))
}

#[cfg(test)]
mod tests {
    use agenix_protocol::documents::{
        MemoryLimit, MemoryLimitKind, ResourceUse, TaskAdmission, TaskResult, TaskSandbox,
    };

    use super::{admission_text, task_text};

    #[test]
    fn task_text_shows_known_figures_only() {
        let result =
            TaskResult { task_number: 1, command: "sort".into(), duration_ms: 9, ..Default::default() };
        assert_eq!(task_text(&result), "  task 1 sort: exit code 0, 9 ms");
        let resources = ResourceUse {
            peak_memory_bytes: Some(64 << 20),
            user_ms: Some(7),
            system_ms: Some(1),
            read_bytes: Some(2000),
            written_bytes: Some(0),
        };
        let result = TaskResult { resources, ..result };
        let shown = "  task 1 sort: exit code 0, 9 ms, 7 ms user, 1 ms system, 64 MiB peak memory, \
            2000 bytes read, 0 bytes written";
        assert_eq!(task_text(&result), shown);
        let memory_limit = Some(MemoryLimit { bytes: 512 << 20, by: MemoryLimitKind::Rlimit });
        let bounded = TaskResult { memory_limit, ..result.clone() };
        assert_eq!(
            task_text(&bounded),
            format!("{shown}, at most 512M of memory by a limit of each process")
        );
        let sandbox = TaskSandbox {
            profile: "reader".into(),
            denied: vec!["it read\n/etc/shadow".into()],
            ..TaskSandbox::default()
        };
        let result = TaskResult { sandbox: Some(sandbox), ..result };
        let shown =
            format!("{shown}\n    sandbox with the profile reader\n      denied: it read\\n/etc/shadow");
        assert_eq!(task_text(&result), shown);
    }

    #[test]
    fn admission_names_the_rule_the_digests_and_the_signers() {
        let admission = TaskAdmission {
            policy: Some("sha256:1".into()),
            rule: Some("tools.sort".into()),
            order: Some("sha256:2".into()),
            signers: vec!["ci".into(), "x\ny".into()],
            approvers: vec!["alice".into()],
        };
        let policy = "\n    admitted by tools.sort of the policy sha256:1";
        let order = "\n    admitted by the order sha256:2, signed by ci, x\\ny, approved by alice";
        assert_eq!(admission_text(&admission), format!("{policy}{order}"));
        let result = TaskResult { admission: Some(admission.clone()), ..TaskResult::default() };
        assert!(task_text(&result).ends_with(&format!("{policy}{order}")));
        assert_eq!(admission_text(&TaskAdmission { order: None, ..admission }), policy);
    }
}

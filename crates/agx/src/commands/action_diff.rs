//! `agx action diff`: compares the results of two actions.

use std::collections::{BTreeMap, BTreeSet};

use agenix_client::Connection;
use agenix_protocol::{
    blob::{BlobHash, BlobHasher},
    documents::{CapturedOutput, JobStatus, Status},
    ids::{ActionId, JobId},
};

use crate::{
    connection_args::ConnectionArgs,
    documents::{JobResultSummary, ResultDifference},
    error::{CliError, Result},
    output::{OutputFormat, counted},
    remote::{
        command_pace::{CALLS_AT_ONCE, CommandPace},
        retrying_client::RetryingClient,
    },
    util::printable::one_line,
    watch::progress,
};

/// Maximum number of lines per side in the diff of one output.
const MAX_LINES: usize = 5;

/// Input of a job, and the number of earlier jobs of its action with an equal input.
type InputKey = (String, usize);

/// End of the job of one input, without the bytes of its output.
struct JobEnd {
    job_id: JobId,
    status: Status,
    /// Hash of stdout of the last task, or `None` if not all of its bytes were kept.
    hash: Option<BlobHash>,
}

/// Jobs of one input whose results may differ. One of the actions may have no such job.
struct UnequalJobs {
    input: String,
    before: Option<JobId>,
    after: Option<JobId>,
}

/// Result of the job of one input.
struct ComparedResult {
    summary: JobResultSummary,
    /// Stdout of the last task.
    stdout: CapturedOutput,
}

/// Results of the jobs of an action that agq still has.
#[derive(Default)]
struct ActionEnds {
    ends: BTreeMap<InputKey, JobEnd>,
    removed: u64,
}

#[derive(Default)]
struct Comparison {
    differences: Vec<ResultDifference>,
    /// Number of jobs that have not ended.
    unended: u64,
    /// Number of jobs that agq has removed.
    removed: u64,
    /// Number of inputs whose outputs may differ in bytes that were not kept.
    cut: u64,
}

pub(super) async fn run(
    server: &ConnectionArgs,
    before: &ActionId,
    after: &ActionId,
    output: OutputFormat,
) -> Result<()> {
    let server = server.server()?;
    let connection = Connection::open(&server).await?;
    let mut agq = RetryingClient::new(server, connection, output);
    let mut pace = CommandPace::begin();
    let before = ends(&mut agq, &mut pace, before).await?;
    let after = ends(&mut agq, &mut pace, after).await?;
    let (unequal, mut compared) = unequal(before, after);
    // Each input has up to two jobs.
    for part in unequal.chunks(CALLS_AT_ONCE / 2) {
        pace.keep().await;
        compared.fetch(&mut agq, part).await?;
    }
    output.show("action.diff", &compared.differences, |found| found.iter().map(text).collect::<String>())?;
    verdict(&compared)
}

/// Returns a failure that names the differences, and the jobs that could not be compared.
fn verdict(compared: &Comparison) -> Result<()> {
    let Comparison { differences, unended, removed, cut } = compared;
    let found = differences.len() as u64;
    let parts: Vec<String> = [
        (found, "input has a different result", "inputs have different results"),
        (*unended, "job has not ended yet", "jobs have not ended yet"),
        (
            *removed,
            "result is no longer kept (--keep-ended, --keep-ended-count of agq)",
            "results are no longer kept (--keep-ended, --keep-ended-count of agq)",
        ),
        (
            *cut,
            "input has outputs that are equal as far as agq has kept them",
            "inputs have outputs that are equal as far as agq has kept them",
        ),
    ]
    .into_iter()
    .filter(|(count, ..)| *count > 0)
    .map(|(count, one, several)| counted(count, one, several))
    .collect();
    match (parts.is_empty(), found) {
        (true, _) => Ok(()),
        (false, 0) => Err(CliError::Jobs(parts.join("; "))),
        (false, _) => Err(CliError::Different(parts.join("; "))),
    }
}

async fn ends(agq: &mut RetryingClient, pace: &mut CommandPace, action_id: &ActionId) -> Result<ActionEnds> {
    let action = agq.action(action_id).await?.ok_or_else(|| progress::not_found(action_id))?;
    let ids = agq.with_retry(async |connection| connection.jobs(&action, None).await).await?;
    let mut found = ActionEnds::default();
    for part in ids.chunks(CALLS_AT_ONCE) {
        pace.keep().await;
        for job in agq.jobs(part).await?.into_iter().flatten() {
            let hash = hash_of(&stdout_of(&job));
            found.add(job.inputs.get(), JobEnd { job_id: job.job_id, status: job.status, hash });
        }
    }
    found.removed = action.total_jobs.saturating_sub(found.ends.len() as u64);
    Ok(found)
}

/// Returns stdout of the last task.
fn stdout_of(job: &JobStatus) -> CapturedOutput {
    job.results().pop().map(|last| last.stdout).unwrap_or_default()
}

impl ActionEnds {
    /// Adds the result of the next job.
    fn add(&mut self, input: &str, end: JobEnd) {
        let equal = (input.to_owned(), 0)..=(input.to_owned(), usize::MAX);
        let occurrence = self.ends.range(equal).next_back().map_or(0, |((_, last), _)| last + 1);
        self.ends.insert((input.to_owned(), occurrence), end);
    }

    /// Returns the inputs of more than one job.
    fn repeated(&self) -> impl Iterator<Item = String> {
        self.ends.keys().filter(|(_, earlier)| *earlier > 0).map(|(input, _)| input.clone())
    }
}

impl JobEnd {
    /// Returns true if the results are equal, and false if they may differ.
    fn is_equal_to(&self, other: &Self) -> bool {
        self.status == other.status && self.hash.is_some() && self.hash == other.hash
    }
}

impl ComparedResult {
    fn of(job: JobStatus) -> Self {
        let stdout = stdout_of(&job);
        let (shown, stdout_blob) = (job.stdout.unwrap_or_default(), stdout.blob);
        Self { summary: JobResultSummary { status: job.status, stdout: shown, stdout_blob }, stdout }
    }
}

/// Returns the inputs whose results may differ, and the numbers of jobs that are not compared.
fn unequal(mut before: ActionEnds, mut after: ActionEnds) -> (Vec<UnequalJobs>, Comparison) {
    let unended = |of: &ActionEnds| of.ends.values().filter(|end| !end.status.is_ended()).count() as u64;
    let compared = Comparison {
        unended: unended(&before) + unended(&after),
        removed: before.removed + after.removed,
        ..Comparison::default()
    };
    // The partner of a result may be one of the removed ones.
    let (lacks_before, lacks_after) = (before.removed > 0, after.removed > 0);
    if lacks_before || lacks_after {
        let repeated: BTreeSet<String> =
            [&before, &after].into_iter().flat_map(ActionEnds::repeated).collect();
        before.ends.retain(|(input, _), _| !repeated.contains(input));
        after.ends.retain(|(input, _), _| !repeated.contains(input));
    }
    let mut found = Vec::new();
    for (key, end) in after.ends {
        let earlier = before.ends.remove(&key);
        let is_equal = earlier.as_ref().map_or(lacks_before, |earlier| earlier.is_equal_to(&end));
        if !is_equal {
            let before = earlier.map(|earlier| earlier.job_id);
            found.push(UnequalJobs { input: key.0, before, after: Some(end.job_id) });
        }
    }
    let left = before.ends.into_iter().filter(|_| !lacks_after);
    found.extend(left.map(|((input, _), end)| UnequalJobs { input, before: Some(end.job_id), after: None }));
    found.sort_by(|one, other| one.input.cmp(&other.input));
    (found, compared)
}

impl Comparison {
    /// Compares the results of `unequal` by all bytes that agq has kept.
    async fn fetch(&mut self, agq: &mut RetryingClient, unequal: &[UnequalJobs]) -> Result<()> {
        let ids: Vec<JobId> =
            unequal.iter().flat_map(|jobs| jobs.before.iter().chain(&jobs.after)).cloned().collect();
        let mut found = agq.jobs(&ids).await?.into_iter();
        for jobs in unequal {
            let mut next = |id: &Option<JobId>| {
                let job = id.as_ref().and_then(|_| found.next().flatten());
                job.map(ComparedResult::of)
            };
            let (before, after) = (next(&jobs.before), next(&jobs.after));
            self.add(jobs, before, after);
        }
        Ok(())
    }

    /// Adds the results of `jobs`. agq has removed a job whose result is not there.
    fn add(&mut self, jobs: &UnequalJobs, before: Option<ComparedResult>, after: Option<ComparedResult>) {
        let removed = u64::from(jobs.before.is_some() && before.is_none())
            + u64::from(jobs.after.is_some() && after.is_none());
        if removed > 0 {
            self.removed += removed;
            return;
        }
        let equal = match (&before, &after) {
            (Some(before), Some(after)) if before.summary.status == after.summary.status => {
                are_equal(&before.stdout, &after.stdout)
            }
            _ => Some(false),
        };
        match equal {
            Some(true) => {}
            None => self.cut += 1,
            Some(false) => self.differences.push(ResultDifference {
                input: jobs.input.clone(),
                before: before.map(|before| before.summary),
                after: after.map(|after| after.summary),
            }),
        }
    }
}

/// Returns true if two outputs have the same bytes, and `None` if bytes that were not kept decide.
fn are_equal(one: &CapturedOutput, other: &CapturedOutput) -> Option<bool> {
    let kept = one.bytes.len().min(other.bytes.len());
    if one.total != other.total || one.bytes[..kept] != other.bytes[..kept] {
        return Some(false);
    }
    if !one.is_truncated() && !other.is_truncated() {
        return Some(true);
    }
    Some(hash_of(one)? == hash_of(other)?)
}

/// Returns the hash of all bytes of an output, or `None` if not all were kept.
fn hash_of(output: &CapturedOutput) -> Option<BlobHash> {
    let own = || {
        let mut hash = BlobHasher::default();
        hash.update(&output.bytes);
        hash.finish()
    };
    output.blob.or_else(|| (!output.is_truncated()).then(own))
}

fn text(difference: &ResultDifference) -> String {
    let status = |end: &Option<JobResultSummary>| end.as_ref().map_or("not there", |end| end.status.as_str());
    let (before, after) = (status(&difference.before), status(&difference.after));
    let how = if before == after { before.to_owned() } else { format!("{before} → {after}") };
    let side = |sign: char, end: &Option<JobResultSummary>| {
        let lines = end.iter().flat_map(|end| end.stdout.lines()).take(MAX_LINES);
        lines.map(|line| format!("  {sign} {line}\n")).collect::<String>()
    };
    let input = one_line(&difference.input);
    format!("{input}: {how}\n{}{}", side('-', &difference.before), side('+', &difference.after))
}

#[cfg(test)]
mod tests;

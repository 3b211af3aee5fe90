//! `agx action diff`: compares the results of two actions.

use std::collections::{BTreeMap, BTreeSet};

use agenix_client::Connection;
use agenix_protocol::{
    blob::{BlobHash, BlobHasher},
    documents::{CapturedOutput, JobStatus},
    ids::ActionId,
};
use futures_util::{StreamExt, TryStreamExt, stream};

use crate::{
    connection_args::ConnectionArgs,
    documents::{JobResultSummary, ResultDifference},
    error::{CliError, Result},
    output::{OutputFormat, counted},
    util::printable::one_line,
    watch::progress,
};

const AT_ONCE: usize = 64;
/// Maximum number of lines per side in the diff of one output.
const MAX_LINES: usize = 5;

/// Input of a job, and the number of earlier jobs of its action with an equal input.
type InputKey = (String, usize);

/// Result of the job of one input.
struct ComparedResult {
    summary: JobResultSummary,
    /// Stdout of the last task.
    stdout: CapturedOutput,
}

/// Results of the jobs of an action that agq still has.
#[derive(Default)]
struct ActionEnds {
    ends: BTreeMap<InputKey, ComparedResult>,
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
    let connection = server.connect().await?;
    let compared = compared(ends(&connection, before).await?, ends(&connection, after).await?);
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

async fn ends(connection: &Connection, action_id: &ActionId) -> Result<ActionEnds> {
    let mut own = connection.clone();
    let action = own.action(action_id).await?.ok_or_else(|| progress::not_found(action_id))?;
    let asked = own.jobs(&action, None).await?.into_iter().map(|id| {
        let mut connection = connection.clone();
        async move { connection.job(&id).await }
    });
    let jobs: Vec<Option<JobStatus>> = stream::iter(asked).buffered(AT_ONCE).try_collect().await?;
    let mut found = ActionEnds::default();
    for job in jobs.into_iter().flatten() {
        let stdout = job.results().pop().map(|last| last.stdout).unwrap_or_default();
        let (shown, stdout_blob) = (job.stdout.unwrap_or_default(), stdout.blob);
        let summary = JobResultSummary { status: job.status, stdout: shown, stdout_blob };
        found.add(job.inputs.get(), ComparedResult { summary, stdout });
    }
    found.removed = action.total_jobs.saturating_sub(found.ends.len() as u64);
    Ok(found)
}

impl ActionEnds {
    /// Adds the result of the next job.
    fn add(&mut self, input: &str, end: ComparedResult) {
        let equal = (input.to_owned(), 0)..=(input.to_owned(), usize::MAX);
        let occurrence = self.ends.range(equal).next_back().map_or(0, |((_, last), _)| last + 1);
        self.ends.insert((input.to_owned(), occurrence), end);
    }

    /// Returns the inputs of more than one job.
    fn repeated(&self) -> impl Iterator<Item = String> {
        self.ends.keys().filter(|(_, earlier)| *earlier > 0).map(|(input, _)| input.clone())
    }
}

fn compared(mut before: ActionEnds, mut after: ActionEnds) -> Comparison {
    let unended =
        |of: &ActionEnds| of.ends.values().filter(|end| !end.summary.status.is_ended()).count() as u64;
    let mut compared = Comparison {
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
    for (key, end) in after.ends {
        let earlier = before.ends.remove(&key);
        if earlier.is_none() && lacks_before {
            continue;
        }
        let equal = earlier.as_ref().map_or(Some(false), |earlier| {
            if earlier.summary.status == end.summary.status {
                are_equal(&earlier.stdout, &end.stdout)
            } else {
                Some(false)
            }
        });
        match equal {
            Some(true) => {}
            None => compared.cut += 1,
            Some(false) => compared.differences.push(ResultDifference {
                input: key.0,
                before: earlier.map(|earlier| earlier.summary),
                after: Some(end.summary),
            }),
        }
    }
    let left = before.ends.into_iter().filter(|_| !lacks_after);
    compared.differences.extend(left.map(|((input, _), end)| ResultDifference {
        input,
        before: Some(end.summary),
        after: None,
    }));
    compared.differences.sort_by(|one, other| one.input.cmp(&other.input));
    compared
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
mod tests {
    use agenix_protocol::documents::{
        CapturedOutput,
        Status::{self, Completed, Failed, Running},
    };

    use super::{ActionEnds, ComparedResult, Comparison, JobResultSummary, compared, hash_of, text, verdict};

    fn ends(ends: &[(&str, Status, CapturedOutput)]) -> ActionEnds {
        let mut all = ActionEnds::default();
        for (input, status, stdout) in ends {
            let shown = String::from_utf8_lossy(&stdout.bytes).into_owned();
            let summary = JobResultSummary { status: *status, stdout: shown, stdout_blob: stdout.blob };
            all.add(input, ComparedResult { summary, stdout: stdout.clone() });
        }
        all
    }

    fn whole(text: &[u8]) -> CapturedOutput {
        CapturedOutput::whole(text.to_vec())
    }

    /// Compares two actions of one job.
    fn of_one(before: CapturedOutput, after: CapturedOutput) -> Comparison {
        compared(ends(&[("a", Completed, before)]), ends(&[("a", Completed, after)]))
    }

    #[test]
    fn diff_omits_equal_results() {
        let (one, two, three) = (whole(b"1\n"), whole(b"2\n"), whole(b"3\n"));
        let before = ends(&[("a", Completed, one.clone()), ("b", Completed, two), ("c", Failed, whole(b""))]);
        let after = ends(&[("a", Completed, one), ("b", Completed, three), ("d", Failed, whole(b""))]);
        let found = compared(before, after);
        let printed: String = found.differences.iter().map(text).collect();
        assert_eq!(printed, "b: completed\n  - 2\n  + 3\nc: failed → not there\nd: not there → failed\n");
        assert_eq!(verdict(&found).unwrap_err().to_string(), "3 inputs have different results");
        assert!(verdict(&of_one(whole(b"1"), whole(b"1"))).is_ok());
    }

    #[test]
    fn diff_compares_the_bytes_of_outputs() {
        assert_eq!(of_one(whole(b"\xff"), whole(b"\xfe")).differences.len(), 1, "both are shown as U+FFFD");
    }

    #[test]
    fn diff_compares_each_of_several_jobs_with_equal_inputs() {
        let of = |outputs: [&[u8]; 2]| ends(&outputs.map(|output| ("a", Completed, whole(output))));
        assert_eq!(compared(of([b"1", b"2"]), of([b"3", b"2"])).differences.len(), 1, "the first differs");
        assert_eq!(compared(of([b"1", b"2"]), ends(&[("a", Completed, whole(b"1"))])).differences.len(), 1);
        assert!(verdict(&compared(of([b"1", b"2"]), of([b"1", b"2"]))).is_ok());
    }

    #[test]
    fn diff_fails_for_jobs_that_have_not_ended_or_are_removed() {
        let running = || ends(&[("a", Running, whole(b""))]);
        let unended = verdict(&compared(running(), running())).unwrap_err();
        assert_eq!(unended.to_string(), "2 jobs have not ended yet");
        let removed = ActionEnds { removed: 1, ..ActionEnds::default() };
        let removed = verdict(&compared(removed, ActionEnds::default())).unwrap_err().to_string();
        assert!(removed.starts_with("1 result is no longer kept"), "{removed}");
    }

    #[test]
    fn diff_does_not_take_a_removed_result_for_a_difference() {
        let one = |input: &str, output: &[u8]| (input.to_owned(), whole(output));
        let of = |all: &[(String, CapturedOutput)], removed| {
            let all: Vec<_> =
                all.iter().map(|(input, output)| (&**input, Completed, output.clone())).collect();
            ActionEnds { removed, ..ends(&all) }
        };
        let twice = [one("a", b"1"), one("a", b"2"), one("b", b"3")];
        for (before, after) in [(of(&twice[1..], 1), of(&twice, 0)), (of(&twice, 0), of(&twice[1..], 1))] {
            let found = compared(before, after);
            assert!(found.differences.is_empty(), "the first job of a was removed");
            assert!(verdict(&found).unwrap_err().to_string().starts_with("1 result is no longer kept"));
        }
        let differs = compared(of(&[one("b", b"3")], 1), of(&[one("b", b"4")], 1));
        assert_eq!(differs.differences.len(), 1, "both results are kept");
    }

    #[test]
    fn diff_does_not_take_the_same_beginning_for_equal_outputs() {
        let cut = |total| CapturedOutput::inline(b"x".to_vec(), total);
        assert_eq!(of_one(cut(5), cut(6)).differences.len(), 1, "the lengths differ");
        let unknown = of_one(cut(5), cut(5));
        assert!(unknown.differences.is_empty() && verdict(&unknown).is_err());
        let blob = |text: &[u8]| CapturedOutput { blob: hash_of(&whole(text)), ..cut(text.len() as u64) };
        assert_eq!(of_one(blob(b"xa"), blob(b"xb")).differences.len(), 1);
        assert!(verdict(&of_one(blob(b"xa"), blob(b"xa"))).is_ok());
        assert!(verdict(&of_one(blob(b"xa"), whole(b"xa"))).is_ok(), "one is kept in another form");
        assert_eq!(of_one(blob(b"xa"), cut(2)).cut, 1);
    }
}

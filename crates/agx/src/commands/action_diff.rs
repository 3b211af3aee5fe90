//! `agx action diff`: compares the results of two actions.

use std::collections::BTreeMap;

use agenix_client::Connection;
use agenix_protocol::{documents::JobStatus, ids::ActionId};
use futures_util::{StreamExt, TryStreamExt, stream};

use crate::{
    documents::{JobResultSummary, ResultDifference},
    error::{CliError, Result},
    output::Output,
    server_args::ServerArgs,
    util::printable::one_line,
    watch::progress,
};

const AT_ONCE: usize = 64;
/// Maximum number of lines per side in the diff of one output.
const MOST_LINES: usize = 5;

pub(super) async fn run(
    server: &ServerArgs,
    before: &ActionId,
    after: &ActionId,
    output: Output,
) -> Result<()> {
    let connection = server.connect().await?;
    let found = differences(ends(&connection, before).await?, ends(&connection, after).await?);
    output.show("action.diff", &found, |found| found.iter().map(text).collect::<String>())?;
    if found.is_empty() {
        return Ok(());
    }
    Err(CliError::Jobs(format!("{} inputs have different results", found.len())))
}

async fn ends(connection: &Connection, action_id: &ActionId) -> Result<BTreeMap<String, JobResultSummary>> {
    let mut own = connection.clone();
    let action = own.action(action_id).await?.ok_or_else(|| progress::not_found(action_id))?;
    let asked = own.jobs(&action, None).await?.into_iter().map(|id| {
        let mut connection = connection.clone();
        async move { connection.job(&id).await }
    });
    let jobs: Vec<Option<JobStatus>> = stream::iter(asked).buffered(AT_ONCE).try_collect().await?;
    let end = |job: JobStatus| {
        let stdout_blob = job.results().last().and_then(|last| last.stdout.blob);
        let stdout = job.stdout.unwrap_or_default();
        (job.inputs.get().to_owned(), JobResultSummary { status: job.status, stdout, stdout_blob })
    };
    Ok(jobs.into_iter().flatten().map(end).collect())
}

fn differences(
    mut before: BTreeMap<String, JobResultSummary>,
    after: BTreeMap<String, JobResultSummary>,
) -> Vec<ResultDifference> {
    let mut found: Vec<ResultDifference> = Vec::new();
    for (input, end) in after {
        let earlier = before.remove(&input);
        if earlier.as_ref() != Some(&end) {
            found.push(ResultDifference { input, before: earlier, after: Some(end) });
        }
    }
    found.extend(before.into_iter().map(|(input, end)| ResultDifference {
        input,
        before: Some(end),
        after: None,
    }));
    found.sort_by(|one, other| one.input.cmp(&other.input));
    found
}

fn text(difference: &ResultDifference) -> String {
    let status = |end: &Option<JobResultSummary>| end.as_ref().map_or("not there", |end| end.status.as_str());
    let (before, after) = (status(&difference.before), status(&difference.after));
    let how = if before == after { before.to_owned() } else { format!("{before} → {after}") };
    let side = |sign: char, end: &Option<JobResultSummary>| {
        let lines = end.iter().flat_map(|end| end.stdout.lines()).take(MOST_LINES);
        lines.map(|line| format!("  {sign} {line}\n")).collect::<String>()
    };
    let input = one_line(&difference.input);
    format!("{input}: {how}\n{}{}", side('-', &difference.before), side('+', &difference.after))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use agenix_protocol::documents::Status::{self, Completed, Failed};

    use super::{JobResultSummary, differences, text};

    fn ends(ends: &[(&str, Status, &str)]) -> BTreeMap<String, JobResultSummary> {
        let end = |(input, status, stdout): &(&str, Status, &str)| {
            (
                (*input).to_owned(),
                JobResultSummary { status: *status, stdout: (*stdout).into(), stdout_blob: None },
            )
        };
        ends.iter().map(end).collect()
    }

    #[test]
    fn diff_omits_equal_results() {
        let before = ends(&[("a", Completed, "1\n"), ("b", Completed, "2\n"), ("c", Failed, "")]);
        let after = ends(&[("a", Completed, "1\n"), ("b", Completed, "3\n"), ("d", Failed, "")]);
        let printed: String = differences(before, after).iter().map(text).collect();
        assert_eq!(printed, "b: completed\n  - 2\n  + 3\nc: failed → not there\nd: not there → failed\n");
    }
}

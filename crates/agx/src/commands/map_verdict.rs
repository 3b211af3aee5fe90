//! Outcome of `agx map`: its error and exit code, and the inputs that were not sent. Ends of
//! interrupted maps on a cluster.

use agenix_client::ClientError;
use agenix_protocol::{documents::HaltCondition, ids::ActionId};
use tokio::sync::watch;

use crate::{
    error::{CliError, Result},
    map::{MapCounts, MapOutcome, StopLevel, UnsentInputs, end},
    output::{OutputFormat, counted},
    util::signals::stop_requested,
};

/// Ends an interrupted map on a cluster. Without a joblog, its action continues.
pub(super) async fn end_interrupted(
    mapped: impl Future<Output = Result<MapOutcome>> + Unpin,
    has_joblog: bool,
    (stop_level, action_id): (&watch::Sender<StopLevel>, &ActionId),
    output: OutputFormat,
) -> Result<()> {
    if has_joblog {
        return end_logged(mapped, (stop_level, action_id), output).await;
    }
    let left = end(mapped, stop_level, StopLevel::Leave).await.and_then(Result::ok);
    Err(left_behind(left.as_ref(), action_id, output))
}

/// Returns the failure of an interrupted map. The action continues if agq has the action.
fn left_behind(left: Option<&MapOutcome>, action_id: &ActionId, output: OutputFormat) -> CliError {
    if left.is_some_and(|left| !left.collected.has_begun) {
        return CliError::Interrupted;
    }
    if let Some(unsent) = left.and_then(|left| not_sent(&left.unsent)) {
        output.note(&format!("agx: {unsent}; the action continues with the inputs that it has"));
    }
    CliError::Detached(action_id.clone())
}

/// Ends an interrupted map with a joblog: no further job starts, and the running ones are logged
/// when they end, because `--resume` runs every job that the joblog does not have. A second signal
/// cancels the running jobs.
async fn end_logged(
    mut mapped: impl Future<Output = Result<MapOutcome>> + Unpin,
    (stop_level, action_id): (&watch::Sender<StopLevel>, &ActionId),
    output: OutputFormat,
) -> Result<()> {
    output.note(
        "agx: no further job starts; agx waits for the running jobs, because --resume would run them again. Interrupt it \
         again to cancel them",
    );
    stop_level.send_modify(|stop_level| *stop_level = (*stop_level).max(StopLevel::StartNone));
    let mapped = tokio::select! {
        mapped = &mut mapped => Some(mapped),
        () = stop_requested() => end(mapped, stop_level, StopLevel::End).await,
    };
    let mapped = mapped.ok_or(CliError::Interrupted)??;
    let cancelled = mapped.collected.cancelled;
    let cancelled =
        (cancelled > 0).then(|| format!("{} cancelled", counted(cancelled, "job was", "jobs were")));
    let parts: Vec<String> = cancelled.into_iter().chain(not_sent(&mapped.unsent)).collect();
    if parts.is_empty() {
        return verdict(mapped, action_id, false);
    }
    output.note(&format!("agx: {}; the same command with --resume runs the rest", parts.join("; ")));
    Err(CliError::Interrupted)
}

/// Returns the text that names the inputs that were not sent, or `None` if all were.
fn not_sent(unsent: &UnsentInputs) -> Option<String> {
    let UnsentInputs { inputs, is_more, .. } = *unsent;
    match (inputs, is_more) {
        (0, false) => None,
        (0, true) => Some("further inputs were not read".into()),
        (inputs, false) => Some(format!("{} not sent", counted(inputs, "input was", "inputs were"))),
        (inputs, true) => {
            let read = counted(inputs, "input that was read was", "inputs that were read were");
            Some(format!("{read} not sent, and further ones were not read"))
        }
    }
}

/// Returns the error of a map whose jobs did not all complete, or whose budget did not suffice for
/// all inputs.
pub(super) fn verdict(mapped: MapOutcome, action_id: &ActionId, is_local: bool) -> Result<()> {
    let jobs = incomplete_jobs(&mapped, action_id, is_local);
    let unsent = not_sent(&mapped.unsent);
    // A halted map wants no further inputs.
    let is_halted = mapped.collected.is_halted;
    let Some(reason) = mapped.unsent.refused.filter(|_| !is_halted) else {
        return jobs.map_or(Ok(()), |failure| Err(CliError::Jobs(failure)));
    };
    let done: Vec<String> = unsent.into_iter().chain(jobs).collect();
    let refused = CliError::from(ClientError::Rejected(reason));
    Err(refused.after(done.join("; "), "with --joblog, the same command with --resume runs the rest then"))
}

/// Returns the text that says which jobs did not complete, or `None` if that is no failure.
fn incomplete_jobs(mapped: &MapOutcome, action_id: &ActionId, is_local: bool) -> Option<String> {
    let MapOutcome { collected, unsent, halt } = mapped;
    let MapCounts { completed, failed, cancelled, lost, unfit, is_halted, .. } = *collected;
    let failed = failed + unfit;
    // Enough jobs have completed, and failures of the others do not matter.
    let is_success = is_halted && halt.is_some_and(|halt| halt.counted == HaltCondition::Success);
    if is_success || (failed + lost == 0 && (cancelled == 0 || is_halted)) {
        return None;
    }
    let total = completed + failed + cancelled + lost;
    let mut parts = vec![format!("{failed} of {total} jobs failed")];
    if lost > 0 {
        let why = "agq removed them before agx fetched them (--keep-ended, --keep-ended-count)";
        let gone = format!("the results of {lost} of {total} jobs are no longer kept: {why}");
        if failed == 0 {
            parts.clear();
        }
        parts.push(gone);
    }
    if cancelled > 0 && !is_halted {
        parts.push(format!("{cancelled} of {total} were cancelled"));
    }
    if is_halted {
        parts.push(format!("--halt ended it, {cancelled} were cancelled"));
        parts.extend(not_sent(unsent));
    }
    if !is_local && lost == 0 {
        parts.push(format!("see them with `agx action results {action_id}`"));
    }
    Some(parts.join("; "))
}

#[cfg(test)]
mod tests {
    use super::{MapCounts, MapOutcome, UnsentInputs, not_sent, verdict};

    fn verdict_of(collected: MapCounts, unsent: UnsentInputs) -> Option<String> {
        verdict_of_halted(collected, unsent, None)
    }

    fn verdict_of_halted(collected: MapCounts, unsent: UnsentInputs, halt: Option<&str>) -> Option<String> {
        let halt = halt.map(|halt| halt.parse().unwrap());
        let verdict = verdict(MapOutcome { collected, unsent, halt }, &"a".parse().unwrap(), true);
        verdict.err().map(|failure| failure.to_string())
    }

    #[test]
    fn map_verdict_counts_all_inputs() {
        let none = MapCounts::default();
        let of = |collected| verdict_of(collected, UnsentInputs::default());
        assert_eq!(of(MapCounts { completed: 3, ..none }), None);
        let failed = MapCounts { completed: 1, failed: 1, unfit: 1, ..none };
        assert_eq!(of(failed).unwrap(), "2 of 3 jobs failed");
        let lost = of(MapCounts { completed: 10, lost: 190, ..none }).unwrap();
        assert!(lost.starts_with("the results of 190 of 200 jobs are no longer kept"), "{lost}");
        let cancelled = of(MapCounts { completed: 1, cancelled: 2, ..none }).unwrap();
        assert_eq!(cancelled, "0 of 3 jobs failed; 2 of 3 were cancelled");
        let halted = MapCounts { completed: 1, cancelled: 2, is_halted: true, ..none };
        assert_eq!(of(halted), None);
        let halted = MapCounts { failed: 1, ..halted };
        let unsent = UnsentInputs { inputs: 5, is_more: true, refused: None };
        assert_eq!(
            verdict_of(halted, unsent).unwrap(),
            "1 of 4 jobs failed; --halt ended it, 2 were cancelled; 5 inputs that were read were not sent, and further ones \
             were not read"
        );
    }

    #[test]
    fn map_that_halts_after_enough_successes_succeeds_whatever_failed_before() {
        let met = MapCounts { completed: 1, failed: 2, lost: 1, is_halted: true, ..MapCounts::default() };
        let of = |collected, halt| verdict_of_halted(collected, UnsentInputs::default(), Some(halt));
        assert_eq!(of(met, "now,success=1"), None);
        assert!(of(met, "soon,done=3").unwrap().starts_with("2 of 4 jobs failed"));
        let missed = MapCounts { completed: 0, is_halted: false, ..met };
        assert!(of(missed, "now,success=1").unwrap().starts_with("2 of 3 jobs failed"));
    }

    #[test]
    fn map_whose_budget_is_used_up_is_refused_after_its_jobs() {
        let of = |collected| {
            let refused = Some("BUDGET used up: jobs 30 of 30".into());
            verdict_of(collected, UnsentInputs { inputs: 70, is_more: false, refused })
        };
        let run = MapCounts { completed: 30, ..MapCounts::default() };
        let refused = "agq refused: BUDGET used up: jobs 30 of 30; 70 inputs were not sent";
        assert_eq!(of(run).unwrap(), refused);
        assert_eq!(of(MapCounts { failed: 1, ..run }).unwrap(), format!("{refused}; 1 of 31 jobs failed"));
        assert_eq!(of(MapCounts { is_halted: true, ..run }), None, "the halt left the inputs out");
    }

    #[test]
    fn map_counts_unsent_inputs_as_far_as_known() {
        let message = |inputs, is_more| not_sent(&UnsentInputs { inputs, is_more, refused: None });
        assert_eq!(message(0, false), None);
        assert_eq!(message(1, false).unwrap(), "1 input was not sent");
        assert_eq!(message(0, true).unwrap(), "further inputs were not read");
    }
}

//! Halt policy of `--halt now,fail=1`, in the syntax of GNU Parallel.

use agenix_protocol::documents::{Halt, HaltCondition, HaltThreshold, Task};

/// Parses a halt policy.
pub(crate) fn parse(text: &str) -> Result<Halt, String> {
    // GNU Parallel accepted these numbers before it had the words.
    let text = match text {
        "1" => "soon,fail=1",
        "2" => "now,fail=1",
        other => other,
    };
    text.parse().map_err(|error| format!("{error}"))
}

/// Returns true if the number of all jobs decides when `halt` is met.
pub(crate) fn needs_total(halt: Halt) -> bool {
    matches!(halt.bound, HaltThreshold::Percent(_))
}

/// Returns `halt` with the number of jobs that its percentage stands for, if the map has `total`
/// jobs. agq would take the percentage of the jobs that are submitted so far.
pub(super) fn with_total(halt: Halt, total: u64) -> Halt {
    match halt.bound {
        HaltThreshold::Count(_) => halt,
        HaltThreshold::Percent(percent) => {
            let count = total.saturating_mul(percent).div_ceil(100).max(1);
            Halt { bound: HaltThreshold::Count(count), ..halt }
        }
    }
}

/// Returns true if agq may decide when a map halts. agx counts a completed job as failed if its
/// output was cut or could not be written, and agq would count such a job as a success. Failures
/// that only agx knows of come on top of those that agq counts, so agq never halts too early
/// because of them.
pub(crate) fn is_decided_by_agq(halt: Halt, tasks: &[Task], keeps_results: bool) -> bool {
    let is_written_by_worker = tasks.last().is_some_and(|last| last.stdout.is_some());
    halt.counted != HaltCondition::Success || (is_written_by_worker && !keeps_results)
}

#[cfg(test)]
mod tests {
    use agenix_protocol::documents::Task;

    use super::{is_decided_by_agq, needs_total, parse, with_total};

    #[test]
    fn halt_accepts_the_numbers_of_gnu_parallel() {
        let of = |text| parse(text).unwrap().to_string();
        assert_eq!(["1", "2", "soon,done=20%"].map(of), ["soon,fail=1", "now,fail=1", "soon,done=20%"]);
        for wrong in ["0", "3", "never"] {
            assert!(parse(wrong).unwrap_err().contains("now,fail=1"), "{wrong}");
        }
    }

    #[test]
    fn halt_percentage_stands_for_a_number_of_all_jobs() {
        let of = |text: &str, total| {
            let halt = text.parse().unwrap();
            (needs_total(halt), with_total(halt, total).to_string())
        };
        assert_eq!(of("soon,done=50%", 100_000), (true, "soon,done=50000".into()));
        assert_eq!(of("now,fail=1%", 150), (true, "now,fail=2".into()), "at least the percentage");
        assert_eq!(of("soon,success=1%", 0), (true, "soon,success=1".into()));
        assert_eq!(of("now,fail=3", 100), (false, "now,fail=3".into()));
    }

    #[test]
    fn halt_is_decided_by_agq_unless_agx_counts_differently() {
        let task = |stdout: Option<&str>| Task { stdout: stdout.map(Into::into), ..Task::default() };
        let decides = |halt: &str, stdout, keeps_results| {
            is_decided_by_agq(halt.parse().unwrap(), &[task(Some("x")), task(stdout)], keeps_results)
        };
        assert!(decides("now,fail=1", None, true) && decides("soon,done=5", None, true));
        assert!(!decides("now,success=1", None, false), "its output may be cut");
        assert!(decides("now,success=1", Some("{#}.out"), false));
        assert!(!decides("now,success=1", Some("{#}.out"), true), "its results may not be kept");
    }
}

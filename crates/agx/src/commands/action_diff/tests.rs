//! Tests of comparisons of made-up actions.

use agenix_protocol::documents::{
    CapturedOutput,
    Status::{self, Completed, Failed, Running},
};

use super::{
    ActionEnds, ComparedResult, Comparison, JobEnd, JobId, JobResultSummary, hash_of, text, unequal, verdict,
};

/// Jobs of an action that agq still has, and the number of removed ones.
#[derive(Default)]
struct ComparedAction {
    jobs: Vec<(String, Status, CapturedOutput)>,
    removed: u64,
}

impl ComparedAction {
    fn ends(&self) -> ActionEnds {
        let mut all = ActionEnds { removed: self.removed, ..ActionEnds::default() };
        for (index, (input, status, stdout)) in self.jobs.iter().enumerate() {
            let end = JobEnd { job_id: job_id(index), status: *status, hash: hash_of(stdout) };
            all.add(input, end);
        }
        all
    }

    fn result(&self, id: Option<&JobId>) -> Option<ComparedResult> {
        let index = (0..self.jobs.len()).find(|&index| Some(&job_id(index)) == id)?;
        let (_, status, stdout) = &self.jobs[index];
        let shown = String::from_utf8_lossy(&stdout.bytes).into_owned();
        let summary = JobResultSummary { status: *status, stdout: shown, stdout_blob: stdout.blob };
        Some(ComparedResult { summary, stdout: stdout.clone() })
    }
}

fn job_id(index: usize) -> JobId {
    JobId::new(format!("j{index}")).unwrap()
}

fn of_jobs(jobs: &[(&str, Status, CapturedOutput)]) -> ComparedAction {
    let jobs = jobs.iter().map(|(input, status, stdout)| ((*input).to_owned(), *status, stdout.clone()));
    ComparedAction { jobs: jobs.collect(), removed: 0 }
}

fn compared(before: &ComparedAction, after: &ComparedAction) -> Comparison {
    let (unequal, mut compared) = unequal(before.ends(), after.ends());
    for jobs in unequal {
        let (one, other) = (before.result(jobs.before.as_ref()), after.result(jobs.after.as_ref()));
        compared.add(&jobs, one, other);
    }
    compared
}

fn whole(text: &[u8]) -> CapturedOutput {
    CapturedOutput::whole(text.to_vec())
}

/// Compares two actions of one job.
fn of_one(before: CapturedOutput, after: CapturedOutput) -> Comparison {
    compared(&of_jobs(&[("a", Completed, before)]), &of_jobs(&[("a", Completed, after)]))
}

#[test]
fn diff_omits_equal_results() {
    let (one, two, three) = (whole(b"1\n"), whole(b"2\n"), whole(b"3\n"));
    let before = of_jobs(&[("a", Completed, one.clone()), ("b", Completed, two), ("c", Failed, whole(b""))]);
    let after = of_jobs(&[("a", Completed, one), ("b", Completed, three), ("d", Failed, whole(b""))]);
    let found = compared(&before, &after);
    let printed: String = found.differences.iter().map(text).collect();
    assert_eq!(printed, "b: completed\n  - 2\n  + 3\nc: failed → not there\nd: not there → failed\n");
    assert_eq!(verdict(&found).unwrap_err().to_string(), "3 inputs have different results");
    assert!(verdict(&of_one(whole(b"1"), whole(b"1"))).is_ok());
}

#[test]
fn diff_fetches_outputs_again_only_if_they_may_differ() {
    let cut = CapturedOutput::inline(b"x".to_vec(), 5);
    let before = of_jobs(&[("a", Completed, whole(b"1")), ("b", Failed, whole(b"")), ("c", Completed, cut)]);
    let inputs = |after: &ComparedAction| {
        let (unequal, _counts) = unequal(before.ends(), after.ends());
        unequal.into_iter().map(|jobs| jobs.input).collect::<Vec<_>>()
    };
    assert_eq!(inputs(&before), ["c"]);
    let after = of_jobs(&[("a", Completed, whole(b"2")), ("b", Completed, whole(b""))]);
    assert_eq!(inputs(&after), ["a", "b", "c"]);
}

#[test]
fn diff_counts_a_result_that_agq_removes_meanwhile() {
    let (before, after) = (of_jobs(&[("a", Completed, whole(b"1"))]), ComparedAction::default());
    let (unequal, mut compared) = unequal(before.ends(), after.ends());
    compared.add(&unequal[0], None, None);
    assert_eq!((compared.removed, compared.differences.len()), (1, 0));
}

#[test]
fn diff_compares_the_bytes_of_outputs() {
    assert_eq!(of_one(whole(b"\xff"), whole(b"\xfe")).differences.len(), 1, "both are shown as U+FFFD");
}

#[test]
fn diff_compares_each_of_several_jobs_with_equal_inputs() {
    let of = |outputs: [&[u8]; 2]| of_jobs(&outputs.map(|output| ("a", Completed, whole(output))));
    assert_eq!(compared(&of([b"1", b"2"]), &of([b"3", b"2"])).differences.len(), 1, "the first differs");
    let fewer = of_jobs(&[("a", Completed, whole(b"1"))]);
    assert_eq!(compared(&of([b"1", b"2"]), &fewer).differences.len(), 1);
    assert!(verdict(&compared(&of([b"1", b"2"]), &of([b"1", b"2"]))).is_ok());
}

#[test]
fn diff_fails_for_jobs_that_have_not_ended_or_are_removed() {
    let running = of_jobs(&[("a", Running, whole(b""))]);
    let unended = verdict(&compared(&running, &running)).unwrap_err();
    assert_eq!(unended.to_string(), "2 jobs have not ended yet");
    let removed = ComparedAction { removed: 1, ..ComparedAction::default() };
    let removed = verdict(&compared(&removed, &ComparedAction::default())).unwrap_err().to_string();
    assert!(removed.starts_with("1 result is no longer kept"), "{removed}");
}

#[test]
fn diff_does_not_take_a_removed_result_for_a_difference() {
    let one = |input: &str, output: &[u8]| (input.to_owned(), whole(output));
    let of = |all: &[(String, CapturedOutput)], removed| {
        let all: Vec<_> = all.iter().map(|(input, output)| (&**input, Completed, output.clone())).collect();
        ComparedAction { removed, ..of_jobs(&all) }
    };
    let twice = [one("a", b"1"), one("a", b"2"), one("b", b"3")];
    for (before, after) in [(of(&twice[1..], 1), of(&twice, 0)), (of(&twice, 0), of(&twice[1..], 1))] {
        let found = compared(&before, &after);
        assert!(found.differences.is_empty(), "the first job of a was removed");
        assert!(verdict(&found).unwrap_err().to_string().starts_with("1 result is no longer kept"));
    }
    let differs = compared(&of(&[one("b", b"3")], 1), &of(&[one("b", b"4")], 1));
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

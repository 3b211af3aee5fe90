//! Tests of the decisions, as values.

use std::time::Duration;

use agenix_protocol::{
    documents::{Demand, QueueStats, WorkerStatus, parse},
    time::Timestamp,
};

use super::{
    decision::{ScaleDecision, decide},
    history::ScaleHistory,
    pause,
    shortage::{WorkerShortage, shortage},
    terms::ScaleTerms,
    view::{ScaleSelection, View},
};

fn at(secs: u64) -> Timestamp {
    Timestamp::parse("2026-01-31T08:00:00.000Z").unwrap().plus_ms(secs * 1000)
}

fn terms(min: u64, max: u64) -> ScaleTerms {
    ScaleTerms {
        can_start: true,
        can_end: true,
        min,
        max,
        up_after: Duration::from_secs(30),
        down_after: Duration::from_secs(300),
        start_timeout: Duration::from_secs(600),
        command_timeout: Duration::from_secs(600),
    }
}

/// Returns a worker with two slots and four processors. `rest` replaces some fields.
fn worker(id: &str, active_jobs: u64, cpus_used: u64, rest: &str) -> WorkerStatus {
    let json = format!(
        r#"{{"worker_id":"{id}","hostname":"h-{id}","platform":"","agw_version":"",
            "capabilities":{{"tools":["sort"],"agentic_units":[]}},"max_concurrent_jobs":2,"active_jobs":{active_jobs},
            "registered_at":"2026-01-31T08:00:00.000Z","last_seen_at":"2026-01-31T08:00:00.000Z",
            "resources":{{"cpus":4}},"used_resources":{{"cpus":{cpus_used}}},{rest}}}"#
    );
    parse(json.as_bytes()).unwrap()
}

const ACTIVE: &str = r#""state":"active","stats":null"#;

fn busy(id: &str) -> WorkerStatus {
    worker(id, 2, 4, ACTIVE)
}

fn idle(id: &str) -> WorkerStatus {
    worker(id, 0, 0, ACTIVE)
}

fn jobs(length: u64, cpus: u64) -> Demand {
    let json = format!(r#"{{"tools":["sort"],"resources":{{"cpus":{cpus}}},"length":{length},"workers":0}}"#);
    parse(json.as_bytes()).unwrap()
}

fn view(workers: &[WorkerStatus], waiting: &[Demand]) -> View {
    View { workers: workers.to_vec(), waiting: waiting.to_vec(), time: at(0) }
}

/// Returns the decision after these polls, at the time of the last poll, and the history.
fn after(terms: &ScaleTerms, looks: &[(u64, &View)]) -> (ScaleDecision, ScaleHistory) {
    let mut history = ScaleHistory::default();
    for (secs, view) in looks {
        history = history.observed(view, terms, at(*secs)).0;
    }
    let (secs, last) = looks.last().unwrap();
    (decide(terms, &history, last, at(*secs)), history)
}

fn up(decision: &ScaleDecision) -> u64 {
    match decision {
        ScaleDecision::Up { count, .. } => *count,
        _ => 0,
    }
}

fn down(decision: &ScaleDecision) -> Option<&str> {
    match decision {
        ScaleDecision::Down { worker, .. } => Some(worker.worker_id.as_str()),
        _ => None,
    }
}

fn nothing(decision: ScaleDecision) -> String {
    match decision {
        ScaleDecision::Nothing { reason } => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn scale_starts_as_many_workers_as_the_waiting_jobs_fill() {
    let count = |waiting: &[Demand]| {
        let view = view(&[busy("a")], waiting);
        up(&after(&terms(0, 10), &[(0, &view), (30, &view)]).0)
    };
    assert_eq!(count(&[]), 0);
    assert_eq!(count(&[jobs(1, 1)]), 1);
    assert_eq!(count(&[jobs(4, 1)]), 2, "a worker has two slots");
    assert_eq!(count(&[jobs(4, 3)]), 4, "only one job of three processors fits on a worker");
    assert_eq!(count(&[jobs(2, 3), jobs(2, 1)]), 2, "small jobs run beside the large ones");
    assert_eq!(count(&[jobs(1000, 4)]), 9, "--max counts the present worker");
}

#[test]
fn scale_waits_for_up_after_and_begins_again_when_jobs_find_room() {
    let (short, fine) = (view(&[busy("a")], &[jobs(2, 1)]), view(&[busy("a")], &[]));
    let terms = terms(0, 10);
    let early = after(&terms, &[(0, &short), (29, &short)]).0;
    assert_eq!(nothing(early), "2 jobs wait for a worker with room, and less than --up-after ago");
    assert_eq!(up(&after(&terms, &[(0, &short), (20, &fine), (40, &short)]).0), 0);
    assert_eq!(up(&after(&terms, &[(0, &short), (30, &short)]).0), 1);
}

#[test]
fn scale_counts_the_workers_that_are_starting() {
    let terms = terms(0, 10);
    let short = view(&[busy("a")], &[jobs(4, 1)]);
    let (decision, history) = after(&terms, &[(0, &short), (30, &short)]);
    assert_eq!(up(&decision), 2);
    let history = history.after_start(2, at(30));
    let (history, overdue) = history.observed(&short, &terms, at(90));
    let reason = nothing(decide(&terms, &history, &short, at(90)));
    assert_eq!(
        (reason.as_str(), overdue),
        ("4 jobs wait for a worker with room, and 2 workers are starting", 0)
    );
    let one_came = view(&[busy("a"), busy("b")], &[jobs(4, 1)]);
    let (history, _) = history.observed(&one_came, &terms, at(100));
    assert_eq!(history.starting(), 1);
    let (history, overdue) = history.observed(&one_came, &terms, at(630));
    assert_eq!((history.starting(), overdue), (0, 1), "the other one has not come in time");
    let (history, _) = history.observed(&one_came, &terms, at(660));
    assert_eq!(up(&decide(&terms, &history, &one_came, at(660))), 2);
}

#[test]
fn scale_without_any_worker_starts_one_to_learn_what_workers_offer() {
    let terms = terms(0, 10);
    let short = view(&[], &[jobs(100, 4)]);
    let (decision, history) = after(&terms, &[(0, &short), (30, &short)]);
    assert_eq!(up(&decision), 1);
    let history = history.after_start(1, at(30));
    let came = view(&[busy("a")], &[jobs(99, 4)]);
    let (history, _) = history.observed(&came, &terms, at(60));
    let (history, _) = history.observed(&came, &terms, at(90));
    assert_eq!(up(&decide(&terms, &history, &came, at(90))), 9);
    let gone = view(&[], &[jobs(2, 4)]);
    let (history, _) = history.observed(&gone, &terms, at(100));
    assert_eq!(up(&decide(&terms, &history, &gone, at(100))), 2, "it is remembered");
}

#[test]
fn scale_keeps_min_and_counts_draining_workers_for_max() {
    let draining = worker("d", 1, 1, r#""state":"draining","stats":null"#);
    let few = view(&[idle("a"), draining], &[]);
    let decision = after(&terms(3, 10), &[(0, &few)]).0;
    assert_eq!(decision, ScaleDecision::Up { count: 2, reason: "1 worker is fewer than --min 3".into() });
    assert_eq!(up(&after(&terms(3, 3), &[(0, &few)]).0), 1);
    let full = View { waiting: vec![jobs(8, 4)], ..view(&[busy("a")], &[]) };
    let reason = nothing(after(&terms(0, 1), &[(0, &full), (30, &full)]).0);
    assert_eq!(reason, "8 jobs wait for a worker with room, and there are --max 1 workers already");
}

#[test]
fn jobs_that_a_new_worker_would_not_run_start_none() {
    let short = |workers: &[WorkerStatus], demand: Demand| {
        let view = view(workers, &[demand]);
        shortage(&view, view.active().next(), 10)
    };
    let none = WorkerShortage::default();
    assert_eq!(short(&[busy("a")], jobs(5, 8)), none, "they want more than a worker offers");
    assert_eq!(short(&[busy("a")], Demand { tools: vec!["jq".into()], ..jobs(5, 1) }), none);
    assert_eq!(short(&[busy("a")], Demand { sandbox: Some("reader".into()), ..jobs(5, 1) }), none);
    assert_eq!(short(&[busy("a"), worker("b", 1, 1, ACTIVE)], jobs(5, 1)), none, "a limit holds them back");
    let partly = worker("b", 1, 1, ACTIVE);
    assert_eq!(short(&[busy("a"), partly], jobs(5, 4)), WorkerShortage { jobs: 5, workers: 5 });
}

#[test]
fn scale_ends_the_worker_that_has_been_idle_for_the_longest_time() {
    let terms = terms(1, 10);
    let (first, both) = (view(&[busy("a"), idle("b")], &[]), view(&[idle("a"), idle("b")], &[]));
    assert_eq!(down(&after(&terms, &[(0, &first), (100, &both), (299, &both)]).0), None);
    assert_eq!(down(&after(&terms, &[(0, &first), (100, &both), (300, &both)]).0), Some("b"));
    assert_eq!(down(&after(&terms, &[(0, &first), (100, &both), (400, &both)]).0), Some("b"));
    let last = view(&[idle("a")], &[]);
    assert_eq!(down(&after(&terms, &[(0, &last), (900, &last)]).0), None, "--min is 1");
}

#[test]
fn worker_that_ended_jobs_between_two_looks_was_not_idle() {
    let look = |completed: u64| {
        let stats = format!(
            r#""state":"active","stats":{{"completed_jobs_total":{completed},"failed_jobs_total":2}}"#
        );
        view(&[worker("a", 0, 0, &stats)], &[])
    };
    let terms = terms(0, 10);
    assert_eq!(down(&after(&terms, &[(0, &look(7)), (300, &look(7))]).0), Some("a"));
    assert_eq!(down(&after(&terms, &[(0, &look(7)), (300, &look(8))]).0), None);
    assert_eq!(down(&after(&terms, &[(0, &look(7)), (300, &look(8)), (600, &look(8))]).0), Some("a"));
}

#[test]
fn worker_with_the_only_room_for_waiting_jobs_stays() {
    let terms = terms(0, 10);
    let limited = view(&[busy("a"), idle("b")], &[jobs(3, 1)]);
    assert_eq!(down(&after(&terms, &[(0, &limited), (300, &limited)]).0), None);
    let spare = view(&[busy("a"), idle("b"), idle("c")], &[jobs(3, 1)]);
    assert_eq!(down(&after(&terms, &[(0, &spare), (300, &spare)]).0), Some("b"));
}

/// Returns an idle worker that `by` drained at the start of the test.
fn drained_by(id: &str, active_jobs: u64, by: &str) -> WorkerStatus {
    let mark = format!(r#""drained":{{"by":"{by}","at":"2026-01-31T08:00:00.000Z"}}"#);
    worker(id, active_jobs, active_jobs, &format!(r#""state":"draining","stats":null,{mark}"#))
}

#[test]
fn scale_ends_or_resumes_a_worker_that_an_ended_scaler_has_drained() {
    let left = |active_jobs| drained_by("d", active_jobs, "agx-scale");
    // The clock of agx is an hour ahead of that of agq, which has the time of the drain.
    let decided = |terms: &ScaleTerms, view: &View, secs| {
        let view = view.clone().at(at(secs));
        match after(terms, &[(3600, &view)]).0 {
            ScaleDecision::Down { worker, reason } => format!("end {}: {reason}", worker.worker_id),
            ScaleDecision::Resume { worker, reason } => format!("resume {}: {reason}", worker.worker_id),
            ScaleDecision::Up { count, .. } => format!("start {count}"),
            ScaleDecision::Nothing { .. } => "nothing".into(),
        }
    };
    let (terms, was) = (terms(1, 10), "an agx scale that has ended left it drained");
    let calm = view(&[idle("a"), left(0)], &[]);
    assert_eq!(decided(&terms, &calm, 659), "nothing", "the command of its scaler may still run");
    assert_eq!(decided(&terms, &calm, 660), format!("end d: {was}"));
    let busy_one = view(&[idle("a"), left(1)], &[]);
    assert_eq!(decided(&terms, &busy_one, 660), format!("resume d: {was}, and it has a job"));
    let short = view(&[busy("a"), left(0)], &[jobs(1, 1)]);
    let reason = "jobs wait for a worker with room";
    assert_eq!(decided(&terms, &short, 660), format!("resume d: {was}, and {reason}"));
    let few = view(&[left(0)], &[]);
    let reason = "there are fewer workers than --min";
    assert_eq!(decided(&terms, &few, 660), format!("resume d: {was}, and {reason}"));
    let of_others = view(&[idle("a"), drained_by("d", 0, "upgrade")], &[]);
    assert_eq!(decided(&terms, &of_others, 900), "nothing");
    let only_up = ScaleTerms { can_end: false, ..terms };
    assert_eq!(decided(&only_up, &calm, 900), "nothing", "it may lack the right to resume");
}

#[test]
fn scale_without_one_of_the_commands_does_the_other_half() {
    let terms = terms(0, 10);
    let (short, calm) = (view(&[busy("a")], &[jobs(2, 1)]), view(&[idle("a")], &[]));
    let only_down = ScaleTerms { can_start: false, ..terms };
    let reason = nothing(after(&only_down, &[(0, &short), (30, &short)]).0);
    assert_eq!(reason, "2 jobs wait for a worker with room, and there is no --up");
    assert_eq!(down(&after(&only_down, &[(0, &calm), (300, &calm)]).0), Some("a"));
    let only_up = ScaleTerms { can_end: false, ..terms };
    assert_eq!(nothing(after(&only_up, &[(0, &calm), (300, &calm)]).0), "no job lacks a worker");
}

#[test]
fn selection_chooses_jobs_by_queue_or_tag_and_workers_by_tag() {
    let queue = |paused: bool, tag: &str| {
        format!(
            r#"{{"length":3,"oldest_job_age_seconds":1,"newest_job_age_seconds":1,"paused":{paused},
                "needs":[{{"tools":[],"length":1,"workers":0}},{{"tools":[],"tags":["{tag}"],"length":4,"workers":0,"held_back":2}}]}}"#
        )
    };
    let stats = format!(
        r#"{{"queue:ready":{},"queue:night":{},"queue:off":{},"queue:scheduled":{{"length":0,"next_job_due_in_seconds":null}},
            "workers":{{"total":0,"active":0,"idle":0}}}}"#,
        queue(false, "gpu"),
        queue(false, "tpu"),
        queue(true, "gpu")
    );
    let stats: QueueStats = parse(stats.as_bytes()).unwrap();
    let gpu = worker("g", 0, 0, r#""state":"active","stats":null,"tags":{"gpu":true}"#);
    let dead = worker("d", 0, 0, r#""state":"dead","stats":null,"tags":{"gpu":true}"#);
    let of = |queues: &[&str], tags: &[&str]| {
        let texts = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        let selection = ScaleSelection { queues: texts(queues), tags: texts(tags) };
        let view = View::of(vec![idle("a"), gpu.clone(), dead.clone()], &stats, &selection);
        (view.live(), view.waiting_jobs())
    };
    assert_eq!(of(&[], &[]), (2, 6), "neither paused queues nor jobs that are held back count");
    assert_eq!(of(&["night"], &[]), (2, 3));
    assert_eq!(of(&["off"], &[]), (2, 0));
    assert_eq!(of(&[], &["gpu"]), (1, 2), "only the jobs that need the tag");
    assert_eq!(of(&["night"], &["gpu"]), (1, 3));
}

#[test]
fn failures_double_the_wait_up_to_ten_minutes() {
    let waits = |interval: u64| {
        [0, 1, 2, 6, 40].map(|failures| pause(Duration::from_secs(interval), failures).as_secs())
    };
    assert_eq!(waits(15), [15, 30, 60, 600, 600]);
    assert_eq!(waits(900), [900; 5], "a longer interval stays");
}

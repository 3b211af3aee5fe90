//! Model of the claims of a store: random sequences of writes, and a scan of every lane.

use std::sync::Arc;

use agenix_protocol::{
    ids::{ActionId, JobId, PlanId},
    time::Timestamp,
};
use agenix_rules::{
    action::Action,
    budget::{Budget, JobBudget, SubmissionCharge, Usage},
    capability::{ClaimantCapabilities, Needs},
    job::{self, JobOverrides, JobParams, JobState, NewJob, Ojs, ReportedFailure, Reporter},
    limit::{Limit, LimitTerms},
};
use proptest::prelude::*;

use crate::store::{
    Claimant, DocumentChange, DocumentKind, JobRule, NewAction, StoredPlan,
    redb::{
        engine::Versions,
        file::migrations,
        schema::codec,
        txn::{WriteTxn, writer_cache::WriterCache},
    },
};

const QUEUES: [&str; 3] = ["a", "b", "c"];
const HOUR_MS: u64 = 3_600_000;

#[derive(Debug, Clone)]
pub(super) struct Submission {
    pub(super) queue: usize,
    pub(super) tool: usize,
    /// Limit, with a maximum of running jobs or a rate.
    pub(super) limit: Option<(usize, LimitTerms)>,
    pub(super) budget: Option<usize>,
    pub(super) share: Option<&'static str>,
    pub(super) timeout_ms: u64,
    pub(super) priority: i32,
    pub(super) jobs: usize,
    pub(super) expires: bool,
    pub(super) delay_ms: Option<u64>,
}

#[derive(Debug, Clone)]
pub(super) enum StoreStep {
    Submit(Submission),
    Claim {
        class: usize,
        queues: Vec<usize>,
    },
    End {
        place: usize,
        is_ok: bool,
    },
    Cancel {
        place: usize,
    },
    /// Makes jobs ready whose time has come.
    Due,
    Pause {
        queue: usize,
        is_paused: bool,
    },
    SetLimit {
        limit: usize,
        terms: LimitTerms,
    },
    ForgetLimits,
    PassTime(u64),
    SetClockBack(u64),
    /// Loads the cache again, as after a batch that was not written.
    Reload,
}

fn terms() -> impl Strategy<Value = LimitTerms> {
    prop_oneof![
        (1_u64..3).prop_map(|most| LimitTerms { concurrency: Some(most), rate: None, period_ms: 0 }),
        (1_u64..3).prop_map(|rate| LimitTerms { concurrency: None, rate: Some(rate), period_ms: 1000 }),
        Just(LimitTerms { concurrency: Some(2), rate: Some(1), period_ms: 500 }),
    ]
}

fn submission() -> impl Strategy<Value = Submission> {
    let limit = prop::option::of((0_usize..2, terms()));
    let fields =
        (0_usize..3, 0_usize..3, limit, prop::option::of(0_usize..2), 1_u64..4, 0_i32..3, 1_usize..4);
    let share = prop::sample::select(vec![None, Some("s"), Some("t")]);
    let more = (share, prop::bool::weighted(0.2), prop::option::weighted(0.2, 1_u64..3000));
    (fields, more).prop_map(
        |((queue, tool, limit, budget, seconds, priority, jobs), (share, expires, delay_ms))| Submission {
            queue,
            tool,
            limit,
            budget,
            share,
            timeout_ms: seconds * 1000,
            priority,
            jobs,
            expires,
            delay_ms,
        },
    )
}

pub(super) fn steps() -> impl Strategy<Value = Vec<StoreStep>> {
    let queues = prop::sample::subsequence(vec![0, 1, 2], 1..=3);
    let step = prop_oneof![
        4 => submission().prop_map(StoreStep::Submit),
        8 => (0_usize..4, queues).prop_map(|(class, queues)| StoreStep::Claim { class, queues }),
        5 => (0_usize..8, any::<bool>()).prop_map(|(place, is_ok)| StoreStep::End { place, is_ok }),
        1 => (0_usize..200).prop_map(|place| StoreStep::Cancel { place }),
        2 => Just(StoreStep::Due),
        1 => (0_usize..3, any::<bool>()).prop_map(|(queue, is_paused)| StoreStep::Pause { queue, is_paused }),
        1 => (0_usize..2, terms()).prop_map(|(limit, terms)| StoreStep::SetLimit { limit, terms }),
        1 => Just(StoreStep::ForgetLimits),
        2 => prop_oneof![1_u64..2000, Just(HOUR_MS)].prop_map(StoreStep::PassTime),
        1 => (1_u64..2000).prop_map(StoreStep::SetClockBack),
        1 => Just(StoreStep::Reload),
    ];
    prop::collection::vec(step, 1..250)
}

impl WriteTxn<'_> {
    /// Returns the job that a scan of every lane finds.
    fn scan_for(&self, claimant: &Claimant, now: Timestamp) -> Option<JobId> {
        claimant.queues.iter().find_map(|queue| {
            let lanes = self.cache.lanes.with_jobs_for(queue, &claimant.capabilities);
            let first = |lane: u32| {
                let mut rows = self.tables.ready.range((lane, 0, 0)..=(lane, u8::MAX, u64::MAX)).unwrap();
                let (turn, job_id) = rows.next()?.unwrap();
                let (_, rank, seq) = turn.value();
                let job_id = codec::job_id(job_id.value()).unwrap();
                self.lets_start(lane, &job_id, now).then_some(((rank, seq), job_id))
            };
            let place = |lane: u32| {
                let (turn, job_id) = first(lane)?;
                let share = self.cache.lanes.needs_of(lane)?.share.as_deref();
                Some((self.cache.lanes.share_times(queue, claimant, share), turn, job_id))
            };
            lanes.into_iter().filter_map(place).min().map(|(_, _, job_id)| job_id)
        })
    }

    fn lets_start(&self, lane: u32, first: &JobId, now: Timestamp) -> bool {
        let note = |kind: DocumentKind, id: &str| {
            self.tables.documents.get((kind.as_str(), id)).unwrap().map(|note| note.value().to_owned())
        };
        let limit = self.cache.lanes.needs_of(lane).and_then(|needs| needs.limit.clone());
        let limit = limit.and_then(|key| note(DocumentKind::Limit, &key));
        let job = self.job(first).unwrap().unwrap();
        let budget = job::budget_of(&job);
        let usage = budget.and_then(|budget| note(DocumentKind::Budget, &budget.name));
        limit.is_none_or(|limit| serde_json::from_str::<Limit>(&limit).unwrap().admits(now))
            && usage.zip(budget).is_none_or(|(usage, budget)| {
                serde_json::from_str::<Usage>(&usage).unwrap().check_start(&budget.bound, now).is_ok()
            })
    }
}

pub(super) struct Model {
    database: Versions,
    cache: WriterCache,
    classes: [Arc<ClaimantCapabilities>; 4],
    now: Timestamp,
    actions: u64,
    jobs: Vec<JobId>,
    pub(super) running: Vec<JobId>,
}

impl Model {
    pub(super) fn new() -> Self {
        let worker = |commands: &[&str]| ClaimantCapabilities::Worker {
            commands: commands.iter().map(|command| (*command).to_owned()).collect(),
            tags: serde_json::Map::new(),
            profiles: None,
            offered: Default::default(),
        };
        let database = migrations::in_memory();
        let cache = WriterCache::load(&database.snapshot()).unwrap();
        let classes =
            [ClaimantCapabilities::Anything, worker(&["x"]), worker(&["y"]), worker(&[])].map(Arc::new);
        let now = Timestamp(50 * HOUR_MS);
        let mut model =
            Self { database, cache, classes, now, actions: 0, jobs: Vec::new(), running: Vec::new() };
        let plan = StoredPlan::unsigned(PlanId::new("p").unwrap(), "{}".into(), Timestamp(1));
        model.write(|txn| txn.add_plan(&plan.into()).unwrap().unwrap());
        model
    }

    fn write<R>(&mut self, work: impl FnOnce(&mut WriteTxn<'_>) -> R) -> R {
        let snapshot = self.database.snapshot();
        let mut batch = WriteTxn::open(&snapshot, &mut self.cache, false);
        let result = work(&mut batch);
        let closed = batch.close().unwrap();
        drop(snapshot);
        self.database.absorb(closed.changes);
        result
    }

    pub(super) fn submit(&mut self, of: &Submission) {
        self.actions += 1;
        let plan_id = PlanId::new("p").unwrap();
        let action =
            Action::new(ActionId::new(format!("a{}", self.actions)).unwrap(), plan_id.clone(), self.now);
        let budget = Budget { per_hours: 1, cpu_secs: Some(6), running: Some(2), ..Budget::default() };
        let name = of.budget.map(|budget| format!("budget-{budget}"));
        let of_job = name.clone().map(|name| {
            let bound = budget.run_bound(None, of.timeout_ms);
            Box::new(JobBudget { name, bound, ..JobBudget::default() })
        });
        let limit = of.limit.map(|(limit, _)| format!("limit-{limit}"));
        let ojs = Ojs {
            queue: QUEUES[of.queue].to_owned(),
            limit: limit.clone(),
            budget: of_job,
            expires_at: of.expires.then(|| self.now.plus_ms(500)),
            ..Ojs::of("t")
        };
        let terms = JobParams {
            max_retries: 2,
            timeout_ms: of.timeout_ms,
            priority: of.priority,
            run_at: of.delay_ms.map(|delay| self.now.plus_ms(delay)),
            ojs: Some(Box::new(ojs)),
            ..JobParams::default()
        };
        let tools = [vec![], vec!["x".to_owned()], vec!["y".to_owned()]][of.tool].clone();
        let own = JobOverrides {
            plan_id,
            queue: QUEUES[of.queue].to_owned(),
            needs: Needs {
                tools,
                limit,
                budget: name.clone(),
                share: of.share.map(str::to_owned),
                ..Needs::default()
            },
            terms,
            is_named: false,
            unique: None,
            limit: of.limit.map(|(_, terms)| terms),
        };
        let new_job = |number| NewJob {
            job_id: JobId::new(format!("{}-{number}", action.action_id)).unwrap(),
            input: "{}".into(),
            own: Some(Arc::new(own.clone())),
        };
        let jobs: Vec<_> = (0..of.jobs).map(new_job).collect();
        self.jobs.extend(jobs.iter().map(|job| job.job_id.clone()));
        let charge = name.map(|name| SubmissionCharge { name, budget, later_jobs: 0, now: self.now });
        let new = NewAction { charge, ..NewAction::new(action, jobs) };
        self.write(|txn| txn.add_action(&new).unwrap().unwrap());
    }

    pub(super) fn claim(&mut self, class: usize, queues: &[usize]) -> Result<(), TestCaseError> {
        let claimant = Claimant {
            holder: "w".into(),
            capabilities: Arc::clone(&self.classes[class]),
            queues: queues.iter().map(|queue| QUEUES[*queue].to_owned()).collect(),
            share_terms: Arc::default(),
            visibility_ms: None,
        };
        let now = self.now;
        let claimed = self.write(|txn| {
            let mut expected = txn.scan_for(&claimant, now);
            // A claim ends the jobs in front that are expired.
            while let Some(late) = expected.as_ref().and_then(|id| {
                let before = txn.job(id).unwrap().unwrap();
                Some((job::expired(&before, now)?, before))
            }) {
                prop_assert_eq!(txn.next_for(&claimant, now).unwrap().map(|(_, id)| id), expected);
                txn.put_job(Some(&late.1), &late.0).unwrap();
                expected = txn.scan_for(&claimant, now);
            }
            let claimed = txn.claim(&claimant, now, 0).unwrap().map(|claim| claim.job.job_id);
            prop_assert_eq!(&claimed, &expected);
            Ok(claimed)
        })?;
        self.running.extend(claimed);
        Ok(())
    }

    fn decide(
        &mut self,
        job_id: &JobId,
        rule: impl Fn(&job::Job) -> job::RuleOutcome + Send + Sync + 'static,
    ) {
        let rule: JobRule = Box::new(move |job| Ok(rule(job.unwrap())));
        self.write(|txn| txn.decide(job_id, None, &rule).unwrap().unwrap());
    }

    pub(super) fn take(&mut self, step: StoreStep) -> Result<(), TestCaseError> {
        let now = self.now;
        match step {
            StoreStep::Submit(of) => self.submit(&of),
            StoreStep::Claim { class, queues } => self.claim(class, &queues)?,
            StoreStep::End { place, is_ok } if place < self.running.len() => {
                let job_id = self.running.remove(place);
                self.decide(&job_id, move |job| {
                    if job.state != JobState::Active {
                        return job::RuleOutcome::Unchanged;
                    }
                    let (failure, reporter) =
                        (ReportedFailure::default(), Reporter { worker: Some("w"), attempt: None });
                    let failed = || job::nacked(job, reporter, &failure, false, now, 0.5);
                    if is_ok { job::acked(job, reporter, now) } else { failed() }.unwrap()
                });
            }
            StoreStep::Cancel { place } if !self.jobs.is_empty() => {
                let job_id = self.jobs[place % self.jobs.len()].clone();
                self.decide(&job_id, move |job| job::cancelled_unclaimed(job, now));
            }
            StoreStep::Due => {
                for job_id in self.jobs.clone() {
                    self.decide(&job_id, move |job| {
                        let waits = matches!(job.state, JobState::Scheduled | JobState::Retryable);
                        if waits { job::due(job, now, 0.5) } else { job::RuleOutcome::Unchanged }
                    });
                }
            }
            StoreStep::Pause { queue, is_paused } => {
                self.write(|txn| txn.set_paused(QUEUES[queue], is_paused));
            }
            StoreStep::SetLimit { limit, terms } => self.write(|txn| {
                let rule = move |known: Option<&str>| {
                    let known = known.map_or(Limit::default(), |json| serde_json::from_str(json).unwrap());
                    Ok(DocumentChange::Put(serde_json::to_string(&Limit { terms, ..known }).unwrap()))
                };
                let (kind, id) = (DocumentKind::Limit, format!("limit-{limit}"));
                txn.decide_document(kind, &id, &(Box::new(rule) as _)).unwrap().unwrap();
            }),
            StoreStep::ForgetLimits => {
                self.write(|txn| {
                    for limit in ["limit-0", "limit-1"] {
                        txn.change_document(DocumentKind::Limit, limit, &DocumentChange::Remove);
                    }
                });
            }
            StoreStep::PassTime(ms) => self.now = now.plus_ms(ms),
            StoreStep::SetClockBack(ms) => self.now = Timestamp(now.0 - ms),
            StoreStep::Reload => self.cache = WriterCache::load(&self.database.snapshot()).unwrap(),
            StoreStep::End { .. } | StoreStep::Cancel { .. } => {}
        }
        Ok(())
    }
}

//! Decisions on jobs, and claims, in a write transaction.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use agenix_protocol::{ids::JobId, time::Timestamp};
use agenix_rules::job::{self, Job, JobState, LeaseOptions, RuleOutcome};
use sqlx::{Error, query};

use crate::store::{
    Claim, Claimant, DocumentKind, JobChange, JobRule, ReportedResults, RuleResult,
    dedup::{check_only, revived},
    postgres::{
        ready_positions::{END, Position, position_of},
        share_times::Head,
        sql_types,
        txn::{
            PgTxn,
            candidates::{Barred, Candidates, ClaimRequest, LockedJob, LockedJobs, wanted},
            held_rows::put,
            job_reads::JobReads,
            lane_choice::LaneOverview,
            opening::ClaimReads,
        },
    },
};

/// Rule that decides about one job.
pub(crate) struct Decision {
    pub(crate) job_id: JobId,
    pub(crate) results: Option<ReportedResults>,
    pub(crate) rule: JobRule,
}

/// Maximum number of jobs of a lane that one look of a claim reads. A claim reads that many if jobs
/// that can no longer run are in front of the others.
const MAX_BEHIND_ENDED: usize = 1_000;

/// Claims of one look at the lanes.
struct ClaimRound {
    claims: Vec<Option<Claim>>,
    /// Number of jobs that the look ended, because they can no longer run.
    ended: usize,
    /// True if the look chose some lanes, and other transactions had locked jobs of a chosen lane.
    /// The lane counts as empty now, and other lanes may have jobs.
    is_short: bool,
}

/// Ready jobs for the claims of one look at the lanes.
struct Look {
    barred: Barred,
    jobs: LockedJobs,
    rest_from: BTreeMap<i32, Position>,
    is_short: bool,
}

impl PgTxn<'_> {
    /// Applies every rule, in order, to the current record of its job.
    pub(crate) fn decide(
        &mut self,
        decisions: &[&Decision],
    ) -> Result<Vec<RuleResult<Option<JobChange>>>, Error> {
        let ids = decisions.iter().map(|decision| decision.job_id.as_str()).collect();
        let JobReads { mut jobs, armed } = self.decided_jobs(&ids)?;
        let of_claimed = jobs.values().filter(|job| job.state == JobState::Active);
        self.lanes.know(self.session, of_claimed.map(|job| sql_types::lane(job.lane)).collect())?;
        let mut changes = Vec::with_capacity(decisions.len());
        let mut ended = BTreeMap::new();
        for decision in decisions {
            let change = self.decide_one(decision, &mut jobs)?;
            if let Ok(Some(JobChange { after, .. })) = &change
                && let Some(ended_at) = after.ended_at.filter(|_| armed.contains(&after.action_id))
            {
                ended.insert(after.action_id.clone(), ended_at);
            }
            changes.push(change);
        }
        if let Some(checked) = &mut self.checked {
            checked.jobs.append(&mut jobs);
        }
        self.halt_met(&ended)?;
        Ok(changes)
    }

    fn decide_one(
        &mut self,
        decision: &Decision,
        jobs: &mut BTreeMap<JobId, Job>,
    ) -> Result<RuleResult<Option<JobChange>>, Error> {
        let before = jobs.get(&decision.job_id);
        let mut next = match (decision.rule)(before) {
            Err(rejection) => return Ok(Err(rejection)),
            Ok(RuleOutcome::Unchanged) => return Ok(Ok(None)),
            Ok(RuleOutcome::Changed(next)) => next,
        };
        let Some(before) = before.cloned() else { return Ok(Ok(None)) };
        if let Some(kind) = revived(&before, &next) {
            let first = match self.first_of(kind)? {
                Some(first) => self.job_now(&first, jobs)?,
                None => None,
            };
            if let Err(rejection) = check_only(&decision.job_id, first.as_ref()) {
                return Ok(Err(rejection));
            }
            if let Some(checked) = &mut self.checked {
                checked.firsts.insert(kind.to_owned(), decision.job_id.clone());
            }
            let first = (vec![kind.to_owned()], vec![decision.job_id.to_string()]);
            put(self.session, DocumentKind::Unique, first)?;
        }
        if let Some(results) = &decision.results
            && let Err(rejection) = self.check_blobs(&results.blobs)?
        {
            return Ok(Err(rejection));
        }
        if let Some(results) = &decision.results {
            job::charged(&before, &mut next, &results.json);
            if let Some(needs) = results.needs_of_retry(&next) {
                next.lane = self.lanes.with_needs(self.session, before.lane, needs)?;
                self.hold_lanes(std::iter::once(sql_types::lane(next.lane)))?;
            }
        }
        self.put_job(Some(&before), &next);
        if let Some(results) = &decision.results {
            self.put_results(&decision.job_id, &results.json);
            self.set_blobs(&next, results);
        }
        jobs.insert(decision.job_id.clone(), (*next).clone());
        Ok(Ok(Some(JobChange { before, after: *next })))
    }

    /// Returns the present state of a job. `changed` has the present states of some jobs.
    fn job_now(&self, job_id: &JobId, changed: &BTreeMap<JobId, Job>) -> Result<Option<Job>, Error> {
        match changed.get(job_id).or_else(|| self.changed_job(job_id)) {
            Some(job) => Ok(Some(job.clone())),
            None => Ok(self.jobs(&BTreeSet::from([job_id.as_str()]))?.remove(job_id)),
        }
    }

    /// Claims a job for each claimant, if there is one.
    pub(crate) fn claim(&mut self, all: &[ClaimRequest<'_>]) -> Result<Vec<Option<Claim>>, Error> {
        if self.reads.claims.is_none() {
            self.lanes.refresh(self.session)?;
        }
        self.add_own_ready();
        let mut most = all.len();
        let ClaimRound { mut claims, mut ended, mut is_short } = self.claim_in_known_lanes(all, most)?;
        let mut has_looked_again = false;
        loop {
            let without: Vec<usize> = (0..claims.len()).filter(|at| claims[*at].is_none()).collect();
            if without.is_empty() {
                return Ok(claims);
            }
            if ended > 0 {
                // Jobs that can no longer run were in front of the others.
                most = most.max(all.len().max(MAX_BEHIND_ENDED).min(most * 4));
            } else if is_short {
                most = without.len();
            } else {
                // Looks again, because a lane may be new. If the first look took long, another node
                // may have locked the jobs that were there when it began, and left those that came
                // later.
                let is_worthwhile = self.lanes.look_again(self.session)? || self.lanes.has_peers;
                if has_looked_again || !is_worthwhile {
                    return Ok(claims);
                }
                self.add_own_ready();
                has_looked_again = true;
                most = without.len();
            }
            let others: Vec<ClaimRequest<'_>> = without.iter().map(|at| all[*at]).collect();
            let found = self.claim_in_known_lanes(&others, most)?;
            (ended, is_short) = (found.ended, found.is_short);
            without.into_iter().zip(found.claims).for_each(|(at, claim)| claims[at] = claim);
        }
    }

    /// Claims one of the first `most` jobs of the known lanes for each claimant, if there is one.
    fn claim_in_known_lanes(&mut self, all: &[ClaimRequest<'_>], most: usize) -> Result<ClaimRound, Error> {
        let now = all.iter().map(|wanting| wanting.now).max().unwrap_or_default();
        let Look { barred, jobs: mut lanes, rest_from, is_short } = match self.opening_look() {
            Some(look) => look,
            None => self.look(all, most, now)?,
        };
        let mut ended = 0;
        let mut claims = Vec::with_capacity(all.len());
        let mut again = Vec::new();
        for &ClaimRequest { claimant, now, start_timeout_ms } in all {
            let may_take = !barred.contains(&*claimant.holder);
            let found = if may_take { self.next_for(claimant, &mut lanes, now, &mut ended) } else { None };
            claims.push(found.map(|(queue, candidate)| {
                let hold = LeaseOptions { start_timeout_ms, visibility_ms: claimant.visibility_ms };
                let job = job::claimed(&candidate.job, &claimant.holder, now, hold);
                if let Some(key) = job.ojs.as_ref().and_then(|ojs| ojs.limit.as_deref()) {
                    self.limits.change(key, |limit| limit.begun(now));
                }
                if candidate.job.attempt > 0 {
                    again.push(job.job_id.to_string());
                }
                self.put_job(Some(&candidate.job), &job);
                self.claimed.add(&job);
                let resources = self.lanes.resources_of(sql_types::lane(job.lane)).cloned().map(Box::new);
                Claim { job, queue, input: String::new(), plan: String::new(), order: None, resources }
            }));
        }
        if !again.is_empty() {
            // The results of an earlier attempt are not the results of this one.
            let again: Vec<&str> = again.iter().map(String::as_str).collect();
            self.session.run(query("DELETE FROM agq.results WHERE job_id = ANY ($1)").bind(&again))?;
            self.blobs.release(self.session, &[DocumentKind::JobBlobs], &again)?;
        }
        for (lane, rest_from) in rest_from {
            let left = lanes.get(&lane).and_then(VecDeque::front).map(|first| position_of(&first.job));
            self.lanes.set_ready_from(lane, left.map_or(rest_from, |left| left.min(rest_from)));
        }
        self.note_left(&claims, &lanes, now);
        Ok(ClaimRound { claims, ended, is_short })
    }

    /// Returns what the first round trip has read of the ready jobs, together with those that this
    /// transaction adds. Returns nothing if the transaction has changed more than that.
    fn opening_look(&mut self) -> Option<Look> {
        let ClaimReads { barred, paused, candidates } = self.reads.claims.take()?;
        if self.has_changed_ready() || self.arrived.halts {
            return None;
        }
        let Candidates { mut jobs, rest_from } = candidates;
        for job in self.new_ready_jobs() {
            let lane = sql_types::lane(job.lane);
            if self.lanes.is_bounded(lane) {
                return None;
            }
            // Jobs that the look has not locked come before the new one.
            let is_first = rest_from.get(&lane).is_none_or(|rest_from| position_of(job) < *rest_from);
            if is_first && self.lanes.queue_of(lane).is_some_and(|queue| !paused.contains(queue)) {
                let candidate = LockedJob { job: job.clone(), has_plan: true };
                jobs.entry(lane).or_default().push_back(candidate);
            }
        }
        for waiting in jobs.values_mut() {
            waiting.make_contiguous().sort_by_key(|locked| position_of(&locked.job));
        }
        Some(Look { barred, jobs, rest_from, is_short: false })
    }

    /// Locks the first `most` jobs of the known lanes.
    fn look(&mut self, all: &[ClaimRequest<'_>], most: usize, now: Timestamp) -> Result<Look, Error> {
        self.write_claimable()?;
        let barred = self.barred(all)?;
        let mut wanted = wanted(self.lanes, all, &barred);
        wanted.retain(|lane| !self.closed_lanes.contains(lane));
        let overview = self.overview(&wanted, all.len(), most)?;
        let is_chosen = overview.is_some();
        let (counts, mut is_short) = match overview {
            Some(overview) => self.chosen_counts(all, &barred, &overview, now)?,
            None => {
                let open = self.open_lanes(&wanted, now)?;
                self.hold_quantities(all, &barred, &open)?;
                (open.into_iter().map(|lane| (lane, most)).collect(), false)
            }
        };
        let Candidates { jobs, rest_from } = self.candidates(&counts)?;
        let has_fewer = |(lane, count): &(i32, usize)| {
            rest_from.get(lane) == Some(&END) && jobs.get(lane).map_or(0, VecDeque::len) < *count
        };
        is_short |= is_chosen && counts.iter().any(has_fewer);
        Ok(Look { barred, jobs, rest_from, is_short })
    }

    /// Returns the number of jobs that the claims take from each lane that they have chosen, and
    /// true if they found some of the chosen lanes closed.
    fn chosen_counts(
        &mut self,
        all: &[ClaimRequest<'_>],
        barred: &Barred,
        overview: &LaneOverview,
        now: Timestamp,
    ) -> Result<(Vec<(i32, usize)>, bool), Error> {
        let chosen = self.lanes_to_lock(all, barred, overview, now);
        let open: BTreeSet<i32> = self.open_lanes(&chosen, now)?.into_iter().collect();
        self.closed_lanes.extend(chosen.difference(&open));
        let counts = self.choose(all, barred, overview, &open, now);
        Ok((counts.into_iter().collect(), open.len() < chosen.len()))
    }

    /// Locks the limits and budgets of `lanes`, and returns the lanes whose jobs may begin.
    fn open_lanes(&mut self, lanes: &BTreeSet<i32>, now: Timestamp) -> Result<Vec<i32>, Error> {
        let limits = lanes.iter().filter_map(|lane| self.lanes.limit_of(*lane)).map(str::to_owned).collect();
        let on_locked = self.on_locked_limits();
        self.limits.settle_and_hold_free(self.session, on_locked, limits)?;
        self.budgets.settle(self.session)?;
        let budgets = lanes.iter().filter_map(|lane| self.lanes.budget_of(*lane)).map(str::to_owned);
        self.budgets.hold_free(self.session, budgets.collect())?;
        Ok(lanes.iter().copied().filter(|lane| self.lets_begin(*lane, now)).collect())
    }

    /// Returns true if limit and budget of a lane let some job begin.
    fn lets_begin(&self, lane: i32, now: Timestamp) -> bool {
        self.lanes.limit_of(lane).is_none_or(|key| self.limits.admits(key, now))
            && self.lanes.budget_of(lane).is_none_or(|name| self.budgets.admits_any(name, now))
    }

    /// Sets `has_left` if locked jobs are left, because other nodes pass over locked jobs and have
    /// to look again. Leaves it unset if no job was claimed, because two nodes would otherwise
    /// notify each other for ever.
    fn note_left(&mut self, claims: &[Option<Claim>], lanes: &LockedJobs, now: Timestamp) {
        if claims.iter().all(Option::is_none) {
            return;
        }
        for (lane, left) in lanes {
            if let Some(first) = left.front()
                && self.lets_begin(*lane, now)
                && self.budgets.admits_job(&first.job, now)
            {
                self.has_left = true;
                self.ready.add(*lane, position_of(&first.job));
            }
        }
    }

    /// Takes the next job for a claimant: from the first of its queues that has one, that of the
    /// share whose turn it is; in the share, the highest priority, then the oldest. Ends the jobs
    /// in front of it that can no longer run, and adds their number to `ended`.
    fn next_for(
        &mut self,
        claimant: &Claimant,
        lanes: &mut LockedJobs,
        now: Timestamp,
        ended: &mut usize,
    ) -> Option<(String, LockedJob)> {
        let mut placement = None;
        for queue in &*claimant.queues {
            loop {
                let turn = |(lane, waiting): (&i32, &VecDeque<LockedJob>)| {
                    let first = waiting.front()?;
                    let at = (*lane, position_of(&first.job));
                    let head = self.lanes.head(&self.lanes.shares, (queue, claimant), at)?;
                    let limit = self.lanes.limit_of(*lane);
                    limit.is_none_or(|key| self.limits.admits(key, now)).then_some(())?;
                    self.budgets.admits_job(&first.job, now).then_some(())?;
                    Some(head)
                };
                let heads: Vec<Head> = lanes.iter().filter_map(turn).collect();
                let Some(head) = self.first_fitting(&heads, &mut placement, claimant, now) else { break };
                let Some(candidate) = lanes.get_mut(&head.lane).and_then(VecDeque::pop_front) else { break };
                if let Some(late) = job::expired(&candidate.job, now) {
                    self.put_job(Some(&candidate.job), &late);
                    *ended += 1;
                    continue;
                }
                if candidate.has_plan {
                    self.lanes.shares.charge((queue, claimant), &heads, head);
                    return Some((queue.clone(), candidate));
                }
                // The plan was deleted between the check at the retry and this claim.
                self.put_job(Some(&candidate.job), &job::orphaned(&candidate.job, now));
                *ended += 1;
            }
        }
        None
    }
}

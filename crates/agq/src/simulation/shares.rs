//! Check that claims are divided between the shares of a queue.

use agenix_rules::job::JobState;

use crate::simulation::{
    ledger::{CheckResult, ExpectedAction},
    share_terms::{NAMES, is_admin},
    world::{PendingRequest, World},
};

/// Queue of the check, from which no actor claims.
const QUEUE: &str = "shares";
const PLAN: &str = "of-shares";

impl World {
    /// Checks that shares get claims by their weights, that a share saves up nothing while it has
    /// no jobs, and that no claim is empty while a share has jobs.
    pub(super) fn check_shares(&mut self) -> CheckResult {
        if !is_admin(&self.user) {
            return Ok(());
        }
        let plan = format!(r#"{{"plan_id":"{PLAN}","tasks":[{{"task_number":1,"command":"sort"}}]}}"#);
        self.user_asks(PendingRequest::Plan(PLAN.to_owned()), &["PLAN.SUBMIT", &plan])?;
        self.write_all()?;
        self.submit_to(0, 8)?;
        self.claim_of_shares(4, |[first, _]| first == 4)?;
        self.submit_to(1, 12)?;
        self.claim_of_shares(9, |[first, second]| first + second == 13 && (5..=7).contains(&second))?;
        self.claim_of_shares(7, |served| served == [8, 12])?;
        for (job_id, _) in self.active_of_shares()? {
            let report = r#"{"status":"completed"}"#;
            self.user_asks(PendingRequest::Anything, &["JOB.UPDATE", &job_id, report])?;
        }
        self.write_all()?;
        if self.active_of_shares()?.is_empty() { Ok(()) } else { Err("jobs of shares do not end".into()) }
    }

    fn submit_to(&mut self, share: usize, count: usize) -> CheckResult {
        let (name, plan_id) = (NAMES[share], PLAN.to_owned());
        let action_id = format!("of-{name}");
        let inputs: Vec<String> = (0..count).map(|n| format!(r#"{{"n":"{name}-{n}"}}"#)).collect();
        let all = inputs.join(",");
        let json = format!(
            r#"{{"action_id":"{action_id}","plan_id":"{PLAN}","queue":"{QUEUE}","share":"{name}","inputs":[{all}]}}"#
        );
        self.counts.jobs += count as u64;
        let submitted = ExpectedAction { plan_id, inputs, json: json.clone(), ..ExpectedAction::default() };
        self.ledger.actions.insert(action_id.clone(), submitted);
        self.user_asks(PendingRequest::Inputs { action_id, count }, &["ACTION.SUBMIT", &json])?;
        self.write_all()
    }

    /// Claims jobs, and checks how many each share has got so far.
    fn claim_of_shares(&mut self, count: usize, is_right: impl Fn([usize; 2]) -> bool) -> CheckResult {
        for _claim in 0..count {
            self.user_asks(PendingRequest::Anything, &["RPOP", &format!("queue:{QUEUE}")])?;
        }
        self.write_all()?;
        let active = self.active_of_shares()?;
        let served = [0, 1].map(|share| active.iter().filter(|(_, of)| *of == share).count());
        if is_right(served) {
            return Ok(());
        }
        Err(format!("the shares {NAMES:?} have got {served:?} jobs"))
    }

    /// Returns the claimed jobs of the check, with their shares.
    fn active_of_shares(&self) -> Result<Vec<(String, usize)>, String> {
        let jobs = self.all_jobs()?;
        let active = jobs.iter().filter(|job| job.state == JobState::Active);
        let of_share = |action: &str| NAMES.iter().position(|name| action.strip_prefix("of-") == Some(name));
        Ok(active
            .filter_map(|job| Some((job.job_id.to_string(), of_share(job.action_id.as_str())?)))
            .collect())
    }
}

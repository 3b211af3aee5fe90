//! Terms of jobs, as the simulation reads them in the documents that it has sent. No record of agq
//! and no rule of agq is used for them.

use serde_json::Value;

/// Amounts of resources: hundredths of processors, and devices.
pub(super) type Amounts = [u64; 2];

/// Amounts that the workers offer, by actor.
pub(super) const OFFERED: [Amounts; 3] = [[400, 1], [200, 2], [0, 0]];
/// Values of the label `zone` of the workers, by actor.
pub(super) const ZONES: [&str; 3] = ["eu", "us", "eu"];

/// Maximum number of starts in a period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rate {
    pub(super) jobs: u64,
    pub(super) period_ms: u64,
}

/// Limit of the jobs with one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KeyLimit {
    pub(super) key: String,
    pub(super) max_running: Option<u64>,
    pub(super) rate: Option<Rate>,
}

#[derive(Debug, Clone)]
pub(super) struct JobTerms {
    pub(super) plan_id: String,
    pub(super) queue: String,
    /// Named share; `None` for that of the user.
    pub(super) share: Option<String>,
    pub(super) limit: Option<KeyLimit>,
    pub(super) wanted: Amounts,
    pub(super) zone: Option<String>,
    pub(super) needs_sandbox: bool,
    /// Timeout of an attempt, in milliseconds, if the plan names one.
    pub(super) timeout_ms: Option<u64>,
}

impl JobTerms {
    /// Returns the terms of the job with an input, from the documents of its action and its plan.
    pub(super) fn of(action: &str, plan: &str, input: &str) -> Option<Self> {
        let parsed = |text: &str| serde_json::from_str::<Value>(text).ok();
        let (action, plan, input) = (parsed(action)?, parsed(plan)?, parsed(input)?);
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let resources = &plan["requires"]["resources"];
        Some(Self {
            plan_id: text(&action["plan_id"])?,
            queue: text(&action["queue"]).unwrap_or_else(|| "ready".to_owned()),
            share: text(&action["share"]),
            limit: limit(&action, &plan, &input),
            wanted: [
                hundredths(&resources["cpus"]).unwrap_or_default(),
                resources["gpus"].as_u64().unwrap_or_default(),
            ],
            zone: text(&plan["requires"]["labels"]["zone"]),
            needs_sandbox: !plan["sandbox"].is_null(),
            timeout_ms: plan["timeout_secs"].as_u64().map(|seconds| seconds * 1000),
        })
    }

    pub(super) fn wants_any(&self) -> bool {
        self.wanted.iter().any(|amount| *amount > 0)
    }

    /// Returns true if the worker of an actor, or a connection without a worker, may run the job.
    pub(super) fn is_covered_by(&self, at: Option<usize>, has_sandboxes: bool) -> bool {
        let Some(at) = at else { return !self.wants_any() && !self.needs_sandbox };
        let offers = self.wanted.iter().zip(OFFERED[at]).all(|(wanted, offered)| *wanted <= offered);
        let has_sandbox = has_sandboxes && at == 0;
        offers
            && (has_sandbox || !self.needs_sandbox)
            && self.zone.as_deref().is_none_or(|zone| zone == ZONES[at])
    }
}

/// Returns a decimal number with at most two decimals in hundredths.
fn hundredths(number: &Value) -> Option<u64> {
    let text = number.as_number()?.to_string();
    let (whole, part) = text.split_once('.').unwrap_or((&text, ""));
    Some(whole.parse::<u64>().ok()? * 100 + format!("{part:0<2}").parse::<u64>().ok()?)
}

/// Returns the limit of a job: that of its plan, the concurrency key or the bounds of its action.
fn limit(action: &Value, plan: &Value, input: &Value) -> Option<KeyLimit> {
    let of = |document: &Value, key: String| {
        let (max_running, rate) = (document["max_running"].as_u64(), rate(&document["rate"]));
        (max_running.is_some() || rate.is_some()).then_some(KeyLimit { key, max_running, rate })
    };
    let name = |document: &Value, field: &str| document[field].as_str().unwrap_or_default().to_owned();
    let of_key = || {
        let (concurrency, k) = (&action["concurrency"], name(input, "k"));
        let key = concurrency["key"].as_str()?.replace("{{input.k}}", &k);
        let max_running = Some(concurrency["max_running"].as_u64().unwrap_or(1));
        Some(KeyLimit { key: format!("key {key}"), max_running, rate: None })
    };
    of(plan, format!("plan {}", name(plan, "plan_id")))
        .or_else(of_key)
        .or_else(|| of(action, format!("action {}", name(action, "action_id"))))
}

/// Returns the rate of a text such as `2/3s`.
fn rate(text: &Value) -> Option<Rate> {
    let (jobs, period) = text.as_str()?.strip_suffix('s')?.split_once('/')?;
    let seconds: u64 = if period.is_empty() { 1 } else { period.parse().ok()? };
    Some(Rate { jobs: jobs.parse().ok()?, period_ms: seconds * 1000 })
}

#[cfg(test)]
mod tests {
    use super::{JobTerms, KeyLimit, Rate};

    fn terms(action: &str, plan: &str) -> JobTerms {
        let action = format!(r#"{{"action_id":"a","plan_id":"p"{action}}}"#);
        let plan = format!(r#"{{"plan_id":"p"{plan}}}"#);
        JobTerms::of(&action, &plan, r#"{"k":"x"}"#).unwrap()
    }

    #[test]
    fn terms_of_a_job_are_those_of_its_documents() {
        let key = terms(r#","concurrency":{"key":"of-{{input.k}}"},"queue":"q","share":"s""#, "");
        let limit = KeyLimit { key: "key of-x".to_owned(), max_running: Some(1), rate: None };
        assert_eq!((key.limit, &*key.queue, key.share.as_deref()), (Some(limit), "q", Some("s")));
        let rate = Some(Rate { jobs: 2, period_ms: 3000 });
        let limit = |key: &str| Some(KeyLimit { key: key.to_owned(), max_running: None, rate });
        assert_eq!(terms(r#","rate":"2/3s""#, "").limit, limit("action a"));
        let of_plan =
            terms("", r#","rate":"2/3s","requires":{"resources":{"cpus":0.75,"gpus":1}},"timeout_secs":3"#);
        assert_eq!((of_plan.limit, of_plan.wanted), (limit("plan p"), [75, 1]));
        assert_eq!((of_plan.timeout_ms, terms("", "").limit), (Some(3000), None));
    }

    #[test]
    fn jobs_with_needs_are_covered_by_some_claimants() {
        let covered = |plan: &str| {
            let terms = terms("", plan);
            [Some(0), Some(1), Some(2), None].map(|at| terms.is_covered_by(at, true))
        };
        assert_eq!(covered(""), [true; 4]);
        assert_eq!(covered(r#","requires":{"resources":{"gpus":2}}"#), [false, true, false, false]);
        assert_eq!(covered(r#","requires":{"labels":{"zone":"eu"}}"#), [true, false, true, true]);
        assert_eq!(covered(r#","sandbox":{"profile":"reader"}"#), [true, false, false, false]);
    }
}

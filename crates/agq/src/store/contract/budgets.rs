//! Commands of a script on budgets.

use agenix_protocol::{documents::to_json, ids::PlanId, time::Timestamp};
use agenix_rules::budget::{Budget, BudgetAmount, JobBudget, SubmissionCharge, Usage};
use tokio::runtime::Handle;

use super::commands::{
    Answer, Args, CommandLines, ScriptResult, added_plan, at, id, number, ok, show, show_ruled,
};
use crate::store::{
    DocumentChange, DocumentKind, DocumentRule, LaneSummary, NewPlan, Store, StoredPlan, held_back::of_lanes,
};

pub(super) fn run(store: &dyn Store, name: &str, args: &mut Args<'_>) -> CommandLines {
    Ok(Some(match name {
        "charge-plan" => {
            let (plan_id, now): (PlanId, _) = (id(args)?, at(args)?);
            let (charge, _) = budget(args, now, 0)?.ok_or("whose budget?")?;
            let plan = StoredPlan::unsigned(plan_id, "{}".into(), now);
            let plan = NewPlan { charge: Some(charge), ..plan.into() };
            show_ruled(store.add_plan(plan), added_plan)
        }
        "held-back" => held_back(store, at(args)?)?,
        "set-budget" => set_budget(store, args)?,
        "usage" => {
            let (name, now) = (args.next_pos().ok_or("whose?")?.to_owned(), at(args)?);
            show(store.document(DocumentKind::Budget, &name), move |json| {
                let usage = json.and_then(|json| serde_json::from_str::<Usage>(&json).ok());
                usage.map_or(vec!["none".into()], |usage| vec![shown(&usage, now)])
            })
        }
        _ => return Ok(None),
    }))
}

/// Shows the lanes with the numbers of their jobs that limits and budgets hold back.
fn held_back(store: &dyn Store, now: Timestamp) -> Answer {
    let runtime = Handle::current();
    let (lanes, paused) = (runtime.block_on(store.lanes())?, runtime.block_on(store.paused())?);
    let counts = runtime.block_on(of_lanes(store, &lanes, &paused, now))?;
    let line = |(lane, count): (&LaneSummary, u64)| {
        let limit = lane.needs.limit.as_deref().unwrap_or("-");
        let budget = lane.needs.budget.as_deref().unwrap_or("-");
        format!("{} limit={limit} budget={budget} length={} held-back={count}", lane.queue, lane.length)
    };
    // Sorted, because the order is unspecified.
    let mut lines: Vec<String> = lanes.iter().zip(counts).map(line).collect();
    lines.sort();
    Ok(Box::pin(async move { Ok(lines) }))
}

/// Parses `set-budget alice running-max=2`: the budget gets these terms, and no others.
fn set_budget(store: &dyn Store, args: &mut Args<'_>) -> Answer {
    let name = args.next_pos().ok_or("whose?")?.to_owned();
    let budget = terms(args)?;
    let rule: DocumentRule = Box::new(move |known: Option<&str>| {
        let usage: Usage = known.and_then(|json| serde_json::from_str(json).ok()).unwrap_or_default();
        Ok(DocumentChange::Put(to_json(&usage.under(budget))))
    });
    Ok(show_ruled(store.update_document(DocumentKind::Budget, &name, rule), ok))
}

fn terms(args: &mut Args<'_>) -> ScriptResult<Budget> {
    Ok(Budget {
        per_hours: 24,
        jobs: number(args, "jobs-max")?,
        plans: number(args, "plans-max")?,
        running: number(args, "running-max")?,
        cpu_secs: number(args, "cpu-max")?,
        output_bytes: number(args, "output-max")?,
    })
}

/// Parses `budget=alice jobs-max=10 plans-max=2 running-max=2 cpu-max=180 output-max=250 later=7`.
/// Returns the charge, and the budget of its jobs.
pub(super) fn budget(
    args: &mut Args<'_>,
    now: Timestamp,
    timeout_ms: u64,
) -> ScriptResult<Option<(SubmissionCharge, JobBudget)>> {
    let Some(name) = args.take_key("budget").map(str::to_owned) else { return Ok(None) };
    let budget = terms(args)?;
    let of_job =
        JobBudget { name: name.clone(), bound: budget.run_bound(None, timeout_ms), ..JobBudget::default() };
    let later_jobs = number(args, "later")?.unwrap_or_default();
    Ok(Some((SubmissionCharge { name, budget, later_jobs, now }, of_job)))
}

fn shown(usage: &Usage, now: Timestamp) -> String {
    let used = |amount: &BudgetAmount| format!("{}={}", amount.as_str(), usage.used(*amount, now));
    BudgetAmount::ALL.iter().map(used).collect::<Vec<_>>().join(" ")
}

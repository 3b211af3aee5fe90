//! Budgets of named keys: the terms of the config file, charges of submissions, and the use.

use std::collections::BTreeMap;

use agenix_protocol::{
    documents::{AmountStatus, BudgetStatus, Plan, to_json},
    time::Timestamp,
};
use agenix_rules::{
    budget::{Budget, BudgetAmount, JobBudget, SubmissionCharge, Usage},
    owner::Owner,
    rejection::Rejection,
};

use super::lookup;
use crate::{
    app::AppState,
    auth::keyring::{Identity, Role},
    error::Result,
    registry::budgets::BudgetTerms,
    store::{DocumentChange, DocumentKind, RuleResult, StoreError},
};

/// Sets the budgets of the keys in the config file, also those of stored jobs. A listed key without
/// a budget is unbounded. A key that is not listed any more keeps its stored budget, so that its
/// waiting jobs and its schedules get no more than they had.
pub(crate) async fn set_all(app: &AppState, mut terms: BudgetTerms) -> Result<()> {
    let mut changes: BTreeMap<String, Budget> =
        terms.iter().filter_map(|(name, budget)| Some((name.clone(), (*budget)?))).collect();
    for (name, json) in app.store.documents(DocumentKind::Budget).await? {
        let usage: Usage = lookup::parse("budget of", &name, &json)?;
        let unbounded = Budget { per_hours: usage.budget.per_hours, ..Budget::default() };
        match terms.get(&name).copied() {
            Some(None) => {
                changes.insert(name, unbounded);
            }
            None if usage.budget != unbounded => {
                terms.insert(name, Some(usage.budget));
            }
            None | Some(Some(_)) => {}
        }
    }
    app.budgets.set(terms);
    for (name, budget) in changes {
        let rule = move |known: Option<&str>| Ok(under(known, budget));
        app.store.update_document(DocumentKind::Budget, &name, Box::new(rule)).await??;
    }
    // Jobs that have waited for a smaller budget may start.
    app.store.notifier().announce_jobs();
    Ok(())
}

/// Returns the change of the document of a budget that gets other terms.
fn under(known: Option<&str>, budget: Budget) -> DocumentChange {
    let usage = known.and_then(|json| serde_json::from_str::<Usage>(json).ok()).unwrap_or_default();
    if known.is_some() && usage.budget == budget {
        return DocumentChange::Keep;
    }
    DocumentChange::Put(to_json(&usage.under(budget)))
}

/// Budget of the submitter of jobs or of a plan.
pub(crate) struct SubmitterBudget<'n> {
    name: &'n str,
    budget: Budget,
    now: Timestamp,
}

impl<'n> SubmitterBudget<'n> {
    /// Returns the budget of the key that owns what is submitted.
    pub(crate) fn of(app: &AppState, owner: Option<&'n Owner>) -> Option<Self> {
        let name = owner?.budget_name()?;
        Some(Self { name, budget: app.budgets.of(name)?, now: app.clock.now() })
    }

    /// Returns the charge of a submission, of which the same write does not add `later_jobs` jobs.
    pub(crate) fn charge(&self, later_jobs: u64) -> SubmissionCharge {
        let (name, budget, now) = (self.name.to_owned(), self.budget, self.now);
        SubmissionCharge { name, budget, later_jobs, now }
    }

    /// Returns the budget of jobs that run `plan`, whose attempts time out after `timeout_ms`.
    pub(crate) fn of_job(&self, plan: Option<&Plan>, timeout_ms: u64) -> RuleResult<JobBudget> {
        let bound = self.budget.run_bound(plan, timeout_ms);
        self.budget.check_bound(&bound).map_err(Rejection::Budget)?;
        Ok(JobBudget { name: self.name.to_owned(), bound, ..JobBudget::default() })
    }
}

/// Returns the charge of inputs that `owner` adds to an action of `of_action`, if the owner has a
/// budget. Such an owner adds inputs only to its own actions, because their runs are charged to the
/// budget of the action.
pub(crate) fn charge_of_inputs(
    app: &AppState,
    owner: Option<&Owner>,
    of_action: Option<&Owner>,
) -> RuleResult<Option<SubmissionCharge>> {
    let Some(budget) = SubmitterBudget::of(app, owner) else { return Ok(None) };
    if owner != of_action {
        let text = "This key has a budget and may add inputs only to its own actions";
        return Err(Rejection::NotPermitted(text.into()));
    }
    Ok(Some(budget.charge(0)))
}

/// Returns the budgets that a key may see: all with the key of an admin, otherwise its own. With
/// `name`, returns the budget of that name alone.
pub(crate) async fn visible(
    app: &AppState,
    identity: Option<&Identity>,
    name: Option<&str>,
) -> Result<Vec<BudgetStatus>> {
    let own = identity.filter(|identity| identity.role != Role::Admin).map(|identity| &*identity.name);
    if let (Some(own), Some(name)) = (own, name)
        && own != name
    {
        let text = format!("This key may not see the budget of {name}, but only that of {own}");
        return Err(Rejection::NotPermitted(text).into());
    }
    let mut all = statuses(app).await?;
    if let Some(name) = name.or(own) {
        all.retain(|status| status.name == name);
    }
    Ok(all)
}

/// Returns the use of all budgets, in the order of their names.
pub(crate) async fn statuses(app: &AppState) -> Result<Vec<BudgetStatus>> {
    let now = app.clock.now();
    let documents = app.store.documents(DocumentKind::Budget).await?;
    let status = |(name, json): (String, String)| {
        Ok::<_, StoreError>(status(&lookup::parse::<Usage>("budget of", &name, &json)?, name, now))
    };
    Ok(documents.into_iter().map(status).collect::<Result<_, _>>()?)
}

fn status(usage: &Usage, name: String, now: Timestamp) -> BudgetStatus {
    let of = |amount: BudgetAmount| AmountStatus {
        used: amount.shown(usage.used(amount, now)),
        limit: usage.budget.limit(amount).map(|limit| amount.shown(limit)),
        next_at: usage.returns_at(amount, now),
    };
    BudgetStatus {
        name,
        per_hours: usage.budget.per_hours,
        jobs: of(BudgetAmount::Jobs),
        plans: of(BudgetAmount::Plans),
        running: of(BudgetAmount::Running),
        cpu_secs: of(BudgetAmount::CpuMs),
        output_bytes: of(BudgetAmount::OutputBytes),
    }
}

/// Returns the reason if the budget of a job does not let it start.
pub(crate) async fn reason(app: &AppState, budget: &JobBudget, now: Timestamp) -> Result<Option<String>> {
    let name = &budget.name;
    let Some(json) = app.store.document(DocumentKind::Budget, name).await? else { return Ok(None) };
    let usage: Usage = lookup::parse("budget of", name, &json)?;
    let refused = usage.check_start(&budget.bound, now).err();
    Ok(refused.map(|exhausted| format!("The budget of '{name}' is {exhausted}.")))
}

#[cfg(test)]
mod tests {
    use agenix_protocol::documents::to_json;
    use agenix_rules::budget::{Budget, Usage};

    use super::{set_all, statuses};
    use crate::{
        app::AppState,
        registry::budgets::BudgetTerms,
        startup::services::without_tasks,
        store::{DocumentChange, DocumentKind},
    };

    const BUDGET: Budget = Budget {
        per_hours: 24,
        jobs: None,
        plans: None,
        running: Some(1),
        cpu_secs: None,
        output_bytes: None,
    };

    /// Returns the bound of running jobs of each stored budget, which holds for claims.
    async fn running(app: &AppState) -> Vec<Option<u64>> {
        statuses(app).await.unwrap().into_iter().map(|status| status.running.limit).collect()
    }

    #[tokio::test]
    async fn key_keeps_its_budget_until_it_is_listed_without_one() {
        let dir = tempfile::tempdir().unwrap();
        let app = without_tasks(dir.path(), |_| {});
        let listed = |budget: Option<Budget>| BudgetTerms::from([("alice".to_owned(), budget)]);
        set_all(&app, listed(Some(BUDGET))).await.unwrap();
        set_all(&app, BudgetTerms::default()).await.unwrap();
        assert_eq!((app.budgets.of("alice"), running(&app).await), (Some(BUDGET), vec![Some(1)]));
        set_all(&app, listed(None)).await.unwrap();
        assert_eq!((app.budgets.of("alice"), running(&app).await), (None, vec![None]));
        set_all(&app, BudgetTerms::default()).await.unwrap();
        assert_eq!((app.budgets.of("alice"), running(&app).await), (None, vec![None]));
    }

    #[tokio::test]
    async fn key_that_is_not_listed_at_a_start_has_its_stored_budget() {
        let dir = tempfile::tempdir().unwrap();
        let app = without_tasks(dir.path(), |_| {});
        let stored = |_: Option<&str>| Ok(DocumentChange::Put(to_json(&Usage::default().under(BUDGET))));
        app.store.update_document(DocumentKind::Budget, "gone", Box::new(stored)).await.unwrap().unwrap();
        set_all(&app, BudgetTerms::default()).await.unwrap();
        assert_eq!((app.budgets.of("gone"), running(&app).await), (Some(BUDGET), vec![Some(1)]));
    }
}

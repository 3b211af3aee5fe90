//! `agx_budget`: budgets of the key of this server.

use crate::{arguments::BudgetArguments, error::Result, queue::Queue, reports::BudgetReport};

pub(crate) async fn run(queue: &Queue, _arguments: BudgetArguments) -> Result<BudgetReport> {
    let budgets = queue.call(|mut agq| async move { agq.budgets(None).await }).await?;
    Ok(BudgetReport { budgets })
}

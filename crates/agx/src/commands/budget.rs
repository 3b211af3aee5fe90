//! `agx budget`

use agenix_protocol::documents::{AmountStatus, BudgetStatus};
use clap::Args;

use crate::{
    connection_args::ConnectionArgs,
    error::Result,
    output::{OutputFormat, table},
};

#[derive(Debug, Args)]
pub(crate) struct BudgetArgs {
    /// Name of a key; with the key of an admin, all budgets are shown without it
    name: Option<String>,
}

pub(crate) async fn run(server: &ConnectionArgs, args: &BudgetArgs, output: OutputFormat) -> Result<()> {
    let budgets = server.connect().await?.budgets(args.name.as_deref()).await?;
    output.show("budget", &budgets, |budgets| text(budgets))
}

fn text(budgets: &[BudgetStatus]) -> String {
    if budgets.is_empty() {
        return "no budget: nothing bounds this key\n".into();
    }
    let rows: Vec<Vec<String>> = budgets.iter().flat_map(rows).collect();
    table(&["KEY", "PER", "AMOUNT", "USED", "LIMIT", "NEXT BACK AT"], &rows)
}

/// Returns a line for each amount that is used or has a limit.
fn rows(budget: &BudgetStatus) -> Vec<Vec<String>> {
    let is_shown = |amount: &AmountStatus| amount.limit.is_some() || amount.used > 0;
    let row = |(name, amount): (&str, &AmountStatus)| {
        let shown = |value: Option<String>| value.unwrap_or_else(|| "-".into());
        vec![
            budget.name.clone(),
            format!("{} h", budget.per_hours),
            name.to_owned(),
            amount.used.to_string(),
            shown(amount.limit.map(|limit| limit.to_string())),
            shown(amount.next_at.map(|at| at.to_string())),
        ]
    };
    budget.amounts().into_iter().filter(|(_, amount)| is_shown(amount)).map(row).collect()
}

#[cfg(test)]
mod tests {
    use agenix_protocol::{
        documents::{AmountStatus, BudgetStatus},
        time::Timestamp,
    };

    use super::text;

    #[test]
    fn budget_shows_what_is_used_or_bounded() {
        let none = AmountStatus::default();
        let jobs = AmountStatus { used: 9, limit: Some(10), next_at: Some(Timestamp(3_600_000)) };
        let budget = BudgetStatus {
            name: "alice".into(),
            per_hours: 24,
            jobs,
            plans: none,
            running: AmountStatus { used: 2, ..none },
            cpu_secs: none,
            output_bytes: none,
        };
        let shown = text(&[budget]);
        let lines: Vec<Vec<&str>> = shown
            .lines()
            .map(|line| line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect())
            .collect();
        assert_eq!(lines[1], ["alice", "24 h", "jobs", "9", "10", "1970-01-01T01:00:00.000Z"], "{shown}");
        assert_eq!(lines[2], ["alice", "24 h", "running", "2", "-", "-"], "{shown}");
        assert_eq!(lines.len(), 3, "{shown}");
        assert_eq!(text(&[]), "no budget: nothing bounds this key\n");
    }
}

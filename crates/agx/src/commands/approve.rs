//! `agx approve` and `agx reject`

use std::io::{BufRead, IsTerminal, Write};

use agenix_protocol::{
    documents::{Approval, ApprovalState, Plan, parse_object},
    ids::PlanId,
    printable::one_line,
};
use agenix_rules::approval as approval_rules;
use clap::Args;

use super::plan_text::plan_lines;

use crate::{
    connection_args::ConnectionArgs,
    documents::PlanDecided,
    error::{CliError, Result},
    output::{OutputFormat, jobs, table},
    util::proquint::proquints,
};

/// Number of bytes of a digest that are shown as words: 96 bits.
const BYTES_IN_WORDS: usize = 12;

#[derive(Debug, Args)]
pub(crate) struct ApproveArgs {
    /// Plan; without it, the plans that wait are listed
    plan_id: Option<PlanId>,
    #[command(flatten)]
    digest: DigestArg,
}

#[derive(Debug, Args)]
pub(crate) struct RejectArgs {
    /// Plan
    plan_id: PlanId,
    #[command(flatten)]
    digest: DigestArg,
}

#[derive(Debug, Args)]
struct DigestArg {
    /// Decide without a question, if the plan has this digest
    #[arg(long, value_name = "SHA256")]
    digest: Option<String>,
}

pub(crate) async fn approve(server: &ConnectionArgs, args: ApproveArgs, output: OutputFormat) -> Result<()> {
    match &args.plan_id {
        None => list(server, output).await,
        Some(plan_id) => decide(server, (plan_id, ApprovalState::Approved), args.digest, output).await,
    }
}

pub(crate) async fn reject(server: &ConnectionArgs, args: RejectArgs, output: OutputFormat) -> Result<()> {
    decide(server, (&args.plan_id, ApprovalState::Rejected), args.digest, output).await
}

async fn list(server: &ConnectionArgs, output: OutputFormat) -> Result<()> {
    let approvals = server.connect().await?.approvals().await?;
    output.show("approval.list", &approvals, |approvals| listing(approvals))
}

fn listing(approvals: &[Approval]) -> String {
    let waiting = approvals.iter().filter(|approval| approval.state == ApprovalState::Waiting);
    let row = |approval: &Approval| {
        vec![
            approval.plan_id.to_string(),
            approval.submitted_by.clone().unwrap_or_else(|| "?".into()),
            approval.actions.len().to_string(),
            approval.expires_at.map_or_else(|| "never".into(), |end| end.to_string()),
            approval.reasons.join("; "),
        ]
    };
    let rows: Vec<_> = waiting.map(row).collect();
    if rows.is_empty() {
        return "no plan waits for approval".into();
    }
    table(&["PLAN", "SUBMITTED BY", "ACTIONS", "EXPIRES", "REASON"], &rows)
        + "\nshow and approve a plan with `agx approve PLAN`"
}

async fn decide(
    server: &ConnectionArgs,
    (plan_id, state): (&PlanId, ApprovalState),
    DigestArg { digest }: DigestArg,
    output: OutputFormat,
) -> Result<()> {
    let mut connection = server.connect().await?;
    let digest = match digest {
        Some(digest) => digest,
        None => {
            let all = connection.approvals().await?;
            let approval = all.into_iter().find(|approval| approval.plan_id == *plan_id);
            let missing =
                || CliError::not_found("approval", plan_id, "see the plans that wait with `agx approve`");
            let approval = approval.ok_or_else(missing)?;
            let json = connection.plan_json(plan_id).await?;
            let missing = || CliError::not_found("plan", plan_id, "see the plans with `agx plan list`");
            confirm(&approval, &plan_of(&approval, &json.ok_or_else(missing)?)?, state, output)?;
            approval.digest
        }
    };
    let changed = match state {
        ApprovalState::Approved => connection.approve_plan(plan_id, &digest).await?,
        _ => connection.reject_plan(plan_id, &digest).await?,
    };
    let (kind, effect) = match state {
        ApprovalState::Approved => ("approval.approve", "released"),
        _ => ("approval.reject", "cancelled"),
    };
    let document = PlanDecided { plan_id: plan_id.clone(), state, jobs: changed };
    output.show(kind, &document, |_| {
        format!("plan {plan_id} is {}: {} {effect}", state.as_str(), jobs(changed))
    })
}

/// Shows what will run, and asks the person at the terminal.
fn confirm(approval: &Approval, plan: &Plan, state: ApprovalState, output: OutputFormat) -> Result<()> {
    output.notes(&description(approval, plan));
    let verb = if state == ApprovalState::Approved { "approve" } else { "reject" };
    if !std::io::stdin().is_terminal() {
        let advice = format!("agx {verb} {} --digest {}", approval.plan_id, approval.digest);
        return Err(CliError::usage(
            "nothing was decided, because stdin is not a terminal",
            format!("read what is shown above, and decide with `{advice}`"),
        ));
    }
    let mut err = std::io::stderr().lock();
    let _unread = write!(err, "{verb} this plan? [y/N] ").and_then(|()| err.flush());
    let mut answer = String::new();
    let _read = std::io::stdin().lock().read_line(&mut answer);
    if matches!(answer.trim(), "y" | "Y" | "yes") {
        return Ok(());
    }
    Err(CliError::usage("nothing was decided", format!("type y to {verb} the plan")))
}

/// Returns the lines that a person decides by: what runs, why the policy asks, and the digest.
fn description(approval: &Approval, plan: &Plan) -> String {
    let by = approval.submitted_by.as_deref().unwrap_or("a key without a name");
    let head =
        format!("plan {}, submitted by {} at {}", approval.plan_id, one_line(by), approval.requested_at);
    let profile = plan.sandbox.is_none().then(|| "  sandbox profile: that of the worker".to_owned());
    let reasons = approval.reasons.iter().map(|reason| format!("  the policy asks: {}", one_line(reason)));
    let end = [
        format!("  actions that wait: {}", approval.actions.len()),
        format!("  digest {}", approval.digest),
        format!("  in words {}", in_words(&approval.digest)),
    ];
    let lines = [head].into_iter().chain(plan_lines(plan)).chain(profile).chain(reasons).chain(end);
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns the plan that an approval is about, if agq shows it.
///
/// # Errors
///
/// Returns an error if the digest of the approval is that of another plan, which has replaced the
/// plan that is shown, or if agq hides values of the plan.
fn plan_of(approval: &Approval, json: &str) -> Result<Plan> {
    let plan = parse_object::<Plan>(json.as_bytes());
    if approval_rules::digest(json, &approval.policy) != approval.digest {
        let has_hidden = plan.as_ref().is_ok_and(|plan| !plan.hidden_env().is_empty());
        let (what, advice) = if has_hidden {
            ("has variables whose values agq hides from this key", "use the key of an admin")
        } else {
            let advice = "another plan has replaced it; look again with `agx approve`";
            ("is not the plan that waits for approval", advice)
        };
        return Err(CliError::usage(format!("plan {} {what}", approval.plan_id), advice));
    }
    plan.map_err(|error| {
        CliError::usage(
            format!("plan {} cannot be read: {error}", approval.plan_id),
            "this agx may be older than agq",
        )
    })
}

fn in_words(digest: &str) -> String {
    let byte = |at: usize| digest.get(2 * at..2 * at + 2).and_then(|hex| u8::from_str_radix(hex, 16).ok());
    proquints(&(0..BYTES_IN_WORDS).filter_map(byte).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use agenix_protocol::{
        documents::{Approval, ApprovalScope, ApprovalState},
        time::Timestamp,
    };
    use agenix_rules::approval::digest;

    use super::plan_of;

    #[test]
    fn plan_is_shown_only_if_it_has_the_digest_of_its_approval() {
        let [shown, other] = ["sort", "wc"].map(|command| {
            format!(r#"{{"plan_id":"p","tasks":[{{"task_number":1,"command":"{command}"}}]}}"#)
        });
        let approval = Approval {
            plan_id: "p".parse().unwrap(),
            digest: digest(&shown, "policy"),
            policy: "policy".into(),
            submitted_by: None,
            reasons: Vec::new(),
            scope: ApprovalScope::Plan,
            state: ApprovalState::Waiting,
            requested_at: Timestamp(0),
            expires_at: None,
            decided_by: None,
            decided_at: None,
            actions: Vec::new(),
            submitters: Vec::new(),
            settled: false,
        };
        assert_eq!(plan_of(&approval, &shown).unwrap().tasks[0].command, "sort");
        let error = |json: &str| plan_of(&approval, json).unwrap_err().to_string();
        assert_eq!(error(&other), "plan p is not the plan that waits for approval");
        let hidden = shown.replace(r#""command""#, r#""env":{"TOKEN":"***"},"command""#);
        assert_eq!(error(&hidden), "plan p has variables whose values agq hides from this key");
    }
}

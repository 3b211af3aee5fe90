//! `agx approve` and `agx reject`

use std::{
    io::{BufRead, IsTerminal, Write},
    slice::from_ref,
};

use agenix_protocol::{
    documents::{Approval, ApprovalState, Plan},
    ids::PlanId,
};
use clap::Args;

use crate::{
    documents::PlanDecided,
    error::{CliError, Result},
    output::{Output, jobs, table},
    server_args::ServerArgs,
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

pub(crate) async fn approve(server: &ServerArgs, args: ApproveArgs, output: Output) -> Result<()> {
    match &args.plan_id {
        None => list(server, output).await,
        Some(plan_id) => decide(server, (plan_id, ApprovalState::Approved), args.digest, output).await,
    }
}

pub(crate) async fn reject(server: &ServerArgs, args: RejectArgs, output: Output) -> Result<()> {
    decide(server, (&args.plan_id, ApprovalState::Rejected), args.digest, output).await
}

async fn list(server: &ServerArgs, output: Output) -> Result<()> {
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
    server: &ServerArgs,
    (plan_id, state): (&PlanId, ApprovalState),
    DigestArg { digest }: DigestArg,
    output: Output,
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
            let plan = connection.plan(plan_id).await?;
            let missing = || CliError::not_found("plan", plan_id, "see the plans with `agx plan list`");
            confirm(&approval, &plan.ok_or_else(missing)?, state, output)?;
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
fn confirm(approval: &Approval, plan: &Plan, state: ApprovalState, output: Output) -> Result<()> {
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
    let mut text = format!("plan {}, submitted by {by} at {}\n", approval.plan_id, approval.requested_at);
    text += &plan.plan_description.iter().map(|about| format!("  {about}\n")).collect::<String>();
    for task in &plan.tasks {
        text += &format!("  task {}  {}\n", task.task_number, agenix_shell::render(from_ref(task)));
        let others = [("cwd", &task.cwd), ("stdin", &task.stdin), ("stdin_blob", &task.stdin_blob)];
        for (name, value) in others {
            text += &value.iter().map(|value| format!("          {name} {value}\n")).collect::<String>();
        }
    }
    let profile = plan.sandbox.as_ref().map_or("that of the worker", |sandbox| &sandbox.profile);
    text += &format!("  sandbox profile: {profile}\n");
    for (field, input_type) in &plan.inputs {
        let shown = serde_json::to_string(input_type).unwrap_or_default();
        text += &format!("  input {field}: {shown}\n");
    }
    for reason in &approval.reasons {
        text += &format!("  the policy asks: {reason}\n");
    }
    text += &format!("  actions that wait: {}\n", approval.actions.len());
    text + &format!("  digest {}\n  in words {}", approval.digest, in_words(&approval.digest))
}

fn in_words(digest: &str) -> String {
    let byte = |at: usize| digest.get(2 * at..2 * at + 2).and_then(|hex| u8::from_str_radix(hex, 16).ok());
    proquints(&(0..BYTES_IN_WORDS).filter_map(byte).collect::<Vec<_>>())
}

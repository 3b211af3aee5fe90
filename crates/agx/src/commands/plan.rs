//! `agx plan`

use std::path::{Path, PathBuf};

use agenix_policy::Decision;
use agenix_protocol::{
    documents::{Plan, parse_object, profile_of_sandbox_tag, secret_of_tag},
    ids::PlanId,
    limits::Limits,
};
use agenix_rules::plan as rules;
use clap::Subcommand;

use super::{
    plan_sign::{self, SignArgs, VerifyArgs},
    plan_write::{self, FromArgs},
    policy::{self, read_policy},
    read,
};
use crate::{
    documents::{PlanChecked, PlanRef},
    error::{CliError, Result},
    output::{Output, counted},
    sandbox::ProfileArg,
    server_args::ServerArgs,
};

#[derive(Debug, Subcommand)]
pub(crate) enum PlanCommand {
    /// Store a plan in agq
    Submit {
        /// Plan in JSON, or a signed one; - reads stdin
        file: PathBuf,
    },
    /// Print a stored plan
    Get { plan_id: PlanId },
    /// Show who stored a plan, and when
    Status { plan_id: PlanId },
    /// List the stored plans
    List,
    /// Convert a shell pipeline to a plan, and print it: 'sort {input.file} | uniq -c'; {} is the
    /// field `line`
    From(FromArgs),
    /// Create a plan interactively
    New {
        #[command(flatten)]
        sandbox: ProfileArg,
    },
    /// Edit a plan with $EDITOR, and store it under a new id, because plans are immutable
    Edit {
        plan_id: PlanId,
        /// New plan id [default: the old id with the next number]
        #[arg(long = "id", value_name = "ID")]
        new_id: Option<PlanId>,
    },
    /// Delete a plan that no job needs
    Delete { plan_id: PlanId },
    /// Check a plan without a connection to agq
    Check {
        /// Plan in JSON; - reads stdin
        file: PathBuf,
        /// Policy in TOML that judges the tasks too
        #[arg(long, value_name = "FILE")]
        policy: Option<PathBuf>,
    },
    /// Sign a plan, so that workers know who wants it, and print the signed order
    Sign(Box<SignArgs>),
    /// Check the signatures and terms of a signed order
    Verify(VerifyArgs),
}

pub(crate) async fn run(server: &ServerArgs, command: PlanCommand, output: Output) -> Result<()> {
    match command {
        PlanCommand::Submit { file } => submit(server, &file, output).await,
        PlanCommand::Get { plan_id } => get(server, &plan_id, output).await,
        PlanCommand::Status { plan_id } => status(server, &plan_id, output).await,
        PlanCommand::List => output.list("plan.list", &server.connect().await?.plans().await?),
        PlanCommand::From(args) => plan_write::from(server, args, output).await,
        PlanCommand::New { sandbox } => plan_write::new(server, &sandbox, output).await,
        PlanCommand::Edit { plan_id, new_id } => plan_write::edit(server, &plan_id, new_id, output).await,
        PlanCommand::Delete { plan_id } => delete(server, &plan_id, output).await,
        PlanCommand::Check { file, policy } => check(&file, policy.as_deref(), output),
        PlanCommand::Sign(args) => plan_sign::sign(*args, output),
        PlanCommand::Verify(args) => plan_sign::verify(&args, output),
    }
}

async fn submit(server: &ServerArgs, file: &Path, output: Output) -> Result<()> {
    let mut json = read(file)?;
    if plan_sign::is_envelope(&json) {
        json = [b"{\"order\":", &*json, b"}"].concat();
    }
    let plan_id = server.connect().await?.submit_plan(json).await?;
    output.show("plan.submit", &PlanRef { plan_id }, |stored| format!("plan {} is stored", stored.plan_id))
}

async fn get(server: &ServerArgs, plan_id: &PlanId, output: Output) -> Result<()> {
    let plan = server.connect().await?.plan(plan_id).await?;
    let plan =
        plan.ok_or_else(|| CliError::not_found("plan", plan_id, "see the plans with `agx plan list`"))?;
    output.show("plan.get", &plan, |plan| serde_json::to_string_pretty(plan).unwrap_or_default())
}

async fn status(server: &ServerArgs, plan_id: &PlanId, output: Output) -> Result<()> {
    let status = server.connect().await?.plan_status(plan_id).await?;
    let status =
        status.ok_or_else(|| CliError::not_found("plan", plan_id, "see the plans with `agx plan list`"))?;
    output.show("plan.status", &status, |status| {
        let owner = status.owner.as_ref().map(|owner| format!("\n  owner      {owner}")).unwrap_or_default();
        format!("plan {}\n  submitted  {}{owner}", status.plan_id, status.created_at)
    })
}

/// Checks a plan like agq with the default limits, and judges it by the policy in a file.
fn check(file: &Path, policy: Option<&Path>, output: Output) -> Result<()> {
    let json = read(file)?;
    let limits = Limits::default();
    let wrong = |what: String| {
        CliError::usage(
            format!("{}: {what}", file.display()),
            "fix the plan; docs/protocol/plans.md describes it",
        )
    };
    rules::check_size(json.len(), &limits).map_err(|rejection| wrong(rejection.to_string()))?;
    let plan: Plan = parse_object(&json).map_err(|error| wrong(error.to_string()))?;
    rules::check(&plan, &limits).map_err(|rejection| wrong(rejection.to_string()))?;
    let judgement = policy.map(|policy| Ok::<_, CliError>(read_policy(policy)?.judge(&plan))).transpose()?;
    let decision = judgement.as_ref().map_or(Decision::Allow, |judgement| judgement.decision);
    let (tasks, needs) = (plan.tasks.len(), rules::needs(&plan));

    // The tags of a sandbox profile and of secrets stand for these.
    let tags = needs.tags.iter().filter(|tag| profile_of_sandbox_tag(tag).is_none());
    let tags = tags.map(|tag| match secret_of_tag(tag) {
        Some((name, tool)) => format!("the secret {name} for {tool}"),
        None => format!("the tag {tag}"),
    });
    let labels = needs.labels.iter().map(|(label, value)| format!("the label {label}={value}"));
    let sandbox = plan.sandbox.iter().map(|sandbox| format!("the sandbox profile {}", sandbox.profile));
    let all: Vec<String> = needs.tools.iter().cloned().chain(tags).chain(labels).chain(sandbox).collect();
    let found = PlanChecked {
        valid: true,
        plan_id: plan.plan_id,
        tasks,
        tools: needs.tools,
        tags: needs.tags,
        labels: needs.labels,
        sandbox: plan.sandbox,
        judgement,
    };
    let (tasks, needs) = (counted(tasks as u64, "task", "tasks"), all.join(", "));
    output.show("plan.check", &found, |found| {
        let judged = found.judgement.iter().map(|judged| policy::plan_text(judged, &plan.tasks));
        let lines = [format!("the plan is valid: {tasks}; its workers need {needs}")];
        lines.into_iter().chain(judged).collect::<Vec<_>>().join("\n")
    })?;
    policy::allowed(decision)
}

async fn delete(server: &ServerArgs, id: &PlanId, output: Output) -> Result<()> {
    if !server.connect().await?.delete_plan(id).await? {
        return Err(CliError::not_found("plan", id, "see the plans with `agx plan list`"));
    }
    output.show("plan.delete", &PlanRef { plan_id: id.clone() }, |_| format!("plan {id} is deleted"))
}

//! `agx plan`

use std::path::{Path, PathBuf};

use agenix_protocol::{
    documents::{Plan, parse},
    ids::PlanId,
};
use clap::Subcommand;

use super::{
    plan_ask::{self, AskArgs},
    plan_check::{self, PlanCheckArgs},
    plan_edit,
    plan_sign::{self, PlanVerifyArgs, SignArgs},
    plan_write::{self, FromArgs},
    read,
};
use crate::{
    connection_args::ConnectionArgs,
    documents::PlanRef,
    error::{CliError, Result},
    output::OutputFormat,
    sandbox::ProfileArg,
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
    /// Create a plan interactively, or let a language model write it, with --ask
    New {
        #[command(flatten)]
        sandbox: ProfileArg,
        #[command(flatten)]
        ask: Box<AskArgs>,
    },
    /// Edit a plan with $EDITOR, and store it under a new id, because plans are immutable
    Edit {
        plan_id: PlanId,
        /// New plan id [default: the old id with the next free number]
        #[arg(long = "id", value_name = "ID")]
        new_id: Option<PlanId>,
    },
    /// Delete a plan that no job needs
    Delete { plan_id: PlanId },
    /// Check a plan without a connection to agq
    Check(PlanCheckArgs),
    /// Sign a plan, so that workers know who wants it, and print the signed order
    Sign(Box<SignArgs>),
    /// Check the signatures and terms of a signed order
    Verify(PlanVerifyArgs),
}

pub(crate) async fn run(server: &ConnectionArgs, command: PlanCommand, output: OutputFormat) -> Result<()> {
    match command {
        PlanCommand::Submit { file } => submit(server, &file, output).await,
        PlanCommand::Get { plan_id } => get(server, &plan_id, output).await,
        PlanCommand::Status { plan_id } => status(server, &plan_id, output).await,
        PlanCommand::List => output.list("plan.list", &server.connect().await?.plans().await?),
        PlanCommand::From(args) => plan_write::from(server, args, output).await,
        PlanCommand::New { sandbox, ask } => match ask.wish()? {
            Some(wish) => plan_ask::ask(server, wish, &ask, &sandbox, output).await,
            None => plan_write::new(server, &sandbox, output).await,
        },
        PlanCommand::Edit { plan_id, new_id } => plan_edit::edit(server, &plan_id, new_id, output).await,
        PlanCommand::Delete { plan_id } => delete(server, &plan_id, output).await,
        PlanCommand::Check(args) => plan_check::check(&args, output),
        PlanCommand::Sign(args) => plan_sign::sign(*args, output),
        PlanCommand::Verify(args) => plan_sign::verify(&args, output),
    }
}

async fn submit(server: &ConnectionArgs, file: &Path, output: OutputFormat) -> Result<()> {
    let mut json = read(file)?;
    if plan_sign::is_envelope(&json) {
        json = [b"{\"order\":", &*json, b"}"].concat();
    } else if let Some(names) = parse(&json).ok().and_then(|plan: Plan| plan_write::hidden_env(&plan)) {
        output.note(&format!(
            "agx: *** becomes the value of {names}; agq shows *** in place of values that it hides from a key"
        ));
    }
    let plan_id = server.connect().await?.submit_plan(json).await?;
    output.show("plan.submit", &PlanRef { plan_id }, |stored| format!("plan {} is stored", stored.plan_id))
}

async fn get(server: &ConnectionArgs, plan_id: &PlanId, output: OutputFormat) -> Result<()> {
    let plan = server.connect().await?.plan(plan_id).await?;
    let plan =
        plan.ok_or_else(|| CliError::not_found("plan", plan_id, "see the plans with `agx plan list`"))?;
    output.show("plan.get", &plan, |plan| serde_json::to_string_pretty(plan).unwrap_or_default())
}

async fn status(server: &ConnectionArgs, plan_id: &PlanId, output: OutputFormat) -> Result<()> {
    let status = server.connect().await?.plan_status(plan_id).await?;
    let status =
        status.ok_or_else(|| CliError::not_found("plan", plan_id, "see the plans with `agx plan list`"))?;
    output.show("plan.status", &status, |status| {
        let owner = status.owner.as_ref().map(|owner| format!("\n  owner      {owner}")).unwrap_or_default();
        format!("plan {}\n  submitted  {}{owner}", status.plan_id, status.created_at)
    })
}

async fn delete(server: &ConnectionArgs, id: &PlanId, output: OutputFormat) -> Result<()> {
    if !server.connect().await?.delete_plan(id).await? {
        return Err(CliError::not_found("plan", id, "see the plans with `agx plan list`"));
    }
    output.show("plan.delete", &PlanRef { plan_id: id.clone() }, |_| format!("plan {id} is deleted"))
}

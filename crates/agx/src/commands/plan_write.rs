//! `agx plan from` and `new`: other ways to create a plan than writing JSON.

use std::{
    collections::BTreeMap,
    io::{BufRead, IsTerminal, Write},
};

use agenix_protocol::{
    byte_escape::encode,
    documents::{Plan, Requires, StartRate, Task},
    ids::PlanId,
    limits::Limits,
};
use agenix_rules::plan::check;
use agenix_shell::{Braces, Placeholders, Programs, compile};
use clap::Args;

use super::{quantity_args::QuantityArgs, refused};
use crate::{
    connection_args::ConnectionArgs,
    docs_url::docs_url,
    documents::PlanRef,
    error::{CliError, Result},
    map::in_plan,
    output::OutputFormat,
    sandbox::ProfileArg,
    util::{duration::parse_secs, text::any_bytes},
};

#[derive(Debug, Args, Default)]
pub(crate) struct FromArgs {
    /// Pipeline, in quotes
    #[arg(value_parser = any_bytes())]
    pub(crate) pipeline: String,
    /// Plan id [default: agq assigns one]
    #[arg(long, value_name = "ID")]
    pub(crate) id: Option<PlanId>,
    /// Fail a pipeline if any of its commands fails; otherwise only the last command counts, as in
    /// a shell
    #[arg(long)]
    pub(crate) pipefail: bool,
    /// Maximum number of jobs of all actions of the plan that run at once [default: no maximum]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max_running: Option<u64>,
    /// Maximum rate at which the jobs of all actions of the plan start, as 10/s or 3/10s [default:
    /// no maximum]
    #[arg(long, value_name = "JOBS/TIME")]
    pub(crate) rate: Option<StartRate>,
    /// Number of retries of a failed job
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) retries: u32,
    /// Time limit of a task: seconds, or a number with s, m, h or d; the whole attempt then has no
    /// other limit [default: 300]
    #[arg(long, value_name = "TIME", value_parser = parse_secs)]
    pub(crate) timeout: Option<u64>,
    /// Store the plan instead of printing it
    #[arg(long)]
    pub(crate) submit: bool,
    /// Allow inputs within program texts, such as the script of `sh -c`: they run as code
    #[arg(long)]
    pub(crate) inputs_may_be_code: bool,
    #[command(flatten)]
    pub(crate) sandbox: ProfileArg,
    #[command(flatten)]
    pub(crate) quantities: QuantityArgs,
}

pub(super) async fn from(server: &ConnectionArgs, args: FromArgs, output: OutputFormat) -> Result<()> {
    let plan = plan_of(&args)?;
    if !args.submit {
        return output.show("plan.get", &plan, pretty);
    }
    submit(server, &plan, output).await
}

pub(super) async fn new(server: &ConnectionArgs, sandbox: &ProfileArg, output: OutputFormat) -> Result<()> {
    if !std::io::stdin().is_terminal() {
        return Err(CliError::usage(
            "there is no terminal for the questions",
            "without a terminal use `agx plan from 'PIPELINE'`, or `agx plan new --ask TEXT`",
        ));
    }
    output.note("The pipeline; {} is the input, {input.FIELD} a field of it, as: sort {} | uniq -c");
    let mut plan = loop {
        let (pipeline, sandbox) = (ask(output, "pipeline")?, sandbox.clone());
        let args = FromArgs { pipeline, sandbox, ..FromArgs::default() };
        match plan_of(&args) {
            Ok(plan) => break plan,
            Err(failure) => output.fail(&failure),
        }
    };
    plan.plan_id = loop {
        let id = ask(output, "its name, empty for a new one")?;
        match (id.is_empty(), PlanId::new(id)) {
            (true, _) => break None,
            (_, Ok(id)) => break Some(id),
            (_, Err(error)) => output.note(&format!("agx: {error}")),
        }
    };
    let description = ask(output, "what it is for")?;
    plan.plan_description = Some(description).filter(|text| !text.is_empty()).or(plan.plan_description);
    plan.max_retries = loop {
        let answer = ask(output, "number of retries of a failed job, empty for none")?;
        match answer.parse() {
            _ if answer.is_empty() => break 0,
            Ok(retries) => break retries,
            Err(_) => output.note("agx: give a number"),
        }
    };
    output.notes(&pretty(&plan));
    if !matches!(ask(output, "store it? y or n")?.as_str(), "y" | "yes") {
        return output.show("plan.get", &plan, |_| String::new());
    }
    submit(server, &plan, output).await
}

/// Returns the names of the variables whose values agq hides from the key, if there are some.
pub(super) fn hidden_env(plan: &Plan) -> Option<String> {
    let names: Vec<&str> = plan.hidden_env().into_iter().collect();
    (!names.is_empty()).then(|| names.join(", "))
}

fn plan_of(args: &FromArgs) -> Result<Plan> {
    let meaning = |braces: &Braces<'_>| in_plan(braces, args.inputs_may_be_code);
    let tasks = compile(&args.pipeline, Placeholders { only: None, meaning: &meaning }, Programs::Named)
        .map_err(|refusal| refused(&refusal))?;
    let tasks = tasks.into_iter().map(|task| Task { timeout_secs: args.timeout, ..task });
    let tasks: Vec<Task> = tasks.collect();
    checked(args.sandbox.apply(Plan {
        plan_id: args.id.clone(),
        plan_description: Some(args.pipeline.clone()),
        tasks,
        max_retries: args.retries,
        // The limits of the tasks replace the default of agq for an attempt.
        timeout_secs: args.timeout.map(|_| 0),
        pipefail: args.pipefail,
        requires: Requires { resources: args.quantities.of_plan()?, ..Requires::default() },
        sandbox: None,
        inputs: BTreeMap::new(),
        max_running: args.max_running,
        rate: args.rate,
        retry_memory_factor: args.quantities.retry_memory_factor(),
    }))
}

pub(super) fn checked(plan: Plan) -> Result<Plan> {
    let wrong = |rejection: agenix_rules::rejection::Rejection| {
        let help = concat!("plans are described in ", docs_url!("protocol/plans.md"));
        CliError::usage(rejection.to_string(), help)
    };
    check(&plan, &Limits::default()).map_err(wrong)?;
    Ok(plan)
}

pub(super) fn pretty(plan: &Plan) -> String {
    serde_json::to_string_pretty(plan).unwrap_or_default()
}

async fn submit(server: &ConnectionArgs, plan: &Plan, output: OutputFormat) -> Result<()> {
    show_stored(store(server, plan).await?, output)
}

/// PLAN.SUBMIT. Returns the id of the stored plan.
pub(super) async fn store(server: &ConnectionArgs, plan: &Plan) -> Result<PlanId> {
    let json = pretty(plan).into_bytes();
    Ok(server.connect().await?.submit_plan(json).await?)
}

pub(super) fn show_stored(plan_id: PlanId, output: OutputFormat) -> Result<()> {
    output.show("plan.submit", &PlanRef { plan_id }, |stored| format!("plan {} is stored", stored.plan_id))
}

fn ask(output: OutputFormat, question: &str) -> Result<String> {
    let mut err = std::io::stderr();
    write!(err, "{question}: ").and_then(|()| err.flush())?;
    let mut line = Vec::new();
    if std::io::stdin().lock().read_until(b'\n', &mut line)? == 0 {
        output.note("");
        return Err(CliError::usage("the questions were not answered", "nothing was stored"));
    }
    Ok(answer(&line))
}

/// Returns a line as an answer, with byte escapes as in an argument.
fn answer(line: &[u8]) -> String {
    encode(line).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::{FromArgs, answer, plan_of};

    fn from(pipeline: &str) -> FromArgs {
        FromArgs { pipeline: pipeline.into(), ..FromArgs::default() }
    }

    #[test]
    fn plan_from_compiles_a_pipeline() {
        let plan = plan_of(&from("sort {input.file} | uniq -c > {}.out")).unwrap();
        assert_eq!(plan.tasks[0].args, ["{{input.file}}"]);
        assert_eq!(plan.tasks[1].stdout.as_deref(), Some("{{input.line}}.out"));
        assert!(!plan.pipefail && plan.sandbox.is_none() && plan.requires.is_empty());
        let of_map = plan_of(&from("cat {.}")).unwrap_err();
        assert!(of_map.to_string().starts_with("{.} is made by `agx map` alone"), "{of_map}");
        let long = plan_of(&from(&vec!["cat"; 101].join("|"))).unwrap_err();
        assert!(long.to_string().contains("tasks has 101 tasks, max 100"), "{long}");
    }

    #[test]
    fn plan_from_with_a_timeout_of_tasks_has_no_shorter_one_of_the_attempt() {
        let limits = |timeout| {
            let plan = plan_of(&FromArgs { timeout, ..from("sort | uniq") }).unwrap();
            (plan.timeout_secs, plan.tasks.iter().map(|task| task.timeout_secs).collect::<Vec<_>>())
        };
        assert_eq!(limits(Some(7200)), (Some(0), vec![Some(7200); 2]));
        assert_eq!(limits(None), (None, vec![None; 2]));
    }

    #[test]
    fn plan_new_takes_answers_in_any_encoding() {
        assert_eq!(answer(b" grep \xe9 {}\r\n"), "grep \u{10fee9} {}");
        assert_eq!(answer("grep é {}\n".as_bytes()), "grep é {}");
    }
}

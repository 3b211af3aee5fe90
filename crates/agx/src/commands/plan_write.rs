//! `agx plan from`, `new` and `edit`: other ways to create a plan than writing JSON.

use std::{
    collections::BTreeMap,
    io::{BufRead, IsTerminal, Write},
    path::PathBuf,
    process::Command,
};

use agenix_protocol::{
    documents::{Plan, Requires, StartRate, Task, parse},
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
    util::{
        duration::parse_secs,
        text::{any_bytes, without_mark},
    },
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

/// `agx plan edit`: stores the edited plan under a new id, because plans are immutable.
pub(super) async fn edit(
    server: &ConnectionArgs,
    plan_id: &PlanId,
    new_id: Option<PlanId>,
    output: OutputFormat,
) -> Result<()> {
    let help = "see the plans with `agx plan list`";
    let stored = server.connect().await?.plan(plan_id).await?;
    let mut plan = stored.ok_or_else(|| CliError::not_found("plan", plan_id, help))?;
    if let Some(names) = hidden_env(&plan) {
        return Err(CliError::usage(
            format!("agq hides values of the plan from your key, and shows *** for {names}"),
            "use the key that stored the plan, or write a new plan",
        ));
    }
    plan.plan_id = Some(match new_id {
        Some(id) => id,
        None => next_id(plan_id)?,
    });
    let cannot = |error: std::io::Error| {
        CliError::usage(format!("cannot write the plan to edit it: {error}"), "is the disk full?")
    };
    let mut file = tempfile::Builder::new().prefix("plan-").suffix(".json").tempfile().map_err(cannot)?;
    writeln!(file, "{}", pretty(&plan)).map_err(cannot)?;
    let editor = editor(|name| std::env::var(name).ok());
    let mut words = editor.split_whitespace();
    let program = words.next().unwrap_or("vi");
    let ended = Command::new(program).args(words).arg(file.path()).status();
    if !ended.as_ref().is_ok_and(std::process::ExitStatus::success) {
        let outcome = ended.map_or_else(|error| error.to_string(), |status| status.to_string());
        return Err(CliError::usage(
            format!("{program}: {outcome}"),
            "set EDITOR to an editor that is installed; nothing was stored",
        ));
    }
    let json = std::fs::read(file.path()).map_err(cannot)?;
    let text = without_mark(&json).map_err(|encoding| format!("it is {encoding}, and plans are UTF-8"));
    let edited: Result<Plan, _> = text.and_then(|text| parse(text).map_err(|error| error.to_string()));
    match edited.and_then(|plan| checked(plan).map_err(|failure| failure.to_string())) {
        Ok(plan) => submit(server, &plan, output).await,
        Err(problem) => {
            let kept: PathBuf = file.into_temp_path().keep().map_err(|error| cannot(error.error))?;
            let help =
                format!("the edited plan is in {}: fix it, then run `agx plan submit`", kept.display());
            Err(CliError::usage(problem, help))
        }
    }
}

/// Returns the names of the variables whose values agq hides from the key, if there are some.
pub(super) fn hidden_env(plan: &Plan) -> Option<String> {
    let names: Vec<&str> = plan.hidden_env().into_iter().collect();
    (!names.is_empty()).then(|| names.join(", "))
}

/// Returns the command of the editor that a variable names. An empty variable counts as not set.
fn editor(variable: impl Fn(&str) -> Option<String>) -> String {
    let named = |name| variable(name).filter(|command| !command.trim().is_empty());
    ["VISUAL", "EDITOR"].into_iter().find_map(named).unwrap_or_else(|| "vi".into())
}

/// Returns the next id: `sort` becomes `sort-2`, `sort-2` becomes `sort-3`.
fn next_id(plan_id: &PlanId) -> Result<PlanId> {
    let text = plan_id.as_str();
    let (stem, number) =
        match text.rsplit_once('-').and_then(|(stem, number)| Some((stem, number.parse::<u32>().ok()?))) {
            Some((stem, number)) => (stem, number.saturating_add(1)),
            None => (text, 2),
        };
    PlanId::new(format!("{stem}-{number}"))
        .map_err(|error| CliError::usage(error.to_string(), "choose one with --id"))
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

fn checked(plan: Plan) -> Result<Plan> {
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
    let json = pretty(plan).into_bytes();
    let plan_id = server.connect().await?.submit_plan(json).await?;
    output.show("plan.submit", &PlanRef { plan_id }, |stored| format!("plan {} is stored", stored.plan_id))
}

fn ask(output: OutputFormat, question: &str) -> Result<String> {
    let mut err = std::io::stderr();
    write!(err, "{question}: ").and_then(|()| err.flush())?;
    let mut line = String::new();
    if std::io::stdin().lock().read_line(&mut line)? == 0 {
        output.note("");
        return Err(CliError::usage("the questions were not answered", "nothing was stored"));
    }
    Ok(line.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::{FromArgs, PlanId, editor, next_id, plan_of};

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
    fn plan_edit_ignores_an_empty_variable_of_the_editor() {
        let with = |visual: Option<&str>, other: Option<&str>| {
            editor(|name| {
                let value = if name == "VISUAL" { visual } else { other };
                value.map(str::to_owned)
            })
        };
        assert_eq!(with(Some("code --wait"), Some("nano")), "code --wait");
        assert_eq!([with(None, Some("nano")), with(Some(""), Some("nano"))], ["nano", "nano"]);
        assert_eq!([with(None, None), with(Some(" "), Some(""))], ["vi", "vi"]);
    }

    #[test]
    fn plan_edit_increments_the_id() {
        let next = |id: &str| next_id(&PlanId::new(id).unwrap()).unwrap().to_string();
        assert_eq!([next("sort"), next("sort-2"), next("a-b")], ["sort-2", "sort-3", "a-b-2"]);
    }
}

//! `agx plan new --ask`: a language model writes a plan, and agx checks it. Nothing runs.

mod answer;
mod completion;
mod endpoint;
mod key;
mod programs;
mod request;
mod review;

use agenix_protocol::printable::one_line;
use clap::Args;

use self::{
    answer::quoted,
    endpoint::Endpoint,
    programs::AvailablePrograms,
    request::{ChatMessage, body, first_messages, repair},
    review::Reviewer,
};
use super::{
    plan_check::{self, JudgeArgs},
    plan_write::pretty,
};
use crate::{
    connection_args::ConnectionArgs,
    documents::PlanAsked,
    error::{CliError, Result},
    output::{OutputFormat, counted},
    sandbox::ProfileArg,
    util::{duration::parse_wait, shorten::shortened},
};

/// Default of the maximum time of a request, in seconds. Models without a graphics processor are
/// slow.
const DEFAULT_TIMEOUT_SECS: u64 = 300;
/// Maximum number of times that the model is asked to correct its plan.
const MAX_REPAIRS: u32 = 2;

#[derive(Debug, Args)]
pub(crate) struct AskArgs {
    /// Let a language model write a plan that does what TEXT says; prints the plan and its check,
    /// and runs nothing
    #[arg(long, value_name = "TEXT")]
    ask: Option<String>,
    /// Server of the model, with an API like that of OpenAI, as http://127.0.0.1:11434/v1 [env:
    /// AGX_ASK_URL]
    #[arg(long, value_name = "URL")]
    ask_url: Option<String>,
    /// Model, as the server names it; the server gets the key AGX_ASK_KEY, if it is set [env:
    /// AGX_ASK_MODEL]
    #[arg(long, value_name = "NAME")]
    ask_model: Option<String>,
    /// Maximum time of a request to the model: seconds, or a number with s, m, h or d [default: 5m]
    #[arg(long, value_name = "TIME", value_parser = parse_wait)]
    ask_timeout: Option<u64>,
    #[command(flatten)]
    judges: JudgeArgs,
}

impl AskArgs {
    /// Returns the text of `--ask`. Refuses the other options without `--ask`.
    pub(super) fn wish(&self) -> Result<Option<&str>> {
        match self.ask.as_deref() {
            Some(wish) if wish.trim().is_empty() => Err(CliError::usage(
                "--ask has no text",
                "say what the plan shall do, as --ask 'count the lines of a file'",
            )),
            None if self.has_others() => Err(CliError::usage(
                "--ask-url, --ask-model, --ask-timeout, --policy, --trust and --as are for --ask",
                "give --ask TEXT, or leave them out; `agx plan check` judges a plan in a file",
            )),
            wish => Ok(wish),
        }
    }

    /// Returns true if an option besides `--ask` is given.
    fn has_others(&self) -> bool {
        let is_named = self.ask_url.is_some() || self.ask_model.is_some();
        is_named || self.ask_timeout.is_some() || self.judges != JudgeArgs::default()
    }

    fn timeout_secs(&self) -> u64 {
        self.ask_timeout.unwrap_or(DEFAULT_TIMEOUT_SECS)
    }
}

/// Asks the model for a plan that fulfils `wish`, checks it, asks for corrections if it is refused,
/// and prints the plan.
pub(super) async fn ask(
    server: &ConnectionArgs,
    wish: &str,
    args: &AskArgs,
    sandbox: &ProfileArg,
    output: OutputFormat,
) -> Result<()> {
    let endpoint = Endpoint::new(args)?;
    let judges = args.judges.read()?;
    let programs = AvailablePrograms::find(server, judges.policy.as_ref()).await?;
    announce(&endpoint, &programs, judges.policy.is_some(), output);
    let reviewer = Reviewer {
        judges: &judges,
        programs: &programs,
        key: &endpoint.key,
        sandbox,
        wish,
        author: format!("{} at {}", endpoint.model, endpoint.host),
    };
    let asked = converse(&endpoint, &reviewer, output).await?;
    show(&asked, output)
}

/// Names the server, and the texts that the server gets.
fn announce(endpoint: &Endpoint, programs: &AvailablePrograms, has_policy: bool, output: OutputFormat) {
    if let Some(warning) = endpoint.warning() {
        output.note(&warning);
    }
    let quotation = if has_policy { ", which may quote the policy" } else { "" };
    output.note(&format!(
        "asking the model {} at {}; it gets the text of --ask and {}; a repair also has the earlier answers and the reasons of \
         their refusal{quotation}",
        endpoint.model,
        endpoint.host,
        programs.about()
    ));
}

/// Asks until the review accepts a plan, at most [`MAX_REPAIRS`] times again.
async fn converse(endpoint: &Endpoint, reviewer: &Reviewer<'_>, output: OutputFormat) -> Result<PlanAsked> {
    let mut messages = first_messages(reviewer.wish, reviewer.programs);
    let mut repairs = 0;
    loop {
        let answer = endpoint.complete(body(&endpoint.model, &messages)).await?;
        let refusal = match reviewer.review(&answer) {
            Ok((plan, check)) => {
                let (host, model) = (endpoint.host.clone(), endpoint.model.clone());
                return Ok(PlanAsked { plan, check, host, model, repairs });
            }
            Err(refusal) => refusal,
        };
        if repairs == MAX_REPAIRS {
            return Err(no_plan(endpoint, &refusal));
        }
        repairs += 1;
        output.notes(&format!("refused: {refusal}"));
        output.note(&format!("asking again for a corrected plan: {repairs} of {MAX_REPAIRS}"));
        messages.extend([ChatMessage::assistant(quoted(&answer.text).into_owned()), repair(&refusal)]);
    }
}

fn no_plan(endpoint: &Endpoint, refusal: &str) -> CliError {
    let attempts = counted(u64::from(MAX_REPAIRS) + 1, "attempt", "attempts");
    CliError::NoPlan {
        problem: format!(
            "the model {} at {} gave no acceptable plan in {attempts}; the last one is refused: {refusal}",
            shortened(&one_line(&endpoint.model)),
            endpoint.host
        ),
        help: "say in --ask which programs, files and fields to use; or ask a larger model; or write the pipeline yourself, with \
               `agx plan from`"
            .into(),
    }
}

/// Prints the plan on stdout and the check on stderr, or both in one document.
fn show(asked: &PlanAsked, output: OutputFormat) -> Result<()> {
    if !output.is_json {
        output.notes(&plan_check::text(&asked.check, &asked.plan));
    }
    output.show("plan.new", asked, |asked| pretty(&asked.plan))?;
    plan_check::verdict(&asked.check)
}

//! `agx action submit`

use std::path::PathBuf;

use agenix_protocol::{
    documents::{ActionSubmission, parse},
    ids::{ActionId, PlanId, QueueName},
    time::Timestamp,
};
use clap::Args;
use serde_json::{json, value::RawValue};

use super::{new_id, read, verdict};
use crate::{
    documents::ActionSubmitted,
    error::{CliError, Result},
    output::{Output, jobs},
    remote::{chunked_submit, retrying_client::RetryingClient},
    server_args::ServerArgs,
    util::text::CRLF_HELP,
    watch::progress,
};

#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("source").required(true)))]
pub(crate) struct SubmitArgs {
    /// The plan to run
    pub(crate) plan_id: PlanId,
    /// JSON array of objects, one per job; - reads stdin
    #[arg(long, value_name = "FILE", group = "source")]
    pub(crate) inputs: Option<PathBuf>,
    /// Lines of text, one per job: each line becomes {"line": …}; - reads stdin
    #[arg(long, value_name = "FILE", group = "source")]
    pub(crate) lines: Option<PathBuf>,
    /// Field that holds the line
    #[arg(long, value_name = "NAME", default_value = "line", requires = "lines")]
    pub(crate) field: String,
    /// Action id; repeating the same submission with the same id is safe [default: a new id]
    #[arg(long = "id", value_name = "ID")]
    pub(crate) action_id: Option<ActionId>,
    /// Queue of the jobs; a worker takes jobs of the queues it was started with [default: ready]
    #[arg(long, value_name = "NAME")]
    pub(crate) queue: Option<QueueName>,
    /// -100 to 100: jobs with a higher priority run first
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    pub(crate) priority: i32,
    /// Do not start the jobs before this time, as 2026-01-31T08:00:00Z
    #[arg(long, value_name = "TIME", value_parser = parse_time, conflicts_with = "delay")]
    pub(crate) run_at: Option<Timestamp>,
    /// Do not start the jobs for this many seconds; fractions are allowed
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true, value_parser = parse_delay)]
    pub(crate) delay: Option<f64>,
    /// Wait until the action ends; the exit code is 1 if a job did not complete
    #[arg(long)]
    pub(crate) wait: bool,
}

pub(super) async fn run(server: &ServerArgs, args: SubmitArgs, output: Output) -> Result<()> {
    let inputs = inputs(&args, output)?;
    let action_id = args.action_id.map_or_else(new_id, Ok)?;
    let action = ActionSubmission {
        action_id: Some(action_id),
        queue: args.queue,
        priority: args.priority,
        run_at: args.run_at,
        delay_secs: args.delay,
        ..ActionSubmission::new(args.plan_id, inputs)
    };
    let mut agq = RetryingClient::new(server.server()?, server.connect().await?, output);
    let submitted = chunked_submit::submit(&mut agq, action, output).await?;
    let (action_id, count) = (submitted.action_id, submitted.jobs_created);
    if !args.wait {
        let data = ActionSubmitted { action_id: action_id.clone(), jobs_created: count };
        return output.show("action.submit", &data, |_| {
            format!("action {action_id} has {}; watch it with `agx action watch {action_id}`", jobs(count))
        });
    }
    if !output.is_json {
        output.note(&format!("action {action_id} has {}", jobs(count)));
    }
    let status = progress::watch(&mut agq, &action_id, output).await?;
    output.show("action.status", &status, |status| format!("{}", status.action_id))?;
    verdict(&status)
}

fn inputs(args: &SubmitArgs, output: Output) -> Result<Vec<Box<RawValue>>> {
    if let Some(file) = &args.inputs {
        let help = "the file is a JSON array of objects, one a job: [{\"file\": \"a.txt\"}, …], or one object a line";
        let wrong = |what: String| CliError::usage(format!("{}: {what}", file.display()), help);
        return objects(&read(file)?).map_err(wrong);
    }
    let Some(file) = &args.lines else {
        return Err(CliError::usage("there are no inputs", "give --inputs FILE or --lines FILE"));
    };
    let bytes = read(file)?;
    let bytes = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
    if bytes.is_empty() {
        return Ok(Vec::new());
    }
    if bytes.ends_with(b"\r") || bytes.windows(2).any(|pair| pair == b"\r\n") {
        output.note(&format!("agx: a line of {} ends with \\r: {CRLF_HELP}", file.display()));
    }
    let lines = (1..).zip(bytes.split(|&byte| byte == b'\n'));
    lines.map(|(number, line)| input(&args.field, number, line)).collect()
}

/// Parses a JSON array of objects, or consecutive objects as of `jq -c`.
fn objects(json: &[u8]) -> Result<Vec<Box<RawValue>>, String> {
    match json.trim_ascii_start().first() {
        Some(b'{') => {
            let objects = serde_json::Deserializer::from_slice(json).into_iter();
            (1..).zip(objects).map(|(at, one)| one.map_err(|error| format!("object {at}: {error}"))).collect()
        }
        Some(b'[') => parse(json).map_err(|error| error.to_string()),
        Some(b'"') => Err("it is a text in quotation marks, and no array of objects".into()),
        Some(_) => Err("it begins neither with [ nor with {".into()),
        None => Err("it is empty: an array without inputs is []".into()),
    }
}

fn input(field: &str, number: usize, line: &[u8]) -> Result<Box<RawValue>> {
    let help = "inputs are text; for other bytes write a JSON file of inputs";
    let line = std::str::from_utf8(line)
        .map_err(|_| CliError::usage(format!("line {number} is not UTF-8"), help))?;
    RawValue::from_string(json!({field: line}).to_string())
        .map_err(|error| CliError::usage(error.to_string(), help))
}

fn parse_delay(text: &str) -> Result<f64, String> {
    let delay = text.parse().ok().filter(|delay: &f64| delay.is_finite() && *delay >= 0.0);
    delay.ok_or_else(|| "give a number of seconds from 0, as 0.5".into())
}

fn parse_time(text: &str) -> Result<Timestamp, String> {
    Timestamp::parse(text).ok_or_else(|| "give an RFC 3339 time, as 2026-01-31T08:00:00Z".into())
}

#[cfg(test)]
mod tests {
    use super::objects;

    #[test]
    fn inputs_are_a_json_array_or_consecutive_objects() {
        let texts = |json: &str| -> Result<Vec<String>, String> {
            Ok(objects(json.as_bytes())?.iter().map(|object| object.get().to_owned()).collect())
        };
        for json in [
            "[{\"a\":1}, {\"a\":2}]",
            "{\"a\":1}\n{\"a\":2}\n",
            "{\"a\":1}{\"a\":2}",
            "\r\n{\"a\":1}\r\n{\"a\":2}",
        ] {
            assert_eq!(texts(json).unwrap(), ["{\"a\":1}", "{\"a\":2}"], "{json}");
        }
        assert_eq!(texts("{\"a\":1.10}").unwrap(), ["{\"a\":1.10}"]);
        assert!(texts("[]").unwrap().is_empty());
        for (json, expected) in [
            ("{\"a\":1}\n{\"a\":}\n", "object 2: expected value at line 2 column 6"),
            ("{\"a\":1},\n{}", "object 2: expected value at line 1 column 8"),
            ("[{\"a\":1}", "at line 1 column 8"),
            ("\"x\"", "a text in quotation marks"),
            ("7", "neither with [ nor with {"),
            ("", "is empty"),
        ] {
            let error = texts(json).unwrap_err();
            assert!(error.contains(expected), "{json}: {error}");
        }
    }
}

//! `agx action submit`

use agenix_protocol::documents::{ActionSubmission, parse};
use serde_json::{json, value::RawValue};

use super::{new_id, read, verdict};
use crate::{
    cli::{ServerArgs, SubmitArgs},
    documents::ActionSubmitted,
    failure::Failure,
    output::{Output, jobs},
    patient::Patient,
    pieces, progress,
};

pub(super) async fn run(server: &ServerArgs, args: SubmitArgs, output: Output) -> Result<(), Failure> {
    let inputs = inputs(&args)?;
    let action_id = args.action_id.map_or_else(new_id, Ok)?;
    let action = ActionSubmission {
        action_id: Some(action_id),
        queue: args.queue,
        priority: args.priority,
        run_at: args.run_at,
        delay_secs: args.delay,
        ..ActionSubmission::new(args.plan_id, inputs)
    };
    let mut agq = Patient::new(server.server()?, server.connect().await?, output);
    let submitted = pieces::submit(&mut agq, action, output).await?;
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

fn inputs(args: &SubmitArgs) -> Result<Vec<Box<RawValue>>, Failure> {
    if let Some(file) = &args.inputs {
        let help = "the file is a JSON array of objects, one a job: [{\"file\": \"a.txt\"}, …]";
        return parse(&read(file)?)
            .map_err(|error| Failure::usage(format!("{}: {error}", file.display()), help));
    }
    let Some(file) = &args.lines else {
        return Err(Failure::usage("there are no inputs", "give --inputs FILE or --lines FILE"));
    };
    let bytes = read(file)?;
    let bytes = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
    if bytes.is_empty() {
        return Ok(Vec::new());
    }
    let lines = (1..).zip(bytes.split(|&byte| byte == b'\n'));
    lines.map(|(number, line)| input(&args.field, number, line)).collect()
}

fn input(field: &str, number: usize, line: &[u8]) -> Result<Box<RawValue>, Failure> {
    let help = "inputs are text; for other bytes write a JSON file of inputs";
    let line =
        std::str::from_utf8(line).map_err(|_| Failure::usage(format!("line {number} is not UTF-8"), help))?;
    RawValue::from_string(json!({field: line}).to_string())
        .map_err(|error| Failure::usage(error.to_string(), help))
}

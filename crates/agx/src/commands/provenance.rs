//! `agx provenance`

use std::path::PathBuf;

use agenix_client::Connection;
use agenix_order::{Envelope, Statement, TrustFile};
use agenix_protocol::{
    documents::{JobStatus, to_json},
    ids::JobId,
};
use clap::{Args, Subcommand};

use super::{plan_sign::trust, provenance_check, read};
use crate::{
    connection_args::ConnectionArgs,
    documents::{ProvenanceShown, ProvenanceVerified, TaskProof, TaskStatement},
    error::{CliError, Result},
    output::{OutputFormat, counted},
    remote::retrying_client::RetryingClient,
    util::printable::one_line,
};

#[derive(Debug, Subcommand)]
pub(crate) enum ProvenanceCommand {
    /// Show what the worker has signed about the tasks of a job; nothing is verified
    Show {
        job_id: JobId,
        /// Print the signed envelopes, one on each line, as a file of --statements has them
        #[arg(long)]
        envelopes: bool,
    },
    /// Verify that a worker with a known key has run the tasks of a job, and that the outputs in
    /// agq are those that the worker has signed; the exit code is 1 if they are not
    Verify(ProvenanceVerifyArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ProvenanceVerifyArgs {
    /// Job in agq; all its outputs are read
    #[arg(required_unless_present = "statements", conflicts_with = "statements")]
    job_id: Option<JobId>,
    /// File with signed envelopes, one on each line: no outputs are compared; - reads stdin
    #[arg(long, value_name = "FILE")]
    statements: Option<PathBuf>,
    /// Trust file with the keys of workers
    #[arg(long, value_name = "FILE")]
    trust: PathBuf,
}

pub(crate) async fn run(
    server: &ConnectionArgs,
    command: ProvenanceCommand,
    output: OutputFormat,
) -> Result<()> {
    match command {
        ProvenanceCommand::Show { job_id, envelopes } => show(server, &job_id, envelopes, output).await,
        ProvenanceCommand::Verify(ProvenanceVerifyArgs { job_id: Some(job_id), trust: file, .. }) => {
            let trust = trust(Some(&file))?;
            let proof = verify_job(server, &job_id, &trust, output).await?;
            output.show("provenance.verify", &proof, proof_text)
        }
        ProvenanceCommand::Verify(ProvenanceVerifyArgs { statements, trust: file, .. }) => {
            let trust = trust(Some(&file))?;
            let file = statements.unwrap_or_else(|| PathBuf::from("-"));
            let proof = verify_statements(&read(&file)?, &trust)?;
            output.show("provenance.verify", &proof, proof_text)
        }
    }
}

async fn show(server: &ConnectionArgs, job_id: &JobId, envelopes: bool, output: OutputFormat) -> Result<()> {
    let job = job(&mut server.connect().await?, job_id).await?;
    let unreadable =
        |error: &dyn std::fmt::Display| CliError::Unproved(format!("a statement cannot be read: {error}"));
    let mut statements = Vec::new();
    for result in job.results() {
        let Some(envelope) = result.provenance else { continue };
        let opened = Envelope::from_document(&envelope).map_err(|error| unreadable(&error))?;
        let statement = Statement::read(&opened).map_err(|error| unreadable(&error))?;
        statements.push(TaskStatement { task_number: result.task_number, statement, envelope });
    }
    if statements.is_empty() {
        return Err(CliError::Unproved(format!("no worker has signed anything about job {job_id}")));
    }
    if envelopes {
        for TaskStatement { envelope, .. } in &statements {
            output.raw(format!("{}\n", to_json(envelope)).as_bytes())?;
        }
        return output.flush();
    }
    output.show("provenance.show", &ProvenanceShown { job_id: job_id.clone(), statements }, shown_text)
}

async fn job(agq: &mut Connection, job_id: &JobId) -> Result<JobStatus> {
    let help = "see the jobs of an action with `agx job list ACTION_ID`";
    agq.job(job_id).await?.ok_or_else(|| CliError::not_found("job", job_id, help))
}

async fn verify_job(
    server: &ConnectionArgs,
    job_id: &JobId,
    trust: &TrustFile,
    output: OutputFormat,
) -> Result<ProvenanceVerified> {
    let server = server.server()?;
    let mut connection = Connection::open(&server).await?;
    let job = job(&mut connection, job_id).await?;
    let mut agq = RetryingClient::new(server, connection, output);
    let results = job.results();
    let statements =
        provenance_check::statements(&job, job_id, &results, trust).map_err(CliError::Unproved)?;
    let mut tasks = Vec::with_capacity(results.len());
    for (result, (statement, worker)) in results.iter().zip(statements) {
        provenance_check::streams(&job, result, &statement, &mut agq).await?;
        tasks.push(TaskProof::of(&statement, worker));
    }
    Ok(ProvenanceVerified { valid: true, compared: true, tasks })
}

/// Verifies envelopes, one on each line, without their outputs.
fn verify_statements(lines: &[u8], trust: &TrustFile) -> Result<ProvenanceVerified> {
    let mut tasks = Vec::new();
    for (at, line) in lines.split(|byte| *byte == b'\n').enumerate() {
        if line.trim_ascii().is_empty() {
            continue;
        }
        let unproved = |reason: String| CliError::Unproved(format!("line {}: {reason}", at + 1));
        let envelope = Envelope::parse(line).map_err(|error| unproved(error.to_string()))?;
        let opened = Statement::open(&envelope, trust).map_err(|error| unproved(error.to_string()))?;
        tasks.push(TaskProof::of(&opened.0, opened.1));
    }
    if tasks.is_empty() {
        return Err(CliError::Unproved("the file has no statements".into()));
    }
    Ok(ProvenanceVerified { valid: true, compared: false, tasks })
}

fn shown_text(shown: &ProvenanceShown) -> String {
    let task = |task: &TaskStatement| {
        let builder = &task.statement.predicate.run_details.builder;
        let proof = TaskProof::of(&task.statement, builder.id.clone());
        task_text(&proof, &format!("a statement of {}, which is not verified", proof.worker))
    };
    shown.statements.iter().map(task).collect()
}

fn proof_text(proof: &ProvenanceVerified) -> String {
    let match_signed = if proof.compared { "the outputs in agq are the signed ones: " } else { "" };
    let task = |task: &TaskProof| task_text(task, &format!("signed by {}", task.worker));
    let tasks: String = proof.tasks.iter().map(task).collect();
    let count = counted(proof.tasks.len() as u64, "statement is", "statements are");
    format!("{tasks}{match_signed}{count} valid\n")
}

fn task_text(proof: &TaskProof, signed: &str) -> String {
    let TaskProof { job_id, attempt, task_number, task_count, command, exit_code, .. } = proof;
    let head = format!(
        "job {job_id}, attempt {attempt}, task {task_number} of {task_count} ({command}): {signed}\n  exit code  {exit_code}"
    );
    let program = proof.program.as_ref().map(|program| {
        let sha256 = program.sha256.as_ref().map(|sha256| format!(" sha256:{sha256}")).unwrap_or_default();
        format!("program    {}{sha256}", program.uri)
    });
    let admission = proof.admission.as_ref().map(|admission| {
        let names = [&admission.signers[..], &admission.approvers].concat();
        let order = admission.order.as_ref().map(|order| format!("{order} signed by {}", names.join(", ")));
        order
            .or_else(|| admission.policy.clone())
            .map(|text| format!("admitted   {text}"))
            .unwrap_or_default()
    });
    let profile = proof.profile.as_ref().map(|profile| format!("sandbox    {profile}"));
    let streams = proof.streams.iter().map(|stream| {
        let of = if stream.bytes == stream.total { String::new() } else { format!(" of {}", stream.total) };
        format!("{:<10} {}{of} bytes, sha256:{}", stream.name, stream.bytes, stream.sha256)
    });
    let lines = program.into_iter().chain(admission).chain(profile).filter(|line| !line.is_empty());
    let lines = lines.chain(streams).map(|line| format!("  {}\n", one_line(&line)));
    format!("{}\n{}", head.lines().map(one_line).collect::<Vec<_>>().join("\n"), lines.collect::<String>())
}

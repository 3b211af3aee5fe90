//! Subcommands: a file for each noun, with its arguments and its code.

pub(crate) mod action;
mod action_add;
mod action_diff;
mod action_inputs;
mod action_list;
mod action_results;
mod action_status;
mod action_submit;
pub(crate) mod approve;
pub(crate) mod audit;
pub(crate) mod budget;
mod command_plan;
mod concurrency_args;
pub(crate) mod doctor;
pub(crate) mod job;
mod json_inputs;
pub(crate) mod key;
mod labels;
mod line_inputs;
pub(crate) mod logs;
pub(crate) mod map;
pub(crate) mod map_args;
mod map_concurrency;
mod map_joblog;
mod map_lists;
mod map_pipeline;
mod map_placement;
mod map_verdict;
mod map_words;
pub(crate) mod mcp;
pub(crate) mod overview;
pub(crate) mod plan;
mod plan_ask;
mod plan_check;
mod plan_edit;
mod plan_sign;
mod plan_text;
mod plan_write;
pub(crate) mod policy;
pub(crate) mod profile;
mod programs;
mod project_cluster;
mod proved_inputs;
pub(crate) mod provenance;
mod provenance_check;
mod quantity_args;
pub(crate) mod queue;
mod raw_arg;
pub(crate) mod run;
mod run_end;
pub(crate) mod scale;
pub(crate) mod schedule;
pub(crate) mod suggest;
mod unique_args;
pub(crate) mod up;
pub(crate) mod worker;
pub(crate) mod workflow;

use std::{
    io::{self, Read},
    path::Path,
};

use agenix_protocol::{documents::ActionStatus, ids::ActionId};
use agenix_shell::Refusal;

use crate::{
    error::{CliError, Result},
    util::text::{not_utf_8, without_mark},
};

/// Maximum number of bytes of a document, such as a plan, a workflow or a policy.
const MAX_DOCUMENT_BYTES: usize = 64 * 1024 * 1024;

fn refused(refusal: &Refusal) -> CliError {
    CliError::Marked { problem: refusal.to_string(), help: refusal.instead().into() }
}

/// Returns a random action id. A submission with the id can be sent again after a lost reply.
fn new_id() -> Result<ActionId> {
    let id = uuid::Uuid::new_v4().to_string();
    ActionId::new(id).map_err(|error| CliError::usage(error.to_string(), "choose one with --id"))
}

/// Opens `file`, or stdin if `file` is `-`.
fn open(file: &Path) -> Result<Box<dyn Read>> {
    let source: io::Result<Box<dyn Read>> = if file == Path::new("-") {
        agenix_cli::stdin().map(|stdin| Box::new(stdin) as Box<dyn Read>)
    } else {
        std::fs::File::open(file).map(|file| Box::new(file) as Box<dyn Read>)
    };
    source.map_err(|error| unreadable(file, &error))
}

/// Reads a document from `file`, or from stdin if `file` is `-`, and removes a byte order mark.
fn read(file: &Path) -> Result<Vec<u8>> {
    read_at_most(file, MAX_DOCUMENT_BYTES)
}

/// Reads as [`read`] does, but at most `most` bytes.
fn read_at_most(file: &Path, most: usize) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut source = open(file)?.take(most as u64 + 1);
    source.read_to_end(&mut bytes).map_err(|error| unreadable(file, &error))?;
    if bytes.len() > most {
        return Err(CliError::usage(
            format!("{} has more than {most} bytes", file.display()),
            "give the file that is meant; agx reads no larger one",
        ));
    }
    match without_mark(&bytes) {
        Ok(text) if text.len() == bytes.len() => Ok(bytes),
        Ok(text) => Ok(text.to_vec()),
        Err(encoding) => Err(not_utf_8(file, encoding)),
    }
}

fn unreadable(file: &Path, error: &io::Error) -> CliError {
    CliError::usage(
        format!("cannot read {}: {error}", file.display()),
        "give a file that can be read, or - for stdin",
    )
}

/// Returns an error, and with it exit code 1, if a job of the ended action did not complete.
fn verdict(status: &ActionStatus) -> Result<()> {
    if status.completed == status.total_jobs {
        return Ok(());
    }
    let (bad, total, id) = (status.total_jobs - status.completed, status.total_jobs, &status.action_id);
    Err(CliError::Jobs(format!(
        "{bad} of {total} jobs did not complete; see them with `agx action results {id}`"
    )))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::read_at_most;

    #[test]
    fn read_ends_at_its_bound() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("plan");
        std::fs::write(&file, "1234").unwrap();
        assert_eq!(read_at_most(&file, 4).unwrap(), b"1234");
        for (endless, most) in [(file.as_path(), 3), (Path::new("/dev/zero"), 1024)] {
            let error = read_at_most(endless, most).unwrap_err().to_string();
            assert!(error.ends_with(&format!(" has more than {most} bytes")), "{error}");
        }
    }
}

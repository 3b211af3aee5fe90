//! Large inputs and outputs of jobs: OUTPUT.WRITE, OUTPUT.COPY, OUTPUT.COMMIT, JOB.RESULT,
//! JOB.FILE, INPUT.WRITE, INPUT.COMMIT and JOB.INPUT.

use std::{os::unix::ffi::OsStringExt, path::PathBuf};

use agenix_protocol::{request::OutputCommand, resp::Reply};

use crate::{
    app::{AppState, Caller},
    resp::outcome::CommandResult,
    service::{
        outputs::{self, StreamChunk},
        uploads,
    },
};

pub(crate) async fn run(app: &AppState, caller: &Caller, command: OutputCommand) -> CommandResult {
    match command {
        OutputCommand::Write { upload, offset, data } => {
            Ok(count(uploads::write(app, caller, &upload, offset, data).await?))
        }
        OutputCommand::Copy { upload, range, file } => {
            let (total, hash) = uploads::copy(app, caller, &upload, range, file).await?;
            Ok(Reply::Array(vec![count(total), Reply::bulk(hash.to_string())]))
        }
        OutputCommand::Commit { upload, length, hash } => {
            uploads::commit(app, caller, &upload, length, hash).await?;
            Ok(Reply::ok())
        }
        OutputCommand::Result { job_id, task_number, stream, range } => {
            Ok(chunk(outputs::read(app, &job_id, (task_number, stream), range).await?))
        }
        OutputCommand::File { job_id, task_number, stream } => {
            let file = outputs::file(app, caller, &job_id, (task_number, stream)).await?;
            let reply = |(path, total): (PathBuf, u64)| {
                Reply::Array(vec![count(total), Reply::Bulk(path.into_os_string().into_vec().into())])
            };
            Ok(file.map_or(Reply::Nil, reply))
        }
        OutputCommand::WriteInput { upload, offset, data } => {
            Ok(count(uploads::write_input(app, caller, upload, offset, data).await?))
        }
        OutputCommand::CommitInput { upload, length, hash } => {
            uploads::commit_input(app, caller, upload, length, hash).await?;
            Ok(Reply::ok())
        }
        OutputCommand::Input { job_id, attempt, hash, range } => {
            Ok(chunk(outputs::read_input(app, caller, (&job_id, attempt), hash, range).await?))
        }
    }
}

fn count(bytes: u64) -> Reply {
    Reply::Integer(i64::try_from(bytes).unwrap_or(i64::MAX))
}

fn chunk(chunk: Option<StreamChunk>) -> Reply {
    chunk.map_or(Reply::Nil, |chunk| Reply::Array(vec![count(chunk.total), Reply::Bulk(chunk.bytes)]))
}

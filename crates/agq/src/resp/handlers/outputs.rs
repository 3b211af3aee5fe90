//! OUTPUT.WRITE, OUTPUT.COMMIT and JOB.RESULT.

use agenix_protocol::{request::OutputCommand, resp::Reply};

use crate::{
    app::{AppState, Caller},
    resp::outcome::CommandResult,
    service::outputs,
};

pub(crate) async fn run(app: &AppState, caller: &Caller, command: OutputCommand) -> CommandResult {
    match command {
        OutputCommand::Write { upload, offset, data } => {
            let length = outputs::write(app, caller, &upload, offset, data).await?;
            Ok(Reply::Integer(i64::try_from(length).unwrap_or(i64::MAX)))
        }
        OutputCommand::Commit { upload, length, hash } => {
            outputs::commit(app, caller, &upload, length, hash).await?;
            Ok(Reply::ok())
        }
        OutputCommand::Result { job_id, task_number, stream, range } => {
            let piece = outputs::read(app, &job_id, (task_number, stream), range).await?;
            Ok(piece.map_or(Reply::Nil, |piece| {
                let total = Reply::Integer(i64::try_from(piece.total).unwrap_or(i64::MAX));
                Reply::Array(vec![total, Reply::Bulk(piece.bytes)])
            }))
        }
    }
}

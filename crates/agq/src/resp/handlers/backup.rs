//! BACKUP BEGIN, READ, BLOB and END.

use std::sync::Arc;

use agenix_protocol::{request::BackupCommand, resp::Reply};

use crate::{
    app::AppState,
    resp::outcome::{CommandResult, json},
    service::backups,
};

pub(crate) async fn run(app: &Arc<AppState>, command: BackupCommand) -> CommandResult {
    match command {
        BackupCommand::Begin => Ok(json(&backups::begin(app).await?)),
        BackupCommand::Read { backup_id, offset } => {
            Ok(Reply::bulk(backups::read(app, &backup_id, offset).await?))
        }
        BackupCommand::Blob { backup_id, hash, offset } => {
            Ok(Reply::Bulk(backups::read_blob(app, &backup_id, hash, offset).await?))
        }
        BackupCommand::End { backup_id } => {
            app.backups.end(&backup_id)?;
            Ok(Reply::ok())
        }
    }
}

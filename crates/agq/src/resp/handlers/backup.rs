//! BACKUP: a copy of everything as it is at one moment, made beside the database and read piece by piece.

use std::sync::Arc;

use agenix_protocol::{documents::BackupBegun, request::BackupCommand, resp::Reply};

use crate::{
    app::AppState,
    error::CommandError,
    registry::backups::piece,
    resp::outcome::{CommandResult, json},
    store::StoreError,
};

pub(crate) async fn run(app: &Arc<AppState>, command: BackupCommand) -> CommandResult {
    match command {
        BackupCommand::Begin => begin(app).await,
        BackupCommand::Read { backup_id, offset } => read(app, &backup_id, offset).await,
        BackupCommand::End { backup_id } => {
            app.backups.end(&backup_id)?;
            Ok(Reply::ok())
        }
    }
}

/// BACKUP BEGIN
async fn begin(app: &Arc<AppState>) -> CommandResult {
    let backup_id = app.clock.backup_id();
    let path = app.backups.begin(app.clock.now())?;
    let copied = app.store.backup(path.clone());
    let app = Arc::clone(app);
    // Whoever asked may go meanwhile: somebody has to know when it is there.
    let made = tokio::spawn(async move {
        match copied.await {
            Ok(bytes) => {
                app.backups.made(&backup_id, &path, app.clock.now())?;
                Ok(BackupBegun { backup_id, bytes })
            }
            Err(error) => {
                app.backups.failed(&path);
                Err(CommandError::from(error))
            }
        }
    });
    let begun = made.await.map_err(|error| StoreError(error.to_string()))??;
    Ok(json(&begun))
}

/// BACKUP READ
async fn read(app: &AppState, backup_id: &str, offset: u64) -> CommandResult {
    let file = app.backups.file(backup_id, app.clock.now())?;
    let read = tokio::task::spawn_blocking(move || piece(&file, offset));
    let piece = read.await.map_err(|error| StoreError(error.to_string()))??;
    Ok(Reply::bulk(piece))
}

//! CAPABILITY.SEARCH (worker spec §10) and CAPABILITY.LIST.

use agenix_protocol::{documents::to_json, resp::Reply};

use crate::{app::AppState, resp::outcome::CommandResult, service::capabilities};

pub(crate) async fn search(app: &AppState, words: &[String], limit: usize) -> CommandResult {
    Ok(Reply::bulks(capabilities::search(app, words, limit).await?.iter().map(to_json)))
}

pub(crate) async fn list(app: &AppState, name_part: &str, limit: usize) -> CommandResult {
    let list = capabilities::list(app, name_part, limit).await?;
    Ok(Reply::Bulk(to_json(&list).into()))
}

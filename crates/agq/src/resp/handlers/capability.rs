//! CAPABILITY.SEARCH (worker spec §10).

use agenix_protocol::{documents::to_json, resp::Reply};

use crate::{app::AppState, resp::outcome::CommandResult, service::capabilities};

pub(crate) async fn search(app: &AppState, words: &[String], limit: usize) -> CommandResult {
    Ok(Reply::bulks(capabilities::search(app, words, limit).await?.iter().map(to_json)))
}

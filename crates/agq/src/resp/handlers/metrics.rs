//! METRICS (AGQ API spec §7).

use agenix_protocol::resp::Reply;

use crate::{app::AppState, resp::outcome::CommandResult, service::metrics};

pub(crate) async fn metrics(app: &AppState, prometheus: bool) -> CommandResult {
    let text = if prometheus { metrics::prometheus(app, true).await? } else { metrics::json(app).await? };
    Ok(Reply::bulk(text))
}

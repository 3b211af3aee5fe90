//! BUDGET.GET.

use agenix_protocol::{documents::to_json, resp::Reply};

use crate::{
    app::{AppState, Caller},
    resp::outcome::CommandResult,
    service::budgets,
};

pub(crate) async fn get(app: &AppState, caller: &Caller, name: Option<&str>) -> CommandResult {
    let visible = budgets::visible(app, caller.identity.as_ref(), name).await?;
    Ok(Reply::bulk(to_json(&visible)))
}

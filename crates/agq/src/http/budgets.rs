//! Handlers of budgets.

use axum::extract::Path;
use serde_json::json;

use crate::{
    http::{
        Shared,
        auth::role::RequireClient,
        response::{ApiError, HttpResult, ok, quoted},
    },
    service::budgets,
};

pub(super) async fn list(state: Shared, sender: RequireClient) -> HttpResult {
    let visible = budgets::visible(&state.app, Some(sender.identity()), None).await?;
    Ok(ok(&json!({"budgets": visible})))
}

pub(super) async fn get(state: Shared, sender: RequireClient, Path(name): Path<String>) -> HttpResult {
    let mut visible = budgets::visible(&state.app, Some(sender.identity()), Some(&name)).await?;
    let found = visible.pop();
    let found = found.ok_or_else(|| {
        ApiError::not_found(format!("no key has a budget and the name '{}'", quoted(&name)))
    })?;
    Ok(ok(&found))
}

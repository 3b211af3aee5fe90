//! Suggests the closest existing id when an id is not found.

use crate::{
    connection_args::ConnectionArgs,
    error::{CliError, Result},
    util::path_lookup::nearest,
};

/// Returns `failure` with the closest existing id. Errors of this lookup are ignored.
pub(crate) async fn with_suggestion(server: &ConnectionArgs, failure: CliError) -> CliError {
    let CliError::NotThere { object, id, .. } = &failure else { return failure };
    let names = names(server, object).await.unwrap_or_default();
    match nearest(id, names.iter().map(String::as_str)) {
        Some(closest) => failure.suggesting(closest),
        None => failure,
    }
}

/// Returns the ids of all objects of `kind`.
async fn names(server: &ConnectionArgs, kind: &str) -> Result<Vec<String>> {
    let mut agq = server.connect().await?;
    Ok(match kind {
        "plan" => agq.plans().await?.iter().map(ToString::to_string).collect(),
        "action" | "job or action" => agq.actions().await?.iter().map(ToString::to_string).collect(),
        "worker" => agq.workers().await?.into_iter().map(|worker| worker.worker_id.to_string()).collect(),
        "schedule" => agq.schedules().await?,
        "workflow" => agq.workflows().await?,
        _ => Vec::new(),
    })
}

//! What was meant by an id that is none.

use crate::{error::CliError, server_args::ServerArgs, util::path_lookup::nearest};

/// The failure, with the id that is most like the one that was given. Whatever goes wrong on the way is not what was asked about.
pub(crate) async fn with_suggestion(server: &ServerArgs, failure: CliError) -> CliError {
    let CliError::NotThere { what, id, .. } = &failure else { return failure };
    let names = names(server, what).await.unwrap_or_default();
    match nearest(id, names.iter().map(String::as_str)) {
        Some(meant) => failure.meant(meant),
        None => failure,
    }
}

/// All ids of the kind.
async fn names(server: &ServerArgs, what: &str) -> Result<Vec<String>, CliError> {
    let mut agq = server.connect().await?;
    Ok(match what {
        "plan" => agq.plans().await?.iter().map(ToString::to_string).collect(),
        "action" | "job or action" => agq.actions().await?.iter().map(ToString::to_string).collect(),
        "worker" => agq.workers().await?.into_iter().map(|worker| worker.worker_id.to_string()).collect(),
        "schedule" => agq.schedules().await?,
        "workflow" => agq.workflows().await?,
        _ => Vec::new(),
    })
}

//! Retention of workflows: removes the workflows that ended long ago.

use agenix_protocol::time::Timestamp;
use agenix_rules::workflow::Workflow;

use super::read;
use crate::{
    app::AppState,
    error::Result,
    store::{DocumentChange, DocumentKind},
};

/// Number of workflows that one call examines, because there may be very many.
const PAGE: usize = 500;

/// Pass over the stored workflows, page by page.
#[derive(Debug, Default)]
pub(crate) struct WorkflowRetention {
    /// Id of the last examined workflow; empty at the beginning of a pass.
    after: String,
}

impl WorkflowRetention {
    /// Examines the next page, and removes the workflows that ended before `ended_since`, failed
    /// ones only if they ended before `dead_since`, too.
    pub(crate) async fn forget_some(
        &mut self,
        app: &AppState,
        ended_since: Timestamp,
        dead_since: Timestamp,
    ) -> Result<()> {
        let page = app.store.documents_after(DocumentKind::Workflow, &self.after, PAGE).await?;
        let last = page.last().filter(|_| page.len() == PAGE);
        self.after = last.map_or_else(String::new, |(id, _)| id.clone());
        for (id, json) in &page {
            if read(id, json)?.is_forgettable(ended_since, dead_since) {
                forget(app, id, ended_since, dead_since).await?;
            }
        }
        Ok(())
    }
}

/// Removes a workflow. Checks again, because a retry may have resumed the workflow meanwhile.
async fn forget(app: &AppState, id: &str, ended_since: Timestamp, dead_since: Timestamp) -> Result<()> {
    let rule = move |known: Option<&str>| {
        let known = known.and_then(|known| serde_json::from_str::<Workflow>(known).ok());
        let is_old = known.is_none_or(|known| known.is_forgettable(ended_since, dead_since));
        Ok(if is_old { DocumentChange::Remove } else { DocumentChange::Keep })
    };
    Ok(app.store.update_document(DocumentKind::Workflow, id, Box::new(rule)).await??)
}

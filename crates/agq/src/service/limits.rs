//! Work of the reaper on limits: wakes claimants that wait for time alone to pass, and corrects
//! times that were calculated from a clock that was ahead.

use agenix_protocol::documents::to_json;
use agenix_rules::limit::Limit;

use crate::{
    app::AppState,
    error::Result,
    store::{DocumentChange, DocumentKind},
};

/// A limit or a budget may permit jobs again as time passes.
pub(crate) async fn wake_waiting(app: &AppState) -> Result<()> {
    for kind in [DocumentKind::Limit, DocumentKind::Budget] {
        if app.store.has_documents(kind).await? {
            app.store.notifier().announce_jobs();
            break;
        }
    }
    Ok(())
}

/// Corrects limits that wait for times calculated before the clock was set back.
pub(crate) async fn reschedule_all(app: &AppState) -> Result<()> {
    let now = app.clock.now();
    for (key, document) in app.store.documents(DocumentKind::Limit).await? {
        let corrected = move |document: &str| serde_json::from_str::<Limit>(document).ok()?.rescheduled(now);
        if corrected(&document).is_none() {
            continue;
        }
        let rule = move |known: Option<&str>| {
            let corrected = known.and_then(corrected);
            Ok(corrected.map_or(DocumentChange::Keep, |limit| DocumentChange::Put(to_json(&limit))))
        };
        app.store.update_document(DocumentKind::Limit, &key, Box::new(rule)).await??;
    }
    Ok(())
}

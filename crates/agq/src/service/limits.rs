//! Work of the reaper on limits: wakes claimants that wait for time alone to pass, and corrects
//! times that were calculated from a clock that was ahead.

use agenix_protocol::documents::to_json;
use agenix_rules::limit::Limit;

use crate::{
    app::AppState,
    error::CommandError,
    store::{DocumentChange, DocumentKind},
};

/// A limit may let jobs begin again by time alone: whoever waits for one looks again.
pub(crate) async fn wake_waiting(app: &AppState) -> Result<(), CommandError> {
    if app.store.has_documents(DocumentKind::Limit).await? {
        app.store.notifier().announce_all();
    }
    Ok(())
}

/// Corrects limits after the clock was set back, because they wait for times that were calculated
/// from a later time.
pub(crate) async fn reschedule_all(app: &AppState) -> Result<(), CommandError> {
    let now = app.clock.now();
    for (key, note) in app.store.documents(DocumentKind::Limit).await? {
        let mended = move |note: &str| serde_json::from_str::<Limit>(note).ok()?.rescheduled(now);
        if mended(&note).is_none() {
            continue;
        }
        let rule = move |known: Option<&str>| {
            let mended = known.and_then(mended);
            Ok(mended.map_or(DocumentChange::Keep, |limit| DocumentChange::Put(to_json(&limit))))
        };
        app.store.update_document(DocumentKind::Limit, &key, Box::new(rule)).await??;
    }
    Ok(())
}

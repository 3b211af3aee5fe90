//! Work of the reaper on limits: wakes claimants that wait for time alone to pass, and corrects
//! times that were calculated from a clock that was ahead.

use agenix_protocol::documents::to_json;
use agenix_rules::limit::Limit;

use crate::{
    app::House,
    error::CommandError,
    store::{NoteChange, NoteKind},
};

/// A limit may let jobs begin again by time alone: whoever waits for one looks again.
pub(crate) async fn wake_waiting(house: &House) -> Result<(), CommandError> {
    if house.store.has_notes(NoteKind::Limit).await? {
        house.store.arrivals().announce_all();
    }
    Ok(())
}

/// Corrects limits after the clock was set back, because they wait for times that were calculated
/// from a later time.
pub(crate) async fn reckon_anew(house: &House) -> Result<(), CommandError> {
    let now = house.clock.now();
    for (key, note) in house.store.notes(NoteKind::Limit).await? {
        let mended = move |note: &str| serde_json::from_str::<Limit>(note).ok()?.rescheduled(now);
        if mended(&note).is_none() {
            continue;
        }
        let rule = move |known: Option<&str>| {
            let mended = known.and_then(mended);
            Ok(mended.map_or(NoteChange::Keep, |limit| NoteChange::Put(to_json(&limit))))
        };
        house.store.decide_note(NoteKind::Limit, &key, Box::new(rule)).await??;
    }
    Ok(())
}

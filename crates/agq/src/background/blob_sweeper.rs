//! Sweeps of blobs, beside the rounds of the reaper, because leases must not wait for a storage
//! that does not answer.

use std::{sync::Arc, time::Duration};

use tracing::error;

use crate::{
    app::AppState,
    service::blob_sweep::{BlobSweep, sweep_uploads},
};

/// Pause between two sweeps.
const PAUSE: Duration = Duration::from_secs(5);

/// Sweeps until the task is dropped. A node that does not lead has no totals, and removes its
/// uploads only, because their directory may be its own.
pub(crate) async fn run(app: Arc<AppState>) {
    let mut sweep = BlobSweep::default();
    loop {
        app.clock.sleep(PAUSE).await;
        let swept = if app.store.leads() {
            sweep.run(&app).await
        } else {
            app.last_figures.keep_blobs(None);
            sweep_uploads(&app).await
        };
        if let Err(error) = swept {
            error!(%error, "a sweep of the blobs failed; the next one tries again");
        }
    }
}

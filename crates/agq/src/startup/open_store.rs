//! Opens the configured store, and builds the services on it.

use std::sync::Arc;

use anyhow::Context;

use super::services;
use crate::{
    app::{AppState, PlanPolicy},
    auth::audit_log::AuditLog,
    background::event_publisher,
    blobs::BlobStorage,
    clock::Clock,
    config::{BLOBS, ServerConfig, StoreLocation},
    store::{Store, postgres::PostgresStore, redb::RedbStore},
    synced_directory,
    waiters::BackgroundTask,
};

pub(crate) async fn open(config: &ServerConfig) -> anyhow::Result<(Arc<AppState>, Vec<BackgroundTask>)> {
    let audit = AuditLog::open(config.audit_log.as_deref())?;
    let plan_policy = PlanPolicy::read(config.policy.as_deref())?;
    let build = |store, blobs, group_commit| {
        services::build(
            store,
            blobs,
            group_commit,
            Clock::default(),
            audit,
            plan_policy,
            config.settings.clone(),
        )
    };
    match &config.store {
        StoreLocation::DataDir => {
            let store = open_redb(config)?;
            let group_commit = store.group_commit.clone();
            let (app, tasks) = build(Arc::new(store), open_blobs(config).await?, group_commit);
            // The database is open, so no other agq makes a copy in this directory.
            let cleaned = app.backups.clean_up_leftovers(&config.data_dir);
            cleaned.context("cannot look for what is left of a backup")?;
            Ok((app, tasks))
        }
        StoreLocation::Postgres { url, settings } => {
            let store = Arc::new(PostgresStore::open(url, *settings).await?);
            let blobs = open_blobs(config).await?;
            let (app, tasks) = build(Arc::clone(&store) as Arc<dyn Store>, blobs, None);
            app.pubsub.connect_peers(store.peer_sender());
            let weak_app = Arc::downgrade(&app);
            store.join(&config.settings.shared_by_nodes(), move |channel, payload| {
                if let Some(app) = weak_app.upgrade() {
                    event_publisher::on_peer_message(&app, &channel, &payload);
                }
            });
            Ok((app, tasks))
        }
    }
}

/// Opens the storage of blobs, which is a directory beside a database of files by default.
async fn open_blobs(config: &ServerConfig) -> anyhow::Result<Option<Arc<dyn BlobStorage>>> {
    config.blobs.open(&config.data_dir.join(BLOBS), config.opening.durability).await
}

fn open_redb(config: &ServerConfig) -> anyhow::Result<RedbStore> {
    let (dir, shown) = (&config.data_dir, config.data_dir.display());
    synced_directory::create_all(dir).with_context(|| {
        format!("cannot create the data directory {shown}: choose another with --data-dir")
    })?;
    RedbStore::open(&dir.join("agq.redb"), config.opening)
}

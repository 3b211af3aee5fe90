//! Oldest snapshot of the database. As long as a transaction has it, PostgreSQL keeps everything
//! that has been removed or changed since, and claims have to pass over that.

use std::sync::{Mutex, PoisonError};

use sqlx::{Executor, Postgres, Result, Row, query};
use tracing::{info, warn};

use crate::store::OldestSnapshot;

/// Age from which a snapshot is worth a warning. No transaction of a node takes that long.
const OLD_SECS: u64 = 60;
const OLDEST: &str = "SELECT pid, application_name, usename::text AS user_name, \
     floor(extract(epoch FROM clock_timestamp() - coalesce(xact_start, backend_start)))::bigint AS secs \
     FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() \
     AND coalesce(backend_xmin, backend_xid) IS NOT NULL \
     ORDER BY greatest(age(backend_xmin), age(backend_xid)) DESC LIMIT 1";

/// Returns the session with the oldest snapshot, as far as the role of this node may see it.
pub(super) async fn oldest(by: impl Executor<'_, Database = Postgres>) -> Result<Option<OldestSnapshot>> {
    let Some(row) = query(OLDEST).fetch_optional(by).await? else { return Ok(None) };
    Ok(Some(OldestSnapshot {
        pid: row.try_get("pid")?,
        application: row.try_get::<Option<_>, _>("application_name")?.unwrap_or_default(),
        user: row.try_get::<Option<_>, _>("user_name")?.unwrap_or_default(),
        secs: crate::store::postgres::sql_types::count(row.try_get("secs")?),
    }))
}

/// Logs a warning about an old snapshot, once for each session.
#[derive(Debug, Default)]
pub(super) struct SnapshotWatch(
    /// Process id of the session that the latest warning named.
    Mutex<Option<i32>>,
);

impl SnapshotWatch {
    pub(super) fn note(&self, oldest: Option<&OldestSnapshot>) {
        match self.change(oldest) {
            SnapshotNotice::None => {}
            SnapshotNotice::Old(OldestSnapshot { pid, application, user, secs }) => warn!(
                pid,
                application,
                user,
                secs,
                "a transaction keeps an old snapshot of the database, and claims become slower until it ends; \
                 SELECT pg_terminate_backend({pid}) ends it"
            ),
            SnapshotNotice::Gone => info!("no transaction keeps an old snapshot any longer"),
        }
    }

    fn change<'s>(&self, oldest: Option<&'s OldestSnapshot>) -> SnapshotNotice<'s> {
        let old = oldest.filter(|oldest| oldest.secs >= OLD_SECS);
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *known, old.map(|old| old.pid));
        match (before, old) {
            (Some(_), None) => SnapshotNotice::Gone,
            (before, Some(old)) if before != Some(old.pid) => SnapshotNotice::Old(old),
            _ => SnapshotNotice::None,
        }
    }
}

#[derive(Debug, PartialEq)]
enum SnapshotNotice<'s> {
    None,
    Old(&'s OldestSnapshot),
    Gone,
}

#[cfg(test)]
mod tests {
    use super::{OldestSnapshot, SnapshotNotice, SnapshotWatch};

    #[test]
    fn snapshot_watch_warns_once_for_each_session() {
        let of = |pid, secs| OldestSnapshot { pid, application: "psql".into(), user: "u".into(), secs };
        let watch = SnapshotWatch::default();
        assert_eq!(watch.change(Some(&of(1, 59))), SnapshotNotice::None);
        assert_eq!(watch.change(Some(&of(1, 60))), SnapshotNotice::Old(&of(1, 60)));
        assert_eq!(watch.change(Some(&of(1, 75))), SnapshotNotice::None);
        assert_eq!(watch.change(Some(&of(2, 70))), SnapshotNotice::Old(&of(2, 70)));
        assert_eq!(watch.change(Some(&of(3, 1))), SnapshotNotice::Gone);
        assert_eq!(watch.change(None), SnapshotNotice::None);
    }
}

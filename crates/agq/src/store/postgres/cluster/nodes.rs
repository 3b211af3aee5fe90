//! Membership and leader election of the nodes that share a database (the AgentPG spec, Instance
//! Registration and Leader Election).

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use sqlx::{Connection, PgConnection, Result, Row, postgres::PgRow, query, query_scalar};
use tokio::time::Instant;
use tracing::{debug, info, warn};

use crate::store::{
    ChangeNotifier, OldestSnapshot,
    postgres::{
        CONNECT_TIMEOUT,
        connection::{ConnectOptions, DedicatedConnection, Pool, within},
        old_snapshots::{self, SnapshotWatch},
    },
};

/// Channel for notifications of nodes about themselves.
pub(super) const NODES: &str = "agq_nodes";
/// Payload of a node that leaves.
pub(super) const LEAVES: &str = "leaves";
const RETRY: Duration = Duration::from_secs(1);
/// Age from which on a snapshot changes how this node writes. No transaction of a node takes that
/// long.
const LONG_SNAPSHOT: Duration = Duration::from_secs(10);

/// Advisory lock of a node that takes a number.
const NUMBERS_LOCK: i64 = 0x6167_716e;

/// Membership of a node: its heartbeats, its lease as the leader, and the other nodes that it has
/// found.
///
/// A node sends a heartbeat twice in each term, and counts as gone after a silence of two terms.
/// The node that holds an unexpired lease is the leader; each heartbeat of the leader extends the
/// lease by a term.
pub(crate) struct Nodes {
    /// Unique name of this node, new at each start.
    pub(crate) name: String,
    term: Duration,
    /// Dedicated connection, so that waiters for the pool cannot make this node appear dead.
    dedicated: DedicatedConnection,
    /// True once this node has left. A heartbeat and `leave` hold the lock until the database has
    /// answered, because a heartbeat that arrived later would register the node again.
    has_left: tokio::sync::Mutex<bool>,
    /// Number of this node among the live ones, from its first heartbeat on.
    number: OnceLock<i16>,
    settings: OnceLock<String>,
    /// Nodes with other settings about which this node has warned.
    warned_nodes: Mutex<HashSet<String>>,
    snapshots: SnapshotWatch,
    is_snapshot_old: AtomicBool,
    /// End of this node's lease as the leader, as of its latest heartbeat.
    lease: Mutex<Option<Instant>>,
    pub(super) has_peers: AtomicBool,
    /// Notifier of the store, which records whether a client of this node subscribes.
    notifier: Arc<ChangeNotifier>,
    pub(super) has_remote_subscribers: AtomicBool,
}

impl Nodes {
    pub(crate) fn new(term: Duration, access: ConnectOptions, notifier: Arc<ChangeNotifier>) -> Self {
        let name = uuid::Uuid::new_v4().simple().to_string();
        Self {
            name,
            term,
            dedicated: DedicatedConnection::new(access),
            has_left: tokio::sync::Mutex::default(),
            number: OnceLock::new(),
            settings: OnceLock::new(),
            warned_nodes: Mutex::default(),
            snapshots: SnapshotWatch::default(),
            is_snapshot_old: AtomicBool::default(),
            lease: Mutex::default(),
            has_peers: AtomicBool::default(),
            notifier,
            has_remote_subscribers: AtomicBool::default(),
        }
    }

    /// Sends heartbeats, which also take or renew the lease, until the future is dropped.
    pub(crate) async fn heartbeat(&self) {
        let mut is_failing = false;
        loop {
            let pause = match self.send_heartbeat().await {
                Ok(()) => {
                    if std::mem::take(&mut is_failing) {
                        info!("the heartbeats of this node succeed again");
                    }
                    self.term / 2
                }
                Err(error) if is_failing => {
                    debug!(%error, "the heartbeat of this node still fails");
                    RETRY.min(self.term / 2)
                }
                Err(error) => {
                    is_failing = true;
                    warn!(%error, "the heartbeat of this node failed, and is retried every second; other nodes may take this node for gone");
                    RETRY.min(self.term / 2)
                }
            };
            tokio::time::sleep(pause).await;
        }
    }

    /// Sends one heartbeat. Does nothing once the node has left.
    pub(crate) async fn send_heartbeat(&self) -> Result<()> {
        let has_left = self.has_left.lock().await;
        if *has_left {
            return Ok(());
        }
        let mut connection = self.dedicated.take().await?;
        within(CONNECT_TIMEOUT, self.show_by(&mut connection)).await?;
        self.dedicated.keep(connection);
        Ok(())
    }

    async fn show_by(&self, connection: &mut PgConnection) -> Result<()> {
        self.register(connection).await?;
        self.seek_lease(connection).await?;
        if self.leads() {
            let sql = "WITH old AS (DELETE FROM agq.messages WHERE sent_at < now() - interval '1 minute') \
                 DELETE FROM agq.instances WHERE last_seen_at < now() - make_interval(secs => greatest($1, silence_secs))";
            query(sql).bind(self.silence().as_secs_f64()).execute(&mut *connection).await?;
        }
        match old_snapshots::oldest(&mut *connection).await {
            Ok(oldest) => self.note_oldest_snapshot(oldest.as_ref()),
            Err(error) => debug!(%error, "the oldest snapshot could not be read"),
        }
        let others = self.others(connection).await?;
        self.has_remote_subscribers.store(others.values().any(|listens| *listens), Ordering::Relaxed);
        Ok(())
    }

    /// Inserts or updates the record of this node. The first time, the node takes the lowest number
    /// that no other node has.
    async fn register(&self, connection: &mut PgConnection) -> Result<()> {
        let sql = "INSERT INTO agq.instances (node, hostname, pid, is_listening, settings, silence_secs, number) \
             VALUES ($1, $2, $3, $4, $5, $6, coalesce($7, (SELECT min(n) FROM generate_series(0, 32767) AS n \
             WHERE NOT EXISTS (SELECT FROM agq.instances WHERE number = n)))) \
             ON CONFLICT (node) DO UPDATE SET last_seen_at = now(), is_listening = EXCLUDED.is_listening, \
             settings = EXCLUDED.settings, silence_secs = EXCLUDED.silence_secs, number = EXCLUDED.number RETURNING number";
        let hostname = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let sql = query_scalar(sql).bind(&self.name).bind(hostname).bind(i64::from(std::process::id()));
        let sql = sql.bind(self.notifier.has_subscribers()).bind(self.settings.get());
        let sql = sql.bind(self.silence().as_secs_f64()).bind(self.number.get());
        if self.number.get().is_some() {
            // One statement: a node that is suspended meanwhile holds no lock.
            return sql.fetch_one(connection).await.map(|_: i16| ());
        }
        let mut transaction = connection.begin().await?;
        // Otherwise two nodes that start at the same time would take the same number.
        query("SELECT pg_advisory_xact_lock($1)").bind(NUMBERS_LOCK).execute(&mut *transaction).await?;
        let number = sql.fetch_one(&mut *transaction).await?;
        transaction.commit().await?;
        self.number.get_or_init(|| number);
        Ok(())
    }

    /// Returns the number of this node among the live nodes, or 0 before its first heartbeat. Two
    /// nodes have the same number only if one of them had no record when the other one started,
    /// because it counted as gone, or because the database had crashed.
    pub(crate) fn number(&self) -> u16 {
        self.number.get().copied().map_or(0, i16::cast_unsigned)
    }

    fn note_oldest_snapshot(&self, oldest: Option<&OldestSnapshot>) {
        // The leader warns for all nodes.
        if self.leads() {
            self.snapshots.note(oldest);
        }
        let is_old = oldest.is_some_and(|oldest| Duration::from_secs(oldest.secs) >= LONG_SNAPSHOT);
        self.is_snapshot_old.store(is_old, Ordering::Relaxed);
    }

    /// Returns true if a transaction had an old snapshot at the latest heartbeat.
    pub(crate) fn is_snapshot_old(&self) -> bool {
        self.is_snapshot_old.load(Ordering::Relaxed)
    }

    /// Reads whether other nodes share the database, unless this node has found one before. Fails
    /// in any case if the database cannot be reached.
    pub(crate) async fn find_peers(&self) -> Result<()> {
        let mut connection = self.dedicated.take().await?;
        let found = async {
            if self.has_peers() {
                query("SELECT FROM agq.instances LIMIT 1").execute(&mut connection).await.map(drop)
            } else {
                self.others(&mut connection).await.map(drop)
            }
        };
        within(CONNECT_TIMEOUT, found).await?;
        self.dedicated.keep(connection);
        Ok(())
    }

    pub(crate) async fn notify(&self, channel: &str, payload: &str) -> Result<()> {
        let mut connection = self.dedicated.take().await?;
        let sql = query("SELECT pg_notify($1, $2)").bind(channel).bind(payload);
        within(CONNECT_TIMEOUT, sql.execute(&mut connection)).await?;
        self.dedicated.keep(connection);
        Ok(())
    }

    async fn seek_lease(&self, connection: &mut PgConnection) -> Result<()> {
        let asked = Instant::now();
        // The election time is reset if the lease expired meanwhile, because other nodes may not
        // have been able to send heartbeats in that time.
        let sql = "INSERT INTO agq.leader AS l (name, node, elected_at, expires_at) \
             VALUES ('default', $1, now(), now() + make_interval(secs => $2)) \
             ON CONFLICT (name) DO UPDATE SET node = EXCLUDED.node, expires_at = EXCLUDED.expires_at, \
             elected_at = CASE WHEN l.node = EXCLUDED.node AND l.expires_at >= now() THEN l.elected_at \
             ELSE EXCLUDED.elected_at END \
             WHERE l.node = EXCLUDED.node OR l.expires_at < now() \
             RETURNING elected_at = now()";
        let sql = query_scalar(sql).bind(&self.name).bind(self.term.as_secs_f64());
        let led: Option<bool> = sql.fetch_optional(connection).await?;
        let mut lease = self.lease();
        match led {
            None => *lease = None,
            Some(is_new) => {
                if is_new || lease.is_none() {
                    info!(node = self.name, "this node is the leader: it fires timers and expires leases");
                }
                *lease = Some(asked + self.term);
            }
        }
        Ok(())
    }

    /// Returns true if this node is the leader, which needs a lease that was renewed in time.
    pub(crate) fn leads(&self) -> bool {
        self.lease().is_some_and(|until| Instant::now() < until)
    }

    /// Returns true if other nodes share the database, as of the latest heartbeat or notification.
    pub(crate) fn has_peers(&self) -> bool {
        self.has_peers.load(Ordering::Relaxed)
    }

    pub(crate) fn has_remote_subscribers(&self) -> bool {
        self.has_remote_subscribers.load(Ordering::Relaxed)
    }

    /// Returns the live nodes, or `None` if this node has not been the leader for long enough to
    /// know all of them.
    ///
    /// A crash of the database and a failover to a standby lose both the heartbeats and the lease.
    /// One statement reads both, because the lease in the memory of this node may be older than the
    /// crash. After a new election, the other nodes have two terms to send heartbeats again.
    pub(crate) async fn all(&self, pool: &Pool) -> Result<Option<HashSet<String>>> {
        if !self.leads() {
            return Ok(None);
        }
        let sql = "SELECT node FROM agq.instances \
             WHERE last_seen_at >= now() - make_interval(secs => greatest($2, silence_secs)) AND EXISTS (SELECT FROM agq.leader \
             WHERE node = $1 AND expires_at > now() AND elected_at <= now() - make_interval(secs => $2))";
        let sql = query_scalar(sql).bind(&self.name).bind(self.silence().as_secs_f64());
        let nodes: HashSet<String> = sql.fetch_all(pool).await?.into_iter().collect();
        // A set without this node is not the set of the live nodes.
        Ok(nodes.contains(&self.name).then_some(nodes))
    }

    /// Signs this node off, and notifies the other nodes, so that one of them becomes the leader at
    /// once.
    pub(crate) async fn leave(&self) -> Result<()> {
        let mut has_left = self.has_left.lock().await;
        *has_left = true;
        let sql = "WITH led AS (DELETE FROM agq.leader WHERE node = $1), \
             gone AS (DELETE FROM agq.instances WHERE node = $1) SELECT pg_notify($2, $3)";
        let sql = query(sql).bind(&self.name).bind(NODES).bind(format!("{} {LEAVES}", self.name));
        sql.execute(&mut self.dedicated.take().await?).await.map(drop)
    }

    fn lease(&self) -> MutexGuard<'_, Option<Instant>> {
        self.lease.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn silence(&self) -> Duration {
        self.term * 2
    }

    /// Returns the other live nodes, each with true if a client of the node subscribes to changes.
    async fn others(&self, connection: &mut PgConnection) -> Result<HashMap<String, bool>> {
        let sql = "SELECT node, is_listening, hostname, pid, settings FROM agq.instances \
             WHERE last_seen_at >= now() - make_interval(secs => greatest($1, silence_secs)) AND node <> $2";
        let sql = query(sql).bind(self.silence().as_secs_f64()).bind(&self.name);
        let rows = sql.fetch_all(connection).await?;
        self.has_peers.store(!rows.is_empty(), Ordering::Relaxed);
        for row in &rows {
            self.compare(row)?;
        }
        rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect()
    }

    /// Shows `settings` from the next heartbeat on. The order of the settings is the same at all
    /// nodes.
    pub(crate) fn warn_of_different_settings(&self, settings: String) {
        // The settings are set once, so a second value is ignored.
        let _known = self.settings.set(settings);
    }

    fn compare(&self, row: &PgRow) -> Result<()> {
        let theirs: Option<String> = row.try_get("settings")?;
        let (Some(theirs), Some(ours)) = (theirs, self.settings.get()) else { return Ok(()) };
        let differences = differences(ours, &theirs);
        let mut warned_nodes = self.warned_nodes.lock().unwrap_or_else(PoisonError::into_inner);
        if differences.is_empty() || !warned_nodes.insert(row.try_get("node")?) {
            return Ok(());
        }
        let (hostname, pid): (String, i64) = (row.try_get("hostname")?, row.try_get("pid")?);
        warn!(
            hostname,
            pid,
            "another node has other settings, and the leader uses its own: {differences}; give all nodes the same"
        );
        Ok(())
    }
}

fn differences(ours: &str, theirs: &str) -> String {
    let theirs: HashMap<&str, &str> = theirs.split(' ').filter_map(|one| one.split_once('=')).collect();
    let ours = ours.split(' ').filter_map(|one| one.split_once('='));
    let differing = ours.filter_map(|(name, here)| {
        let there = theirs.get(name).filter(|there| **there != here)?;
        Some(format!("{name} is {here} here and {there} there"))
    });
    differing.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::differences;

    #[test]
    fn differences_name_the_settings_that_differ() {
        assert_eq!(differences("a=1 b=2", "a=1 b=2"), "");
        assert_eq!(
            differences("a=1 b=2 c=3", "a=0 b=2 c=4"),
            "a is 1 here and 0 there, c is 3 here and 4 there"
        );
        // A node of another version may have other settings.
        assert_eq!(differences("a=1 new=2", "old=3 a=1"), "");
    }
}

//! The nodes that share a database: who is there, and who leads (seed 004, Instance Registration and Leader Election).

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use sqlx::{Error, PgPool, Row, query, query_scalar};
use tokio::time::Instant;
use tracing::{info, warn};

use super::session::within;
use crate::store::Arrivals;

/// A node's place among the others.
pub(super) struct Nodes {
    /// This node, unlike any other that ever was.
    pub(super) name: String,
    /// How long whoever leads does so without a word. A node shows itself twice as often, and is taken for gone after twice as long.
    term: Duration,
    /// How long to wait for an answer.
    patience: Duration,
    lease: Mutex<Lease>,
    has_company: AtomicBool,
    /// Where it is said whether somebody here listens to what happens.
    arrivals: Arc<Arrivals>,
    is_heard_elsewhere: AtomicBool,
}

#[derive(Clone, Copy, Default)]
struct Lease {
    since: Option<Instant>,
    until: Option<Instant>,
}

impl Nodes {
    pub(super) fn new(term: Duration, patience: Duration, arrivals: Arc<Arrivals>) -> Self {
        let name = uuid::Uuid::new_v4().simple().to_string();
        Self {
            name,
            term,
            patience,
            lease: Mutex::default(),
            has_company: AtomicBool::default(),
            arrivals,
            is_heard_elsewhere: AtomicBool::default(),
        }
    }

    /// Shows that this node is there, and leads where nobody else does; until this is dropped.
    pub(super) async fn beat(&self, pool: &PgPool) {
        loop {
            if let Err(error) = within(self.patience, self.show(pool)).await {
                warn!(%error, "this node could not show the others that it is there; it tries again");
            }
            tokio::time::sleep(self.term / 2).await;
        }
    }

    /// One beat.
    pub(super) async fn show(&self, pool: &PgPool) -> Result<(), Error> {
        let sql = "INSERT INTO agq.instances (node, hostname, pid, is_listening) VALUES ($1, $2, $3, $4) \
             ON CONFLICT (node) DO UPDATE SET last_seen_at = now(), is_listening = EXCLUDED.is_listening";
        let hostname = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let sql = query(sql).bind(&self.name).bind(hostname).bind(i64::from(std::process::id()));
        sql.bind(self.arrivals.is_heard()).execute(pool).await?;
        self.seek_lease(pool).await?;
        if self.leads() {
            let sql = "WITH old AS (DELETE FROM agq.messages WHERE sent_at < now() - interval '1 minute') \
                 DELETE FROM agq.instances WHERE last_seen_at < now() - make_interval(secs => $1)";
            query(sql).bind(self.silence().as_secs_f64()).execute(pool).await?;
        }
        let mut others = self.live(pool).await?;
        others.remove(&self.name);
        self.has_company.store(!others.is_empty(), Ordering::Relaxed);
        self.is_heard_elsewhere.store(others.values().any(|listens| *listens), Ordering::Relaxed);
        Ok(())
    }

    async fn seek_lease(&self, pool: &PgPool) -> Result<(), Error> {
        let asked = Instant::now();
        let sql = "INSERT INTO agq.leader AS l (name, node, elected_at, expires_at) \
             VALUES ('default', $1, now(), now() + make_interval(secs => $2)) \
             ON CONFLICT (name) DO UPDATE SET node = EXCLUDED.node, expires_at = EXCLUDED.expires_at, \
             elected_at = CASE WHEN l.node = EXCLUDED.node THEN l.elected_at ELSE EXCLUDED.elected_at END \
             WHERE l.node = EXCLUDED.node OR l.expires_at < now() \
             RETURNING elected_at = now()";
        let led: Option<bool> =
            query_scalar(sql).bind(&self.name).bind(self.term.as_secs_f64()).fetch_optional(pool).await?;
        let mut lease = self.lease();
        match led {
            None => *lease = Lease::default(),
            Some(is_new) => {
                if is_new || lease.since.is_none() {
                    info!(node = self.name, "this node leads: it sees to what nobody reports");
                    lease.since = Some(asked);
                }
                lease.until = Some(asked + self.term);
            }
        }
        Ok(())
    }

    /// Whether this node leads. It does not any more when it could not say so for the time of a lease.
    pub(super) fn leads(&self) -> bool {
        self.lease().until.is_some_and(|until| Instant::now() < until)
    }

    /// Whether others share the database, as of the last beat.
    pub(super) fn has_company(&self) -> bool {
        self.has_company.load(Ordering::Relaxed)
    }

    /// Whether somebody listens at another node to what happens here, as far as it was heard of.
    pub(super) fn is_heard_elsewhere(&self) -> bool {
        self.is_heard_elsewhere.load(Ordering::Relaxed)
    }

    /// Somebody listens at another node.
    pub(super) fn heed(&self) {
        self.is_heard_elsewhere.store(true, Ordering::Relaxed);
    }

    /// Another node was heard of.
    pub(super) fn meet(&self) {
        self.has_company.store(true, Ordering::Relaxed);
    }

    /// The nodes that are there; `None` where this one has not led for long enough to know of all of them: what they say is
    /// forgotten when the database crashes, and they have the time of a silence to say it again.
    pub(super) async fn all(&self, pool: &PgPool) -> Result<Option<HashSet<String>>, Error> {
        let (leads, since) = (self.leads(), self.lease().since);
        if !leads || since.is_none_or(|since| since.elapsed() < self.silence()) {
            return Ok(None);
        }
        Ok(Some(self.live(pool).await?.into_keys().collect()))
    }

    /// The node goes; another may lead at once.
    pub(super) async fn leave(&self, pool: &PgPool) -> Result<(), Error> {
        let sql =
            "WITH led AS (DELETE FROM agq.leader WHERE node = $1) DELETE FROM agq.instances WHERE node = $1";
        query(sql).bind(&self.name).execute(pool).await.map(drop)
    }

    fn lease(&self) -> MutexGuard<'_, Lease> {
        self.lease.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// After how much silence a node is taken for gone.
    fn silence(&self) -> Duration {
        self.term * 2
    }

    /// The nodes that are there, and whether somebody listens at them.
    async fn live(&self, pool: &PgPool) -> Result<HashMap<String, bool>, Error> {
        let sql = "SELECT node, is_listening FROM agq.instances \
             WHERE last_seen_at >= now() - make_interval(secs => $1)";
        let nodes = query(sql).bind(self.silence().as_secs_f64()).fetch_all(pool).await?;
        nodes.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect()
    }
}

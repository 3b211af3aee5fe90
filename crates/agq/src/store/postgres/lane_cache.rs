//! Cache of the lanes. A lane never changes as long as it exists.

use std::{
    collections::{BTreeSet, HashMap},
    time::{Duration, Instant},
};

use agenix_rules::capability::Abilities;
use sqlx::{Error, Row, postgres::PgRow, query};

use crate::store::{
    LaneKey,
    postgres::{
        codec::{encode, or_skip},
        connection::session::DatabaseSession,
        sql_types,
    },
};

/// Time after which lanes with ready jobs are read again, because other nodes may have created
/// some.
const REFRESH_AFTER: Duration = Duration::from_millis(250);
/// Maximum age of the cache. A cache beyond this age is emptied, which drops lanes that no longer
/// exist.
const MAX_AGE: Duration = Duration::from_secs(600);

/// Query for the lanes that have ready jobs. Each of these lanes takes one step in the index,
/// however many other lanes there are and however many jobs wait.
pub(super) const READY_LANES: &str = "WITH RECURSIVE ready (lane) AS (\
         (SELECT lane FROM agq.jobs WHERE is_ready ORDER BY lane LIMIT 1) \
         UNION ALL SELECT (SELECT j.lane FROM agq.jobs AS j WHERE j.is_ready AND j.lane > r.lane ORDER BY j.lane LIMIT 1) \
         FROM ready AS r WHERE r.lane IS NOT NULL) \
     SELECT lane FROM ready WHERE lane IS NOT NULL";

/// Lanes by number, by key and by queue.
#[derive(Debug, Default)]
pub(super) struct LaneCache {
    lanes: HashMap<i32, LaneKey>,
    numbers: HashMap<LaneKey, i32>,
    of_queues: HashMap<String, BTreeSet<i32>>,
    /// True if other nodes claim jobs, too.
    pub(super) has_peers: bool,
    created_at: Option<Instant>,
    loaded_at: Option<Instant>,
}

impl LaneCache {
    /// Reads the lanes that have ready jobs if the latest read is older than `REFRESH_AFTER`.
    /// Empties the cache first if it is older than `MAX_AGE`.
    pub(super) fn refresh(&mut self, session: &DatabaseSession) -> Result<(), Error> {
        self.clear_if_old();
        if self.loaded_at.is_none_or(|at| at.elapsed() > REFRESH_AFTER) {
            self.load(session)?;
        }
        Ok(())
    }

    /// Empties the cache. Lanes are read again when they are needed.
    pub(super) fn clear(&mut self) {
        *self = Self { has_peers: self.has_peers, ..Self::default() };
    }

    fn clear_if_old(&mut self) {
        if self.created_at.is_some_and(|at| at.elapsed() > MAX_AGE) {
            self.clear();
        }
    }

    /// Reads the lanes that have ready jobs, and returns true if any of them was not cached.
    pub(super) fn load(&mut self, session: &DatabaseSession) -> Result<bool, Error> {
        let before = self.lanes.len();
        self.ready(session)?;
        Ok(self.lanes.len() > before)
    }

    /// Reads and returns the lanes that have ready jobs. Those that can be decoded are cached
    /// afterwards.
    pub(super) fn ready(&mut self, session: &DatabaseSession) -> Result<BTreeSet<i32>, Error> {
        let rows = session.rows(query(READY_LANES))?;
        let ready = rows.iter().map(|row| row.try_get(0)).collect::<Result<BTreeSet<i32>, Error>>()?;
        let unknown: Vec<i32> = ready.iter().copied().filter(|lane| !self.lanes.contains_key(lane)).collect();
        if !unknown.is_empty() {
            let sql = query("SELECT lane, queue, needs FROM agq.lanes WHERE lane = ANY ($1)").bind(unknown);
            for row in session.rows(sql)? {
                if let Some((number, key)) = or_skip(lane_of(&row)) {
                    self.insert(number, key);
                }
            }
        }
        self.loaded_at = Some(Instant::now());
        Ok(ready)
    }

    fn insert(&mut self, number: i32, key: LaneKey) {
        self.created_at.get_or_insert_with(Instant::now);
        self.of_queues.entry(key.queue.clone()).or_default().insert(number);
        self.numbers.insert(key.clone(), number);
        self.lanes.insert(number, key);
    }

    /// Returns the number of a lane, and creates the lane if it does not exist. The cache must be
    /// emptied after a rollback, because the rollback removes a new lane.
    pub(super) fn number(&mut self, session: &DatabaseSession, key: &LaneKey) -> Result<u32, Error> {
        self.clear_if_old();
        if let Some(number) = self.numbers.get(key) {
            return Ok(number.cast_unsigned());
        }
        let number = make(session, key)?;
        self.insert(sql_types::lane(number), key.clone());
        Ok(number)
    }

    /// Returns the key of the limit of a lane.
    pub(super) fn limit_of(&self, lane: i32) -> Option<&str> {
        self.lanes.get(&lane).and_then(|key| key.needs.limit.as_deref())
    }

    /// Returns true if `lane` is one of `queue` and `abilities` cover the needs of its jobs.
    pub(super) fn is_for(&self, lane: i32, queue: &str, abilities: &Abilities) -> bool {
        self.lanes.get(&lane).is_some_and(|key| key.queue == queue && abilities.cover(&key.needs))
    }

    /// Returns the lanes of `queue` in the cache.
    pub(super) fn of_queue(&self, queue: &str) -> impl Iterator<Item = i32> {
        self.of_queues.get(queue).into_iter().flatten().copied()
    }
}

const LANE_OF: &str =
    "SELECT lane FROM agq.lanes WHERE queue = $1 AND sha256(needs) = sha256($2) AND needs = $2";
/// Statement that inserts a lane with the next number that no lane has. Numbers are used again once
/// the sequence has reached its end.
const INSERT_LANE: &str = "WITH RECURSIVE tried (lane) AS (SELECT nextval('agq.lanes_lane_seq')::integer \
         UNION ALL SELECT nextval('agq.lanes_lane_seq')::integer FROM tried \
         WHERE EXISTS (SELECT FROM agq.lanes AS l WHERE l.lane = tried.lane)) \
     INSERT INTO agq.lanes (lane, queue, needs) OVERRIDING SYSTEM VALUE SELECT lane, $1, $2 FROM tried \
     WHERE NOT EXISTS (SELECT FROM agq.lanes AS l WHERE l.lane = tried.lane) ON CONFLICT DO NOTHING";

/// Creates a lane if it does not exist, and returns its number.
pub(super) fn make(session: &DatabaseSession, key: &LaneKey) -> Result<u32, Error> {
    let needs = encode(&key.needs)?;
    let find = || session.row(query(LANE_OF).bind(&key.queue).bind(&needs));
    let mut found = find()?;
    // An insertion uses up a number even if the lane exists.
    if found.is_none() {
        session.run(query(INSERT_LANE).bind(&key.queue).bind(&needs))?;
        found = find()?;
    }
    found.ok_or(Error::RowNotFound)?.try_get::<i32, _>(0).map(i32::cast_unsigned)
}

/// Decodes a row of lane, queue and needs. Needs are decoded strictly, because a node must not hand
/// out jobs with needs that it cannot read.
pub(super) fn lane_of(row: &PgRow) -> Result<(i32, LaneKey), Error> {
    let needs: Vec<u8> = row.try_get("needs")?;
    let needs = rmp_serde::from_slice(&needs).map_err(|error| Error::Decode(Box::new(error)))?;
    Ok((row.try_get("lane")?, LaneKey { queue: row.try_get("queue")?, needs }))
}

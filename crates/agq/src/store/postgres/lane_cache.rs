//! Cache of the lanes. A lane never changes as long as it exists.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    mem::take,
    sync::Arc,
    time::{Duration, Instant},
};

use agenix_protocol::documents::Quantities;
use agenix_rules::{
    capability::{Abilities, Needs},
    reservation::Reservations,
};
use sqlx::{Error, Row, postgres::PgRow, query};

use crate::store::{
    Claimant, LaneKey,
    postgres::{
        codec::{encode, or_skip},
        connection::session::DatabaseSession,
        ready_positions::{END, Position, ReadyNotices},
        share_times::{Head, ShareTimes},
        sql_types,
    },
};

/// Time after which a node that receives no notifications looks for ready jobs in all lanes again,
/// because other nodes may have added some.
const REFRESH_AFTER: Duration = Duration::from_millis(250);
/// Time for a look at all lanes that is always worth its cost.
const CHEAP: Duration = Duration::from_millis(1);
/// Share of its time that a node spends on looks at all lanes if they are not cheap: one part in
/// this number.
const PARTS: u32 = 10;
/// Maximum age of the cache. A cache beyond this age is emptied, which drops lanes that no longer
/// exist.
const MAX_AGE: Duration = Duration::from_secs(600);

/// Query for the first ready job of each lane. Each of these lanes takes one step in the index,
/// however many other lanes there are and however many jobs wait.
pub(super) const READY_LANES: &str = "WITH RECURSIVE ready (lane, rank, turn) AS (\
         (SELECT lane, rank, turn FROM agq.jobs WHERE is_ready ORDER BY lane, rank, turn LIMIT 1) \
         UNION ALL SELECT n.lane, n.rank, n.turn FROM ready AS r CROSS JOIN LATERAL (SELECT j.lane, j.rank, j.turn \
         FROM agq.jobs AS j WHERE j.is_ready AND j.lane > r.lane ORDER BY j.lane, j.rank, j.turn LIMIT 1) AS n) \
     SELECT lane, rank, turn FROM ready";
const LANES: &str = "SELECT lane, queue, needs FROM agq.lanes WHERE lane = ANY ($1)";

/// Lanes by number, by key and by queue.
#[derive(Debug, Default)]
pub(super) struct LaneCache {
    lanes: HashMap<i32, LaneKey>,
    numbers: HashMap<LaneKey, i32>,
    of_queues: HashMap<String, BTreeSet<i32>>,
    /// Reservations of the workers that claim from this node.
    pub(super) reservations: Reservations,
    /// Virtual times of the shares in the claims of this node.
    pub(super) shares: ShareTimes,
    /// Positions from which on lanes may have ready jobs. Lanes that are not in it have none.
    ready_from: BTreeMap<i32, Position>,
    /// True if other nodes claim jobs, too.
    pub(super) has_peers: bool,
    /// Ready jobs of other nodes.
    notices: Arc<ReadyNotices>,
    /// Time after which all lanes are looked at again although the node receives notifications.
    poll: Duration,
    created_at: Option<Instant>,
    loaded_at: Option<Instant>,
    /// Times that the latest looks at all lanes took.
    costs: [Duration; 4],
}

impl LaneCache {
    pub(super) fn new(notices: Arc<ReadyNotices>, poll: Duration) -> Self {
        Self { notices, poll, ..Self::default() }
    }

    /// Adds the ready jobs of other nodes. Looks at all lanes if other jobs may have become ready,
    /// or if the latest such look is too old. Empties the cache first if it is older than
    /// `MAX_AGE`.
    pub(super) fn refresh(&mut self, session: &DatabaseSession) -> Result<(), Error> {
        self.clear_if_old();
        let notified = self.notices.take();
        let refresh_after = if self.notices.is_listening() { self.poll } else { REFRESH_AFTER };
        if notified.any || self.loaded_at.is_none_or(|at| at.elapsed() >= refresh_after) {
            return self.load(session).map(drop);
        }
        notified.first.into_iter().for_each(|(lane, position)| self.add_ready(lane, position));
        self.add_keys(session)
    }

    /// Empties the cache. Lanes are read again when they are needed.
    pub(super) fn clear(&mut self) {
        let (notices, poll, has_peers) = (Arc::clone(&self.notices), self.poll, self.has_peers);
        let (reservations, shares) = (take(&mut self.reservations), take(&mut self.shares));
        *self = Self { notices, poll, has_peers, reservations, shares, costs: self.costs, ..Self::default() };
    }

    fn clear_if_old(&mut self) {
        if self.created_at.is_some_and(|at| at.elapsed() > MAX_AGE) {
            self.clear();
        }
    }

    /// Looks at all lanes again, because a claim found too little, and returns true if any lane was
    /// not cached. Does nothing if the looks take long and this node receives notifications of what
    /// it misses.
    pub(super) fn look_again(&mut self, session: &DatabaseSession) -> Result<bool, Error> {
        // One look may have taken long because the machine was busy.
        let cost = self.costs.into_iter().min().unwrap_or_default();
        let is_old = self.loaded_at.is_none_or(|at| at.elapsed() >= cost * PARTS);
        if cost < CHEAP || is_old || !self.notices.is_listening() { self.load(session) } else { Ok(false) }
    }

    /// Reads the lanes that have ready jobs, and returns true if any of them was not cached.
    fn load(&mut self, session: &DatabaseSession) -> Result<bool, Error> {
        let begun = Instant::now();
        let rows = session.rows(query(READY_LANES))?;
        self.costs.rotate_right(1);
        self.costs[0] = begun.elapsed();
        let ready_from = rows.iter().map(|row| Ok((row.try_get(0)?, (row.try_get(1)?, row.try_get(2)?))));
        self.ready_from = ready_from.collect::<Result<_, Error>>()?;
        self.loaded_at = Some(Instant::now());
        let before = self.lanes.len();
        self.add_keys(session)?;
        Ok(self.lanes.len() > before)
    }

    /// Reads the keys of lanes with ready jobs that are not cached yet. Those that cannot be
    /// decoded stay unknown.
    fn add_keys(&mut self, session: &DatabaseSession) -> Result<(), Error> {
        if self.ready_from.keys().all(|lane| self.lanes.contains_key(lane)) {
            return Ok(());
        }
        let unknown = self.ready_from.keys().copied().collect();
        self.know(session, unknown)?;
        self.ready_from.retain(|lane, _| self.lanes.contains_key(lane));
        Ok(())
    }

    /// Records that a job of a lane is ready.
    pub(super) fn add_ready(&mut self, lane: i32, position: Position) {
        let from = self.ready_from.entry(lane).or_insert(position);
        *from = position.min(*from);
    }

    /// Records that a claim has found no ready job of a lane before `position`.
    pub(super) fn set_ready_from(&mut self, lane: i32, position: Position) {
        if position == END {
            self.ready_from.remove(&lane);
        } else {
            self.ready_from.insert(lane, position);
        }
    }

    /// Returns the position from which on a lane may have ready jobs.
    pub(super) fn ready_from(&self, lane: i32) -> Position {
        self.ready_from.get(&lane).copied().unwrap_or(END)
    }

    /// Looks at all lanes before the next claim, because any job may have become ready.
    pub(super) fn forget_positions(&mut self) {
        self.loaded_at = None;
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

    /// Returns the queue of a lane.
    pub(super) fn queue_of(&self, lane: i32) -> Option<&str> {
        self.lanes.get(&lane).map(|key| &*key.queue)
    }

    /// Returns the number of the lane of the queue of `lane` whose jobs have `needs`.
    pub(super) fn with_needs(
        &mut self,
        session: &DatabaseSession,
        lane: u32,
        needs: &Needs,
    ) -> Result<u32, Error> {
        let lane = sql_types::lane(lane);
        self.know(session, BTreeSet::from([lane]))?;
        let queue = self.queue_of(lane).ok_or(Error::RowNotFound)?.to_owned();
        self.number(session, &LaneKey { queue, needs: needs.clone() })
    }

    /// Returns the key of the limit of a lane.
    pub(super) fn limit_of(&self, lane: i32) -> Option<&str> {
        self.lanes.get(&lane).and_then(|key| key.needs.limit.as_deref())
    }

    /// Returns the name of the budget of a lane.
    pub(super) fn budget_of(&self, lane: i32) -> Option<&str> {
        self.lanes.get(&lane).and_then(|key| key.needs.budget.as_deref())
    }

    /// Reads the keys of those of `lanes` that are not cached.
    pub(super) fn know(&mut self, session: &DatabaseSession, lanes: BTreeSet<i32>) -> Result<(), Error> {
        let unknown: Vec<i32> = lanes.into_iter().filter(|lane| !self.lanes.contains_key(lane)).collect();
        if unknown.is_empty() {
            return Ok(());
        }
        for row in session.rows(query(LANES).bind(&unknown))? {
            if let Some((number, key)) = or_skip(lane_of(&row)) {
                self.insert(number, key);
            }
        }
        Ok(())
    }

    /// Returns the first ready job of a lane, at a position, if the lane is one of `queue` and a
    /// claimant can run its jobs. `shares` has the virtual times.
    pub(super) fn head(
        &self,
        shares: &ShareTimes,
        (queue, claimant): (&str, &Claimant),
        (lane, first): (i32, Position),
    ) -> Option<Head> {
        self.is_for(lane, queue, &claimant.abilities).then_some(())?;
        let share = self.lanes.get(&lane)?.needs.share.as_deref();
        Some(shares.head((queue, claimant), (lane, first), share))
    }

    /// Returns the quantities that a job of a lane uses.
    pub(super) fn resources_of(&self, lane: i32) -> Option<&Quantities> {
        self.lanes.get(&lane).and_then(|key| key.needs.resources.as_deref())
    }

    /// Returns true if a claim locks other records before the jobs of a lane: a limit, a budget or,
    /// for quantities, the worker.
    pub(super) fn is_bounded(&self, lane: i32) -> bool {
        self.lanes.get(&lane).is_some_and(|LaneKey { needs, .. }| {
            needs.limit.is_some() || needs.budget.is_some() || needs.resources.is_some()
        })
    }

    /// Returns true if `lane` is one of `queue` and `abilities` cover the needs of its jobs.
    pub(super) fn is_for(&self, lane: i32, queue: &str, abilities: &Abilities) -> bool {
        self.lanes.get(&lane).is_some_and(|key| key.queue == queue && abilities.cover(&key.needs))
    }

    /// Returns the lanes of `queue` that may have ready jobs.
    pub(super) fn of_queue(&self, queue: &str) -> impl Iterator<Item = i32> {
        let lanes = self.of_queues.get(queue).into_iter().flatten().copied();
        lanes.filter(|lane| self.ready_from.contains_key(lane))
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

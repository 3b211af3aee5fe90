//! What a node knows by heart: the lanes, which are never changed once they are there.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use agenix_rules::capability::{Abilities, Needs};
use sqlx::{Error, Row, postgres::PgRow, query};

use super::{
    codec::{decode, encode},
    session::Session,
};

/// After so long other nodes may have made lanes whose jobs should come first.
const OLD: Duration = Duration::from_millis(250);

/// What makes a lane.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct LaneKey {
    pub(super) queue: String,
    pub(super) needs: Needs,
}

/// The lanes by number.
#[derive(Debug, Default)]
pub(super) struct Known {
    lanes: HashMap<i32, LaneKey>,
    /// Whether other nodes take jobs, too.
    pub(super) has_company: bool,
    learned_at: Option<Instant>,
}

impl Known {
    /// Learns of lanes that were made, where it has not for a while.
    pub(super) fn refresh(&mut self, session: &Session) -> Result<(), Error> {
        if self.learned_at.is_none_or(|at| at.elapsed() > OLD) {
            self.learn(session)?;
        }
        Ok(())
    }

    /// Learns of lanes that were made; whether there are any.
    pub(super) fn learn(&mut self, session: &Session) -> Result<bool, Error> {
        let before = self.lanes.len();
        let numbers: Vec<i32> = self.lanes.keys().copied().collect();
        let sql = query("SELECT lane, queue, needs FROM agq.lanes WHERE lane <> ALL ($1)").bind(numbers);
        for row in session.rows(sql)? {
            let (number, key) = lane_of(&row)?;
            self.lanes.insert(number, key);
        }
        self.learned_at = Some(Instant::now());
        Ok(self.lanes.len() > before)
    }

    /// The number of a lane, which is made where it is new.
    pub(super) fn number(&mut self, session: &Session, key: &LaneKey) -> Result<u32, Error> {
        if let Some((number, _)) = self.lanes.iter().find(|(_, known)| *known == key) {
            return Ok(number.cast_unsigned());
        }
        // It is learned with the next claim: this may be rolled back.
        self.learned_at = None;
        make(session, key)
    }

    /// The key of the limit that the jobs of a lane stand under.
    pub(super) fn limit_of(&self, lane: i32) -> Option<&str> {
        self.lanes.get(&lane).and_then(|key| key.needs.limit.as_deref())
    }

    /// The lanes of a queue whose jobs someone with these abilities can run.
    pub(super) fn lanes_for(&self, queue: &str, abilities: &Abilities) -> Vec<i32> {
        let is_for = |key: &LaneKey| key.queue == queue && abilities.cover(&key.needs);
        self.lanes.iter().filter(|(_, key)| is_for(key)).map(|(number, _)| *number).collect()
    }
}

/// Makes a lane where it is new; its number.
pub(super) fn make(session: &Session, key: &LaneKey) -> Result<u32, Error> {
    let needs = encode(&key.needs)?;
    let made = "INSERT INTO agq.lanes (queue, needs) VALUES ($1, $2) ON CONFLICT DO NOTHING";
    session.run(query(made).bind(&key.queue).bind(&needs))?;
    let sought = "SELECT lane FROM agq.lanes WHERE queue = $1 AND needs = $2";
    let row = session.row(query(sought).bind(&key.queue).bind(&needs))?.ok_or(Error::RowNotFound)?;
    row.try_get::<i32, _>(0).map(i32::cast_unsigned)
}

/// A row of lane, queue and needs.
pub(super) fn lane_of(row: &PgRow) -> Result<(i32, LaneKey), Error> {
    let needs: Vec<u8> = row.try_get("needs")?;
    Ok((row.try_get("lane")?, LaneKey { queue: row.try_get("queue")?, needs: decode(&needs)? }))
}

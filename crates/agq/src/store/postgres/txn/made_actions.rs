//! Insertion of new actions, with turns for their jobs.

use std::collections::HashSet;

use agenix_rules::action::Action;
use sqlx::{Result, Row, postgres::PgRow};

use crate::store::{
    NewAction,
    postgres::{
        codec::encode,
        connection::{Param, PreparedStatement, RoundTrip},
        sql_types,
    },
};

/// Statement that inserts the new actions whose plans exist, and takes turns for their jobs.
pub(crate) const MADE: PreparedStatement = PreparedStatement {
    name: "agq_make_actions",
    sql: "WITH held AS (SELECT plan_id FROM agq.plans WHERE plan_id = ANY ($3::text[]) ORDER BY plan_id FOR KEY SHARE), \
         made AS (INSERT INTO agq.actions (action_id, record, owner) SELECT n.action_id, n.record, n.owner \
             FROM unnest($1::text[], $2::bytea[], $3::text[], $5::text[]) AS n (action_id, record, plan_id, owner) JOIN held USING (plan_id) \
             ORDER BY n.action_id ON CONFLICT DO NOTHING RETURNING action_id) \
         SELECT action_id, NULL::bigint[] AS turns FROM made \
         UNION ALL SELECT NULL, (SELECT array_agg(nextval('agq.turns')) FROM generate_series(1, $4::bigint))",
};

/// Statement that inserts new actions, and fails if one of them exists.
const INSERT: PreparedStatement = PreparedStatement {
    name: "agq_insert_actions",
    sql: "INSERT INTO agq.actions (action_id, record, owner) \
          SELECT * FROM unnest($1::text[], $2::bytea[], $3::text[]) AS n (action_id, record, owner) ORDER BY n.action_id",
};

/// New actions that the transaction has not inserted yet.
#[derive(Default)]
pub(crate) struct ActionRows {
    ids: Vec<String>,
    records: Vec<Vec<u8>>,
    owners: Vec<Option<String>>,
}

impl ActionRows {
    pub(crate) fn push(&mut self, new: &NewAction) -> Result<()> {
        self.ids.push(new.action.action_id.to_string());
        self.records.push(record_of(new)?);
        self.owners.push(owner_of(new));
        Ok(())
    }

    /// Adds the statement that inserts the actions.
    pub(crate) fn insert(self, round_trip: &mut RoundTrip) {
        if !self.ids.is_empty() {
            let (ids, owners) = (Param::Texts(self.ids), Param::OptionalTexts(self.owners));
            round_trip.call(&INSERT, vec![ids, Param::Binaries(self.records), owners]);
        }
    }
}

fn record_of(new: &NewAction) -> Result<Vec<u8>> {
    encode(&Action { total_jobs: new.jobs.len() as u64, ..new.action.clone() })
}

fn owner_of(new: &NewAction) -> Option<String> {
    new.action.owner.as_ref().map(|owner| owner.as_str().to_owned())
}

/// Inserted actions, and as many turns as all actions to insert have jobs.
pub(crate) struct MadeActions {
    pub(crate) ids: HashSet<String>,
    pub(crate) turns: Vec<u64>,
}

/// Returns the parameters that insert actions.
pub(crate) fn making(actions: &[&NewAction]) -> Result<Vec<Param>> {
    let jobs = actions.iter().map(|new| new.jobs.len()).sum();
    Ok(vec![
        Param::texts(actions.iter().map(|new| new.action.action_id.as_str())),
        Param::Binaries(actions.iter().map(|new| record_of(new)).collect::<Result<_>>()?),
        Param::texts(actions.iter().map(|new| new.action.plan_id.as_str())),
        Param::Wide(sql_types::limit(jobs)),
        Param::OptionalTexts(actions.iter().map(|new| owner_of(new)).collect()),
    ])
}

pub(crate) fn made_by(rows: &[PgRow]) -> Result<MadeActions> {
    let (mut ids, mut turns) = (HashSet::new(), Vec::new());
    for row in rows {
        ids.extend(row.try_get::<Option<String>, _>("action_id")?);
        let numbers = row.try_get::<Option<Vec<i64>>, _>("turns")?.unwrap_or_default();
        turns.extend(numbers.into_iter().map(sql_types::count));
    }
    turns.sort_unstable();
    Ok(MadeActions { ids, turns })
}

//! Texts of claimed jobs, which no rule needs. The last statements of a transaction read the texts,
//! each plan once.

use std::collections::{BTreeSet, HashMap};

use agenix_rules::job::Job;
use sqlx::{Result, Row, postgres::PgRow};

use crate::store::{
    Claim,
    postgres::connection::{Param, PreparedStatement, RoundTrip},
};

const TEXTS: PreparedStatement = PreparedStatement {
    name: "agq_texts",
    sql: "SELECT job_id, json, NULL, true FROM agq.inputs WHERE job_id = ANY ($1::text[]) \
         UNION ALL SELECT plan_id, json, envelope, false FROM agq.plans WHERE plan_id = ANY ($2::text[])",
};

/// Ids of the jobs that a transaction has claimed, and of their plans.
#[derive(Default)]
pub(crate) struct ClaimedJobs {
    jobs: Vec<String>,
    plans: BTreeSet<String>,
}

/// Inputs, and plans with their orders.
#[derive(Default)]
pub(crate) struct ClaimTexts {
    inputs: HashMap<String, String>,
    plans: HashMap<String, (String, Option<String>)>,
}

impl ClaimedJobs {
    pub(crate) fn add(&mut self, job: &Job) {
        self.jobs.push(job.job_id.to_string());
        if !self.plans.contains(job.plan_id.as_str()) {
            self.plans.insert(job.plan_id.to_string());
        }
    }

    /// Adds the query for the texts to a round trip, and returns the place of its answer.
    pub(crate) fn read(self, round_trip: &mut RoundTrip) -> Option<usize> {
        let Self { jobs, plans } = self;
        let params = vec![Param::Texts(jobs), Param::Texts(plans.into_iter().collect())];
        (!params.contains(&Param::Texts(Vec::new()))).then(|| round_trip.call(&TEXTS, params))
    }
}

impl ClaimTexts {
    pub(crate) fn from_rows(rows: &[PgRow]) -> Result<Self> {
        let mut texts = Self::default();
        for row in rows {
            let (id, json): (String, String) = (row.try_get(0)?, row.try_get(1)?);
            if row.try_get(3)? {
                texts.inputs.insert(id, json);
            } else {
                texts.plans.insert(id, (json, row.try_get(2)?));
            }
        }
        Ok(texts)
    }

    pub(crate) fn complete(&mut self, claim: &mut Claim) {
        claim.input = self.inputs.remove(claim.job.job_id.as_str()).unwrap_or_default();
        (claim.plan, claim.order) = self.plans.get(claim.job.plan_id.as_str()).cloned().unwrap_or_default();
    }
}

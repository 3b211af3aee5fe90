//! Writes of a batch that are done together: decisions on jobs, actions to add, and claims.

use sqlx::Result;

use crate::store::{
    NewAction,
    postgres::{
        connection::{DatabaseSession, Param, PreparedStatement},
        lane_cache::LaneCache,
        txn::{
            PgTxn,
            candidates::ClaimRequest,
            checks::is_checked,
            claim_texts::ClaimTexts,
            documents::limits_of,
            opening::{Opening, lane_keys, lanes_of},
        },
        writer::{
            KEYS_LOCK,
            lock_order::{checks, decided_jobs, names, new_actions},
            queue::{Adding, Claiming, Deciding, PendingReply, PgWrite, WriteKind},
        },
    },
};

const LOCK_KEYS: PreparedStatement =
    PreparedStatement { name: "agq_lock_keys", sql: "SELECT pg_advisory_xact_lock($1::bigint)" };

pub(crate) fn decide(batch: &mut PgTxn<'_>, writes: &mut [PgWrite]) -> Result<()> {
    let (mut decisions, mut pendings) = (Vec::new(), Vec::new());
    for write in writes {
        if let WriteKind::Decide(deciding) = &mut write.work {
            let Deciding { decision, pending } = &mut **deciding;
            decisions.push(&*decision);
            pendings.push(pending);
        }
    }
    if decisions.is_empty() {
        return Ok(());
    }
    for (pending, outcome) in pendings.into_iter().zip(batch.decide(&decisions)?) {
        pending.outcome = Some(outcome);
    }
    Ok(())
}

pub(crate) fn add(batch: &mut PgTxn<'_>, writes: &mut [PgWrite]) -> Result<()> {
    let [mut plain, mut checked] = <[(Vec<&NewAction>, Vec<_>); 2]>::default();
    for write in writes {
        if let WriteKind::Add(adding) = &mut write.work {
            let Adding { new, pending } = &mut **adding;
            let (actions, pendings) = if is_checked(new) { &mut checked } else { &mut plain };
            actions.push(&*new);
            pendings.push(pending);
        }
    }
    let (actions, mut pendings) = plain;
    let mut outcomes = if actions.is_empty() { Vec::new() } else { batch.add_actions(&actions)? };
    let (actions, others) = checked;
    pendings.extend(others);
    outcomes.extend(batch.add_checked(&actions)?);
    for (pending, outcome) in pendings.into_iter().zip(outcomes) {
        pending.outcome = Some(outcome);
    }
    Ok(())
}

/// Returns the claims of a batch, one for each claimant.
pub(crate) fn claim_requests(writes: &[PgWrite]) -> Vec<ClaimRequest<'_>> {
    let mut all = Vec::new();
    for write in writes {
        if let WriteKind::Claim(Claiming { claimants, now, start_timeout_ms }, _) = &write.work {
            let (now, start_timeout_ms) = (*now, *start_timeout_ms);
            all.extend(claimants.iter().map(|claimant| ClaimRequest { claimant, now, start_timeout_ms }));
        }
    }
    all
}

pub(crate) fn claim(batch: &mut PgTxn<'_>, writes: &mut [PgWrite]) -> Result<()> {
    let all = claim_requests(writes);
    if all.is_empty() {
        return Ok(());
    }
    let mut claims = batch.claim(&all)?.into_iter();
    for write in writes {
        if let WriteKind::Claim(claiming, pending) = &mut write.work {
            pending.outcome = Some(claims.by_ref().take(claiming.claimants.len()).collect());
        }
    }
    Ok(())
}

/// Gives the claims of a batch their texts.
pub(crate) fn complete_claims(writes: &mut [PgWrite], mut texts: ClaimTexts) {
    for write in writes {
        if let WriteKind::Claim(_, PendingReply { outcome: Some(claims), .. }) = &mut write.work {
            claims.iter_mut().flatten().for_each(|claim| texts.complete(claim));
        }
    }
}

/// Returns the first round trip of a transaction for a batch.
///
/// Claims read the ready jobs before anything else only if no other write of the batch can change
/// which jobs are ready, apart from decisions and new jobs, which the claims know.
pub(crate) fn opening(
    session: &DatabaseSession,
    lanes: &mut LaneCache,
    writes: &[PgWrite],
    begin: &[&'static str],
) -> Result<Opening> {
    let mut opening = Opening::begin(begin);
    if writes.iter().any(PgWrite::is_on_keys) {
        // The lock comes first, so that no session waits for it while others wait for that session.
        opening.call(&LOCK_KEYS, vec![Param::Wide(KEYS_LOCK)]);
    }
    let checks = checks(writes);
    opening.lock_names(names(writes, &checks));
    opening.lock_jobs(decided_jobs(writes).collect(), &checks);
    opening
        .read_limits(new_actions(writes).flat_map(|new| limits_of(&new.jobs)).map(|(key, _)| key).collect());
    let all: Vec<&NewAction> = new_actions(writes).collect();
    // A lane with a limit is created in the transaction that writes the limit, after the limit is
    // locked.
    let mut keys = all.iter().flat_map(|new| lane_keys(new));
    if keys.all(|key| key.needs.limit.is_none() || lanes.has(&key)) {
        let of_jobs = lanes_of(session, lanes, &all)?;
        let (checked, plain): (Vec<_>, Vec<_>) = all.into_iter().partition(|new| is_checked(new));
        if checked.is_empty() {
            opening.make_actions(&plain)?;
        } else if plain.is_empty() {
            opening.check_actions(&checked);
        }
        opening.lock_lanes(of_jobs);
    }
    let claims = claim_requests(writes);
    let has_others = writes.iter().any(|write| matches!(write.work, WriteKind::Other(_)));
    if !claims.is_empty() && !has_others {
        lanes.refresh(session)?;
        opening.claim(&claims, lanes);
    }
    Ok(opening)
}

//! Writes of a batch that are done together: decisions on jobs, actions to add, and claims.

use sqlx::Result;

use crate::store::{
    NewAction,
    postgres::{
        txn::{PgTxn, candidates::ClaimRequest},
        writer::queue::{Adding, Claiming, Deciding, PgWrite, WriteKind},
    },
};

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
    let (mut actions, mut pendings, mut checked) = (Vec::new(), Vec::new(), Vec::new());
    for write in writes {
        if let WriteKind::Add(adding) = &mut write.work {
            let Adding { new, pending } = &mut **adding;
            if is_checked(new) {
                checked.push((&*new, pending));
            } else {
                actions.push(&*new);
                pendings.push(pending);
            }
        }
    }
    if !actions.is_empty() {
        for (pending, outcome) in pendings.into_iter().zip(batch.add_actions(&actions)?) {
            pending.outcome = Some(outcome);
        }
    }
    for (new, pending) in checked {
        pending.outcome = Some(batch.add_checked(new)?);
    }
    Ok(())
}

/// Returns true if existing records decide whether all jobs may be added.
pub(crate) fn is_checked(new: &NewAction) -> bool {
    if !new.input_blobs.is_empty() || new.booking.is_some() {
        return true;
    }
    new.jobs
        .iter()
        .filter_map(|job| job.own.as_ref())
        .any(|own| own.is_named || own.unique.is_some() || own.plan_id != new.action.plan_id)
}

pub(crate) fn claim(batch: &mut PgTxn<'_>, writes: &mut [PgWrite]) -> Result<()> {
    let (mut all, mut pendings) = (Vec::new(), Vec::new());
    for write in writes {
        if let WriteKind::Claim(claiming, pending) = &mut write.work {
            let Claiming { claimants, now, start_timeout_ms } = &*claiming;
            let (now, start_timeout_ms) = (*now, *start_timeout_ms);
            all.extend(claimants.iter().map(|claimant| ClaimRequest { claimant, now, start_timeout_ms }));
            pendings.push((claimants.len(), pending));
        }
    }
    if all.is_empty() {
        return Ok(());
    }
    let mut claims = batch.claim(&all)?.into_iter();
    for (count, pending) in pendings {
        pending.outcome = Some(claims.by_ref().take(count).collect());
    }
    Ok(())
}

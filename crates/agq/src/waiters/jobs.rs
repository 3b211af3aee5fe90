//! Matches ready jobs with the claimants that wait: one claim for all of them, the one who waits longest first.

use std::{
    collections::VecDeque,
    mem::take,
    sync::{Arc, atomic::Ordering},
};

use agenix_protocol::time::Timestamp;
use agenix_rules::job;
use tokio::sync::{mpsc, oneshot};
use tracing::warn;

use crate::{
    store::{AckLevel, Claim, Claimant, Store, StoreError, at_once},
    waiters::{
        Handoff,
        claims::{ClaimsFuture, WaiterInputs},
    },
};

/// A claimant that waits.
pub(super) struct JobWaiter {
    pub(super) number: u64,
    /// It takes what is there now, or goes.
    pub(super) is_passing: bool,
    pub(super) claimant: Claimant,
    pub(super) give: oneshot::Sender<Result<Option<Handoff<Claim>>, StoreError>>,
}

/// What the matchmaker is told.
pub(super) enum JobRequest {
    /// A claimant comes.
    Park(JobWaiter),
    /// Whose time is over goes.
    Leave(u64),
    /// Whoever waits in this name is to go.
    Dismiss(Arc<str>),
    /// Whoever made these claims has gone.
    Abandoned(ClaimsFuture),
}

pub(super) async fn run(desk: WaiterInputs) {
    let WaiterInputs { store, clock, start_timeout_ms, mut orders, back, mut returned, queue } = desk;
    let notifier = store.notifier();
    let mut waiting = VecDeque::new();
    loop {
        let mut is_due = false;
        tokio::select! {
            biased;
            order = orders.recv() => match order {
                None => return,
                Some(order) => is_due |= handle(&*store, order, &mut waiting).await,
            },
            () = notifier.jobs() => is_due = true,
            Some(claim) = returned.recv() => give_back(&*store, &claim),
        }
        while let Ok(order) = orders.try_recv() {
            is_due |= handle(&*store, order, &mut waiting).await;
        }
        while let Ok(claim) = returned.try_recv() {
            give_back(&*store, &claim);
        }
        waiting.retain(|ticket: &JobWaiter| !ticket.give.is_closed());
        // Whoever only leaves, or gives back what announces itself, is no reason to look.
        queue.store(waiting.len(), Ordering::Relaxed);
        notifier.set_job_interest(!waiting.is_empty());
        if is_due {
            serve(&*store, clock.now(), start_timeout_ms, &mut waiting, &back).await;
            queue.store(waiting.len(), Ordering::Relaxed);
        }
    }
}

/// Does what is asked; whether somebody came.
async fn handle(store: &dyn Store, order: JobRequest, waiting: &mut VecDeque<JobWaiter>) -> bool {
    let comes = matches!(order, JobRequest::Park(_));
    match order {
        JobRequest::Park(ticket) => waiting.push_back(ticket),
        JobRequest::Leave(number) => waiting.retain(|ticket| ticket.number != number),
        JobRequest::Dismiss(holder) => {
            let (gone, stay) = take(waiting).into_iter().partition(|ticket| ticket.claimant.holder == holder);
            *waiting = stay;
            let gone: VecDeque<JobWaiter> = gone;
            for ticket in gone {
                let _gone_already = ticket.give.send(Ok(None));
            }
        }
        JobRequest::Abandoned(claims) => {
            for claim in claims.await.into_iter().flatten().flatten() {
                give_back(store, &claim);
            }
        }
    }
    comes
}

async fn serve(
    store: &dyn Store,
    now: Timestamp,
    start_timeout_ms: u64,
    waiting: &mut VecDeque<JobWaiter>,
    back: &mpsc::UnboundedSender<Claim>,
) {
    if waiting.is_empty() {
        return;
    }
    let mut claimants = waiting.iter().map(|ticket| ticket.claimant.clone()).collect();
    let mut claims = None;
    at_once(store, None, &mut || claims = Some(store.claim(take(&mut claimants), now, start_timeout_ms)))
        .await;
    let Some(claims) = claims else { return };
    match claims.await {
        Ok(claims) => {
            for (ticket, claim) in take(waiting).into_iter().zip(claims) {
                match claim {
                    None if ticket.is_passing => drop(ticket.give.send(Ok(None))),
                    None => waiting.push_back(ticket),
                    // Gone meanwhile: what comes back in the error is dropped, and goes back.
                    Some(claim) => drop(ticket.give.send(Ok(Some(Handoff::new(claim, back.clone()))))),
                }
            }
        }
        Err(error) => {
            for ticket in waiting.drain(..) {
                let _gone = ticket.give.send(Err(error.clone()));
            }
        }
    }
}

/// Nobody received the claim: the job goes back to where it was.
fn give_back(store: &dyn Store, claim: &Claim) {
    let (holder, attempt) = (claim.job.holder.clone().unwrap_or_default(), claim.job.attempt);
    warn!(job_id = %claim.job.job_id, holder, "the claimant has gone; its job goes back");
    let rule = move |job: Option<&job::Job>| {
        Ok(job.map_or(job::RuleOutcome::Unchanged, |job| job::given_back(job, &holder, Some(attempt))))
    };
    // The write has its place in the order; there is nobody to tell that it was done.
    drop(store.decide(&claim.job.job_id, AckLevel::Visible, None, Box::new(rule)));
}

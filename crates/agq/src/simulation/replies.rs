//! Hands replies to the actors, and records what they acknowledge in the ledger.

use std::sync::Arc;

use agenix_protocol::{
    documents::{self, JobDocument, Status},
    ids::JobId,
    resp::Reply,
};

use super::{
    actors::HeldJob,
    jobs_view::SentClaim,
    ledger::CheckResult,
    ojs_jobs,
    workers::{IN_SANDBOX, hash_of},
    world::{PendingRequest, World},
};
use crate::{
    registry::unreturned_claims::UnackedClaim,
    resp::outcome::{CommandOutcome, Effect},
};

impl World {
    pub(super) fn deliver(&mut self, number: u64, done: CommandOutcome) -> CheckResult {
        let Some(op) = self.ops.remove(&number) else { return Ok(()) };
        self.tell(|| format!("{number}: answered {:?}", done.reply));
        let is_ok = matches!(&done.reply, Reply::Simple(text) if text.starts_with("OK"));
        match op.asked {
            PendingRequest::Plan(plan_id) if is_ok => drop(self.ledger.plans.insert(plan_id)),
            PendingRequest::Inputs { action_id, count } if is_ok => {
                let action = self.ledger.actions.entry(action_id).or_default();
                (action.is_there, action.acknowledged) = (true, action.acknowledged.max(count));
            }
            PendingRequest::Closed(action_id) if is_ok => drop(self.ledger.closed.insert(action_id)),
            PendingRequest::Deleted(plan_id) if matches!(&done.reply, Reply::Integer(1)) || is_ok => {
                self.ledger.plans.remove(&plan_id);
                self.ledger.deleted.insert(plan_id);
            }
            PendingRequest::Forgotten(job_id) if is_ok => drop(self.ledger.forgotten.insert(job_id)),
            PendingRequest::Cancel(job_id) if is_ok => self.ledger.ended(&job_id, Status::Cancelled, None),
            PendingRequest::Pause { queue, paused } if is_ok => {
                self.ledger.paused.insert(queue, Some(paused));
            }
            PendingRequest::Keys { version, expected } => {
                self.keys_answered(version, &expected, done.reply)?;
            }
            PendingRequest::Pushed(value) if matches!(done.reply, Reply::Integer(_)) => {
                self.elements.acknowledged.insert(value);
            }
            PendingRequest::Taken => self.element_taken(&done.reply)?,
            PendingRequest::Registered(actor) => self.registered(actor, done),
            PendingRequest::Fetched => self.fetched.extend(ojs_jobs::ids(&done.reply)),
            PendingRequest::Claimed(sent) => self.claimed(number, &sent, done)?,
            PendingRequest::Reported { actor, holder, job_id, end, attempt } => {
                if done.reply == Reply::ok() && end == Some(Status::Completed) {
                    self.ledger.check_completed(&job_id, &holder, attempt)?;
                }
                self.reported(actor, &holder, &job_id, end, &done.reply);
            }
            PendingRequest::Committed(actor, blob) if done.reply == Reply::ok() => {
                self.ledger.uploaded(&blob, hash_of(&blob.content));
                self.actors[actor].committed.push(blob);
            }
            PendingRequest::Beat(actor) => self.beaten(actor, &done.reply)?,
            PendingRequest::Left(actor) if is_ok => self.actors[actor].registered = false,
            _ => {}
        }
        Ok(())
    }

    fn keys_answered(&mut self, version: u64, expected: &[Reply], reply: Reply) -> CheckResult {
        let replies = match reply {
            Reply::Error(line) if line.contains("the store failed") => return Ok(()),
            Reply::Array(replies) if expected.len() > 1 => replies,
            reply => vec![reply],
        };
        if replies != expected {
            return Err(format!("the keys answered {replies:?}, and should have answered {expected:?}"));
        }
        self.keys.acknowledged(version);
        Ok(())
    }

    fn element_taken(&mut self, reply: &Reply) -> CheckResult {
        let value = match reply {
            Reply::Error(line) if line.contains("is known when agq has started again") => {
                self.elements.in_doubt += 1;
                return Ok(());
            }
            Reply::Bulk(value) => value,
            Reply::Array(pair) => match pair.last() {
                Some(Reply::Bulk(value)) => value,
                _ => return Ok(()),
            },
            _ => return Ok(()),
        };
        let value = String::from_utf8_lossy(value).into_owned();
        if !self.elements.sent.contains(&value) {
            return Err(format!("an element was taken that nobody pushed: {value}"));
        }
        if !self.elements.taken.insert(value.clone()) {
            return Err(format!("an element was taken twice: {value}"));
        }
        Ok(())
    }

    fn registered(&mut self, at: usize, done: CommandOutcome) {
        let actor = &mut self.actors[at];
        if let Effect::Registered(worker_id) = done.effect {
            let mut caller = (*actor.caller).clone();
            caller.registered = Some(worker_id);
            (actor.caller, actor.registered) = (Arc::new(caller), true);
        }
    }

    fn claimed(&mut self, number: u64, sent: &SentClaim, done: CommandOutcome) -> CheckResult {
        let at = sent.actor;
        self.actors[at].waits = None;
        let Effect::Claimed(claims) = done.effect else {
            let is_error = matches!(done.reply, Reply::Error(_));
            return if is_error { Ok(()) } else { self.check_work_is_conserved(number, sent, 0) };
        };
        self.check_work_is_conserved(number, sent, claims.len())?;
        for UnackedClaim { job_id, holder, attempt } in &claims {
            if let Some(other) = self.ledger.jobs.get(job_id.as_str())
                && other.state == "active"
                && other.attempt == *attempt
                && other.holder.as_deref() != Some(&**holder)
            {
                return Err(format!("{holder} was given {job_id}, which {other:?} has"));
            }
        }
        self.actors[at].unconfirmed.extend(claims.iter().cloned());
        // A reply may be lost with its connection, or because the client has given up.
        match if self.is_calm { 2 } else { self.rng.u8(..20) } {
            0 => {
                self.tell(|| format!("the reply to actor {at} is lost with its connection"));
                self.disconnect(at);
            }
            1 => self.tell(|| format!("the reply to actor {at} is lost")),
            _ => {
                let documents = match &done.reply {
                    Reply::Array(all) => &all[..],
                    reply => std::slice::from_ref(reply),
                };
                // The reply to a BRPOP of several queues begins with a key.
                for (claim, document) in claims.iter().rev().zip(documents.iter().rev()) {
                    let Reply::Bulk(json) = document else {
                        return Err(format!("{:?} is no job", done.reply));
                    };
                    let document: JobDocument = documents::parse(json).map_err(|error| error.to_string())?;
                    if document.job_id != claim.job_id {
                        return Err(format!("{claim:?} was answered {document:?}"));
                    }
                    self.check_document(&document)?;
                    if document.plan.get().contains(r#""sandbox""#) && *claim.holder != *IN_SANDBOX {
                        let UnackedClaim { job_id, holder, .. } = claim;
                        return Err(format!(
                            "{holder} has no sandbox and was given {job_id}, whose plan needs one"
                        ));
                    }
                    let job_id = claim.job_id.as_str().to_owned();
                    self.actors[at].holds.push(HeldJob { job_id, attempt: claim.attempt });
                }
            }
        }
        Ok(())
    }

    /// Checks that a worker gets the submitted plan and input.
    fn check_document(&self, document: &JobDocument) -> CheckResult {
        let (action_id, input) = (document.action_id.as_str(), document.inputs.get());
        let action =
            self.ledger.actions.get(action_id).ok_or(format!("nobody submitted action {action_id}"))?;
        let is_right = action.inputs.iter().any(|sent| sent == input)
            && action.plan_id == document.plan_id.as_str()
            && document.plan.get().contains(&action.plan_id);
        if is_right { Ok(()) } else { Err(format!("a worker was given what nobody submitted: {document:?}")) }
    }

    fn reported(&mut self, at: usize, holder: &str, job_id: &str, end: Option<Status>, reply: &Reply) {
        let actor = &mut self.actors[at];
        if *reply == Reply::ok() {
            if end == Some(Status::Completed) {
                self.ledger.ended(job_id, Status::Completed, Some(holder));
            }
        } else if matches!(reply, Reply::Error(_)) {
            // The reply states that another actor holds the job now.
            actor.holds.retain(|holding| holding.job_id != job_id);
        }
    }

    fn beaten(&mut self, at: usize, reply: &Reply) -> CheckResult {
        match reply {
            Reply::Error(line) if self.is_regular && self.actors[at].registered => {
                return Err(format!("actor {at} was heard of all the time, and is told: {line}"));
            }
            Reply::Error(_) => self.actors[at].registered = false,
            Reply::Simple(text) => {
                let directives =
                    text.strip_prefix("OK orders=").and_then(|json| serde_json::from_str(json).ok());
                let directives: documents::Directives = directives.unwrap_or_default();
                let is_cancelled =
                    |id: &str| directives.cancel.iter().any(|job_id: &JobId| job_id.as_str() == id);
                self.actors[at].holds.retain(|holding| !is_cancelled(&holding.job_id));
            }
            _ => {}
        }
        Ok(())
    }
}

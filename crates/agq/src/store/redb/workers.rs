//! Writes on workers and queues, inside a batch.

use agenix_protocol::ids::WorkerId;
use agenix_rules::worker::Worker;
use redb::{Error, ReadableTable};

use super::{
    batch::Batch,
    codec::{decode, encode},
};
use crate::store::{Ruled, WorkerRule};

impl Batch<'_> {
    pub(super) fn decide_worker(
        &mut self,
        worker_id: &WorkerId,
        registration: Option<&str>,
        rule: &WorkerRule,
    ) -> Result<Ruled<()>, Error> {
        let id = worker_id.as_str();
        let before = self.workers.get(id)?.map(|record| decode::<Worker>(record.value())).transpose()?;
        match rule(before.as_ref()) {
            Err(rejection) => return Ok(Err(rejection)),
            Ok(None) => {}
            Ok(Some(worker)) => {
                self.workers.insert(id, encode(&worker)?.as_slice())?;
                if let Some(registration) = registration {
                    self.registrations.insert(id, registration)?;
                }
            }
        }
        Ok(Ok(()))
    }

    pub(super) fn remove_worker(&mut self, worker_id: &WorkerId) -> Result<bool, Error> {
        self.registrations.remove(worker_id.as_str())?;
        Ok(self.workers.remove(worker_id.as_str())?.is_some())
    }

    pub(super) fn set_paused(&mut self, queue: &str, paused: bool) -> Result<(), Error> {
        if paused {
            self.paused.insert(queue, ())?;
        } else {
            self.paused.remove(queue)?;
            self.arrived.jobs = true;
        }
        self.lanes.set_paused(queue, paused);
        Ok(())
    }
}

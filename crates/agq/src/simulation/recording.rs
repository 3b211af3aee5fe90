//! Records the operations of a world, so that `differential` can repeat them on another store.

use agenix_protocol::resp::Reply;

use super::{
    operations::Operation,
    world::{IGNORED, World},
};

impl World {
    /// Records an operation if the world is recorded.
    pub(super) fn note(&mut self, made: impl FnOnce() -> Operation) {
        if let Some(operations) = &mut self.operations {
            operations.all.push(made());
        }
    }

    /// Records a reply if the world is recorded.
    pub(super) fn note_reply(&mut self, number: u64, reply: &Reply) {
        if let Some(operations) = self.operations.as_mut().filter(|_| number != IGNORED) {
            operations.replies.push((number, reply.clone()));
        }
    }

    /// If the world is recorded, waits until the previous operation is finished.
    pub(super) fn rest_between(&mut self) -> Result<(), String> {
        if self.operations.is_none() {
            return Ok(());
        }
        self.run_until_idle()?;
        self.write_all()?;
        let Some(operations) = &mut self.operations else { return Ok(()) };
        let mut replies = std::mem::take(&mut operations.replies);
        replies.sort_by_key(|(number, _)| *number);
        operations.all.push(Operation::Rest(replies));
        Ok(())
    }
}

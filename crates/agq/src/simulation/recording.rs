//! Records the operations of a world, so that `differential` can repeat them on another store.

use agenix_protocol::resp::Reply;

use super::{
    operations::Operation,
    world::{NOBODY, World},
};

impl World {
    /// Records an operation if the world is recorded.
    pub(super) fn note(&mut self, made: impl FnOnce() -> Operation) {
        if let Some(moves) = &mut self.moves {
            moves.all.push(made());
        }
    }

    /// Records a reply if the world is recorded.
    pub(super) fn note_reply(&mut self, number: u64, reply: &Reply) {
        if let Some(moves) = self.moves.as_mut().filter(|_| number != NOBODY) {
            moves.replies.push((number, reply.clone()));
        }
    }

    /// If the world is recorded, waits until the previous operation is finished.
    pub(super) fn rest_between(&mut self) -> Result<(), String> {
        if self.moves.is_none() {
            return Ok(());
        }
        self.settle()?;
        self.write_all()?;
        let Some(moves) = &mut self.moves else { return Ok(()) };
        let mut replies = std::mem::take(&mut moves.replies);
        replies.sort_by_key(|(number, _)| *number);
        moves.all.push(Operation::Rest(replies));
        Ok(())
    }
}

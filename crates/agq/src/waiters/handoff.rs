//! Something on its way to whoever waited for it.

use tokio::sync::mpsc;

/// A thing handed over. Dropped without being taken, it goes back: between the hand-over and the reply its receiver may
/// disappear at any point, and every way of disappearing ends in a drop.
#[derive(Debug)]
pub(crate) struct Handoff<T> {
    thing: Option<T>,
    back: mpsc::UnboundedSender<T>,
}

impl<T> Handoff<T> {
    pub(super) fn new(thing: T, back: mpsc::UnboundedSender<T>) -> Self {
        Self { thing: Some(thing), back }
    }

    /// Looks at it without taking it.
    pub(crate) fn get(&self) -> &T {
        self.thing.as_ref().expect("only take and drop empty it, and both end it")
    }

    /// Takes it for good.
    pub(crate) fn take(mut self) -> T {
        self.thing.take().expect("only take and drop empty it, and both end it")
    }
}

impl<T> Drop for Handoff<T> {
    fn drop(&mut self) {
        if let Some(thing) = self.thing.take() {
            // Without a matchmaker agq is stopping, and the store is not asked any more.
            let _stopping = self.back.send(thing);
        }
    }
}

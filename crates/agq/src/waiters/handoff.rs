//! Guard for a claim or a list element on its way to a client.

use tokio::sync::mpsc;

/// If the handoff is dropped before [`Handoff::take`], the content goes back to its queue or list.
/// The receiver may disappear at any point before the reply, and each such end drops the handoff.
#[derive(Debug)]
pub(crate) struct Handoff<T> {
    content: Option<T>,
    back: mpsc::UnboundedSender<T>,
}

impl<T> Handoff<T> {
    pub(super) fn new(content: T, back: mpsc::UnboundedSender<T>) -> Self {
        Self { content: Some(content), back }
    }

    pub(crate) fn get(&self) -> &T {
        self.content.as_ref().expect("only take and drop empty it, and both end it")
    }

    /// Takes the content, which then never goes back.
    pub(crate) fn take(mut self) -> T {
        self.content.take().expect("only take and drop empty it, and both end it")
    }
}

impl<T> Drop for Handoff<T> {
    fn drop(&mut self) {
        if let Some(content) = self.content.take() {
            // A closed channel means that agq is stopping. A job then goes back at the next start.
            let _stopping = self.back.send(content);
        }
    }
}

//! Replies of a supervisor during a job. A task of the runtime receives them, and hands each one to
//! the code that waits for it.

use std::{
    collections::HashMap,
    io,
    os::fd::OwnedFd,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use agenix_sandbox::{
    client::Replies,
    fault::StepFault,
    protocol::{Cleaned, ReceiveError, SupervisorReply, TaskExit},
};
use tokio::{io::unix::AsyncFd, sync::oneshot};
use tracing::warn;

use crate::exec::readiness::readable;

/// Answer to the start of a task: the files that the supervisor has opened.
pub(super) type StartAnswer = Result<Vec<OwnedFd>, StepFault>;

/// Receivers of the replies that are due. All receivers are dropped when the supervisor ends.
#[derive(Debug, Clone, Default)]
pub(super) struct DueReplies(Arc<Mutex<Due>>);

#[derive(Debug, Default)]
struct Due {
    starts: HashMap<u32, oneshot::Sender<StartAnswer>>,
    ends: HashMap<u32, oneshot::Sender<TaskExit>>,
    /// Reason why the job did not begin, and its tasks do not start.
    unbegun: Option<StepFault>,
    has_ended: bool,
}

/// End of a job, with the connection for the next one.
pub(super) type CleanedJob = (Cleaned, Replies);

impl DueReplies {
    /// Returns the receivers of the replies for `task`. The receivers fail at once if the
    /// supervisor has ended.
    pub(super) fn expect(&self, task: u32) -> (oneshot::Receiver<StartAnswer>, oneshot::Receiver<TaskExit>) {
        let ((started, start), (ended, end)) = (oneshot::channel(), oneshot::channel());
        let mut due = self.due();
        if !due.has_ended {
            due.starts.insert(task, started);
            due.ends.insert(task, ended);
        }
        (start, end)
    }

    /// Receives replies until the job has ended. Returns the receiver of the end.
    pub(super) fn receive(&self, replies: Replies) -> io::Result<oneshot::Receiver<CleanedJob>> {
        let waiting = readable(replies)?;
        let (due, (sender, receiver)) = (self.clone(), oneshot::channel());
        tokio::spawn(async move {
            match due.until_cleaned(waiting).await {
                // The receiver is gone if the job was dropped.
                Ok(Some(end)) => drop(sender.send(end)),
                Ok(None) => {}
                Err(error) => warn!("from a sandbox supervisor: {error}"),
            }
            due.close();
        });
        Ok(receiver)
    }

    /// Returns `None` if the supervisor ends before the job.
    async fn until_cleaned(&self, mut waiting: AsyncFd<Replies>) -> Result<Option<CleanedJob>, ReceiveError> {
        loop {
            let mut ready = waiting.readable_mut().await?;
            let received = ready.get_inner_mut().try_receive();
            if ready.get_inner().is_drained() {
                ready.clear_ready();
            }
            let received = match received {
                Err(ReceiveError::System(error)) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready.clear_ready();
                    continue;
                }
                received => received?,
            };
            let Some(received) = received else { return Ok(None) };
            for (reply, files) in received {
                if let SupervisorReply::Cleaned(cleaned) = reply {
                    return Ok(Some((cleaned, waiting.into_inner())));
                }
                self.deliver(reply, files);
            }
        }
    }

    fn deliver(&self, reply: SupervisorReply, files: Vec<OwnedFd>) {
        let mut due = self.due();
        match reply {
            SupervisorReply::Started { task, .. } => {
                if let Some(start) = due.starts.remove(&task) {
                    let _not_awaited = start.send(Ok(files));
                }
            }
            SupervisorReply::Failed { task: Some(task), fault } => {
                due.ends.remove(&task);
                let fault = due.unbegun.clone().unwrap_or(fault);
                if let Some(start) = due.starts.remove(&task) {
                    let _not_awaited = start.send(Err(fault));
                }
            }
            SupervisorReply::Failed { task: None, fault } => due.unbegun = Some(fault),
            SupervisorReply::Ended(end) => {
                if let Some(ended) = due.ends.remove(&end.task) {
                    let _not_awaited = ended.send(end);
                }
            }
            SupervisorReply::Refused(fault) => warn!("a sandbox supervisor ends: {fault}"),
            SupervisorReply::Ready(_) | SupervisorReply::Begun | SupervisorReply::Cleaned(_) => {}
        }
    }

    fn close(&self) {
        let mut due = self.due();
        due.has_ended = true;
        due.starts.clear();
        due.ends.clear();
    }

    fn due(&self) -> MutexGuard<'_, Due> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

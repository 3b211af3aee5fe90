//! How a connection ends: what was sent is answered, what it held goes back.

use std::time::Duration;

use agenix_protocol::resp::{FrameError, Reply};
use futures_util::SinkExt;
use tokio::{io::AsyncReadExt, time::timeout};
use tracing::{debug, warn};

use super::{Disconnect, RespConnection, in_flight::next_done};
use crate::{net::write_timeout::SlowClient, service};

/// How long a connection that sent a broken or too large frame is still read, so that the error reaches it.
pub(crate) const LINGER: Duration = Duration::from_secs(5);

impl RespConnection {
    /// Says what is left to be said.
    pub(crate) async fn shut_down(&mut self, end: Result<Disconnect, std::io::Error>) {
        match end {
            Ok(Disconnect::Broken(error)) => self.refuse(&error).await,
            // It may have closed only its sending side, as `nc -N` does, and still read.
            Ok(Disconnect::Closed) => self.finish().await,
            Ok(Disconnect::Quit) => debug!("a client said QUIT"),
            Ok(Disconnect::Overdue(overdue)) => {
                self.send_final_error(format!("ERR {overdue}")).await;
            }
            Ok(Disconnect::TooFast) => {
                let max = self.app.settings.limits.max_commands_per_sec;
                self.send_final_error(format!("ERR Too many commands: max {max} a second")).await;
                self.drain_input().await;
            }
            Ok(Disconnect::Crowded) => {
                // What waits takes nothing any more, however long the client is still read.
                self.running.clear();
                self.send_final_error("ERR Too many commands behind one that waits".into()).await;
                self.drain_input().await;
            }
            // In the middle of a reply nothing more can be said.
            Err(error) if SlowClient::is_behind(&error) => {
                let caller = &self.session.caller;
                warn!(from = %caller.from, connection = %caller.connection, %error, "a client is cut off");
            }
            Err(error) => debug!(%error, "a connection broke"),
        }
    }

    async fn send_final_error(&mut self, line: String) {
        debug!(line, from = %self.session.caller.from, "a connection is closed");
        let _closed_anyway = self.writer.send(Reply::Error(line)).await;
    }

    /// No more is read: what was sent is carried out and answered, what waits for work is not.
    async fn finish(&mut self) {
        loop {
            self.start_ready().await;
            if self.running.is_empty() || self.only_waits() {
                break;
            }
            let done = next_done(&mut self.running).await;
            match self.answer(done).await {
                Ok(false) => {}
                Ok(true) => break,
                Err(_gone) => return,
            }
        }
        if let Err(error) = self.writer.flush().await {
            debug!(%error, "the last replies could not be sent");
        }
    }

    /// Answers a frame that cannot be read, after the commands before it. The client may still be sending: it is read
    /// for a while, for a reset would take the error away from it.
    async fn refuse(&mut self, error: &FrameError) {
        debug!(%error, connection = %self.session.caller.connection, "a frame was refused");
        self.finish().await;
        if matches!(error, FrameError::Io(_))
            || self.writer.send(Reply::Error(error.to_string())).await.is_err()
        {
            return;
        }
        self.drain_input().await;
    }

    /// The client may still be sending: a reset would take the last replies away from it.
    async fn drain_input(&mut self) {
        let linger = async {
            tokio::io::AsyncWriteExt::shutdown(self.writer.get_mut()).await?;
            let mut sink = vec![0; 64 * 1024];
            while self.reader.get_mut().read(&mut sink).await? > 0 {}
            Ok::<_, std::io::Error>(())
        };
        if timeout(LINGER, linger).await.is_err() {
            debug!("a client that was cut off went on sending");
        }
    }

    /// Gives back what the connection had and nobody else can account for.
    pub(crate) async fn close(mut self) {
        // What was under way is dropped: a claim that was just handed over goes back by that.
        self.running.clear();
        self.session.close();
        let caller = &self.session.caller;
        let mut outcome = Ok(());
        for claim in self.session.unproven.iter() {
            let back = service::job_changes::release_unreported(
                &self.app,
                &claim.job_id,
                &claim.holder,
                claim.attempt,
            )
            .await;
            outcome = outcome.and(back);
        }
        outcome = outcome.and(service::job_changes::release_all(&self.app, &caller.connection).await);
        if let Some(worker_id) = &caller.registered {
            outcome = outcome.and(service::workers::detach(&self.app, worker_id, &caller.connection).await);
        }
        if let Err(error) = outcome {
            warn!(%error, connection = %caller.connection, "a closed connection could not be cleared");
        }
        debug!(connection = %caller.connection, "closed");
    }
}

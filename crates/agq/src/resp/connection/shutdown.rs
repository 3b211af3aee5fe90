//! End of a connection: answers the commands that were received, and returns the claims of the
//! connection.

use std::{sync::Arc, time::Duration};

use agenix_protocol::resp::{FrameError, Reply};
use futures_util::SinkExt;
use tokio::{io::AsyncReadExt, time::timeout};
use tracing::{debug, warn};

use super::{Disconnect, RespConnection, in_flight::next_done};
use crate::{net::write_timeout::SlowClient, registry::unreturned_claims::ClosedConnection, service};

/// Time for which a connection is still read after a fatal error, so that the error reaches the
/// client.
pub(crate) const LINGER: Duration = Duration::from_secs(5);

impl RespConnection {
    /// Sends the last replies, and an error that names the reason if the client caused the end.
    pub(crate) async fn shut_down(&mut self, end: Result<Disconnect, std::io::Error>) {
        match end {
            Ok(Disconnect::Broken(error)) => self.refuse(&error).await,
            // The client may have closed only its sending side, as `nc -N` does, and still read.
            Ok(Disconnect::Closed) => self.finish().await,
            Ok(Disconnect::Quit) => debug!("a client sent QUIT"),
            Ok(Disconnect::Overdue(overdue)) => {
                self.send_final_error(format!("ERR {overdue}")).await;
            }
            Ok(Disconnect::TooFast) => {
                let max = self.app.settings.limits.max_commands_per_sec;
                self.send_final_error(format!("ERR Too many commands: max {max} a second")).await;
                self.drain_input().await;
            }
            Ok(Disconnect::BufferFull) => {
                self.send_final_error("ERR Too many commands behind one that waits".into()).await;
                self.drain_input().await;
            }
            // An error cannot be sent in the middle of a reply.
            Err(error) if SlowClient::is_behind(&error) => {
                let caller = &self.session.caller;
                warn!(from = %caller.from, connection = %caller.connection, %error, "a client is disconnected");
            }
            Err(error) => debug!(%error, "a connection broke"),
        }
    }

    async fn send_final_error(&mut self, line: String) {
        self.drop_running();
        debug!(line, from = %self.session.caller.from, "a connection is closed");
        let _closed_anyway = self.writer.send(Reply::Error(line)).await;
    }

    /// Drops the commands in flight, so that a blocked command claims nothing while the last
    /// replies are sent and the client is still read.
    fn drop_running(&mut self) {
        self.running.clear();
    }

    /// Carries out and answers the commands that were received, except a blocked command.
    async fn finish(&mut self) {
        loop {
            self.start_ready().await;
            if self.running.is_empty() || self.is_only_blocked() {
                break;
            }
            let done = next_done(&mut self.running).await;
            match self.answer(done).await {
                Ok(false) => {}
                Ok(true) => break,
                Err(_gone) => return,
            }
        }
        self.drop_running();
        if let Err(error) = self.writer.flush().await {
            debug!(%error, "the last replies could not be sent");
        }
    }

    /// Answers the commands before an invalid frame, and then sends the error of the frame.
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

    /// Reads and discards input for [`LINGER`]. The client may still be sending, and to close the
    /// socket then would reset the connection, so that the last replies would be lost.
    async fn drain_input(&mut self) {
        let linger = async {
            tokio::io::AsyncWriteExt::shutdown(self.writer.get_mut()).await?;
            let mut sink = vec![0; 64 * 1024];
            while self.reader.get_mut().read(&mut sink).await? > 0 {}
            Ok::<_, std::io::Error>(())
        };
        if timeout(LINGER, linger).await.is_err() {
            debug!("a client that was disconnected continued to send");
        }
    }

    /// Returns the claims of the connection that no worker reports on.
    pub(crate) async fn close(mut self) {
        // Dropping the commands in flight returns claims whose delivery has not ended.
        self.running.clear();
        self.session.close();
        let unacked = self.session.unacked_claims.take();
        let caller = &self.session.caller;
        let closed = ClosedConnection {
            name: Arc::clone(&caller.connection),
            worker_id: caller.registered.clone(),
            unacked,
        };
        if let Err(error) = service::closed_connections::release(&self.app, closed).await {
            warn!(%error, connection = %caller.connection, "the claims of a closed connection could not be returned; the reaper tries again");
        }
        debug!(connection = %caller.connection, "closed");
    }
}

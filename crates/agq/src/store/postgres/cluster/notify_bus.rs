//! Notifications between nodes, by NOTIFY (the AgentPG spec, LISTEN/NOTIFY Events and Fallback
//! Polling).
//!
//! A notification wakes waiters at other nodes at once. Nodes also poll, because a notification may
//! be lost.
//!
//! A notification is not sent in the transaction that it is about, because commits with
//! notifications would wait for each other and for the disk. The notification is sent right after
//! that commit, in a transaction of its own that waits for no disk.

use std::{
    collections::HashSet,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use bytes::Bytes;
use futures_util::future::pending;
use sqlx::{
    Error, PgConnection, Result, Row,
    postgres::{PgListener, PgNotification},
    query,
};
use tokio::{
    sync::mpsc,
    time::{Instant, MissedTickBehavior, interval, sleep},
};
use tracing::{debug, info, warn};

use crate::store::{
    BatchEvents, ChangeNotifier,
    postgres::{
        CONNECT_TIMEOUT, PostgresSettings,
        cluster::{
            nodes::{LEAVES, NODES, Nodes},
            outgoing_messages::{OutgoingMessage, OutgoingMessages},
        },
        connection::{ConnectOptions, DedicatedConnection, is_disconnect, within},
        ready_positions::{ReadyNotices, ReadyPositions},
    },
};

const JOBS: &str = "agq_jobs";
/// Channel for lists with new elements: the key in hex, or nothing for any list.
const LISTS: &str = "agq_lists";
/// Payload of a node whose first client subscribes to changes.
const LISTENS: &str = "listens";
/// Channel for pub/sub messages: channel and payload in hex, and a word that is unique in its
/// transaction, or the number of a stored message.
const MESSAGES: &str = "agq_messages";
/// Maximum payload of a notice in bytes, because PostgreSQL accepts less than 8,000.
const MAX_PAYLOAD: usize = 7_900;
const MAX_TOGETHER: usize = 1_000;
const RETRY_DELAY: Duration = Duration::from_millis(500);
/// Interval at which a node notifies itself, which shows that its LISTEN connection works.
const BEAT: Duration = Duration::from_secs(3);
/// Silence after which LISTEN counts as dead, because a vanished peer closes no connection.
const LISTEN_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit of a transaction of messages, of which one may be as long as a command.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(30);
/// Time for which notices and messages are retried before they are dropped. By then, waiters have
/// polled.
const RETRY_FOR: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) enum BusMessage {
    /// Ready jobs.
    Jobs(ReadyPositions),
    /// List with new elements.
    List(Bytes),
    /// Event for other programs that listen at the database: channel and JSON document.
    Event(&'static str, String),
    Beat,
}

pub(crate) struct NotifyBus {
    pub(crate) access: ConnectOptions,
    /// Pub/sub messages for the other nodes.
    pub(crate) messages: OutgoingMessages,
    /// Dedicated connection that reads long messages, because other reads may use the whole pool.
    pub(crate) dedicated: DedicatedConnection,
    pub(crate) nodes: Arc<Nodes>,
    pub(crate) notifier: Arc<ChangeNotifier>,
    /// Ready jobs of other nodes, for the claims of this node.
    pub(crate) ready_notices: Arc<ReadyNotices>,
    pub(crate) settings: PostgresSettings,
}

impl NotifyBus {
    /// Sends the notices of this node to the other nodes, until the channel is closed. If the
    /// connection is lost, sends the notices again over a new connection, for up to `RETRY_FOR`.
    pub(crate) async fn publish(self: Arc<Self>, mut notices: mpsc::Receiver<BusMessage>) {
        let mut connection = None;
        let mut waiting = Vec::new();
        let mut failing_since = None;
        let mut beats = interval(BEAT);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            if waiting.is_empty() {
                tokio::select! {
                    count = notices.recv_many(&mut waiting, MAX_TOGETHER) => if count == 0 { return },
                    _ = beats.tick(), if self.settings.listens => waiting.push(BusMessage::Beat),
                }
            }
            let was_open = connection.is_some();
            let count = count_until_equal_event(&waiting);
            match within(LISTEN_TIMEOUT, self.send(&mut connection, &waiting[..count])).await {
                Ok(()) => {
                    waiting.drain(..count);
                    failing_since = None;
                }
                Err(error) => {
                    connection = None;
                    let since: Instant = *failing_since.get_or_insert_with(Instant::now);
                    if !is_disconnect(&error) || since.elapsed() >= RETRY_FOR {
                        warn!(%error, count = waiting.len(), "notifications for other nodes are dropped; the nodes find jobs and elements by polling, and other programs miss events");
                        waiting.clear();
                        failing_since = None;
                    } else if !was_open {
                        sleep(RETRY_DELAY).await;
                    }
                }
            }
        }
    }

    /// Sends notices in one transaction, of which PostgreSQL delivers equal notifications once.
    async fn send(&self, connection: &mut Option<PgConnection>, waiting: &[BusMessage]) -> Result<()> {
        let connection = self.opened(connection).await?;
        let (channels, payloads) = waiting.iter().map(|notice| self.encode(notice)).unzip();
        notify(connection, channels, payloads).await
    }

    /// Opens the connection unless it is open.
    async fn opened<'c>(&self, connection: &'c mut Option<PgConnection>) -> Result<&'c mut PgConnection> {
        match connection {
            Some(connection) => Ok(connection),
            None => Ok(connection.insert(self.access.connect_with(&[("synchronous_commit", "off")]).await?)),
        }
    }

    /// Returns the channel and the payload of a notice.
    fn encode(&self, notice: &BusMessage) -> (&'static str, String) {
        let node = &self.nodes.name;
        match notice {
            BusMessage::Jobs(ready) => (JOBS, format!("{node} {}", ready.encode())),
            BusMessage::Beat => (NODES, node.clone()),
            BusMessage::Event(channel, json) => (channel, json.clone()),
            BusMessage::List(key) if key.len() * 2 < MAX_PAYLOAD - node.len() => {
                (LISTS, format!("{node} {}", hex(key)))
            }
            BusMessage::List(_) => (LISTS, node.clone()),
        }
    }

    /// Sends the pub/sub messages of this node to the other nodes, until dropped. The messages have
    /// a connection of their own, because ready jobs must not wait behind a long message.
    pub(crate) async fn publish_messages(self: Arc<Self>) {
        let mut connection = None;
        loop {
            let (messages, dropped) = self.messages.take().await;
            if dropped > 0 {
                warn!(
                    count = dropped,
                    "messages of PUBLISH for other nodes were dropped, because too many waited; publish the key of a list with large data"
                );
            }
            let began = Instant::now();
            while let Err(error) =
                within(MESSAGE_TIMEOUT, self.send_messages(&mut connection, &messages)).await
            {
                connection = None;
                if !is_disconnect(&error) || began.elapsed() >= RETRY_FOR {
                    warn!(%error, count = messages.len(), "messages of PUBLISH for other nodes are dropped, because they cannot be sent; the next ones are tried");
                    break;
                }
                sleep(RETRY_DELAY).await;
            }
        }
    }

    /// Sends messages in one transaction. Stores a long message, and notifies with its number.
    async fn send_messages(
        &self,
        connection: &mut Option<PgConnection>,
        messages: &[OutgoingMessage],
    ) -> Result<()> {
        let connection = self.opened(connection).await?;
        let encode = |(place, message): (usize, &OutgoingMessage)| {
            format!("{} {} {} {place}", self.nodes.name, hex(&message.channel), hex(&message.payload))
        };
        let payloads: Vec<String> = messages.iter().enumerate().map(encode).collect();
        if !messages.iter().any(OutgoingMessage::is_long) {
            return notify(connection, vec![MESSAGES; payloads.len()], payloads).await;
        }
        // One statement, so that a retry stores no message again.
        let sql = "WITH stored AS (INSERT INTO agq.messages (payload) SELECT convert_to(n.payload, 'UTF8') \
             FROM unnest($2::text[]) AS n (payload) RETURNING message) SELECT pg_notify($1, message::text) FROM stored";
        query(sql).bind(MESSAGES).bind(payloads).execute(connection).await.map(drop)
    }

    /// Receives notifications, and polls, until dropped. Passes pub/sub messages to `tell`.
    pub(crate) async fn receive(&self, tell: impl Fn(Bytes, Bytes)) {
        let polling = async {
            let mut ticks = interval(self.settings.poll);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                // Without LISTEN, polling is the only way to find a new node.
                match self.nodes.find_peers().await {
                    // Waiters of a node that is alone claim again, too, because claims pass over
                    // jobs that any other session has locked.
                    Ok(()) => {
                        self.ready_notices.add(ReadyPositions::any());
                        self.notifier.announce_all();
                    }
                    // The waiters would get an error.
                    Err(error) => debug!(%error, "the search for other nodes failed"),
                }
            }
        };
        let listening = async {
            if !self.settings.listens {
                return pending::<()>().await;
            }
            let mut is_disconnected = false;
            loop {
                let listening = self.listen(&tell, &mut is_disconnected).await;
                self.ready_notices.set_listening(false);
                if let Err(error) = listening {
                    if is_disconnected {
                        debug!(%error, "the LISTEN connection still cannot be opened");
                    } else {
                        warn!(%error, "no notifications from other nodes; agq polls until the connection is back");
                    }
                    is_disconnected = true;
                }
                sleep(RETRY_DELAY).await;
            }
        };
        let announcing_interest = async {
            loop {
                self.notifier.subscribers_changed().await;
                if let Err(error) = self.announce_interest().await {
                    debug!(%error, "other nodes could not be notified whether this node has subscribers");
                }
            }
        };
        futures_util::future::join3(polling, listening, announcing_interest).await;
    }

    /// Shows other nodes whether this node has subscribers, and notifies them at once if it has.
    async fn announce_interest(&self) -> Result<()> {
        self.nodes.send_heartbeat().await?;
        if self.notifier.has_subscribers() {
            self.nodes.notify(NODES, &format!("{} {LISTENS}", self.nodes.name)).await?;
        }
        Ok(())
    }

    /// Listens until the connection fails, or not even this node's own notifications arrive.
    async fn listen(&self, tell: &impl Fn(Bytes, Bytes), is_disconnected: &mut bool) -> Result<()> {
        let mut listener = within(CONNECT_TIMEOUT, async {
            let mut listener = PgListener::connect_with(&self.access.pool_of_listener()).await?;
            listener.listen_all([NODES, JOBS, LISTS, MESSAGES]).await?;
            Ok(listener)
        })
        .await?;
        // The listener must not reconnect by itself, because a new connection needs the same checks
        // as any other, and the log must show when it begins.
        listener.eager_reconnect(false);
        // A node that was alone sends notices only from now on.
        self.nodes.notify(NODES, &self.nodes.name).await?;
        if std::mem::take(is_disconnected) {
            info!("LISTEN was repeated: notifications from other nodes arrive again");
        }
        // Notifications from before LISTEN were missed.
        self.ready_notices.set_listening(true);
        self.notifier.announce_all();
        while let Some(notification) = within(LISTEN_TIMEOUT, listener.try_recv()).await? {
            within(LISTEN_TIMEOUT, self.handle(&notification, tell)).await?;
        }
        Err(Error::Io(std::io::Error::other("the connection that listens was closed")))
    }

    async fn handle(&self, notification: &PgNotification, tell: &impl Fn(Bytes, Bytes)) -> Result<()> {
        let kept: String;
        let mut payload = notification.payload();
        if notification.channel() == MESSAGES
            && let Ok(message) = payload.parse::<i64>()
        {
            let sql = "SELECT payload FROM agq.messages WHERE message = $1";
            let mut connection = self.dedicated.take().await?;
            let row = query(sql).bind(message).fetch_optional(&mut connection).await?;
            self.dedicated.keep(connection);
            let Some(row) = row else { return Ok(()) };
            kept = String::from_utf8_lossy(row.try_get(0)?).into_owned();
            payload = &kept;
        }
        let mut words = payload.split(' ');
        if words.next() == Some(self.nodes.name.as_str()) {
            return Ok(());
        }
        self.nodes.has_peers.store(true, Ordering::Relaxed);
        if payload.ends_with(LISTENS) && notification.channel() == NODES {
            self.nodes.has_remote_subscribers.store(true, Ordering::Relaxed);
        }
        match (notification.channel(), words.next().map(unhex), words.next().map(unhex)) {
            (NODES, ..) if payload.ends_with(LEAVES) => self.seek_vacant_lease(),
            (NODES, ..) => {}
            (JOBS, ..) => {
                let ready = payload.split_once(' ').map_or("", |(_node, ready)| ready);
                self.ready_notices.add(ReadyPositions::decode(ready));
                self.notifier.announce(BatchEvents { jobs: true, ..BatchEvents::default() });
            }
            (LISTS, Some(Some(key)), _) => {
                let lists = [key].into();
                self.notifier.announce(BatchEvents { lists, ..BatchEvents::default() });
            }
            (LISTS, ..) => self.notifier.announce_all(),
            (MESSAGES, Some(Some(channel)), Some(Some(payload))) => tell(channel, payload),
            _ => debug!(channel = notification.channel(), "a notification has an unknown format"),
        }
        Ok(())
    }

    /// Sends a heartbeat, which takes the lease if it is free, because a node has left. Does not
    /// wait for it, because notifications must not wait.
    fn seek_vacant_lease(&self) {
        let nodes = Arc::clone(&self.nodes);
        tokio::spawn(async move {
            if let Err(error) = nodes.send_heartbeat().await {
                debug!(%error, "the heartbeat after the end of another node failed");
            }
        });
    }
}

/// Sends notifications in one transaction.
async fn notify(
    connection: &mut PgConnection,
    channels: Vec<&'static str>,
    payloads: Vec<String>,
) -> Result<()> {
    let sql =
        "SELECT pg_notify(n.channel, n.payload) FROM unnest($1::text[], $2::text[]) AS n (channel, payload)";
    query(sql).bind(channels).bind(payloads).execute(connection).await.map(drop)
}

/// Returns the number of notices before the first event that equals an earlier one. Other programs
/// get each event only if equal events are sent in separate transactions.
fn count_until_equal_event(notices: &[BusMessage]) -> usize {
    let mut events = HashSet::new();
    for (place, notice) in notices.iter().enumerate() {
        if let BusMessage::Event(channel, json) = notice
            && !events.insert((*channel, json.as_str()))
        {
            return place;
        }
    }
    notices.len()
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _always_written = write!(text, "{byte:02x}");
        text
    })
}

fn unhex(text: &str) -> Option<Bytes> {
    let digits = |at: usize| text.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
    (0..text.len()).step_by(2).map(digits).collect::<Option<Vec<u8>>>().map(Bytes::from)
}

#[cfg(test)]
mod tests {
    use super::{BusMessage, count_until_equal_event, hex, unhex};

    #[test]
    fn equal_events_are_sent_in_separate_transactions() {
        let event = |channel, json: &str| BusMessage::Event(channel, json.into());
        let notices = [event("a", "1"), event("a", "2"), event("b", "1"), BusMessage::Beat, event("a", "2")];
        assert_eq!(count_until_equal_event(&notices), 4);
        assert_eq!(count_until_equal_event(&notices[4..]), 1);
        assert_eq!(count_until_equal_event(&[BusMessage::Beat, BusMessage::Beat]), 2);
    }

    #[test]
    fn hex_round_trips_all_bytes() {
        for bytes in [&b""[..], b"key", b"\0\xff \n"] {
            assert_eq!(unhex(&hex(bytes)).unwrap(), bytes);
        }
        assert!(unhex("0").is_none() && unhex("xy").is_none() && unhex("\u{e9}").is_none());
    }
}

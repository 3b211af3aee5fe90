//! Events of jobs: JSON forms and the event stream (OJS events, OJS realtime).

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use agenix_protocol::{ids::JobId, request::CommandAccess, time::Timestamp};
use agenix_rules::{
    job::{Job, JobFailure},
    ojs::check_queue,
};
use axum::{
    Extension,
    extract::Query,
    http::{HeaderMap, header},
};
use futures_util::stream::unfold;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::{
    app::AppState,
    http::{
        Shared,
        auth::{credentials::bearer, role::RequireClient},
        extract::job_id,
        peer::Peer,
        response::{ApiError, HttpResult, no_content, quoted},
        stream::{self, StreamPermit},
    },
    registry::event_log::{EventLog, EventLogPlace, LoggedEvent},
    service::lookup,
};

/// Interval of comments on an idle stream, because proxies close idle connections.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// Maximum number of events in one write.
const PAGE: usize = 100;
/// Maximum number of channels of a stream.
const MAX_CHANNELS: usize = 100;

#[derive(Debug, Clone, PartialEq, Eq)]
enum EventChannel {
    Job(JobId),
    Queue(String),
    All,
}

impl EventChannel {
    fn read(text: &str) -> HttpResult<Self> {
        match text.split_once(':') {
            Some(("job", id)) => Ok(Self::Job(job_id(id)?)),
            Some(("queue", name)) => {
                let checked = check_queue(name).map(|()| Self::Queue(name.to_owned()));
                checked.map_err(|rejection| ApiError::invalid(format!("channel: {rejection}")))
            }
            None if text == "all" => Ok(Self::All),
            _ => {
                let text = format!("channel is '{}': use job:ID, queue:NAME or all", quoted(text));
                Err(ApiError::invalid(text))
            }
        }
    }

    fn read_all(query: &[(String, String)]) -> HttpResult<Vec<Self>> {
        let texts = query.iter().filter(|(name, _)| name == "channel");
        let texts = texts.flat_map(|(_, texts)| texts.split(',')).map(str::trim).collect::<Vec<_>>();
        if texts.is_empty() || texts.len() > MAX_CHANNELS {
            let (count, names) = (texts.len(), "job:ID, queue:NAME or all");
            let text = format!("channel is given {count} times: name 1 to {MAX_CHANNELS}, as {names}");
            return Err(ApiError::invalid(text));
        }
        texts.into_iter().map(Self::read).collect()
    }

    fn has(&self, event: &LoggedEvent) -> bool {
        match self {
            Self::Job(id) => *id == event.job_id,
            Self::Queue(name) => *name == event.queue,
            Self::All => true,
        }
    }
}

/// Returns the fields that both JSON forms of an event share.
fn data_of(event: &LoggedEvent) -> Value {
    let mut data = json!({
        "job_id": event.job_id,
        "job_type": event.job_type,
        "queue": event.queue,
        "attempt": event.attempt,
        "to": event.to.ojs_name(),
    });
    let mut set = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            data[name] = value;
        }
    };
    set("from", event.from.map(|from| from.ojs_name().into()));
    set("duration_ms", event.duration_ms.map(Into::into));
    set("worker_id", event.worker_id.as_deref().map(Into::into));
    set("next_retry_at", event.next_attempt_at.map(|at| json!(at)));
    let error =
        |error: &JobFailure| json!({"code": error.code, "type": error.kind, "message": error.message});
    set("error", event.error.as_ref().map(error));
    if let Some((percent, message)) = &event.progress {
        #[expect(clippy::cast_possible_truncation, reason = "between 0 and 100")]
        let percent = percent.round() as i64;
        set("progress", Some(percent.into()));
        set("message", message.as_deref().map(Into::into));
    }
    data
}

/// Formats an event as a JSON document for lists.
pub(super) fn envelope(log: &EventLog, event: &LoggedEvent) -> Value {
    json!({
        "specversion": "1.0",
        "id": log.id_of(event),
        "type": event.kind,
        "source": "agq",
        "time": event.at,
        "subject": event.job_id,
        "data": data_of(event),
    })
}

/// Formats an event as a server-sent event. The id says that the client has got the ends of its
/// jobs up to `ends_until`, so that it does not get them again when it returns.
fn message(log: &EventLog, event: &LoggedEvent, ends_until: Option<Timestamp>) -> String {
    let mut data = data_of(event);
    data["type"] = event.job_type.as_str().into();
    data["timestamp"] = json!(event.at);
    let id = log.id_at(EventLogPlace { number: event.number, ends_until });
    format!("id: {id}\nevent: {}\ndata: {data}\n\n", event.kind)
}

struct EventStream {
    permit: StreamPermit,
    app: Arc<AppState>,
    peer: Peer,
    channels: Vec<EventChannel>,
    up_to: u64,
    changes: watch::Receiver<u64>,
    has_begun: bool,
    /// Set until the log is first read, if the client has returned: the log may have dropped events
    /// since the client left.
    may_have_gap: bool,
    /// Jobs that had ended before the stream began and have no event on it yet.
    ended: Vec<Job>,
    /// See [`EventLogPlace`].
    ends_until: Option<Timestamp>,
    /// Unfinished jobs, if all channels are jobs. The stream ends when the set is empty.
    running: Option<BTreeSet<JobId>>,
}

pub(super) async fn follow(
    state: Shared,
    _: RequireClient,
    Extension(peer): Extension<Peer>,
    Query(query): Query<Vec<(String, String)>>,
    headers: HeaderMap,
) -> HttpResult {
    let channels = EventChannel::read_all(&query)?;
    let app = Arc::clone(&state.app);
    // Subscribe before reading the jobs, so that a job that ends in between has an event.
    let (last, changes) = app.events.listen();
    let seen = headers.get("last-event-id").and_then(|id| app.events.place_of(id.to_str().ok()?));
    let (mut ended, mut jobs) = (Vec::new(), BTreeSet::new());
    for channel in &channels {
        let EventChannel::Job(id) = channel else { continue };
        let job = lookup::job_record(&app, id).await?;
        if job.ojs.is_none() {
            return Err(ApiError::invalid(format!(
                "channel: the job {id} was submitted over RESP, and has no events over HTTP: SUBSCRIBE to job:updates over RESP"
            )));
        }
        let is_over = job.is_ended() && seen.is_some_and(|seen| app.events.has_seen_end(seen, &job));
        if !is_over && jobs.insert(id.clone()) && job.is_ended() {
            ended.push(job);
        }
    }
    let is_of_jobs = channels.iter().all(|channel| matches!(channel, EventChannel::Job(_)));
    if is_of_jobs && jobs.is_empty() {
        // A client that reconnects by itself stops after this status.
        return Ok(no_content());
    }
    let checked_state = Arc::clone(&state);
    let is_admitted = Box::new(move || {
        let key = headers.get(header::AUTHORIZATION).and_then(|value| bearer(value.as_bytes()));
        key.is_none_or(|key| {
            let identity = checked_state.access_control.keyring.identify(key);
            identity.is_some_and(|identity| identity.role.allows(CommandAccess::Client))
        })
    });
    let permit = StreamPermit::take(&state, &peer, is_admitted)?;
    let stream_state = EventStream {
        permit,
        app,
        peer,
        channels,
        up_to: seen.map_or(last, |seen| seen.number),
        changes,
        has_begun: false,
        may_have_gap: seen.is_some(),
        ended,
        ends_until: seen.and_then(|seen| seen.ends_until),
        running: is_of_jobs.then_some(jobs),
    };
    Ok(stream::response(unfold(stream_state, |mut stream_state| async move {
        let text = stream_state.next().await?;
        Some((text, stream_state))
    })))
}

impl EventStream {
    /// Returns the next events, or `None` at the end of the stream.
    async fn next(&mut self) -> Option<String> {
        if !self.has_begun {
            self.has_begun = true;
            return Some("retry: 3000\n\n".into());
        }
        let clock = self.app.clock.clone();
        loop {
            if self.running.as_ref().is_some_and(BTreeSet::is_empty) {
                return None;
            }
            let text = self.new_events()?;
            if !text.is_empty() {
                return (self.permit.is_admitted)().then_some(text);
            }
            tokio::select! {
                () = self.peer.gone() => return None,
                changes = self.changes.changed() => changes.ok()?,
                () = clock.sleep(HEARTBEAT) => {
                    return (self.permit.is_admitted)().then(|| ":heartbeat\n\n".into());
                }
            }
        }
    }

    /// Returns the events since the last call, or `None` if the log has dropped some of them. A
    /// client that has returned too late gets a comment and all events that the log has, because
    /// it would return for ever with the same id if its stream ended here.
    fn new_events(&mut self) -> Option<String> {
        let log = &self.app.events;
        let channels = &self.channels;
        let followed =
            log.follow(self.up_to, PAGE, |event| channels.iter().any(|channel| channel.has(event)));
        let may_have_gap = std::mem::take(&mut self.may_have_gap);
        if followed.has_gap && !may_have_gap {
            return None;
        }
        self.up_to = followed.up_to;
        let mut events = followed.events;
        let reported = events.iter().filter(|event| event.is_last()).map(|event| event.job_id.clone());
        let reported: BTreeSet<JobId> = reported.collect();
        self.ended.retain(|job| !reported.contains(&job.job_id));
        let mut ends_until = self.ends_until;
        if events.len() < PAGE {
            let (up_to, now) = (followed.up_to, self.app.clock.now());
            ends_until = ends_until.max(self.ended.iter().filter_map(|job| job.ended_at).max());
            events.extend(self.ended.drain(..).filter_map(|job| EventLog::end_of(up_to, &job, now)));
        }
        if let Some(running) = &mut self.running {
            for event in events.iter().filter(|event| event.is_last()) {
                running.remove(&event.job_id);
            }
        }
        let mut text = if followed.has_gap { ":gap\n\n".to_owned() } else { String::new() };
        if let Some((last, others)) = events.split_last() {
            text.extend(others.iter().map(|event| message(log, event, self.ends_until)));
            // The client has got all these ends only with the last message.
            text.push_str(&message(log, last, ends_until));
            self.ends_until = ends_until;
        }
        Some(text)
    }
}

//! Event loop of `agx top`: polls agq, reads keys, and runs the actions of the user.

use std::{io, time::Duration};

use agenix_client::{Connection, Server};
use agenix_protocol::{
    documents::{ActionStatus, JobStatus, Status},
    ids::{ActionId, JobId},
};
use futures_util::future::try_join_all;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use tokio::{sync::mpsc, time::sleep};

use super::{
    job_list::{FailedJobs, MAX_JOBS, jobs_shown},
    model::{KeyPress, Screen, TopModel, UserAction},
    view::draw,
};
use crate::{
    error::Result,
    output::counted,
    remote::overview::{self, ClusterOverview},
    util::{signals, threads},
};

const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Pressed keys, and `None` if only the screen changes.
type Keys = mpsc::UnboundedReceiver<Option<KeyPress>>;

/// State of the screen, keys of the user, and the function that draws the state.
struct Top<D> {
    model: TopModel,
    keys: Keys,
    redraw: D,
}

enum WaitEnd<T> {
    Done(T),
    /// A key asks for this action.
    Asked(UserAction),
}

/// Runs the screen until the user quits or a signal asks agx to end, and restores the terminal.
pub(crate) async fn show(server: &Server) -> Result<()> {
    // Connection errors are reported before the terminal switches to the full screen.
    let connection = Connection::open(server).await?;
    let mut signal = signals::listen();
    let keys = keys()?;
    let mut terminal = ratatui::try_init()?;
    let redraw = move |model: &TopModel| terminal.draw(|frame| draw(frame, model)).map(|_drawn| ());
    let mut top = Top { model: TopModel::default(), keys, redraw };
    let shown = tokio::select! {
        shown = top.run(server, Some(connection)) => shown,
        () = signal.arrived() => Ok(()),
    };
    if ratatui::try_restore().is_err() {
        // The terminal is closed, and its destructor would write a message there, and panic.
        std::mem::forget(top);
    }
    shown
}

impl<D: FnMut(&TopModel) -> io::Result<()>> Top<D> {
    /// Runs until the user quits. Keys count at any time, also while agq does not answer.
    async fn run(&mut self, server: &Server, mut connection: Option<Connection>) -> Result<()> {
        let mut action = UserAction::Refresh;
        loop {
            action = match action {
                UserAction::Quit => return Ok(()),
                UserAction::Refresh => self.refresh(server, &mut connection).await?,
                other => self.act(connection.clone(), other).await?,
            };
        }
    }

    /// Refreshes the screen, and waits until the next refresh is due or a key asks for an action.
    async fn refresh(&mut self, server: &Server, connection: &mut Option<Connection>) -> Result<UserAction> {
        let known = self.model.failed_jobs();
        let fetched = fetch(server, connection.clone(), self.model.screen.clone(), known);
        match self.wait_for(fetched).await? {
            WaitEnd::Asked(action) => return Ok(action),
            WaitEnd::Done(Ok((open, overview, jobs))) => {
                *connection = Some(open);
                match self.model.screen {
                    Screen::Jobs(_) => self.model.update_jobs(jobs),
                    Screen::Job(_) => self.model.update_job(jobs.into_iter().next()),
                    _ => {}
                }
                self.model.update(overview);
                self.model.record_failed_jobs();
            }
            WaitEnd::Done(Err(failure)) => {
                *connection = None;
                self.model.inform(format!("{failure}; trying again"));
            }
        }
        Ok(match self.wait_for(sleep(POLL_INTERVAL)).await? {
            WaitEnd::Asked(action) => action,
            WaitEnd::Done(()) => UserAction::Refresh,
        })
    }

    /// Runs `action`, and shows its result. Meanwhile keys start no other action.
    async fn act(&mut self, connection: Option<Connection>, action: UserAction) -> Result<UserAction> {
        let applied = apply(connection, action);
        tokio::pin!(applied);
        loop {
            match self.wait_for(&mut applied).await? {
                WaitEnd::Asked(UserAction::Quit) => return Ok(UserAction::Quit),
                WaitEnd::Asked(UserAction::Refresh) => {}
                WaitEnd::Asked(_) => {
                    self.model.inform("agq has not answered yet; nothing more was done, try again".into());
                }
                WaitEnd::Done(result) => {
                    self.model.inform(result.unwrap_or_else(|failure| failure.to_string()));
                    return Ok(UserAction::Refresh);
                }
            }
        }
    }

    /// Draws the screen, and waits for `work` or for a key that asks for an action.
    async fn wait_for<T>(&mut self, work: impl Future<Output = T>) -> Result<WaitEnd<T>> {
        tokio::pin!(work);
        loop {
            (self.redraw)(&self.model)?;
            let key = tokio::select! {
                done = &mut work => return Ok(WaitEnd::Done(done)),
                key = self.keys.recv() => key,
            };
            // `None` means that the terminal is closed.
            let Some(key) = key else { return Ok(WaitEnd::Asked(UserAction::Quit)) };
            if let Some(action) = key.and_then(|key| self.model.press(key)) {
                return Ok(WaitEnd::Asked(action));
            }
        }
    }
}

/// Returns the keys that the user presses. The thread ends with the process.
fn keys() -> Result<Keys> {
    let (tell, keys) = mpsc::unbounded_channel();
    threads::start(move || {
        while let Ok(event) = event::read() {
            let key = match event {
                Event::Key(key) if key.kind != KeyEventKind::Release => key_of(key),
                _ => None,
            };
            if tell.send(key).is_err() {
                return;
            }
        }
    })?;
    Ok(keys)
}

fn key_of(key: event::KeyEvent) -> Option<KeyPress> {
    Some(match key.code {
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => KeyPress::Letter('q'),
        KeyCode::Up | KeyCode::Char('k') => KeyPress::Up,
        KeyCode::Down | KeyCode::Char('j') => KeyPress::Down,
        KeyCode::PageUp => KeyPress::PageUp,
        KeyCode::PageDown | KeyCode::Char(' ') => KeyPress::PageDown,
        KeyCode::Enter | KeyCode::Right => KeyPress::Enter,
        KeyCode::Esc | KeyCode::Left | KeyCode::Backspace => KeyPress::Back,
        KeyCode::Tab => KeyPress::Next,
        KeyCode::Char(letter) => KeyPress::Letter(letter),
        _ => return None,
    })
}

/// Fetches the overview, and the jobs of `screen`, of which `known` are the failed ones. Connects
/// if there is no connection.
async fn fetch(
    server: &Server,
    connection: Option<Connection>,
    screen: Screen,
    known: Option<FailedJobs>,
) -> Result<(Connection, ClusterOverview, Vec<JobStatus>)> {
    let mut connection = match connection {
        Some(connection) => connection,
        None => Connection::open(server).await?,
    };
    let overview = overview::fetch(&mut connection, server.address()).await?;
    let jobs = match screen {
        Screen::Jobs(action_id) => jobs(&mut connection, &action_id, &overview.actions, known).await?,
        Screen::Job(job_id) => connection.job(&job_id).await?.into_iter().collect(),
        _ => Vec::new(),
    };
    Ok((connection, overview, jobs))
}

/// Fetches the jobs for the screen of an action. `known` are the failed ones on the screen.
async fn jobs(
    connection: &mut Connection,
    action_id: &ActionId,
    actions: &[ActionStatus],
    known: Option<FailedJobs>,
) -> Result<Vec<JobStatus>> {
    let failed = match actions.iter().find(|action| action.action_id == *action_id) {
        Some(action) => failed_jobs(connection, action, known).await?,
        None => Vec::new(),
    };
    let first = connection.jobs_from(action_id, 0, MAX_JOBS).await?;
    let ids = jobs_shown(failed, first);
    let asked = ids.iter().map(|job_id| {
        let mut connection = connection.clone();
        async move { connection.job(job_id).await }
    });
    Ok(try_join_all(asked).await?.into_iter().flatten().collect())
}

/// Fetches the ids of failed jobs, at most [`MAX_JOBS`]. Returns `known` if the numbers of failed
/// jobs have not changed, because agq reads all jobs of the action for such a list.
async fn failed_jobs(
    connection: &mut Connection,
    action: &ActionStatus,
    known: Option<FailedJobs>,
) -> Result<Vec<JobId>> {
    if let Some(known) = known.filter(|known| known.counts == (action.failed, action.dead)) {
        return Ok(known.ids);
    }
    let mut ids = Vec::new();
    for (status, count) in [(Status::Failed, action.failed), (Status::Dead, action.dead)] {
        if count > 0 && ids.len() < MAX_JOBS {
            ids.extend(connection.first_jobs(&action.action_id, status, MAX_JOBS - ids.len()).await?);
        }
    }
    Ok(ids)
}

/// Runs `action`, and returns the text for the status line.
async fn apply(connection: Option<Connection>, action: UserAction) -> Result<String> {
    let Some(mut connection) = connection else { return Ok("agq is not connected; nothing was done".into()) };
    let jobs_are = |count| counted(count, "job is", "jobs are");
    Ok(match action {
        UserAction::Quit | UserAction::Refresh => String::new(),
        UserAction::CancelAction(id) => {
            format!("of action {id}, {} cancelled", jobs_are(connection.cancel_action(&id).await?))
        }
        UserAction::RetryAction(id) => {
            format!("of action {id}, {} retried", jobs_are(connection.retry_action(&id).await?))
        }
        UserAction::CancelJob(id) => {
            connection.cancel_job(&id).await?;
            format!("job {id} is cancelled")
        }
        UserAction::RetryJob(id) => {
            connection.retry_job(&id, true).await?;
            format!("job {id} is retried")
        }
        UserAction::Drain(id, drains) => {
            if drains {
                connection.drain_worker(&id, None).await?;
            } else {
                connection.resume_worker(&id).await?;
            }
            format!("the worker {id} {}", if drains { "takes no more jobs" } else { "takes jobs again" })
        }
        UserAction::Pause(queue, pauses) => {
            connection.pause_queue(&queue, pauses).await?;
            format!("the queue {queue} {}", if pauses { "is paused" } else { "is resumed" })
        }
    })
}

#[cfg(test)]
mod tests {
    use std::{io, os::unix::net::UnixListener};

    use agenix_client::Server;
    use tokio::sync::mpsc;

    use super::Top;
    use crate::top::model::{KeyPress, Screen, TopModel};

    #[tokio::test]
    async fn top_ends_by_a_key_while_agq_does_not_answer() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("silent");
        let _never_answers = UnixListener::bind(&path).unwrap();
        let server = Server::new(&format!("unix:{}", path.display()), "k".into()).unwrap();
        let (sender, keys) = mpsc::unbounded_channel();
        for key in [KeyPress::Next, KeyPress::Letter('q')] {
            sender.send(Some(key)).unwrap();
        }
        let redraw = |_: &TopModel| -> io::Result<()> { Ok(()) };
        let mut top = Top { model: TopModel::default(), keys, redraw };
        top.run(&server, None).await.unwrap();
        // The message would be that agq has not answered in time.
        assert_eq!((&top.model.screen, top.model.message.as_str()), (&Screen::Workers, ""));
    }
}

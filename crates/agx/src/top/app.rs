//! Event loop of `agx top`: polls agq, reads keys, and runs the actions of the user.

use std::time::Duration;

use agenix_client::{Connection, Server};
use agenix_protocol::{
    documents::{ActionStatus, JobStatus, Status},
    ids::{ActionId, JobId},
};
use futures_util::future::try_join_all;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use tokio::{sync::mpsc, time::sleep};

use super::{
    model::{KeyPress, MAX_JOBS, Screen, TopModel, UserAction, jobs_shown},
    view::draw,
};
use crate::{error::Result, output::counted, remote::overview};

const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Runs the screen until the user quits.
pub(crate) async fn show(server: &Server) -> Result<()> {
    // Connection errors are reported before the terminal switches to the full screen.
    let mut connection = Some(Connection::open(server).await?);
    let mut keys = keys();
    let mut terminal = ratatui::try_init()?;
    let shown = async {
        let mut model = TopModel::default();
        loop {
            if let Err(failure) = refresh(server, &mut connection, &mut model).await {
                model.message = format!("{failure}; trying again");
                connection = None;
            }
            terminal.draw(|frame| draw(frame, &model))?;
            let next = sleep(LOOK_EVERY);
            tokio::pin!(next);
            loop {
                let key = tokio::select! {
                    () = &mut next => break,
                    key = keys.recv() => key,
                };
                // `None` means that the terminal is closed.
                let Some(key) = key else { return Ok(()) };
                match key.and_then(|key| model.press(key)) {
                    Some(UserAction::Quit) => return Ok(()),
                    Some(UserAction::Look) => break,
                    Some(action) => {
                        model.message = match apply(connection.as_mut(), action).await {
                            Ok(message) => message,
                            Err(failure) => failure.to_string(),
                        };
                        break;
                    }
                    None => {}
                }
                terminal.draw(|frame| draw(frame, &model))?;
            }
        }
    };
    let shown = shown.await;
    ratatui::restore();
    shown
}

/// Returns pressed keys, and `None` if only the screen changes. The thread ends with the process.
fn keys() -> mpsc::UnboundedReceiver<Option<KeyPress>> {
    let (tell, keys) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        while let Ok(event) = event::read() {
            let key = match event {
                Event::Key(key) if key.kind != KeyEventKind::Release => key_of(key),
                _ => None,
            };
            if tell.send(key).is_err() {
                return;
            }
        }
    });
    keys
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

async fn refresh(server: &Server, connection: &mut Option<Connection>, model: &mut TopModel) -> Result<()> {
    let connected = match connection.take() {
        Some(connection) => connection,
        None => Connection::open(server).await?,
    };
    let connection = connection.insert(connected);
    let overview = overview::fetch(connection, server.address()).await?;
    match model.screen.clone() {
        Screen::Jobs(action_id) => {
            let known = model.failed_jobs();
            model.update_jobs(jobs(connection, &action_id, &overview.actions, known).await?);
        }
        Screen::Job(job_id) => model.job = connection.job(&job_id).await?,
        _ => {}
    }
    model.update(overview);
    Ok(())
}

/// Fetches the jobs for the screen of an action. `known` are the failed ones on the screen.
async fn jobs(
    connection: &mut Connection,
    action_id: &ActionId,
    actions: &[ActionStatus],
    known: Vec<JobId>,
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

/// Fetches the ids of failed jobs, at most [`MAX_JOBS`]. Returns `known` if `action` has as many,
/// because agq reads all jobs of the action for such a list.
async fn failed_jobs(
    connection: &mut Connection,
    action: &ActionStatus,
    known: Vec<JobId>,
) -> Result<Vec<JobId>> {
    let counts = [(Status::Failed, action.failed), (Status::Dead, action.dead)];
    let count: u64 = counts.iter().map(|(_, count)| count).sum();
    if known.len() as u64 == count.min(MAX_JOBS as u64) {
        return Ok(known);
    }
    let mut ids = Vec::new();
    for (status, count) in counts {
        if count > 0 && ids.len() < MAX_JOBS {
            ids.extend(connection.first_jobs(&action.action_id, status, MAX_JOBS - ids.len()).await?);
        }
    }
    Ok(ids)
}

/// Runs `action`, and puts the result into the status line.
async fn apply(connection: Option<&mut Connection>, action: UserAction) -> Result<String> {
    let Some(connection) = connection else { return Ok("agq is not connected; nothing was done".into()) };
    let jobs_are = |count| counted(count, "job is", "jobs are");
    Ok(match action {
        UserAction::Quit | UserAction::Look => String::new(),
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

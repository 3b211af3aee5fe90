//! Draws the state of the screen.

use agenix_protocol::{
    documents::{JobStatus, ReadyStats, Status, WorkerStatus},
    reserved_keys::queue_of,
};
use ratatui::{
    Frame,
    layout::{
        Constraint::{self, Fill, Length, Max, Min},
        Layout, Rect,
    },
    style::{Color, Modifier, Style},
    text::{Line, Text},
    widgets::{Paragraph, Row, Sparkline, Table, TableState},
};

use super::model::{Screen, TopModel};
use crate::{
    remote::{
        overview::{ClusterOverview, NOT_SHOWN, state, took},
        worker_resources::worker_resources_text,
    },
    util::printable::{one_line, printable},
};

/// Text in place of a job that agq has no longer.
const REMOVED: &str = "agq has removed this job (--keep-ended, --keep-ended-count of agq)";

/// Draws the state on a screen of any size.
pub(super) fn draw(frame: &mut Frame<'_>, model: &TopModel) {
    let [head, rates, body, foot] =
        Layout::vertical([Length(2), Length(2), Min(1), Length(2)]).areas(frame.area());
    let Some(overview) = &model.overview else {
        let message = if model.message.is_empty() { "looking …" } else { &model.message };
        frame.render_widget(Paragraph::new(one_line(message)), frame.area());
        return;
    };
    frame.render_widget(Paragraph::new(heading(model, overview)), head);
    let rates_shown: Vec<u64> = model.rates.iter().copied().collect();
    frame.render_widget(Sparkline::default().data(&rates_shown).style(Style::new().fg(Color::Green)), rates);
    match &model.screen {
        Screen::Actions => actions(frame, body, model, overview),
        Screen::Workers | Screen::Queues if !overview.sees_workers => {
            frame.render_widget(Paragraph::new(NOT_SHOWN), body);
        }
        Screen::Workers => workers(frame, body, model, overview),
        Screen::Queues => queues(frame, body, model, overview),
        Screen::Jobs(_) => jobs(frame, body, model),
        Screen::Job(_) => job(frame, body, model),
    }
    let foot_text =
        Text::from(vec![Line::from(one_line(&model.message)), Line::from(keys(&model.screen)).style(dim())]);
    frame.render_widget(Paragraph::new(foot_text), foot);
}

fn dim() -> Style {
    Style::new().add_modifier(Modifier::DIM)
}

fn heading(model: &TopModel, overview: &ClusterOverview) -> Text<'static> {
    let rate = model.rates.back().copied().unwrap_or_default();
    let tabs = [(Screen::Actions, "1 actions"), (Screen::Workers, "2 workers"), (Screen::Queues, "3 queues")];
    let tabs: String = tabs
        .map(
            |(screen, name)| if screen == model.screen { format!("[{name}] ") } else { format!(" {name}  ") },
        )
        .concat();
    Text::from(vec![
        Line::from(format!("{}   {}{rate} jobs/s", one_line(&overview.address), load(overview)))
            .style(Style::new().add_modifier(Modifier::BOLD)),
        Line::from(tabs),
    ])
}

/// Returns the load of the workers and the queues, if the key may see them.
fn load(overview: &ClusterOverview) -> String {
    if !overview.sees_workers {
        return String::new();
    }
    let active = overview.workers.iter().filter(|worker| worker.state == "active");
    let (busy, slots) = active.clone().fold((0, 0), |(busy, slots), worker| {
        (busy + worker.active_jobs, slots + u64::from(worker.max_concurrent_jobs))
    });
    let waiting =
        overview.queues.ready.length + overview.queues.others.values().map(|queue| queue.length).sum::<u64>();
    format!("{} workers, {busy} of {slots} slots busy   {waiting} jobs wait   ", active.count())
}

fn keys(screen: &Screen) -> &'static str {
    match screen {
        Screen::Actions => "↑↓ move  enter jobs  c cancel  r retry  tab next  q quit",
        Screen::Workers => "↑↓ move  d drain  u resume  tab next  q quit",
        Screen::Queues => "↑↓ move  p pause or resume  tab next  q quit",
        Screen::Jobs(_) => "↑↓ move  enter open  c cancel  r retry  esc back  q quit",
        Screen::Job(_) => "↑↓ scroll  c cancel  r retry  esc back  q quit",
    }
}

/// Draws a table with a highlighted row.
fn rows(
    frame: &mut Frame<'_>,
    at: Rect,
    names: &[&'static str],
    rows: Vec<Row<'_>>,
    widths: &[Constraint],
    row: usize,
) {
    let heading = Row::new(names.to_vec()).style(dim());
    let lit = Style::new().add_modifier(Modifier::REVERSED);
    let table = Table::new(rows, widths.to_vec()).header(heading).row_highlight_style(lit).column_spacing(2);
    frame.render_stateful_widget(table, at, &mut TableState::new().with_selected(Some(row)));
}

fn colour(state: &str) -> Style {
    match state {
        "failed" | "dead" | "quarantined" => Style::new().fg(Color::Red),
        "completed" => Style::new().fg(Color::Green),
        "running" => Style::new().fg(Color::Yellow),
        _ => Style::new(),
    }
}

/// Makes a row of texts that may contain control characters.
fn cells(texts: &[String]) -> Row<'static> {
    Row::new(texts.iter().map(|text| one_line(text)))
}

fn actions(frame: &mut Frame<'_>, at: Rect, model: &TopModel, overview: &ClusterOverview) {
    let row = |action: &agenix_protocol::documents::ActionStatus| {
        let state = state(action);
        cells(&[
            action.action_id.to_string(),
            state.to_owned(),
            format!("{}/{}", action.ended(), action.total_jobs),
            action.unsuccessful().to_string(),
            took(action),
            overview.plans.get(&action.plan_id).cloned().unwrap_or_default(),
        ])
        .style(colour(state))
    };
    let widths = [Max(36), Length(9), Length(13), Length(7), Length(9), Fill(1)];
    let all = overview.actions.iter().map(row).collect();
    rows(frame, at, &["ACTION", "STATE", "ENDED", "FAILED", "TOOK", "PLAN"], all, &widths, model.row);
}

fn workers(frame: &mut Frame<'_>, at: Rect, model: &TopModel, overview: &ClusterOverview) {
    let row = |worker: &WorkerStatus| {
        cells(&[
            worker.worker_id.to_string(),
            worker.state.clone(),
            worker.hostname.clone(),
            format!("{}/{}", worker.active_jobs, worker.max_concurrent_jobs),
            worker.capabilities.commands().count().to_string(),
            // The text has no fractions of a second.
            worker.last_seen_at.to_string().chars().take(19).collect(),
            worker_resources_text(worker),
        ])
        .style(if worker.state == "active" { Style::new() } else { colour(&worker.state) })
    };
    let widths = [Max(36), Length(11), Max(24), Length(9), Length(6), Length(19), Fill(1)];
    let all = overview.workers.iter().map(row).collect();
    rows(
        frame,
        at,
        &["WORKER", "STATE", "HOST", "JOBS", "TOOLS", "LAST SEEN", "RESOURCES"],
        all,
        &widths,
        model.row,
    );
}

fn queues(frame: &mut Frame<'_>, at: Rect, model: &TopModel, overview: &ClusterOverview) {
    let row = |name: &str, queue: &ReadyStats| {
        let unmet = queue.needs.iter().filter(|demand| demand.workers == 0);
        let unmet: Vec<String> = unmet.map(|demand| demand.wants().join(", ")).collect();
        cells(&[
            name.to_owned(),
            if queue.paused { "paused".into() } else { "open".into() },
            queue.length.to_string(),
            queue.oldest_job_age_seconds.map(|age| format!("{age} s")).unwrap_or_default(),
            if unmet.is_empty() { String::new() } else { format!("no worker has {}", unmet.join("; ")) },
        ])
    };
    let queues = &overview.queues;
    let others = queues.others.iter().map(|(key, queue)| row(queue_of(key), queue));
    let all = std::iter::once(row("ready", &queues.ready)).chain(others).collect();
    let widths = [Max(36), Length(8), Length(10), Length(10), Fill(1)];
    rows(frame, at, &["QUEUE", "STATE", "WAITING", "OLDEST", ""], all, &widths, model.row);
}

fn jobs(frame: &mut Frame<'_>, at: Rect, model: &TopModel) {
    let row = |job: &JobStatus| {
        cells(&[
            (job.index + 1).to_string(),
            job.status.as_str().to_owned(),
            job.exit_code.map(|code| code.to_string()).unwrap_or_default(),
            job.inputs.get().to_owned(),
            job.error.clone().unwrap_or_default(),
        ])
        .style(colour(job.status.as_str()))
    };
    let note = model.jobs_note();
    let [at, foot] = Layout::vertical([Min(1), Length(u16::from(note.is_some()))]).areas(at);
    let widths = [Length(7), Length(9), Length(4), Fill(1), Fill(1)];
    let all = model.jobs.iter().map(row).collect();
    rows(frame, at, &["INPUT", "STATE", "EXIT", "", ""], all, &widths, model.row);
    frame.render_widget(Paragraph::new(note.unwrap_or_default()).style(dim()), foot);
}

fn job(frame: &mut Frame<'_>, at: Rect, model: &TopModel) {
    let is_removed =
        matches!(&model.screen, Screen::Job(job_id) if model.removed_job.as_ref() == Some(job_id));
    let absent = if is_removed { REMOVED } else { "looking …" };
    let text = model.job.as_ref().map_or_else(|| absent.to_owned(), crate::remote::overview::job_text);
    let text = printable(&text);
    let style = model.job.as_ref().map_or_else(Style::new, |job| match job.status {
        Status::Failed | Status::Dead => colour("failed"),
        _ => Style::new(),
    });
    let first = u16::try_from(model.row.min(text.lines().count().saturating_sub(1))).unwrap_or(u16::MAX);
    let mut lines: Vec<Line<'_>> = text.lines().map(Line::from).collect();
    if let Some(line) = lines.first_mut() {
        *line = line.clone().style(style);
    }
    frame.render_widget(Paragraph::new(lines).scroll((first, 0)), at);
}

#[cfg(test)]
mod tests {
    use agenix_protocol::documents::QueueStats;
    use ratatui::{Terminal, backend::TestBackend};

    use super::{ClusterOverview, draw};
    use crate::top::model::{
        KeyPress, TopModel,
        tests::{job, overview},
    };

    fn seen(model: &TopModel, width: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, 12)).unwrap();
        terminal.draw(|frame| draw(frame, model)).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn top_escapes_control_characters_on_every_screen() {
        let mut model = TopModel::default();
        let mut overview = overview(0);
        overview.address = "here\u{202e}:1".into();
        for worker in &mut overview.workers {
            worker.hostname = "gpj.\u{202e}exe\u{200b}".into();
        }
        overview.plans.values_mut().for_each(|plan| *plan = "sort\u{2066}\u{1b}[2J".into());
        model.message = "y\u{200f}".into();
        model.update(overview);
        let actions = seen(&model, 120);
        assert!(actions.contains(r"here\u202e:1") && actions.contains(r"sort\u2066\x1b[2J"), "{actions}");
        model.press(KeyPress::Next);
        let workers = seen(&model, 120);
        assert!(workers.contains(r"gpj.\u202eexe\u200b"), "{workers}");
        model.message = "y\u{200f}".into();
        assert!(seen(&model, 120).contains(r"y\u200f"));
    }

    #[test]
    fn top_draws_every_screen_at_any_size() {
        let mut model = TopModel::default();
        assert!(seen(&model, 60).contains("looking …"));
        model.update(overview(0));
        model.update(overview(10));
        let actions = seen(&model, 100);
        for text in [
            "here:1   1 workers, 1 of 2 slots busy   3 jobs wait   10 jobs/s",
            "[1 actions]",
            "10/10",
            "sort {}",
            "c cancel",
        ] {
            assert!(actions.contains(text), "{text}\n{actions}");
        }
        model.press(KeyPress::Next);
        assert!(seen(&model, 100).contains("w1"));
        model.press(KeyPress::Next);
        assert!(seen(&model, 100).contains("ready"));
        for width in [1, 10, 300] {
            seen(&model, width);
        }
    }

    #[test]
    fn top_shows_actions_to_a_key_that_may_not_see_workers() {
        let mut model = TopModel::default();
        model.update(ClusterOverview {
            sees_workers: false,
            workers: Vec::new(),
            queues: QueueStats::default(),
            ..overview(10)
        });
        let actions = seen(&model, 100);
        assert!(actions.contains("here:1   0 jobs/s") && actions.contains("10/10"), "{actions}");
        for key in ['2', '3'] {
            model.press(KeyPress::Letter(key));
            assert!(seen(&model, 100).contains("this key may not list workers and queues"), "{key}");
        }
    }

    #[test]
    fn top_says_that_agq_has_removed_a_job() {
        let mut model = TopModel::default();
        model.update(overview(0));
        model.press(KeyPress::Enter);
        model.update_jobs(vec![job(0, "completed"), job(1, "completed")]);
        model.press(KeyPress::Enter);
        assert!(seen(&model, 100).contains("looking …"));
        model.update_job(Some(job(0, "completed")));
        assert!(seen(&model, 100).contains("job j0: completed"));
        model.update_job(None);
        assert!(seen(&model, 100).contains("agq has removed this job"));
        model.press(KeyPress::Letter('1'));
        model.press(KeyPress::Enter);
        model.update_jobs(vec![job(1, "completed")]);
        model.press(KeyPress::Enter);
        assert!(seen(&model, 100).contains("looking …"), "it is another job");
    }

    #[test]
    fn top_says_that_an_action_has_more_jobs_than_it_shows() {
        let mut model = TopModel::default();
        model.update(overview(0));
        model.press(KeyPress::Enter);
        model.update_jobs((0..9).map(|index| job(index, "completed")).collect());
        assert!(seen(&model, 100).contains("9 of 10 jobs are shown, failed ones first"));
        model.update_jobs((0..10).map(|index| job(index, "completed")).collect());
        let all = seen(&model, 100);
        assert!(!all.contains("jobs are shown") && all.contains("completed"), "{all}");
    }
}

//! State of the screen and the meaning of keys. No I/O.

use std::collections::VecDeque;

use agenix_protocol::{
    documents::{JobStatus, Status},
    ids::{ActionId, JobId, QueueName, WorkerId},
    reserved_keys::queue_of,
};

use super::job_list::FailedJobs;
use crate::remote::overview::ClusterOverview;

/// Maximum number of rates in the history.
const MAX_RATES: usize = 120;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) enum Screen {
    #[default]
    Actions,
    Workers,
    Queues,
    Jobs(ActionId),
    Job(JobId),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyPress {
    Up,
    Down,
    PageUp,
    PageDown,
    Enter,
    Back,
    Next,
    Letter(char),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum UserAction {
    Quit,
    /// Refresh at once, because the content has changed.
    Refresh,
    CancelAction(ActionId),
    RetryAction(ActionId),
    CancelJob(JobId),
    RetryJob(JobId),
    Drain(WorkerId, bool),
    Pause(QueueName, bool),
}

/// State of the whole screen.
#[derive(Debug, Default)]
pub(super) struct TopModel {
    pub(super) overview: Option<ClusterOverview>,
    pub(super) screen: Screen,
    /// Index of the selected row; for a job, of the first visible line.
    pub(super) row: usize,
    pub(super) jobs: Vec<JobStatus>,
    /// Action of `jobs`, its numbers of failed and dead jobs, and how many of these `jobs` had.
    listed: Option<(ActionId, (u64, u64), usize)>,
    pub(super) job: Option<JobStatus>,
    /// Job that agq has no longer.
    pub(super) removed_job: Option<JobId>,
    /// Jobs that ended in each second, the latest last.
    pub(super) rates: VecDeque<u64>,
    ended: Option<u64>,
    /// Message of the last action.
    pub(super) message: String,
    /// Action that waits for confirmation.
    pub(super) unconfirmed: Option<UserAction>,
    /// The selected item has left the list, and the user has pressed no key since.
    pub(super) is_gone: bool,
}

impl TopModel {
    pub(super) fn update(&mut self, overview: ClusterOverview) {
        let ended = overview.actions.iter().map(agenix_protocol::documents::ActionStatus::ended).sum();
        if let Some(before) = self.ended.replace(ended) {
            self.rates.push_back(ended.saturating_sub(before));
            if self.rates.len() > MAX_RATES {
                self.rates.pop_front();
            }
        }
        self.keep_selection(|model| model.overview = Some(overview));
    }

    /// Returns the number of rows; for a job, of its lines.
    pub(super) fn rows(&self) -> usize {
        let Some(overview) = &self.overview else { return 0 };
        match self.screen {
            Screen::Actions => overview.actions.len(),
            Screen::Workers => overview.workers.len(),
            Screen::Queues => 1 + overview.queues.others.len(),
            Screen::Jobs(_) => self.jobs.len(),
            Screen::Job(_) => usize::MAX,
        }
    }

    /// Handles a key. Returns the resulting action.
    pub(super) fn press(&mut self, key: KeyPress) -> Option<UserAction> {
        if let Some(action) = self.unconfirmed.take() {
            self.message =
                if key == KeyPress::Letter('y') { String::new() } else { "nothing was done".into() };
            return (key == KeyPress::Letter('y')).then_some(action);
        }
        let is_gone = std::mem::take(&mut self.is_gone);
        let last = self.rows().saturating_sub(1);
        match key {
            KeyPress::Up => self.row = self.row.saturating_sub(1),
            KeyPress::Down => self.row = self.row.saturating_add(1).min(last),
            KeyPress::PageUp => self.row = self.row.saturating_sub(10),
            KeyPress::PageDown => self.row = self.row.saturating_add(10).min(last),
            KeyPress::Letter('q') => return Some(UserAction::Quit),
            KeyPress::Letter('1') => return self.go(Screen::Actions),
            KeyPress::Letter('2') => return self.go(Screen::Workers),
            KeyPress::Letter('3') => return self.go(Screen::Queues),
            KeyPress::Next => return self.go(self.next()),
            KeyPress::Back => return self.back(),
            KeyPress::Enter => return self.open(),
            KeyPress::Letter(letter) => return self.act(letter, is_gone),
        }
        None
    }

    /// Shows a message, unless a question waits for its answer.
    pub(super) fn inform(&mut self, message: String) {
        if self.unconfirmed.is_none() {
            self.message = message;
        }
    }

    fn go(&mut self, screen: Screen) -> Option<UserAction> {
        (self.screen, self.row) = (screen, 0);
        Some(UserAction::Refresh)
    }

    fn next(&self) -> Screen {
        match self.screen {
            Screen::Actions => Screen::Workers,
            Screen::Workers => Screen::Queues,
            _ => Screen::Actions,
        }
    }

    fn back(&mut self) -> Option<UserAction> {
        match &self.screen {
            Screen::Job(_) => {
                let action = self.job.as_ref().map(|job| job.action_id.clone());
                self.go(action.map_or(Screen::Actions, Screen::Jobs))
            }
            Screen::Jobs(_) => self.go(Screen::Actions),
            _ => Some(UserAction::Quit),
        }
    }

    fn open(&mut self) -> Option<UserAction> {
        let screen = match &self.screen {
            Screen::Actions => Screen::Jobs(self.overview.as_ref()?.actions.get(self.row)?.action_id.clone()),
            Screen::Jobs(_) => Screen::Job(self.jobs.get(self.row)?.job_id.clone()),
            _ => return None,
        };
        self.jobs.clear();
        self.job = None;
        self.go(screen)
    }

    /// Returns the action of a letter. An irreversible action waits for confirmation. If the item
    /// that the letter means may be gone (`is_gone`), there is none.
    fn act(&mut self, letter: char, is_gone: bool) -> Option<UserAction> {
        let overview = self.overview.as_ref()?;
        let action_id = || overview.actions.get(self.row).map(|action| action.action_id.clone());
        let worker_id = || overview.workers.get(self.row).map(|worker| worker.worker_id.clone());
        let job_id = || self.jobs.get(self.row).map(|job| job.job_id.clone());
        let action = match (&self.screen, letter) {
            (Screen::Actions, 'c') => UserAction::CancelAction(action_id()?),
            (Screen::Actions, 'r') => UserAction::RetryAction(action_id()?),
            (Screen::Jobs(_), 'c') => UserAction::CancelJob(job_id()?),
            (Screen::Jobs(_), 'r') => UserAction::RetryJob(job_id()?),
            (Screen::Job(job_id), 'c') => UserAction::CancelJob(job_id.clone()),
            (Screen::Job(job_id), 'r') => UserAction::RetryJob(job_id.clone()),
            (Screen::Workers, 'd') => UserAction::Drain(worker_id()?, true),
            (Screen::Workers, 'u') => UserAction::Drain(worker_id()?, false),
            (Screen::Queues, 'p') => {
                let (name, is_paused) = self.queue()?;
                UserAction::Pause(name, !is_paused)
            }
            _ => return None,
        };
        if is_gone {
            self.message = "the selected item has left the list; nothing was done".into();
            return None;
        }
        let question = match &action {
            UserAction::CancelAction(id) => {
                format!("cancel all jobs of action {id} that have not ended? y or n")
            }
            UserAction::CancelJob(id) => format!("cancel job {id}? y or n"),
            _ => return Some(action),
        };
        self.message = question;
        self.unconfirmed = Some(action);
        None
    }

    /// Returns the selected queue, and whether it is paused.
    fn queue(&self) -> Option<(QueueName, bool)> {
        let queues = &self.overview.as_ref()?.queues;
        let (name, paused) = match self.row.checked_sub(1) {
            None => ("ready", queues.ready.paused),
            Some(at) => queues.others.iter().nth(at).map(|(key, queue)| (queue_of(key), queue.paused))?,
        };
        Some((QueueName::new(name).ok()?, paused))
    }

    /// Sorts failed jobs first, because the user searches for failures.
    pub(super) fn update_jobs(&mut self, mut jobs: Vec<JobStatus>) {
        jobs.sort_by_key(|job| (!is_failed(job), job.index));
        self.keep_selection(|model| model.jobs = jobs);
    }

    /// Sets the job on its screen, or its absence.
    pub(super) fn update_job(&mut self, job: Option<JobStatus>) {
        if let Screen::Job(job_id) = &self.screen {
            self.removed_job = job.is_none().then(|| job_id.clone());
        }
        self.job = job;
    }

    fn failed_ids(&self) -> Vec<JobId> {
        self.jobs.iter().filter(|job| is_failed(job)).map(|job| job.job_id.clone()).collect()
    }

    /// Records the numbers of failed jobs with which the jobs on the screen were listed.
    pub(super) fn record_failed_jobs(&mut self) {
        let Screen::Jobs(action_id) = &self.screen else { return };
        let mut actions = self.overview.iter().flat_map(|overview| &overview.actions);
        let action = actions.find(|action| action.action_id == *action_id);
        let counts = action.map_or((0, 0), |action| (action.failed, action.dead));
        self.listed = Some((action_id.clone(), counts, self.failed_ids().len()));
    }

    /// Returns the failed jobs on the screen of an action, unless one of them has changed its state
    /// or was removed since they were listed.
    pub(super) fn failed_jobs(&self) -> Option<FailedJobs> {
        let Screen::Jobs(action_id) = &self.screen else { return None };
        let (_, counts, count) = self.listed.as_ref().filter(|(listed, ..)| listed == action_id)?;
        let ids = self.failed_ids();
        (ids.len() == *count).then_some(FailedJobs { ids, counts: *counts })
    }

    /// Returns a note if the action has more jobs than its screen.
    pub(super) fn jobs_note(&self) -> Option<String> {
        let Screen::Jobs(action_id) = &self.screen else { return None };
        let mut actions = self.overview.as_ref()?.actions.iter();
        let total = actions.find(|action| action.action_id == *action_id)?.total_jobs;
        let shown = self.jobs.len() as u64;
        let text =
            || format!("{shown} of {total} jobs are shown, failed ones first; `agx job list` prints all ids");
        (0 < shown && shown < total).then(text)
    }
}

fn is_failed(job: &JobStatus) -> bool {
    matches!(job.status, Status::Failed | Status::Dead)
}

#[cfg(test)]
pub(super) mod tests {
    use agenix_protocol::{
        documents::{ActionStatus, JobStatus, QueueStats, WorkerStatus, parse},
        ids::{ActionId, JobId},
    };

    use super::{FailedJobs, KeyPress, Screen, TopModel, UserAction};
    use crate::remote::overview::ClusterOverview;

    fn action(id: &str, completed: u64) -> ActionStatus {
        let json = format!(
            r#"{{"action_id":"{id}","plan_id":"p","total_jobs":10,"pending":0,"running":0,"completed":{completed},"failed":0,"dead":0,
                "cancelled":0,"queue":"ready","priority":0,"open":false,"created_at":"2026-01-31T08:00:00.000Z","completed_jobs_at":null}}"#
        );
        parse(json.as_bytes()).unwrap()
    }

    pub(in crate::top) fn job(index: usize, status: &str) -> JobStatus {
        let json = format!(
            r#"{{"job_id":"j{index}","action_id":"b","plan_id":"p","status":"{status}","state":"","index":{index},"attempt":1,
                "queue":"ready","priority":0,"created_at":"2026-01-31T08:00:00.000Z","started_at":null,"completed_at":null,
                "worker_id":null,"inputs":{{}},"task_results":null}}"#
        );
        parse(json.as_bytes()).unwrap()
    }

    pub(in crate::top) fn overview(completed: u64) -> ClusterOverview {
        let queues: QueueStats = parse(
            br#"{"queue:ready":{"length":3,"oldest_job_age_seconds":1,"newest_job_age_seconds":1,"paused":false,"needs":[]},
                "queue:scheduled":{"length":0,"next_job_due_in_seconds":null},"workers":{"total":1,"active":1,"idle":0}}"#,
        )
        .unwrap();
        let worker: WorkerStatus = parse(
            br#"{"worker_id":"w1","state":"active","hostname":"host","platform":"linux","agw_version":"1","capabilities":["sort"],
                "max_concurrent_jobs":2,"active_jobs":1,"timed_out_jobs":0,"registered_at":"2026-01-31T08:00:00.000Z",
                "last_seen_at":"2026-01-31T08:00:00.000Z","tags":{}}"#,
        )
        .unwrap();
        ClusterOverview {
            address: "here:1".into(),
            sees_workers: true,
            workers: vec![worker],
            queues,
            actions: vec![action("b", completed), action("a", 0)],
            plans: [("p".parse().unwrap(), "sort {}".to_owned())].into(),
        }
    }

    fn model() -> TopModel {
        let mut model = TopModel::default();
        model.update(overview(0));
        model
    }

    #[test]
    fn top_keys_move_open_and_go_back() {
        let mut model = model();
        assert_eq!(model.press(KeyPress::Down), None);
        assert_eq!((model.row, model.press(KeyPress::Down), model.row), (1, None, 1), "it is the last row");
        assert_eq!(model.press(KeyPress::Enter), Some(UserAction::Refresh));
        assert_eq!(model.screen, Screen::Jobs(ActionId::new("a").unwrap()));
        assert_eq!(model.press(KeyPress::Back), Some(UserAction::Refresh));
        assert_eq!(model.screen, Screen::Actions);
        assert_eq!(
            [model.press(KeyPress::Back), model.press(KeyPress::Letter('q'))],
            [Some(UserAction::Quit), Some(UserAction::Quit)]
        );
        let seen: Vec<_> = (0..3)
            .map(|_| {
                model.press(KeyPress::Next);
                model.screen.clone()
            })
            .collect();
        assert_eq!(seen, [Screen::Workers, Screen::Queues, Screen::Actions]);
    }

    #[test]
    fn top_asks_before_irreversible_actions() {
        let mut model = model();
        let action = UserAction::CancelAction(ActionId::new("b").unwrap());
        assert_eq!(model.press(KeyPress::Letter('c')), None);
        model.inform("agq does not answer".into());
        assert!(model.message.contains("cancel all jobs of action b"), "{}", model.message);
        assert_eq!(model.press(KeyPress::Letter('n')), None);
        assert_eq!(model.message, "nothing was done");
        model.inform("agq does not answer".into());
        assert_eq!(model.message, "agq does not answer");
        model.press(KeyPress::Letter('c'));
        assert_eq!(model.press(KeyPress::Letter('y')), Some(action));
        assert_eq!(
            model.press(KeyPress::Letter('r')),
            Some(UserAction::RetryAction(ActionId::new("b").unwrap()))
        );
        model.press(KeyPress::Letter('2'));
        assert_eq!(model.press(KeyPress::Letter('d')), Some(UserAction::Drain("w1".parse().unwrap(), true)));
        model.press(KeyPress::Letter('3'));
        assert_eq!(
            model.press(KeyPress::Letter('p')),
            Some(UserAction::Pause("ready".parse().unwrap(), true))
        );
    }

    #[test]
    fn top_rate_counts_jobs_ended_since_the_last_update() {
        let mut model = model();
        model.update(overview(4));
        model.update(overview(4));
        assert_eq!(model.rates, [4, 0]);
    }

    #[test]
    fn top_shows_failed_jobs_first_wherever_their_inputs_are() {
        let ids = |range: std::ops::Range<usize>| -> Vec<JobId> {
            range.map(|index| JobId::new(format!("j{index}")).unwrap()).collect()
        };
        let mut model = model();
        model.press(KeyPress::Enter);
        model.update_jobs(vec![job(0, "completed"), job(3, "dead"), job(2, "cancelled"), job(9, "failed")]);
        let order: Vec<u64> = model.jobs.iter().map(|job| job.index).collect();
        assert_eq!(order, [3, 9, 0, 2]);
        assert_eq!(model.failed_jobs(), None, "they were not listed yet");
        model.record_failed_jobs();
        let listed = FailedJobs { ids: [ids(3..4), ids(9..10)].concat(), counts: (0, 0) };
        assert_eq!(model.failed_jobs(), Some(listed));
        model.update_jobs(vec![job(0, "completed"), job(9, "failed")]);
        assert_eq!(model.failed_jobs(), None, "one was removed");
    }
}

//! Selected row of a list whose content changes.

use super::model::{Screen, TopModel};

impl TopModel {
    /// Applies `change` to the content of the screen. The selected item stays selected, wherever
    /// its row is then.
    pub(super) fn keep_selection(&mut self, change: impl FnOnce(&mut Self)) {
        let selected = self.ids().into_iter().nth(self.row);
        change(self);
        let row = selected.as_ref().and_then(|selected| self.ids().iter().position(|id| id == selected));
        self.is_gone |= selected.is_some() && row.is_none();
        self.row = row.unwrap_or(self.row).min(self.rows().saturating_sub(1));
    }

    /// Returns the ids of the rows in their order. The lines of a job have none.
    fn ids(&self) -> Vec<String> {
        let Some(overview) = &self.overview else { return Vec::new() };
        match self.screen {
            Screen::Actions => overview.actions.iter().map(|action| action.action_id.to_string()).collect(),
            Screen::Workers => overview.workers.iter().map(|worker| worker.worker_id.to_string()).collect(),
            Screen::Queues => {
                std::iter::once("ready".to_owned()).chain(overview.queues.others.keys().cloned()).collect()
            }
            Screen::Jobs(_) => self.jobs.iter().map(|job| job.job_id.to_string()).collect(),
            Screen::Job(_) => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use agenix_protocol::documents::{ActionStatus, WorkerStatus};

    use crate::{
        remote::overview::ClusterOverview,
        top::model::{
            KeyPress, TopModel, UserAction,
            tests::{job, overview},
        },
    };

    /// Returns an overview with these actions and workers.
    fn with(actions: &[&str], workers: &[&str]) -> ClusterOverview {
        let mut all = overview(0);
        let (action, worker) = (all.actions.remove(0), all.workers.remove(0));
        let action = |id: &&str| ActionStatus { action_id: id.parse().unwrap(), ..action.clone() };
        let worker = |id: &&str| WorkerStatus { worker_id: id.parse().unwrap(), ..worker.clone() };
        all.actions = actions.iter().map(action).collect();
        all.workers = workers.iter().map(worker).collect();
        all
    }

    #[test]
    fn selected_item_stays_selected_when_its_row_moves() {
        let mut model = TopModel::default();
        model.update(with(&["b", "a"], &["w1"]));
        model.update(with(&["c", "b", "a"], &["w0", "w1"]));
        let retry = UserAction::RetryAction("b".parse().unwrap());
        assert_eq!(model.press(KeyPress::Letter('r')), Some(retry));
        model.press(KeyPress::Letter('2'));
        model.press(KeyPress::Down);
        model.update(with(&["b"], &["v", "w0", "w1"]));
        let drain = UserAction::Drain("w1".parse().unwrap(), true);
        assert_eq!(model.press(KeyPress::Letter('d')), Some(drain));
        let with_queues = |names: &[&str]| {
            let mut all = with(&["b"], &["w1"]);
            let queue = |name: &&str| (format!("queue:{name}"), all.queues.ready.clone());
            all.queues.others = names.iter().map(queue).collect();
            all
        };
        model.update(with_queues(&["night"]));
        model.press(KeyPress::Letter('3'));
        model.press(KeyPress::Down);
        model.update(with_queues(&["day", "night"]));
        let pause = UserAction::Pause("night".parse().unwrap(), true);
        assert_eq!(model.press(KeyPress::Letter('p')), Some(pause));
    }

    #[test]
    fn selected_job_stays_selected_when_another_one_fails() {
        let mut model = TopModel::default();
        model.update(with(&["b"], &[]));
        model.press(KeyPress::Enter);
        model.update_jobs(vec![job(0, "running"), job(1, "running"), job(2, "running")]);
        model.press(KeyPress::Down);
        model.update_jobs(vec![job(0, "running"), job(1, "running"), job(2, "failed")]);
        model.update(with(&["b"], &[]));
        let retry = UserAction::RetryJob("j1".parse().unwrap());
        assert_eq!((model.row, model.press(KeyPress::Letter('r'))), (2, Some(retry)));
    }

    #[test]
    fn first_key_for_an_item_that_has_left_the_list_does_nothing() {
        let mut model = TopModel::default();
        model.update(with(&["b", "a"], &[]));
        model.update(with(&["a"], &[]));
        assert_eq!(model.press(KeyPress::Letter('r')), None);
        assert!(model.message.contains("has left the list"), "{}", model.message);
        let retry = UserAction::RetryAction("a".parse().unwrap());
        assert_eq!(model.press(KeyPress::Letter('r')), Some(retry));
        model.update(with(&["c"], &[]));
        model.press(KeyPress::Up);
        assert_eq!(model.press(KeyPress::Letter('c')), None);
        assert!(model.unconfirmed.is_some(), "another key has shown the user the row");
    }
}

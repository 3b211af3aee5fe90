//! Settings of a comparison: number of clients, size of inputs, number of queued jobs. Each setting
//! has goals.

use super::{BEANSTALKD, POSTGRES, REDIS};

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Setting {
    pub(super) clients: usize,
    pub(super) input_bytes: usize,
    pub(super) queued: usize,
}

const SMALL: usize = 100;
const LARGE: usize = 4096;
const MANY: usize = 100_000;
const VERY_MANY: usize = 1_000_000;

/// Peer, floor, aim.
type PeerGoal = (&'static str, f64, f64);
// There is no floor for one client beside beanstalkd, which syncs twice in a cycle, while agq syncs
// thrice.
const ONE: [PeerGoal; 3] = [(REDIS, 1.1, 1.4), (POSTGRES, 1.1, 1.3), (BEANSTALKD, 0.0, 0.9)];
const EIGHT: [PeerGoal; 3] = [(REDIS, 1.2, 1.5), (POSTGRES, 1.4, 1.7), (BEANSTALKD, 1.8, 2.3)];
const SIXTY_FOUR: [PeerGoal; 3] = [(REDIS, 0.9, 1.3), (POSTGRES, 2.5, 4.0), (BEANSTALKD, 3.0, 4.5)];
const LARGE_AND_MANY: [PeerGoal; 1] = [(POSTGRES, 1.0, 1.5)];

/// Returns the settings of a run.
pub(super) fn of_a_run(is_quick: bool) -> Vec<Setting> {
    let of = |clients, input_bytes, queued| Setting { clients, input_bytes, queued };
    let mut settings: Vec<_> = [1, 8, 64].map(|clients| of(clients, SMALL, 0)).into();
    if is_quick {
        settings.push(of(8, LARGE, MANY));
        return settings;
    }
    settings.extend([1, 8, 64].map(|clients| of(clients, LARGE, 0)));
    for input_bytes in [SMALL, LARGE] {
        settings.extend([1, 8, 64].map(|clients| of(clients, input_bytes, MANY)));
    }
    settings.push(of(8, SMALL, VERY_MANY));
    settings
}

impl Setting {
    /// Setting of the comparison on a slow disk.
    pub(super) const SLOW_DISK: Self = Self { clients: 8, input_bytes: SMALL, queued: 0 };

    /// Returns the title of the row.
    pub(super) fn title(self) -> String {
        let clients = if self.clients == 1 { "1 client".into() } else { format!("{} clients", self.clients) };
        let input = if self.input_bytes == LARGE { "4 KB".into() } else { format!("{} B", self.input_bytes) };
        let queued = match self.queued {
            0 => "empty queue".into(),
            queued if queued % 1_000_000 == 0 => format!("{},000,000 queued", queued / 1_000_000),
            queued => format!("{},000 queued", queued / 1000),
        };
        format!("{clients}, {input}, {queued}")
    }

    /// Returns the goals, which are for small inputs with any number of queued jobs, apart from one
    /// for large inputs.
    pub(super) fn goals(self) -> &'static [(&'static str, f64, f64)] {
        match (self.clients, self.input_bytes, self.queued) {
            (1, SMALL, _) => &ONE,
            (8, SMALL, _) => &EIGHT,
            (64, SMALL, _) => &SIXTY_FOUR,
            (8, LARGE, MANY) => &LARGE_AND_MANY,
            _ => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::of_a_run;

    #[test]
    fn title_names_clients_input_and_queue() {
        let titles: Vec<_> = of_a_run(false).into_iter().map(super::Setting::title).collect();
        assert_eq!(titles.len(), 13);
        assert_eq!(titles[0], "1 client, 100 B, empty queue");
        assert_eq!(titles[5], "64 clients, 4 KB, empty queue");
        assert_eq!(titles[7], "8 clients, 100 B, 100,000 queued");
        assert_eq!(titles[12], "8 clients, 100 B, 1,000,000 queued");
    }

    #[test]
    fn quick_run_has_goals_for_each_setting() {
        assert!(of_a_run(true).iter().all(|setting| !setting.goals().is_empty()));
    }
}

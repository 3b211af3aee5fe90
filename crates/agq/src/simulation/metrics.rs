//! Counters of a simulation, for its report.

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SimulationMetrics {
    pub(super) steps: u64,
    pub(super) commands: u64,
    pub(super) writes: u64,
    pub(super) faults: u64,
    pub(super) restarts: u64,
    pub(super) jobs: u64,
}

impl SimulationMetrics {
    pub(super) fn add(&mut self, other: &Self) {
        self.steps += other.steps;
        self.commands += other.commands;
        self.writes += other.writes;
        self.faults += other.faults;
        self.restarts += other.restarts;
        self.jobs += other.jobs;
    }
}

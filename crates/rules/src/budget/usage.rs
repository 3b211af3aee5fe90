//! Use of a budget: what counts in its window, and when used amounts return.

use std::{collections::BTreeMap, fmt};

use agenix_protocol::time::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Budget, RunBound, RunChange, SubmissionCharge};

const HOUR_MS: u64 = 3_600_000;

/// Amount that a budget bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum BudgetAmount {
    /// Submitted jobs.
    Jobs,
    /// Submitted plans.
    Plans,
    /// Running jobs.
    Running,
    /// Processor time, in milliseconds.
    CpuMs,
    /// Bytes on stdout and stderr.
    OutputBytes,
}

impl BudgetAmount {
    /// All amounts, in the order in which they are shown.
    pub const ALL: [Self; 5] = [Self::Jobs, Self::Plans, Self::Running, Self::CpuMs, Self::OutputBytes];

    /// Returns the name in the keys file, where processor time is in seconds.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Jobs => "jobs",
            Self::Plans => "plans",
            Self::Running => "running",
            Self::CpuMs => "cpu_secs",
            Self::OutputBytes => "output_bytes",
        }
    }

    /// Returns a value in the unit of the keys file, rounded up.
    pub fn shown(self, value: u64) -> u64 {
        if self == Self::CpuMs { value.div_ceil(1000) } else { value }
    }
}

/// Amounts of one hour. Durable, as JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
struct HourUse {
    #[serde(skip_serializing_if = "is_zero")]
    jobs: u64,
    #[serde(skip_serializing_if = "is_zero")]
    plans: u64,
    #[serde(skip_serializing_if = "is_zero")]
    cpu_ms: u64,
    #[serde(skip_serializing_if = "is_zero")]
    output_bytes: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(value: &u64) -> bool {
    *value == 0
}

impl HourUse {
    fn of(&self, amount: BudgetAmount) -> u64 {
        match amount {
            BudgetAmount::Jobs => self.jobs,
            BudgetAmount::Plans => self.plans,
            BudgetAmount::Running => 0,
            BudgetAmount::CpuMs => self.cpu_ms,
            BudgetAmount::OutputBytes => self.output_bytes,
        }
    }

    fn add(&mut self, other: Self) {
        self.jobs = self.jobs.saturating_add(other.jobs);
        self.plans = self.plans.saturating_add(other.plans);
        self.cpu_ms = self.cpu_ms.saturating_add(other.cpu_ms);
        self.output_bytes = self.output_bytes.saturating_add(other.output_bytes);
    }
}

/// Amount of a budget that is used up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exhausted {
    /// The amount.
    pub amount: BudgetAmount,
    /// Used and reserved part of the amount.
    pub used: u64,
    /// Maximum of the amount.
    pub limit: u64,
    /// Part that the request needs.
    pub wanted: u64,
    /// Time at which the wanted part has returned; `None` if it depends on the end of jobs, or if
    /// more is wanted than the budget ever permits.
    pub next: Option<Timestamp>,
}

impl fmt::Display for Exhausted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { amount, used, limit, wanted, next } = self;
        let (name, [used, most, more]) =
            (amount.as_str(), [*used, *limit, *wanted].map(|value| amount.shown(value)));
        if *wanted == u64::MAX {
            return write!(f, "too small: a job without a timeout has no bound of {name}");
        }
        if wanted > limit {
            return write!(f, "too small: {name} {more} wanted, at most {most}");
        }
        write!(f, "used up: {name} {used} of {most}")?;
        if more > 1 {
            write!(f, ", {more} wanted")?;
        }
        match next {
            Some(next) => write!(f, ", next at {next}"),
            None => f.write_str(", next when a job ends"),
        }
    }
}

/// Stored use of a budget. Durable, as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
#[must_use]
pub struct Usage {
    /// Terms of the budget at the last submission or reload of the keys.
    pub budget: Budget,
    /// Number of running jobs.
    running: u64,
    /// Reservations of running jobs.
    reserved: RunBound,
    /// Amounts by the hour since 1970 in which they were charged.
    hours: BTreeMap<u64, HourUse>,
}

impl Usage {
    /// Returns the same use under other terms.
    pub fn under(self, budget: Budget) -> Self {
        Self { budget, ..self }
    }

    /// Returns the used part of an amount at `now`, reservations included.
    pub fn used(&self, amount: BudgetAmount, now: Timestamp) -> u64 {
        let charged = self.in_window(now).map(|(_, hour)| hour.of(amount));
        charged.fold(self.held(amount), u64::saturating_add)
    }

    /// Returns the part of an amount that running jobs hold.
    fn held(&self, amount: BudgetAmount) -> u64 {
        match amount {
            BudgetAmount::Running => self.running,
            BudgetAmount::CpuMs => self.reserved.cpu_ms,
            BudgetAmount::OutputBytes => self.reserved.output_bytes,
            BudgetAmount::Jobs | BudgetAmount::Plans => 0,
        }
    }

    /// Returns the number of running jobs.
    pub fn running(&self) -> u64 {
        self.running
    }

    /// Returns the reservations of running jobs.
    pub fn reserved(&self) -> RunBound {
        self.reserved
    }

    /// Returns the time at which the next part of an amount returns.
    pub fn returns_at(&self, amount: BudgetAmount, now: Timestamp) -> Option<Timestamp> {
        let mut used = self.in_window(now).filter(|(_, hour)| hour.of(amount) > 0);
        used.next().map(|(hour, _)| self.over_at(hour))
    }

    /// Checks that `wanted` more of an amount fits.
    pub fn check(&self, amount: BudgetAmount, wanted: u64, now: Timestamp) -> Result<(), Exhausted> {
        let Some(limit) = self.budget.limit(amount) else { return Ok(()) };
        let used = self.used(amount, now);
        let excess = used.saturating_add(wanted).saturating_sub(limit);
        if wanted == 0 || excess == 0 {
            return Ok(());
        }
        let mut missing = excess;
        let next = self.in_window(now).find_map(|(hour, used)| {
            missing = missing.saturating_sub(used.of(amount));
            (missing == 0).then(|| self.over_at(hour))
        });
        // The end of a running job can come first.
        let next = next.filter(|_| wanted <= limit && self.held(amount) < excess);
        Err(Exhausted { amount, used, limit, wanted, next })
    }

    /// Charges `jobs` submitted jobs and `plans` submitted plans. The terms of the charge apply to
    /// a use without terms. The terms of the charge never replace other terms, because a submission
    /// may have read its terms before an admin changed them.
    pub fn charged(&self, charge: &SubmissionCharge, jobs: u64, plans: u64) -> Result<Self, Exhausted> {
        let has_terms = self.budget != Budget::default();
        let mut next = self.clone().under(if has_terms { self.budget } else { charge.budget });
        next.check(BudgetAmount::Jobs, jobs, charge.now)?;
        next.check(BudgetAmount::Plans, plans, charge.now)?;
        next.add(HourUse { jobs, plans, ..HourUse::default() }, charge.now);
        Ok(next)
    }

    /// Checks that a run with this bound may begin, with its [reservation](Budget::reservation).
    pub fn check_start(&self, bound: &RunBound, now: Timestamp) -> Result<(), Exhausted> {
        let bound = self.budget.reservation(bound);
        self.check(BudgetAmount::Running, 1, now)?;
        self.check(BudgetAmount::CpuMs, bound.cpu_ms, now)?;
        self.check(BudgetAmount::OutputBytes, bound.output_bytes, now)
    }

    /// Returns the number of further runs that may begin at `now`. Each of these runs counts with
    /// the output bytes that every run reserves, and with the average processor time that the
    /// running jobs have reserved.
    pub fn free_starts(&self, now: Timestamp) -> u64 {
        let cpu_ms = self.reserved.cpu_ms.div_ceil(self.running.max(1)).max(1);
        let output_bytes = self.budget.run_bound(None, 0).output_bytes;
        let of = |(amount, wanted): (BudgetAmount, u64)| {
            let rest = self.budget.limit(amount)?.saturating_sub(self.used(amount, now));
            rest.checked_div(wanted)
        };
        let wanted = [
            (BudgetAmount::Running, 1),
            (BudgetAmount::CpuMs, cpu_ms),
            (BudgetAmount::OutputBytes, output_bytes),
        ];
        wanted.into_iter().filter_map(of).min().unwrap_or(u64::MAX)
    }

    /// Returns the next time at which a part of the use may leave the window, whatever its amounts.
    pub fn window_moves_at(now: Timestamp) -> Timestamp {
        Timestamp((now.0 / HOUR_MS).saturating_add(1).saturating_mul(HOUR_MS))
    }

    /// Counts the begin or the end of a run.
    pub fn changed(&self, change: RunChange) -> Self {
        let mut next = self.clone();
        let reserved = &mut next.reserved;
        match change {
            RunChange::Began { bound, at } => {
                next.running = next.running.saturating_add(1);
                reserved.cpu_ms = reserved.cpu_ms.saturating_add(bound.cpu_ms);
                reserved.output_bytes = reserved.output_bytes.saturating_add(bound.output_bytes);
                next.forget_past(at);
            }
            RunChange::Ended { bound, used, at } => {
                next.running = next.running.saturating_sub(1);
                reserved.cpu_ms = reserved.cpu_ms.saturating_sub(bound.cpu_ms);
                reserved.output_bytes = reserved.output_bytes.saturating_sub(bound.output_bytes);
                let (cpu_ms, output_bytes) = (used.cpu_ms, used.output_bytes);
                next.add(HourUse { cpu_ms, output_bytes, ..HourUse::default() }, at);
            }
        }
        next
    }

    fn add(&mut self, amounts: HourUse, now: Timestamp) {
        self.forget_past(now);
        if amounts != HourUse::default() {
            self.hours.entry(now.0 / HOUR_MS).or_default().add(amounts);
        }
    }

    /// Removes hours that are out of the window, and moves those of a clock that was ahead into the
    /// next hour. Clocks of two nodes may differ a little, so the next hour stays.
    fn forget_past(&mut self, now: Timestamp) {
        let next_hour = now.0 / HOUR_MS + 1;
        let ahead = self.hours.split_off(&(next_hour + 1));
        for amounts in ahead.into_values() {
            self.hours.entry(next_hour).or_default().add(amounts);
        }
        let per_hours = self.budget.per_hours;
        self.hours.retain(|hour, _| over_at(*hour, per_hours) > now);
    }

    /// Returns the hours that count at `now`, the oldest first.
    fn in_window(&self, now: Timestamp) -> impl Iterator<Item = (u64, &HourUse)> {
        self.hours
            .iter()
            .map(|(hour, amounts)| (*hour, amounts))
            .filter(move |(hour, _)| self.over_at(*hour) > now)
    }

    fn over_at(&self, hour: u64) -> Timestamp {
        over_at(hour, self.budget.per_hours)
    }
}

/// Returns the time at which the last moment of an hour leaves the window.
fn over_at(hour: u64, per_hours: u64) -> Timestamp {
    Timestamp(hour.saturating_add(1).saturating_add(per_hours).saturating_mul(HOUR_MS))
}

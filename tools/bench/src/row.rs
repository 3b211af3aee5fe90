//! A row of the results: the figures of a comparison, and whether they reach the goals.

use super::comparison::{Better, Bound, ContenderComparison};

/// Figures of one contender.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Measurement {
    pub(crate) name: String,
    pub(crate) min: f64,
    pub(crate) median: f64,
    pub(crate) max: f64,
    /// Figure of each round. Empty if only the three figures above were stored.
    pub(crate) samples: Vec<f64>,
}

/// A goal with the ratio that was measured.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct GoalResult {
    pub(crate) peer: String,
    pub(crate) ratio: f64,
    pub(crate) floor: Option<f64>,
    pub(crate) aim: Option<f64>,
}

/// Result of a comparison. The first measurement is ours.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ResultRow {
    pub(crate) section: String,
    pub(crate) title: String,
    pub(crate) unit: String,
    pub(crate) better: Better,
    pub(crate) note: String,
    pub(crate) measurements: Vec<Measurement>,
    pub(crate) goals: Vec<GoalResult>,
    pub(crate) bound: Option<Bound>,
    pub(crate) origin: Origin,
}

/// Origin of the figures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Origin {
    /// Date on which the run began, in UTC
    pub(crate) date: String,
    /// Commit of the programs
    pub(crate) commit: String,
    /// Release of the Linux kernel
    pub(crate) kernel: String,
    /// True for a quick run, which has smaller workloads and fewer rounds
    pub(crate) is_quick: bool,
}

/// Result of a comparison with floor and aim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GoalVerdict {
    /// Reaches the aim
    Aim,
    /// Reaches the floor
    Ok,
    /// Misses the floor
    Below,
}

impl Measurement {
    /// Sorts the figures of at least one round, and takes least, median and greatest.
    pub(crate) fn of(name: String, samples: Vec<f64>) -> Self {
        let mut sorted = samples.clone();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        let median = if sorted.len().is_multiple_of(2) {
            f64::midpoint(sorted[middle - 1], sorted[middle])
        } else {
            sorted[middle]
        };
        Self { name, min: sorted[0], median, max: sorted[sorted.len() - 1], samples }
    }
}

impl ResultRow {
    /// Returns the row of a finished comparison. Goals of peers that did not take part are left
    /// out.
    pub(crate) fn of(
        section: &str,
        comparison: &ContenderComparison<'_>,
        measurements: Vec<Measurement>,
        origin: &Origin,
    ) -> Self {
        let judged = comparison.goals.iter().filter_map(|goal| {
            let peer = measurements.iter().find(|measurement| measurement.name == goal.peer)?;
            let ratio = ratio(comparison.better, measurements[0].median, peer.median);
            Some(GoalResult { peer: peer.name.clone(), ratio, floor: goal.floor, aim: goal.aim })
        });
        Self {
            section: section.to_owned(),
            title: comparison.title.clone(),
            unit: comparison.unit.to_owned(),
            better: comparison.better,
            note: comparison.note.to_owned(),
            goals: judged.collect(),
            measurements,
            bound: comparison.bound,
            origin: origin.clone(),
        }
    }

    pub(crate) fn ours(&self) -> &Measurement {
        &self.measurements[0]
    }

    /// Returns the ratio of our figure to another one. More is better.
    pub(crate) fn ratio_to(&self, measurement: &Measurement) -> f64 {
        ratio(self.better, self.ours().median, measurement.median)
    }

    /// Returns the verdict on our own figure, if the row has a goal for it.
    pub(crate) fn bound_verdict(&self) -> Option<GoalVerdict> {
        let bound = self.bound?;
        let figure = self.ours().median;
        let reaches = |mark: f64| match self.better {
            Better::More => figure >= mark,
            Better::Less => figure <= mark,
        };
        Some(verdict(reaches(bound.floor), reaches(bound.aim)))
    }

    /// Returns one line for each missed floor.
    pub(crate) fn missed(&self) -> Vec<String> {
        let (section, title) = (&self.section, &self.title);
        let goals = self.goals.iter().filter(|goal| goal.verdict() == GoalVerdict::Below);
        let mut missed: Vec<String> = goals
            .map(|goal| {
                let floor = goal.floor.unwrap_or_default();
                format!("{section}: {title}: {:.3} × {}, the floor is {floor}", goal.ratio, goal.peer)
            })
            .collect();
        if let (Some(GoalVerdict::Below), Some(bound)) = (self.bound_verdict(), self.bound) {
            let (figure, unit) = (self.ours().median, &self.unit);
            missed
                .push(format!("{section}: {title}: {figure:.3} {unit}, the floor is {} {unit}", bound.floor));
        }
        missed
    }
}

impl GoalResult {
    pub(crate) fn verdict(&self) -> GoalVerdict {
        let reaches = |mark: Option<f64>| mark.is_none_or(|mark| self.ratio >= mark);
        verdict(reaches(self.floor), reaches(self.aim))
    }
}

impl GoalVerdict {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Aim => "aim",
            Self::Ok => "ok",
            Self::Below => "BELOW",
        }
    }
}

fn verdict(has_floor: bool, has_aim: bool) -> GoalVerdict {
    match (has_floor, has_aim) {
        (false, _) => GoalVerdict::Below,
        (true, false) => GoalVerdict::Ok,
        (true, true) => GoalVerdict::Aim,
    }
}

/// Returns the ratio of two figures, so that more is better.
fn ratio(better: Better, ours: f64, peer: f64) -> f64 {
    match better {
        Better::More => ours / peer,
        Better::Less => peer / ours,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::{GoalVerdict, Measurement, ResultRow};
    use crate::comparison::{Better, ContenderComparison};

    /// Returns a row in which our median is `ours`, and that of the peer `redis` is 100.
    pub(crate) fn row(better: Better, ours: f64) -> ResultRow {
        let comparison = ContenderComparison::new("SET, pipeline 16", "ops/s", better)
            .with_goal("redis", 0.8, 1.0)
            .with_goal("nobody", 1.0, 1.0)
            .with_bound(100.0, 200.0)
            .with_note("each answer is synced");
        let measurements = vec![
            Measurement::of("agq".into(), vec![ours + 1.0, ours - 1.0, ours]),
            Measurement::of("redis".into(), vec![90.0, 110.0]),
        ];
        let origin = super::Origin {
            date: "2026-01-01".into(),
            commit: "abc1234".into(),
            kernel: "6.1".into(),
            is_quick: false,
        };
        ResultRow::of("wire", &comparison, measurements, &origin)
    }

    #[test]
    fn ratio_compares_medians_and_more_is_always_better() {
        let row = row(Better::More, 90.0);
        assert_eq!(
            (row.measurements[1].min, row.measurements[1].median, row.measurements[1].max),
            (90.0, 100.0, 110.0)
        );
        assert_eq!(row.goals.len(), 1);
        assert!((row.goals[0].ratio - 0.9).abs() < 1e-9);
        assert_eq!(row.goals[0].verdict(), GoalVerdict::Ok);
        assert_eq!(super::tests::row(Better::Less, 90.0).goals[0].verdict(), GoalVerdict::Aim);
    }

    #[test]
    fn bound_applies_to_our_own_figure() {
        assert_eq!(row(Better::More, 99.0).bound_verdict(), Some(GoalVerdict::Below));
        assert_eq!(row(Better::More, 100.0).bound_verdict(), Some(GoalVerdict::Ok));
        assert_eq!(row(Better::Less, 100.0).bound_verdict(), Some(GoalVerdict::Aim));
        assert_eq!(row(Better::Less, 201.0).bound_verdict(), Some(GoalVerdict::Below));
    }

    #[test]
    fn missed_names_floor_and_figure() {
        let mut row = row(Better::More, 79.0);
        row.bound = None;
        assert_eq!(row.missed(), ["wire: SET, pipeline 16: 0.790 × redis, the floor is 0.8"]);
    }
}

//! A row of the benchmark: what a contest came to, and whether that is enough.

use super::contest::{Better, Bound, Contest};

/// What one contender measured.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Side {
    pub(crate) name: String,
    pub(crate) min: f64,
    pub(crate) median: f64,
    pub(crate) max: f64,
    /// Round by round; nothing where only the three figures were kept.
    pub(crate) samples: Vec<f64>,
}

/// A goal, and what came of it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Judged {
    pub(crate) peer: String,
    pub(crate) ratio: f64,
    pub(crate) floor: Option<f64>,
    pub(crate) aim: Option<f64>,
}

/// What a contest came to. The first side is ours.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Row {
    pub(crate) section: String,
    pub(crate) title: String,
    pub(crate) unit: String,
    pub(crate) better: Better,
    pub(crate) note: String,
    pub(crate) sides: Vec<Side>,
    pub(crate) goals: Vec<Judged>,
    pub(crate) bound: Option<Bound>,
    pub(crate) origin: Origin,
}

/// Where figures come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Origin {
    /// The day on which the run began.
    pub(crate) date: String,
    /// What was measured.
    pub(crate) commit: String,
    /// The Linux that it ran on.
    pub(crate) kernel: String,
    /// Whether it was a quick run: less of everything, fewer rounds.
    pub(crate) is_quick: bool,
}

/// Whether it is enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// What makes people talk.
    Aim,
    /// What is owed.
    Ok,
    Below,
}

impl Side {
    /// The figures of some rounds, at least one.
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

impl Row {
    /// A contest that is over; goals whose peer did not take part are no goals of it.
    pub(crate) fn of(section: &str, contest: &Contest<'_>, sides: Vec<Side>, origin: &Origin) -> Self {
        let judged = contest.goals.iter().filter_map(|goal| {
            let peer = sides.iter().find(|side| side.name == goal.peer)?;
            let ratio = ratio(contest.better, sides[0].median, peer.median);
            Some(Judged { peer: peer.name.clone(), ratio, floor: goal.floor, aim: goal.aim })
        });
        Self {
            section: section.to_owned(),
            title: contest.title.clone(),
            unit: contest.unit.to_owned(),
            better: contest.better,
            note: contest.note.to_owned(),
            goals: judged.collect(),
            sides,
            bound: contest.bound,
            origin: origin.clone(),
        }
    }

    /// Ours.
    pub(crate) fn ours(&self) -> &Side {
        &self.sides[0]
    }

    /// How many times as good as a side ours is.
    pub(crate) fn ratio_to(&self, side: &Side) -> f64 {
        ratio(self.better, self.ours().median, side.median)
    }

    /// Whether our own figure is enough, where that is asked.
    pub(crate) fn bound_verdict(&self) -> Option<Verdict> {
        let bound = self.bound?;
        let figure = self.ours().median;
        let reaches = |mark: f64| match self.better {
            Better::More => figure >= mark,
            Better::Less => figure <= mark,
        };
        Some(verdict(reaches(bound.floor), reaches(bound.aim)))
    }

    /// What is owed and not reached, in a line each.
    pub(crate) fn missed(&self) -> Vec<String> {
        let (section, title) = (&self.section, &self.title);
        let goals = self.goals.iter().filter(|goal| goal.verdict() == Verdict::Below);
        let mut missed: Vec<String> = goals
            .map(|goal| {
                let floor = goal.floor.unwrap_or_default();
                format!("{section}: {title}: {:.3} × {}, the floor is {floor}", goal.ratio, goal.peer)
            })
            .collect();
        if let (Some(Verdict::Below), Some(bound)) = (self.bound_verdict(), self.bound) {
            let (figure, unit) = (self.ours().median, &self.unit);
            missed
                .push(format!("{section}: {title}: {figure:.3} {unit}, the floor is {} {unit}", bound.floor));
        }
        missed
    }
}

impl Judged {
    pub(crate) fn verdict(&self) -> Verdict {
        let reaches = |mark: Option<f64>| mark.is_none_or(|mark| self.ratio >= mark);
        verdict(reaches(self.floor), reaches(self.aim))
    }
}

impl Verdict {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Aim => "aim",
            Self::Ok => "ok",
            Self::Below => "BELOW",
        }
    }
}

fn verdict(has_floor: bool, has_aim: bool) -> Verdict {
    match (has_floor, has_aim) {
        (false, _) => Verdict::Below,
        (true, false) => Verdict::Ok,
        (true, true) => Verdict::Aim,
    }
}

/// How many times as good ours is.
fn ratio(better: Better, ours: f64, peer: f64) -> f64 {
    match better {
        Better::More => ours / peer,
        Better::Less => peer / ours,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::{Row, Side, Verdict};
    use crate::contest::{Better, Contest};

    /// A row in which ours has a median of so much, and a peer called `redis` one of 100.
    pub(crate) fn row(better: Better, ours: f64) -> Row {
        let contest = Contest::new("SET, pipeline 16", "ops/s", better)
            .against("redis", 0.8, 1.0)
            .against("nobody", 1.0, 1.0)
            .bounded(100.0, 200.0)
            .noting("each answer is synced");
        let sides = vec![
            Side::of("agq".into(), vec![ours + 1.0, ours - 1.0, ours]),
            Side::of("redis".into(), vec![90.0, 110.0]),
        ];
        let origin = super::Origin {
            date: "2026-01-01".into(),
            commit: "abc1234".into(),
            kernel: "6.1".into(),
            is_quick: false,
        };
        Row::of("wire", &contest, sides, &origin)
    }

    #[test]
    fn medians_are_compared_and_more_is_always_better() {
        let row = row(Better::More, 90.0);
        assert_eq!((row.sides[1].min, row.sides[1].median, row.sides[1].max), (90.0, 100.0, 110.0));
        assert_eq!(row.goals.len(), 1);
        assert!((row.goals[0].ratio - 0.9).abs() < 1e-9);
        assert_eq!(row.goals[0].verdict(), Verdict::Ok);
        assert_eq!(super::tests::row(Better::Less, 90.0).goals[0].verdict(), Verdict::Aim);
    }

    #[test]
    fn a_bound_is_on_the_figure_itself() {
        assert_eq!(row(Better::More, 99.0).bound_verdict(), Some(Verdict::Below));
        assert_eq!(row(Better::More, 100.0).bound_verdict(), Some(Verdict::Ok));
        assert_eq!(row(Better::Less, 100.0).bound_verdict(), Some(Verdict::Aim));
        assert_eq!(row(Better::Less, 201.0).bound_verdict(), Some(Verdict::Below));
    }

    #[test]
    fn what_is_missed_is_named() {
        let mut row = row(Better::More, 79.0);
        row.bound = None;
        assert_eq!(row.missed(), ["wire: SET, pipeline 16: 0.790 × redis, the floor is 0.8"]);
    }
}

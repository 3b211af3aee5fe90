//! A comparison of contenders that do the same work: who takes part, in which unit, and the goals.

/// Direction in which a figure is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Better {
    More,
    Less,
}

/// A participant: its name in the table, and a function that measures it once and returns the
/// figure.
pub(crate) struct Contender<'a> {
    pub(crate) name: String,
    pub(crate) run: Box<dyn FnMut() -> anyhow::Result<f64> + 'a>,
}

/// Goal for the ratio of our figure to that of a peer. If less is better, the ratio is inverted, so
/// that more is always better.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Goal {
    pub(crate) peer: &'static str,
    pub(crate) floor: Option<f64>,
    pub(crate) aim: Option<f64>,
}

/// Goal for our figure itself, in the unit of the row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Bound {
    pub(crate) floor: f64,
    pub(crate) aim: f64,
}

/// Contenders that are measured in turn, round by round. The first contender is ours.
pub(crate) struct ContenderComparison<'a> {
    pub(crate) title: String,
    pub(crate) unit: &'static str,
    pub(crate) better: Better,
    pub(crate) contenders: Vec<Contender<'a>>,
    pub(crate) goals: Vec<Goal>,
    pub(crate) bound: Option<Bound>,
    /// Conditions and differences that a reader has to know. May be empty.
    pub(crate) note: &'static str,
}

impl<'a> Contender<'a> {
    pub(crate) fn new(name: impl Into<String>, run: impl FnMut() -> anyhow::Result<f64> + 'a) -> Self {
        Self { name: name.into(), run: Box::new(run) }
    }
}

impl<'a> ContenderComparison<'a> {
    /// Returns a comparison without contenders.
    pub(crate) fn new(title: impl Into<String>, unit: &'static str, better: Better) -> Self {
        Self {
            title: title.into(),
            unit,
            better,
            contenders: Vec::new(),
            goals: Vec::new(),
            bound: None,
            note: "",
        }
    }

    /// Adds a contender.
    pub(crate) fn with(
        mut self,
        name: impl Into<String>,
        run: impl FnMut() -> anyhow::Result<f64> + 'a,
    ) -> Self {
        self.contenders.push(Contender::new(name, run));
        self
    }

    /// Adds a goal for the ratio to a peer. A floor of 0 means that there is no floor.
    pub(crate) fn with_goal(mut self, peer: &'static str, floor: f64, aim: f64) -> Self {
        self.goals.push(Goal { peer, floor: (floor > 0.0).then_some(floor), aim: Some(aim) });
        self
    }

    /// Sets the goal for our own figure.
    pub(crate) fn with_bound(mut self, floor: f64, aim: f64) -> Self {
        self.bound = Some(Bound { floor, aim });
        self
    }

    /// Sets the note.
    pub(crate) fn with_note(mut self, note: &'static str) -> Self {
        self.note = note;
        self
    }
}

//! What is measured side by side: who takes part, in which unit, and what has to come out.

/// Which way is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Better {
    More,
    Less,
}

/// One that takes part: a name as the table shows it, and what measures it once and answers the figure.
pub(crate) struct Contender<'a> {
    pub(crate) name: String,
    pub(crate) run: Box<dyn FnMut() -> anyhow::Result<f64> + 'a>,
}

/// A bound on ours ÷ peer; where less is better, on peer ÷ ours, so that more is always better.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Goal {
    pub(crate) peer: &'static str,
    pub(crate) floor: Option<f64>,
    pub(crate) aim: Option<f64>,
}

/// A bound on our figure itself, in the row's unit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Bound {
    pub(crate) floor: f64,
    pub(crate) aim: f64,
}

/// Some who do the same, one after the other, round after round. The first contender is ours.
pub(crate) struct Contest<'a> {
    pub(crate) title: String,
    pub(crate) unit: &'static str,
    pub(crate) better: Better,
    pub(crate) contenders: Vec<Contender<'a>>,
    pub(crate) goals: Vec<Goal>,
    pub(crate) bound: Option<Bound>,
    /// What was synced, and what is not the same; empty for nothing.
    pub(crate) note: &'static str,
}

impl<'a> Contender<'a> {
    pub(crate) fn new(name: impl Into<String>, run: impl FnMut() -> anyhow::Result<f64> + 'a) -> Self {
        Self { name: name.into(), run: Box::new(run) }
    }
}

impl<'a> Contest<'a> {
    /// A contest in which nobody takes part yet.
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

    /// One more takes part.
    pub(crate) fn with(
        mut self,
        name: impl Into<String>,
        run: impl FnMut() -> anyhow::Result<f64> + 'a,
    ) -> Self {
        self.contenders.push(Contender::new(name, run));
        self
    }

    /// What the ratio to a peer owes and aims at; a floor of 0 is none.
    pub(crate) fn against(mut self, peer: &'static str, floor: f64, aim: f64) -> Self {
        self.goals.push(Goal { peer, floor: (floor > 0.0).then_some(floor), aim: Some(aim) });
        self
    }

    /// What our own figure owes and aims at.
    pub(crate) fn bounded(mut self, floor: f64, aim: f64) -> Self {
        self.bound = Some(Bound { floor, aim });
        self
    }

    /// What has to be known about it.
    pub(crate) fn noting(mut self, note: &'static str) -> Self {
        self.note = note;
        self
    }
}

//! Quantities of resources over all workers and queues, for monitoring and for autoscalers.

use std::collections::BTreeSet;

use agenix_protocol::documents::{CPUS, Quantities, amount_text};
use serde::Serialize;

/// Labels and values of a metric.
pub(crate) type Samples = Vec<(String, String)>;

#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct ResourceFigures {
    /// Sum of what live workers offer.
    pub(crate) offered: Quantities,
    /// Sum of what claimed jobs use.
    pub(crate) used: Quantities,
    /// Sum of what ready jobs want.
    pub(crate) wanted: Quantities,
}

impl ResourceFigures {
    pub(crate) fn is_empty(&self) -> bool {
        self.offered.is_empty() && self.used.is_empty() && self.wanted.is_empty()
    }

    /// Returns the metrics: name, help, and the samples, with one for each resource that any of
    /// them has.
    pub(crate) fn families(&self) -> [(&'static str, &'static str, Samples); 3] {
        let all = [&self.offered, &self.used, &self.wanted];
        let names: BTreeSet<&str> = all.iter().flat_map(|one| one.iter().map(|(name, _)| name)).collect();
        let samples = |of: &Quantities| {
            let sample = |name: &&str| (format!("{{resource=\"{name}\"}}"), number(name, of.get(name)));
            names.iter().map(sample).collect()
        };
        [
            ("agq_resource_offered", "Quantity that live workers offer.", samples(&self.offered)),
            ("agq_resource_used", "Quantity that claimed jobs use.", samples(&self.used)),
            ("agq_resource_wanted", "Quantity that ready jobs want.", samples(&self.wanted)),
        ]
    }
}

/// Returns an amount as a number: processors, or the smallest unit of another resource.
fn number(name: &str, amount: u64) -> String {
    if name == CPUS { amount_text(name, amount) } else { amount.to_string() }
}

//! Report: properties that hold for the tasks of a supervisor, and properties that do not.

use std::collections::BTreeMap;

pub use agenix_protocol::documents::MissingProperty;
use serde::{Deserialize, Serialize};

use crate::property::{Property, PropertySet};

/// Properties of a sandbox, made from the answers of the kernel.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Report {
    /// Properties that hold, with the mechanisms behind them.
    pub enforced: BTreeMap<Property, String>,
    /// Properties that do not hold.
    pub missing: BTreeMap<Property, MissingProperty>,
}

impl Report {
    /// Returns the properties that hold.
    #[must_use]
    pub fn properties(&self) -> PropertySet {
        self.enforced.keys().copied().collect()
    }

    /// Returns a text for each reason why properties of `needs` do not hold.
    #[must_use]
    pub fn unmet(&self, needs: &PropertySet) -> Vec<String> {
        let mut by_reason: Vec<(Option<&MissingProperty>, Vec<&str>)> = Vec::new();
        for property in needs.without(&self.properties()).iter() {
            let missing = self.missing.get(&property);
            match by_reason.iter_mut().find(|(reason, _)| *reason == missing) {
                Some((_, words)) => words.push(property.word()),
                None => by_reason.push((missing, vec![property.word()])),
            }
        }
        by_reason.into_iter().map(|(missing, words)| unmet_text(missing, &words)).collect()
    }
}

fn unmet_text(missing: Option<&MissingProperty>, words: &[&str]) -> String {
    let are = match words {
        [word] => format!("{word} is not enforced"),
        [first @ .., last] => format!("{} and {last} are not enforced", first.join(", ")),
        [] => String::new(),
    };
    match missing {
        Some(MissingProperty { reason, remedy }) => format!("{are}: {reason}; {remedy}"),
        None => are,
    }
}

#[cfg(test)]
mod tests {
    use super::{MissingProperty, Report};
    use crate::property::{Property, PropertySet};

    #[test]
    fn report_names_what_is_unmet_and_the_remedy() {
        let missing = MissingProperty { reason: "no Landlock".into(), remedy: "use Linux 6.2".into() };
        let report = Report {
            enforced: [(Property::Exec, "Landlock".into())].into(),
            missing: [(Property::FilesRead, missing)].into(),
        };
        let needs: PropertySet = [Property::Exec, Property::FilesRead].into_iter().collect();
        assert_eq!(report.unmet(&needs), ["files_read is not enforced: no Landlock; use Linux 6.2"]);
        assert!(report.unmet(&report.properties()).is_empty());
        let needs: PropertySet =
            [Property::FilesRead, Property::Network, Property::Signals].into_iter().collect();
        let expected = [
            "files_read is not enforced: no Landlock; use Linux 6.2",
            "network and signals are not enforced",
        ];
        assert_eq!(report.unmet(&needs), expected);
    }
}

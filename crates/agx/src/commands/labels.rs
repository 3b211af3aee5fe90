//! Labels of actions: names and values that the user gives.

use std::collections::BTreeMap;

use agenix_protocol::documents::ActionStatus;

use crate::error::{CliError, Result};

/// Name and value of a label.
pub(crate) type Label = (String, String);

/// Parses `NAME=VALUE`. agq checks both.
pub(crate) fn parse_label(text: &str) -> std::result::Result<Label, String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("give a name and a value, as team=night".into()),
    }
}

/// Returns the labels by their names.
pub(super) fn labels(given: Vec<Label>) -> Result<BTreeMap<String, String>> {
    let mut labels = BTreeMap::new();
    for (name, value) in given {
        if labels.insert(name.clone(), value).is_some() {
            return Err(CliError::usage(
                format!("the label '{name}' is given twice"),
                "give each label once: an action has one value of each",
            ));
        }
    }
    Ok(labels)
}

/// Returns the labels of an action as `NAME=VALUE`.
pub(super) fn labels_of(action: &ActionStatus) -> Vec<String> {
    action.labels.iter().map(|(name, value)| format!("{name}={value}")).collect()
}

#[cfg(test)]
mod tests {
    use super::{labels, parse_label};

    #[test]
    fn labels_have_a_name_and_a_value_and_are_given_once() {
        let label = |text| parse_label(text).unwrap();
        assert_eq!(label("a=b=c"), ("a".into(), "b=c".into()));
        assert_eq!(label("a="), ("a".into(), String::new()));
        assert!(parse_label("a").is_err() && parse_label("=b").is_err());
        assert_eq!(labels(vec![label("a=1"), label("b=1")]).unwrap().len(), 2);
        let twice = labels(vec![label("a=1"), label("a=2")]).unwrap_err().to_string();
        assert_eq!(twice, "the label 'a' is given twice");
    }
}

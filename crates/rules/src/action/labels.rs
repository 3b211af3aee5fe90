//! Labels of actions: names and values by which the submitter finds an action again.

use std::collections::BTreeMap;

use super::Action;

/// Maximum number of labels of an action.
const MAX_LABELS: usize = 16;
/// Maximum number of bytes of the name of a label.
const MAX_LABEL_NAME_BYTES: usize = 63;
/// Maximum number of bytes of the value of a label.
const MAX_LABEL_VALUE_BYTES: usize = 255;

/// Checks the names, values and number of the labels of an action.
pub(super) fn check(labels: &BTreeMap<String, String>) -> Result<(), String> {
    if labels.len() > MAX_LABELS {
        return Err(format!("labels has {} labels, max {MAX_LABELS}", labels.len()));
    }
    for (name, value) in labels {
        let is_legal = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
        if !(1..=MAX_LABEL_NAME_BYTES).contains(&name.len()) || !name.chars().all(is_legal) {
            return Err(format!(
                "labels has the name '{}': use 1 to {MAX_LABEL_NAME_BYTES} letters, digits and '.', '_', '-', '/'",
                name.escape_debug()
            ));
        }
        if value.len() > MAX_LABEL_VALUE_BYTES {
            return Err(format!("labels.{name} has {} bytes, max {MAX_LABEL_VALUE_BYTES}", value.len()));
        }
        if value.contains(char::is_control) {
            return Err(format!("labels.{name} contains a control character"));
        }
    }
    Ok(())
}

/// Returns true if the action has all of the `wanted` labels, with their values.
pub fn has_labels(action: &Action, wanted: &BTreeMap<String, String>) -> bool {
    wanted.iter().all(|(name, value)| action.labels.get(name) == Some(value))
}

#[cfg(test)]
mod tests {
    use agenix_protocol::time::Timestamp;

    use super::{MAX_LABEL_NAME_BYTES, MAX_LABEL_VALUE_BYTES, MAX_LABELS, has_labels};
    use crate::action::{Action, is_same};

    #[test]
    fn labels_are_bounded() {
        let check = |labels: &[(&str, &str)]| {
            let labels = labels.iter().map(|&(name, value)| (name.to_owned(), value.to_owned()));
            super::check(&labels.collect())
        };
        let (name, value) = ("n".repeat(MAX_LABEL_NAME_BYTES), "v".repeat(MAX_LABEL_VALUE_BYTES));
        assert_eq!(check(&[(&name, &value), ("team.x/y_z-1", ""), ("a", "ä b=c")]), Ok(()));
        let many: Vec<String> = (0..=MAX_LABELS).map(|number| format!("l{number}")).collect();
        let many: Vec<(&str, &str)> = many.iter().map(|name| (name.as_str(), "")).collect();
        assert_eq!(check(&many[1..]), Ok(()));
        assert_eq!(check(&many).unwrap_err(), "labels has 17 labels, max 16");
        let long = check(&[("a", &format!("{value}v"))]).unwrap_err();
        assert_eq!(long, "labels.a has 256 bytes, max 255");
        assert_eq!(check(&[("a", "x\ny")]).unwrap_err(), "labels.a contains a control character");
        for wrong in [format!("{name}n"), String::new(), "a=b".into(), "a b".into(), "ä".into()] {
            assert!(check(&[(&wrong, "")]).unwrap_err().contains("use 1 to 63 letters"), "{wrong}");
        }
    }

    #[test]
    fn action_has_the_labels_that_a_list_asks_for() {
        let labels = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect()
        };
        let action = Action {
            labels: labels(&[("team", "x"), ("night", "")]),
            ..Action::new("a".parse().unwrap(), "p".parse().unwrap(), Timestamp(0))
        };
        for (wanted, has) in [
            (&[][..], true),
            (&[("team", "x")], true),
            (&[("team", "x"), ("night", "")], true),
            (&[("team", "y")], false),
            (&[("team", "x"), ("day", "")], false),
        ] {
            assert_eq!(has_labels(&action, &labels(wanted)), has, "{wanted:?}");
        }
        let other = Action { labels: labels(&[("team", "x")]), ..action.clone() };
        assert!(is_same(&action, &action) && !is_same(&action, &other));
    }
}

//! Plans as they were read lately: a plan is looked up at every submission, and read from its JSON only when that is another.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use agenix_protocol::documents::{self, BadDocument, Plan};

/// Most plans that are remembered.
const MOST: usize = 16;
/// A plan whose JSON has more bytes is not remembered.
const MOST_BYTES: usize = 64 * 1024;

/// The plans that were read last, each with its JSON, the newest first.
#[derive(Default)]
pub(crate) struct PlansSeen(Mutex<VecDeque<(String, Arc<Plan>)>>);

impl PlansSeen {
    /// The plan that a JSON text is.
    pub(crate) fn read(&self, json: String) -> Result<Arc<Plan>, BadDocument> {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, plan)) = seen.iter().find(|(known, _)| *known == json) {
            return Ok(Arc::clone(plan));
        }
        let plan = Arc::new(documents::parse::<Plan>(json.as_bytes())?);
        if json.len() <= MOST_BYTES {
            seen.truncate(MOST - 1);
            seen.push_front((json, Arc::clone(&plan)));
        }
        Ok(plan)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{MOST, MOST_BYTES, PlansSeen};

    fn json(command: &str) -> String {
        format!(r#"{{"plan_id":"p","tasks":[{{"task_number":1,"command":"{command}"}}]}}"#)
    }

    #[test]
    fn a_plan_is_read_once_while_it_is_among_the_last_and_anew_when_its_text_is_another() {
        let seen = PlansSeen::default();
        let first = seen.read(json("c0")).unwrap();
        assert!(Arc::ptr_eq(&first, &seen.read(json("c0")).unwrap()));
        for number in 1..MOST {
            let other = seen.read(json(&format!("c{number}"))).unwrap();
            assert_eq!(other.tasks[0].command, format!("c{number}"));
        }
        assert!(Arc::ptr_eq(&first, &seen.read(json("c0")).unwrap()), "it is the last that is remembered");
        seen.read(json("another")).unwrap();
        assert!(!Arc::ptr_eq(&first, &seen.read(json("c0")).unwrap()));
    }

    #[test]
    fn what_is_no_plan_is_an_error_and_a_large_one_is_not_kept() {
        let seen = PlansSeen::default();
        assert!(seen.read("{}".into()).is_err());
        let large = json(&"c".repeat(MOST_BYTES));
        seen.read(large).unwrap();
        assert!(seen.0.lock().unwrap().is_empty());
    }
}

//! Cache of parsed plans, because clients submit and workers run the same plans again and again,
//! and plans may be large.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{BadDocument, Plan, parse};

/// Maximum number of cached plans.
const MAX_PLANS: usize = 16;
/// Maximum number of bytes of all cached texts. The newest plan is cached regardless of its size.
const MAX_BYTES: usize = 1024 * 1024;

/// Cache of parsed plans. All clones share the cached plans.
#[derive(Debug, Clone, Default)]
pub struct PlanCache(Arc<Mutex<VecDeque<CachedPlan>>>);

#[derive(Debug)]
struct CachedPlan {
    text: Box<str>,
    plan: Arc<Plan>,
}

impl PlanCache {
    /// Returns the plan with this text, from the cache if possible. An invalid text is not cached.
    pub fn read(&self, text: &str) -> Result<Arc<Plan>, BadDocument> {
        if let Some(known) = self.known().iter().find(|known| *known.text == *text) {
            return Ok(Arc::clone(&known.plan));
        }
        let plan = Arc::new(parse::<Plan>(text.as_bytes())?);
        self.remember(CachedPlan { text: text.into(), plan: Arc::clone(&plan) });
        Ok(plan)
    }

    fn remember(&self, newest: CachedPlan) {
        let mut known = self.known();
        known.push_front(newest);
        known.truncate(MAX_PLANS);
        while known.len() > 1 && known.iter().map(|known| known.text.len()).sum::<usize>() > MAX_BYTES {
            known.pop_back();
        }
    }

    fn known(&self) -> MutexGuard<'_, VecDeque<CachedPlan>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{MAX_BYTES, MAX_PLANS, PlanCache};

    fn text(command: &str) -> String {
        format!(r#"{{"tasks":[{{"task_number":1,"command":"{command}"}}]}}"#)
    }

    #[test]
    fn plan_cache_parses_a_recent_text_once() {
        let plans = PlanCache::default();
        let first = plans.read(&text("c0")).unwrap();
        assert!(Arc::ptr_eq(&first, &plans.read(&text("c0")).unwrap()));
        for number in 1..MAX_PLANS {
            let other = plans.read(&text(&format!("c{number}"))).unwrap();
            assert_eq!(other.tasks[0].command, format!("c{number}"));
        }
        assert!(Arc::ptr_eq(&first, &plans.read(&text("c0")).unwrap()), "it is the last that is remembered");
        assert!(plans.read("{").is_err());
        assert!(Arc::ptr_eq(&first, &plans.read(&text("c0")).unwrap()), "what cannot be read is not kept");
        plans.read(&text("another")).unwrap();
        assert!(!Arc::ptr_eq(&first, &plans.read(&text("c0")).unwrap()));
    }

    #[test]
    fn plan_cache_holds_one_large_plan() {
        let plans = PlanCache::default();
        let (small, large) = (text("small"), text(&"c".repeat(MAX_BYTES)));
        let before = plans.read(&small).unwrap();
        let read = plans.read(&large).unwrap();
        assert!(Arc::ptr_eq(&read, &plans.read(&large).unwrap()));
        assert_eq!(plans.known().len(), 1);
        assert!(!Arc::ptr_eq(&before, &plans.read(&small).unwrap()));
    }
}

//! Quantities of resources: whether a job fits into what a worker has free, and whether the worker
//! could ever run it.

use agenix_protocol::documents::{ActionSubmission, Plan, Quantities, amount_text, check_resource_variables};

/// Checks the quantities of the jobs of an action: each resource has a variable of its own.
pub fn check_action(action: &ActionSubmission, plan: &Plan) -> Result<(), String> {
    let wanted = plan.requires.resources.overridden(&action.resources);
    check_resource_variables(&wanted).map_err(|error| format!("resources: {error}"))
}

/// Returns true if a worker that offers `offered` could run a job that wants `wanted` while it runs
/// no other job.
pub fn covers(offered: &Quantities, wanted: &Quantities) -> bool {
    wanted.iter().all(|(name, amount)| amount <= offered.get(name))
}

/// Returns true if `wanted` fits into `offered` beside `used`.
pub fn fits(offered: &Quantities, used: &Quantities, wanted: &Quantities) -> bool {
    wanted.iter().all(|(name, amount)| {
        amount == 0 || used.get(name).checked_add(amount).is_some_and(|sum| sum <= offered.get(name))
    })
}

/// Adds the amounts of `more` to `sum`.
pub fn add(sum: &mut Quantities, more: &Quantities) {
    add_times(sum, more, 1);
}

/// Adds the amounts of `more`, `times` times, to `sum`.
pub fn add_times(sum: &mut Quantities, more: &Quantities, times: u64) {
    for (name, amount) in more.iter() {
        sum.set(name, sum.get(name).saturating_add(amount.saturating_mul(times)));
    }
}

/// Removes the amounts of `less` from `sum`, and resources of which nothing is left.
pub fn subtract(sum: &mut Quantities, less: &Quantities) {
    for (name, amount) in less.iter() {
        match sum.get(name).saturating_sub(amount) {
            0 => sum.remove(name),
            rest => sum.set(name, rest),
        }
    }
}

/// Returns by how much `wanted` exceeds `offered`: the sum over the resources, in thousandths of
/// what is wanted of each.
pub fn shortfall(offered: &Quantities, wanted: &Quantities) -> u64 {
    let of = |(name, amount): (&str, u64)| {
        let short = amount.saturating_sub(offered.get(name));
        short.saturating_mul(1000).checked_div(amount).unwrap_or_default()
    };
    wanted.iter().map(of).sum()
}

/// Returns the amounts of `wanted` that fit into `offered` but not beside `used`, as
/// `cpus 3 (1 of 4 is free)`.
pub fn occupied<'a>(
    offered: &'a Quantities,
    used: &'a Quantities,
    wanted: &'a Quantities,
) -> impl Iterator<Item = String> + 'a {
    wanted.iter().filter_map(|(name, amount)| {
        let (offered, free) = (offered.get(name), offered.get(name).saturating_sub(used.get(name)));
        let text = |amount| amount_text(name, amount);
        (free < amount && amount <= offered)
            .then(|| format!("{name} {} ({} of {} is free)", text(amount), text(free), text(offered)))
    })
}

/// Returns the amounts of `wanted` that exceed those of `offered`, as `cpus 8 (it offers 4)`.
pub fn missing<'a>(offered: &'a Quantities, wanted: &'a Quantities) -> impl Iterator<Item = String> + 'a {
    let exceeding = wanted.iter().filter(|(name, amount)| *amount > offered.get(name));
    exceeding.map(|(name, amount)| {
        let offers = match offered.get(name) {
            0 => "none".to_owned(),
            offered => amount_text(name, offered),
        };
        format!("{name} {} (it offers {offers})", amount_text(name, amount))
    })
}

#[cfg(test)]
mod tests {
    use agenix_protocol::documents::{Plan, Quantities, parse};
    use proptest::prelude::*;

    use super::{add, check_action, covers, fits, missing, occupied, shortfall, subtract};

    #[test]
    fn resources_of_an_action_have_other_variables_than_those_of_its_plan() {
        let plan = br#"{"plan_id":"p","tasks":[{"task_number":1,"command":"sort"}],"requires":{"resources":{"a-b":1}}}"#;
        let plan: Plan = parse(plan).unwrap();
        let checked = |resources: &str| {
            let json = format!(r#"{{"plan_id":"p","inputs":[{{}}],"resources":{resources}}}"#);
            check_action(&parse(json.as_bytes()).unwrap(), &plan)
        };
        assert!(checked(r#"{"a_b":1}"#).unwrap_err().starts_with("resources: 'a-b' and 'a_b' are both"));
        for legal in [r#"{"a-b":2}"#, r#"{"a_b":0}"#, r#"{"a_b":1,"a-b":0}"#] {
            assert_eq!(checked(legal), Ok(()), "{legal}");
        }
    }

    fn of(json: &str) -> Quantities {
        parse(json.as_bytes()).unwrap()
    }

    #[test]
    fn job_fits_up_to_the_last_hundredth() {
        let (offered, used) = (of(r#"{"cpus":4,"gpus":1}"#), of(r#"{"cpus":2.5}"#));
        assert!(fits(&offered, &used, &of(r#"{"cpus":1.5,"gpus":1}"#)));
        for wanted in [r#"{"cpus":1.51}"#, r#"{"gpus":2}"#, r#"{"memory":1}"#] {
            assert!(!fits(&offered, &used, &of(wanted)), "{wanted}");
        }
        assert!(
            fits(&offered, &of(r#"{"cpus":5}"#), &of(r#"{"cpus":0,"gpus":1}"#)),
            "a worker may offer less than before"
        );
        assert!(!fits(&offered, &of(r#"{"cpus":5}"#), &of(r#"{"cpus":0.01}"#)));
        let mut most = Quantities::default();
        most.set("cpus", u64::MAX);
        assert!(!fits(&offered, &most, &of(r#"{"cpus":1}"#)), "the sum does not overflow");
    }

    #[test]
    fn missing_amounts_are_named_with_those_of_the_worker() {
        let offered = of(r#"{"cpus":4,"memory":"2G"}"#);
        let wanted = of(r#"{"cpus":8,"memory":"2G","gpus":1}"#);
        assert!(!covers(&offered, &wanted) && covers(&offered, &of(r#"{"cpus":4}"#)));
        let missing: Vec<String> = missing(&offered, &wanted).collect();
        assert_eq!(missing, ["cpus 8 (it offers 4)", "gpus 1 (it offers none)"]);
        assert_eq!(shortfall(&offered, &wanted), 1500, "half of cpus and all of gpus");
        assert_eq!(shortfall(&offered, &of(r#"{"cpus":4,"gpus":0}"#)), 0);
    }

    #[test]
    fn occupied_amounts_are_named_with_what_is_free() {
        let (offered, used) = (of(r#"{"cpus":4,"gpus":1}"#), of(r#"{"cpus":2.5}"#));
        let of_job = |wanted: &str| occupied(&offered, &used, &of(wanted)).collect::<Vec<_>>();
        assert_eq!(of_job(r#"{"cpus":3,"gpus":1}"#), ["cpus 3 (1.5 of 4 is free)"]);
        assert_eq!(of_job(r#"{"cpus":1.5,"memory":1}"#), [""; 0], "missing memory is not occupied");
    }

    proptest! {
        #[test]
        fn sum_of_running_jobs_returns_to_nothing_and_never_exceeds_the_offer(
            steps in prop::collection::vec((any::<bool>(), 0_u64..500, 0_u64..3), 1..100),
        ) {
            let offered = of(r#"{"cpus":8,"gpus":3}"#);
            let (mut used, mut running) = (Quantities::default(), Vec::new());
            for (ends, cpus, gpus) in steps {
                if ends && !running.is_empty() {
                    subtract(&mut used, &running.remove(0));
                    continue;
                }
                let mut wanted = Quantities::default();
                wanted.set("cpus", cpus);
                wanted.set("gpus", gpus);
                if fits(&offered, &used, &wanted) {
                    add(&mut used, &wanted);
                    running.push(wanted);
                }
                prop_assert!(covers(&offered, &used), "{used}");
            }
            running.iter().for_each(|job| subtract(&mut used, job));
            prop_assert!(used.iter().all(|(_, amount)| amount == 0));
        }
    }
}

//! Jobs that no worker can run: their needs, and the workers that meet a part of them.

use agenix_protocol::documents::{Demand, WorkerStatus, amount_text};

use crate::output::counted;

/// Maximum number of workers in the text.
const MAX_NAMED: usize = 3;

/// Describes the needs that no worker meets completely, and the workers that meet a part of them.
pub(crate) fn describe(demand: &Demand, workers: &[WorkerStatus]) -> String {
    let jobs = counted(demand.length, "job waits", "jobs wait");
    let wants = demand.wants().join(", ");
    let living: Vec<&WorkerStatus> = workers.iter().filter(|worker| worker.state != "dead").collect();
    let tools = demand.tools.iter().map(|tool| {
        let has = |worker: &&&WorkerStatus| worker.capabilities.commands().any(|own| own == tool);
        place(tool, living.iter().filter(has)).unwrap_or_else(|| format!("no worker has {tool}"))
    });
    let resources = demand.resources.iter().map(|(name, amount)| {
        let has = |worker: &&&WorkerStatus| worker.resources.get(name) >= amount;
        let need = format!("{name} {}", amount_text(name, amount));
        place(&need, living.iter().filter(has)).unwrap_or_else(|| largest(name, &living))
    });
    let parts: Vec<String> = tools.chain(resources).collect();
    let parts = if parts.is_empty() { String::new() } else { format!(" ({})", parts.join("; ")) };
    format!("{jobs} for a worker that has {wants}{parts}")
}

/// Names the workers that have `need`; `None` without one.
fn place<'w>(need: &str, workers: impl Iterator<Item = &'w &'w WorkerStatus>) -> Option<String> {
    let names: Vec<&str> = workers.map(|worker| worker.worker_id.as_str()).collect();
    match names.len() {
        0 => None,
        1..=MAX_NAMED => Some(format!("{need} is on {}", names.join(", "))),
        more => Some(format!("{need} is on {} and {} more", names[..MAX_NAMED].join(", "), more - MAX_NAMED)),
    }
}

/// Names the worker that offers most of a resource.
fn largest(name: &str, workers: &[&WorkerStatus]) -> String {
    let most = workers.iter().max_by_key(|worker| worker.resources.get(name));
    let most = most.map(|worker| (&worker.worker_id, worker.resources.get(name)));
    match most.filter(|(_, amount)| *amount > 0) {
        None => format!("no worker offers {name}"),
        Some((worker_id, amount)) => {
            format!("{worker_id} offers most {name}: {}", amount_text(name, amount))
        }
    }
}

#[cfg(test)]
mod tests {
    use agenix_protocol::documents::{Demand, WorkerStatus, parse};

    use super::describe;

    fn worker(id: &str, state: &str, tools: &[&str]) -> WorkerStatus {
        let json = serde_json::json!({
            "worker_id": id, "state": state, "hostname": "", "platform": "", "agw_version": "",
            "capabilities": {"tools": tools, "agentic_units": []}, "max_concurrent_jobs": 1, "active_jobs": 0,
            "registered_at": "2026-01-31T08:00:00.000Z", "last_seen_at": "2026-01-31T08:00:00.000Z", "stats": null,
        });
        parse(json.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn unmet_needs_name_workers_with_a_part() {
        let demand: Demand =
            parse(br#"{"tools":["jq","sort","tr"],"tags":["gpu"],"length":2,"workers":0}"#).unwrap();
        let workers = [
            worker("w1", "active", &["sort", "tr"]),
            worker("w2", "dead", &["jq"]),
            worker("w3", "active", &["tr"]),
            worker("w4", "active", &["tr"]),
            worker("w5", "active", &["tr"]),
        ];
        assert_eq!(
            describe(&demand, &workers),
            "2 jobs wait for a worker that has jq, sort, tr, the tag gpu (no worker has jq; sort is on w1; tr is on w1, w3, w4 and 1 more)"
        );
        let tag = Demand { tools: Vec::new(), length: 1, ..demand };
        assert_eq!(describe(&tag, &workers), "1 job waits for a worker that has the tag gpu");
    }

    #[test]
    fn unmet_quantities_name_the_worker_that_offers_most() {
        let demand = br#"{"tools":[],"resources":{"cpus":8,"gpus":1,"memory":"2G"},"length":1,"workers":0}"#;
        let demand: Demand = parse(demand).unwrap();
        let with = |id, resources: &str| {
            let resources = parse(resources.as_bytes()).unwrap();
            WorkerStatus { resources, ..worker(id, "active", &[]) }
        };
        let workers = [with("w1", r#"{"cpus":1.5,"memory":"4G"}"#), with("w2", r#"{"cpus":4}"#)];
        assert_eq!(
            describe(&demand, &workers),
            "1 job waits for a worker that has cpus 8, gpus 1, memory 2G (w2 offers most cpus: 4; no worker offers gpus; memory 2G is on w1)"
        );
    }
}

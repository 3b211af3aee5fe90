//! Jobs that no worker can run: their needs, and the workers that meet a part of them.

use agenix_protocol::documents::{Demand, WorkerStatus};

use crate::output::counted;

/// Maximum number of workers in the text.
const MOST_NAMED: usize = 3;

/// Describes the needs that no worker meets completely, and the workers that meet a part of them.
pub(crate) fn describe(demand: &Demand, workers: &[WorkerStatus]) -> String {
    let jobs = counted(demand.length, "job waits", "jobs wait");
    let wants = demand.wants().join(", ");
    let living: Vec<&WorkerStatus> = workers.iter().filter(|worker| worker.state != "dead").collect();
    let tools = demand.tools.iter().map(|tool| {
        let has = |worker: &&&WorkerStatus| worker.capabilities.commands().any(|own| own == tool);
        let names: Vec<&str> = living.iter().filter(has).map(|worker| worker.worker_id.as_str()).collect();
        match names.len() {
            0 => format!("no worker has {tool}"),
            1..=MOST_NAMED => format!("{tool} is on {}", names.join(", ")),
            more => format!("{tool} is on {} and {} more", names[..MOST_NAMED].join(", "), more - MOST_NAMED),
        }
    });
    let tools: Vec<String> = tools.collect();
    let tools = if tools.is_empty() { String::new() } else { format!(" ({})", tools.join("; ")) };
    format!("{jobs} for a worker that has {wants}{tools}")
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
}

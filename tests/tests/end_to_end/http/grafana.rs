//! The Grafana dashboard uses only metrics that agq exports to Prometheus, and counts those of a
//! database once.

use std::collections::BTreeSet;

use e2e::{Lab, eventually};
use serde_json::Value;

use super::client::Http;

/// Metrics that each node counts for itself. The others are those of the database, which each node
/// of the database exports alike.
const OF_A_NODE: [&str; 6] = [
    "agq_commands_total",
    "agq_connections",
    "agq_connections_total",
    "agq_job_run_seconds_bucket",
    "agq_job_wait_seconds_bucket",
    "agq_uptime_seconds",
];

fn dashboard() -> String {
    std::fs::read_to_string(Lab::repository("packaging/grafana/agenix.json")).unwrap()
}

/// Returns the names of agq's metrics in a text.
fn figures(text: &str) -> BTreeSet<&str> {
    let words = text.split(|char: char| !char.is_ascii_alphanumeric() && char != '_');
    words.filter(|word| word.starts_with("agq_")).collect()
}

#[test]
fn every_figure_of_the_dashboard_is_one_of_agqs() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let _agw = lab.agw(&agq, "w1", &[]);
    let dashboard = dashboard();
    let document: Value = serde_json::from_str(&dashboard).unwrap();
    assert!(document["panels"].as_array().unwrap().len() > 10);
    let asked = figures(&dashboard);
    assert!(asked.len() > 10, "{asked:?}");
    let http = Http::of(&lab, &agq);
    // Metrics about workers arrive with their heartbeats.
    eventually("all figures", || {
        let metrics = http.ask("GET", "//metrics", "").text;
        let metrics = figures(&metrics);
        asked.iter().all(|figure| metrics.contains(figure)).then_some(())
    });
}

#[test]
fn figures_of_a_database_are_those_of_one_of_its_nodes() {
    let document: Value = serde_json::from_str(&dashboard()).unwrap();
    let panels = document["panels"].as_array().unwrap();
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    let expressions: Vec<&str> = targets.map(|target| target["expr"].as_str().unwrap()).collect();
    assert!(expressions.len() > 20, "{expressions:?}");
    for expression in expressions {
        for figure in figures(expression) {
            let variable = if OF_A_NODE.contains(&figure) { "$instance" } else { "$database" };
            let selected = format!("{figure}{{instance=~\"{variable}\"");
            assert!(expression.contains(&selected), "{expression} has no {selected}");
        }
    }
}

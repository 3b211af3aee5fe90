//! The Grafana dashboard uses only metrics that agq exports to Prometheus.

use std::collections::BTreeSet;

use e2e::{Lab, eventually};
use serde_json::Value;

use super::client::Http;

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
    let dashboard = std::fs::read_to_string(Lab::repository("packaging/grafana/agenix.json")).unwrap();
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

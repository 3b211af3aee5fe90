//! Search for agentic units by their descriptions (worker spec §10).

use std::collections::BTreeMap;

use agenix_rules::worker::Liveness;
use bm25::{Document, Language, SearchEngineBuilder};
use serde::Serialize;

use super::workers;
use crate::{app::AppState, error::Result};

#[derive(Debug, Serialize)]
pub(crate) struct UnitMatch {
    name: String,
    score: f32,
    description: String,
    workers: Vec<String>,
}

#[derive(Clone, Default)]
struct Unit {
    description: String,
    workers: Vec<String>,
}

/// Ranks the units of live workers by BM25: words that few descriptions have count most.
pub(crate) async fn search(app: &AppState, words: &[String], limit: usize) -> Result<Vec<UnitMatch>> {
    let mut units: BTreeMap<String, Unit> = BTreeMap::new();
    for worker in app.store.worker_records().await? {
        if worker.standing != Liveness::Active {
            continue;
        }
        let Some(registration) = workers::registration(app, &worker.worker_id).await? else { continue };
        // A unit without a description is found by its name.
        for name in registration.capabilities.agentic_units {
            let description = registration.descriptions.get(&name).cloned();
            let unit = units.entry(name).or_default();
            unit.description = description.unwrap_or(std::mem::take(&mut unit.description));
            unit.workers.push(worker.worker_id.to_string());
        }
    }
    Ok(ranked(units, words, limit))
}

fn ranked(units: BTreeMap<String, Unit>, words: &[String], limit: usize) -> Vec<UnitMatch> {
    let mut units: Vec<(String, Unit)> = units.into_iter().collect();
    let documents = units.iter().enumerate().map(|(id, (name, unit))| {
        // The parts of the name are words too: "ocr" finds `agx-ocr`.
        Document { id, contents: format!("{name} {} {}", name.replace(['-', '_'], " "), unit.description) }
    });
    let engine = SearchEngineBuilder::<usize>::with_documents(Language::English, documents).build();
    let results = engine.search(&words.join(" "), limit);
    let matches = results.into_iter().filter_map(|result| {
        // Each unit is found once.
        let (name, unit) = std::mem::take(units.get_mut(result.document.id)?);
        let Unit { description, workers } = unit;
        Some(UnitMatch { name, score: result.score, description, workers })
    });
    matches.collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{Unit, ranked};

    #[test]
    fn search_ranks_the_best_description_first_and_finds_names() {
        let unit = |text: &str| Unit { description: text.into(), workers: vec!["w".into()] };
        let units = BTreeMap::from([
            ("agx-ocr".to_owned(), unit("Reads the text in scanned images and photographs.")),
            ("agx-sum".to_owned(), unit("Summarises a long text in a few sentences.")),
            ("agx-csv".to_owned(), unit("Turns tables into CSV.")),
        ]);
        let names = |words: &str, limit| -> Vec<String> {
            let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
            ranked(units.clone(), &words, limit).into_iter().map(|found| found.name).collect()
        };
        assert_eq!(names("read text from an image", 10), ["agx-ocr", "agx-sum"]);
        assert_eq!(names("read text from an image", 1), ["agx-ocr"]);
        assert_eq!(names("csv", 10), ["agx-csv"]);
        assert!(names("weather", 10).is_empty());
    }
}

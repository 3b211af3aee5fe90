//! Capabilities of live workers: search for agentic units by their descriptions (worker spec §10),
//! and the list of programs.

use std::collections::{BTreeMap, BTreeSet};

use agenix_protocol::documents::{CapabilityList, OfferedProgram, WorkerRegistration};
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
    for registration in live_registrations(app).await? {
        // A unit without a description is found by its name.
        for name in registration.capabilities.agentic_units {
            let description = registration.descriptions.get(&name).cloned();
            let unit = units.entry(name).or_default();
            unit.description = description.unwrap_or(std::mem::take(&mut unit.description));
            unit.workers.push(registration.worker_id.to_string());
        }
    }
    Ok(ranked(units, words, limit))
}

/// Lists the programs whose names contain `name_part`, at most `limit`.
pub(crate) async fn list(app: &AppState, name_part: &str, limit: usize) -> Result<CapabilityList> {
    Ok(listed(live_registrations(app).await?, name_part, limit))
}

fn listed(registrations: Vec<WorkerRegistration>, name_part: &str, limit: usize) -> CapabilityList {
    let workers = registrations.len() as u64;
    let mut programs: BTreeMap<String, OfferedProgram> = BTreeMap::new();
    let mut profiles = BTreeSet::new();
    for registration in registrations {
        for name in registration.capabilities.commands().filter(|name| name.contains(name_part)) {
            let new = || OfferedProgram { name: name.to_owned(), workers: 0, description: None };
            let program = programs.entry(name.to_owned()).or_insert_with(new);
            program.workers += 1;
            if let Some(description) = registration.descriptions.get(name) {
                program.description = Some(description.clone());
            }
        }
        let offered = registration.sandbox.into_iter().flat_map(|sandbox| sandbox.profiles);
        profiles.extend(offered.filter(|(_, unmet)| unmet.is_empty()).map(|(name, _)| name));
    }
    let total = programs.len() as u64;
    let programs = programs.into_values().take(limit).collect();
    CapabilityList { workers, programs, total, profiles: profiles.into_iter().collect() }
}

/// Returns the registrations of the workers that take jobs.
async fn live_registrations(app: &AppState) -> Result<Vec<WorkerRegistration>> {
    let mut live = Vec::new();
    for worker in app.store.worker_records().await? {
        if worker.liveness == Liveness::Active {
            live.extend(workers::registration(app, &worker.worker_id).await?);
        }
    }
    Ok(live)
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

    use agenix_protocol::documents::{Capabilities, OfferedProgram, WorkerRegistration};

    use super::{Unit, listed, ranked};

    #[test]
    fn list_counts_the_workers_of_each_program() {
        let worker = |id: &str, tools: &[&str]| WorkerRegistration {
            capabilities: Capabilities {
                tools: tools.iter().map(|&tool| tool.into()).collect(),
                agentic_units: vec!["agx-zip".into()],
            },
            descriptions: BTreeMap::from([("agx-zip".into(), "Zips.".into())]),
            ..WorkerRegistration::of(id.parse().unwrap())
        };
        let both = || vec![worker("a", &["zcat", "gzip", "sort"]), worker("b", &["gzip"])];
        let program = |name: &str, workers, description: Option<&str>| OfferedProgram {
            name: name.into(),
            workers,
            description: description.map(str::to_owned),
        };
        let list = listed(both(), "z", 2);
        assert_eq!((list.workers, list.total), (2, 3));
        assert_eq!(list.programs, [program("agx-zip", 2, Some("Zips.")), program("gzip", 2, None)]);
        assert_eq!(listed(both(), "", 100).total, 4);
        assert!(listed(both(), "no such program", 100).programs.is_empty());
    }

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

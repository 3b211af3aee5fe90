//! CAPABILITY.SEARCH: agentic units by what they say of themselves (worker spec §10). Ranked by BM25, the measure of search
//! engines: words that few descriptions have count most.

use std::collections::BTreeMap;

use agenix_protocol::{documents::to_json, resp::Reply};
use agenix_rules::worker::Liveness;
use bm25::{Document, Language, SearchEngineBuilder};
use serde::Serialize;

use crate::{app::AppState, resp::outcome::CommandResult, service::workers};

/// A unit that was found.
#[derive(Debug, Serialize)]
struct UnitMatch<'a> {
    name: &'a str,
    score: f32,
    description: &'a str,
    workers: &'a [String],
}

/// A unit with its description, and who has it.
#[derive(Default)]
struct Unit {
    description: String,
    workers: Vec<String>,
}

/// CAPABILITY.SEARCH
pub(crate) async fn search(app: &AppState, words: &[String], limit: usize) -> CommandResult {
    let mut units: BTreeMap<String, Unit> = BTreeMap::new();
    for known in app.store.worker_records().await? {
        if known.standing != Liveness::Active {
            continue;
        }
        let Some(told) = workers::registration(app, &known.worker_id).await? else { continue };
        // One that says nothing of itself is found by its name.
        for name in told.capabilities.agentic_units {
            let description = told.descriptions.get(&name).cloned();
            let unit = units.entry(name).or_default();
            unit.description = description.unwrap_or(std::mem::take(&mut unit.description));
            unit.workers.push(known.worker_id.to_string());
        }
    }
    Ok(Reply::bulks(ranked(&units, words, limit)))
}

fn ranked(units: &BTreeMap<String, Unit>, words: &[String], limit: usize) -> Vec<String> {
    let names: Vec<&String> = units.keys().collect();
    let documents = units.iter().enumerate().map(|(id, (name, unit))| {
        // The name's parts are words too: `agx-ocr` is found by "ocr".
        Document { id, contents: format!("{name} {} {}", name.replace(['-', '_'], " "), unit.description) }
    });
    let engine = SearchEngineBuilder::<usize>::with_documents(Language::English, documents).build();
    let results = engine.search(&words.join(" "), limit);
    let found = results.into_iter().filter_map(|result| {
        let name = *names.get(result.document.id)?;
        let unit = units.get(name)?;
        Some(to_json(&UnitMatch {
            name,
            score: result.score,
            description: &unit.description,
            workers: &unit.workers,
        }))
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{Unit, ranked};

    #[test]
    fn the_best_description_comes_first_and_names_count() {
        let unit = |text: &str| Unit { description: text.into(), workers: vec!["w".into()] };
        let units = BTreeMap::from([
            ("agx-ocr".to_owned(), unit("Reads the text in scanned images and photographs.")),
            ("agx-sum".to_owned(), unit("Summarises a long text in a few sentences.")),
            ("agx-csv".to_owned(), unit("Turns tables into CSV.")),
        ]);
        let names = |words: &str, limit| -> Vec<String> {
            let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
            let found = ranked(&units, &words, limit).into_iter();
            let name =
                |json: String| serde_json::from_str::<serde_json::Value>(&json).unwrap()["name"].to_string();
            found.map(name).collect()
        };
        assert_eq!(names("read text from an image", 10), ["\"agx-ocr\"", "\"agx-sum\""]);
        assert_eq!(names("read text from an image", 1), ["\"agx-ocr\""]);
        assert_eq!(names("csv", 10), ["\"agx-csv\""]);
        assert!(names("weather", 10).is_empty());
    }
}

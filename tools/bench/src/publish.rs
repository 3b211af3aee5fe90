//! Writes results into the repository: docs/bench.json, the chart, and the tables of
//! README.md and docs/performance.md.

use std::{collections::BTreeSet, fs, path::PathBuf};

use agenix_harness::report::root;
use anyhow::{Context, ensure};

use super::{
    chart,
    document::{Detail, ResultsDocument},
    machine, pages,
};

/// Replaces the published sections that this run has measured. Other sections keep their figures
/// and commits.
pub(crate) fn publish(run: ResultsDocument) -> anyhow::Result<()> {
    let published = published();
    let document = if published.is_file() { merged(ResultsDocument::read(&published)?, run)? } else { run };
    document.write(&published, Detail::Figures)?;
    if let Some(svg) = chart::svg(&document.rows) {
        let directory = root().join("docs/img");
        fs::create_dir_all(&directory)?;
        fs::write(directory.join("bench.svg"), svg).context("cannot write docs/img/bench.svg")?;
    }
    write_page("README.md", |text| pages::readme(text, &document))?;
    write_page("docs/performance.md", |text| pages::performance(text, &document))?;
    println!(
        "docs/bench.json, docs/img/bench.svg and the tables in README.md and docs/performance.md are written"
    );
    Ok(())
}

/// Rewrites a page of the repository with `generate`.
fn write_page(name: &str, generate: impl Fn(&str) -> anyhow::Result<String>) -> anyhow::Result<()> {
    let file = root().join(name);
    let text = fs::read_to_string(&file).with_context(|| format!("cannot read {name}"))?;
    let text = generate(&text).with_context(|| format!("{name} has no marks for the tables"))?;
    fs::write(&file, text).with_context(|| format!("cannot write {name}"))
}

fn published() -> PathBuf {
    root().join("docs/bench.json")
}

/// Replaces the sections of `kept` that `run` has, in the order of sections.
fn merged(kept: ResultsDocument, mut run: ResultsDocument) -> anyhow::Result<ResultsDocument> {
    let measured: BTreeSet<String> = run.rows.iter().map(|row| row.section.clone()).collect();
    let mut rows = kept.rows;
    rows.retain(|row| !measured.contains(&row.section));
    if rows.is_empty() {
        return Ok(run);
    }
    ensure!(
        kept.machine == run.machine,
        "docs/bench.json is of another machine ({}): run all of its sections here, or remove it",
        machine::description(&kept.machine)
    );
    rows.append(&mut run.rows);
    rows.sort_by_key(|row| super::Section::position(&row.section));
    let mut versions = kept.versions;
    versions.append(&mut run.versions);
    Ok(ResultsDocument { rows, versions, ..run })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::merged;
    use crate::{comparison::Better, document::ResultsDocument, row};

    fn document(sections: &[&str], cpus: u32) -> ResultsDocument {
        let row = |section: &&str| {
            let mut row = row::tests::row(Better::More, f64::from(cpus));
            row.section = (*section).to_owned();
            row
        };
        ResultsDocument {
            date: "2026-01-01".into(),
            commit: "abc1234".into(),
            machine: json!({"cpus": cpus}),
            versions: BTreeMap::new(),
            is_quick: false,
            rows: sections.iter().map(row).collect(),
        }
    }

    #[test]
    fn publish_replaces_the_sections_that_were_measured() {
        let kept = document(&["wire", "limits", "wire"], 2);
        let merged = merged(kept, document(&["scale", "wire"], 2)).unwrap();
        let sections: Vec<_> = merged.rows.iter().map(|row| row.section.as_str()).collect();
        assert_eq!(sections, ["limits", "wire", "scale"]);
    }

    #[test]
    fn publish_does_not_mix_machines() {
        assert!(merged(document(&["wire"], 2), document(&["limits"], 4)).is_err());
        assert_eq!(
            merged(document(&["wire"], 2), document(&["wire"], 4)).unwrap().machine,
            json!({"cpus": 4})
        );
    }
}

//! Publishes results in the repository: docs/bench.json, the chart, and the tables of README.md and docs/performance.md.

use std::{collections::BTreeSet, fs, path::PathBuf};

use anyhow::{Context, ensure};

use super::{
    chart,
    document::{Detail, Document},
    machine, page,
};
use crate::report::root;

/// Puts a run in the place of the same sections of earlier runs; the other sections stay, with the commits they were measured at.
pub(crate) fn publish(run: Document) -> anyhow::Result<()> {
    let kept = kept();
    let document = if kept.is_file() { merged(Document::read(&kept)?, run)? } else { run };
    document.write(&kept, Detail::Figures)?;
    if let Some(svg) = chart::svg(&document.rows) {
        let directory = root().join("docs/img");
        fs::create_dir_all(&directory)?;
        fs::write(directory.join("bench.svg"), svg).context("cannot write docs/img/bench.svg")?;
    }
    write_page("README.md", |text| page::readme(text, &document))?;
    write_page("docs/performance.md", |text| page::performance(text, &document))?;
    println!(
        "docs/bench.json, docs/img/bench.svg and the tables in README.md and docs/performance.md are written"
    );
    Ok(())
}

/// Rewrites a page of the repository with `generate`.
fn write_page(name: &str, generate: impl Fn(&str) -> anyhow::Result<String>) -> anyhow::Result<()> {
    let file = root().join(name);
    let text = fs::read_to_string(&file).with_context(|| format!("cannot read {name}"))?;
    let text = generate(&text).with_context(|| format!("{name} has no place for the tables"))?;
    fs::write(&file, text).with_context(|| format!("cannot write {name}"))
}

fn kept() -> PathBuf {
    root().join("docs/bench.json")
}

/// The rows of sections that were run, in the place of those that were kept, in the order in which sections are run.
fn merged(kept: Document, mut run: Document) -> anyhow::Result<Document> {
    let anew: BTreeSet<String> = run.rows.iter().map(|row| row.section.clone()).collect();
    let mut rows = kept.rows;
    rows.retain(|row| !anew.contains(&row.section));
    if rows.is_empty() {
        return Ok(run);
    }
    ensure!(
        kept.machine == run.machine,
        "docs/bench.json is of another machine ({}): run all of its sections here, or remove it",
        machine::shown(&kept.machine)
    );
    rows.append(&mut run.rows);
    rows.sort_by_key(|row| super::Section::position(&row.section));
    let mut versions = kept.versions;
    versions.append(&mut run.versions);
    Ok(Document { rows, versions, ..run })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::merged;
    use crate::bench::{contest::Better, document::Document, row};

    fn document(sections: &[&str], cpus: u32) -> Document {
        let row = |section: &&str| {
            let mut row = row::tests::row(Better::More, f64::from(cpus));
            row.section = (*section).to_owned();
            row
        };
        Document {
            date: "2026-01-01".into(),
            commit: "abc1234".into(),
            machine: json!({"cpus": cpus}),
            versions: BTreeMap::new(),
            is_quick: false,
            rows: sections.iter().map(row).collect(),
        }
    }

    #[test]
    fn sections_that_were_run_replace_those_that_were_kept() {
        let kept = document(&["wire", "limits", "wire"], 2);
        let merged = merged(kept, document(&["scale", "wire"], 2)).unwrap();
        let sections: Vec<_> = merged.rows.iter().map(|row| row.section.as_str()).collect();
        assert_eq!(sections, ["limits", "wire", "scale"]);
    }

    #[test]
    fn machines_are_not_mixed() {
        assert!(merged(document(&["wire"], 2), document(&["limits"], 4)).is_err());
        assert_eq!(
            merged(document(&["wire"], 2), document(&["wire"], 4)).unwrap().machine,
            json!({"cpus": 4})
        );
    }
}

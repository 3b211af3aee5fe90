//! The benchmark's part of the README: a table of everything that has a goal, and where it comes from.

use std::fmt::Write;

use anyhow::Context;

use super::{
    document::Document,
    machine,
    row::{Origin, Row},
    table::{bound_marks, figure, marks},
};

const BEGIN: &str = "<!-- bench -->";
const END: &str = "<!-- /bench -->";

/// The page with what stands between its two marks written anew.
pub(crate) fn spliced(page: &str, part: &str) -> anyhow::Result<String> {
    let missing = || format!("there is no `{BEGIN}` with a `{END}` behind it");
    let (before, rest) = page.split_once(BEGIN).with_context(missing)?;
    let (_, after) = rest.split_once(END).with_context(missing)?;
    Ok(format!("{before}{BEGIN}\n{part}{END}{after}"))
}

/// What stands there.
pub(crate) fn part(document: &Document) -> String {
    let mut text = String::new();
    let mut put = |line: &str| {
        let _written = writeln!(text, "{line}");
    };
    let shown: Vec<&Row> =
        document.rows.iter().filter(|row| !row.goals.is_empty() || row.bound.is_some()).collect();
    put("![Ratios to peers](docs/img/bench.svg)\n");
    put("| | AGEniX | | against | ratio | floor / aim |");
    put("|---|---:|---|---:|---:|---|");
    for row in &shown {
        for line in lines(row) {
            put(&line);
        }
    }
    put("");
    let machine = machine::shown(&document.machine);
    put(&format!(
        "Medians of rounds in turn on one machine ({machine}). More than 1 is better than the peer, whatever the unit. \
         Every round: `cargo xtask bench`; least, greatest and middle: [docs/bench.json](docs/bench.json).\n"
    ));
    for (section, origin, notes) in sections(&shown) {
        let notes = if notes.is_empty() { String::new() } else { format!(": {}.", notes.join("; ")) };
        put(&format!("- **{section}** ({origin}){notes}"));
    }
    let versions: Vec<String> =
        document.versions.iter().map(|(name, version)| format!("{name} {version}")).collect();
    put(&format!("- With {}.", versions.join(", ")));
    text
}

/// A line for each goal of a row, and one for the bound of our own figure.
fn lines(row: &Row) -> Vec<String> {
    let (ours, unit, title) = (figure(row.ours().median), &row.unit, cell(&row.title));
    let goals = row.goals.iter().filter_map(|goal| {
        let peer = row.sides.iter().find(|side| side.name == goal.peer)?;
        let (name, theirs) = (cell(&peer.name), figure(peer.median));
        let (ratio, marks) = (goal.ratio, marks(goal));
        let word = goal.verdict().word();
        Some(format!("| {title} | {ours} {unit} | {name} | {theirs} | **{ratio:.2}** | {marks} {word} |"))
    });
    let bound = row.bound.zip(row.bound_verdict()).map(|(bound, verdict)| {
        let (marks, word) = (bound_marks(bound, row.better, unit), verdict.word());
        format!("| {title} | {ours} {unit} | | | | {marks} {word} |")
    });
    goals.chain(bound).collect()
}

/// The sections in their order, when and at which commits they were measured, and what has to be known about them.
fn sections(rows: &[&Row]) -> Vec<(String, String, Vec<String>)> {
    let mut sections: Vec<(String, String, Vec<String>)> = Vec::new();
    for row in rows {
        let Origin { date, commit, is_quick } = &row.origin;
        let quick = if *is_quick { ", a quick run" } else { "" };
        let origin = format!("{date}, commit {commit}{quick}");
        if sections.last().is_none_or(|(section, ..)| *section != row.section) {
            sections.push((row.section.clone(), origin.clone(), Vec::new()));
        }
        let Some((_, origins, notes)) = sections.last_mut() else { continue };
        if !origins.contains(&origin) {
            let _written = write!(origins, "; {origin}");
        }
        let note = row.note.trim_end_matches('.').to_owned();
        if !note.is_empty() && !notes.contains(&note) {
            notes.push(note);
        }
    }
    sections
}

/// A text that ends no cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::{part, spliced};
    use crate::bench::{contest::Better, document::Document, row};

    #[test]
    fn a_part_of_a_page_is_written_anew() {
        let page = "a\n<!-- bench -->\nold\n<!-- /bench -->\nb\n";
        let new = spliced(page, "new\n").unwrap();
        assert_eq!(new, "a\n<!-- bench -->\nnew\n<!-- /bench -->\nb\n");
        assert_eq!(spliced(&new, "new\n").unwrap(), new);
        assert!(spliced("a\n<!-- /bench --><!-- bench -->", "new\n").is_err());
    }

    #[test]
    fn every_goal_has_a_line() {
        let mut row = row::tests::row(Better::More, 150.0);
        row.title = "a | b".into();
        let document = Document {
            date: "2026-01-01".into(),
            commit: "abc1234".into(),
            machine: json!({"cpus": 2, "model": "X", "memory_gib": 24.0, "kernel": "6.1", "file_system": "ext4"}),
            versions: BTreeMap::from([("redis-server".into(), "7.0.15".into())]),
            is_quick: false,
            rows: vec![row],
        };
        let part = part(&document);
        for line in [
            "| a \\| b | 150 ops/s | redis | 100 | **1.50** | 0.80 / 1.00 aim |",
            "| a \\| b | 150 ops/s | | | | at least 100 / 200 ops/s ok |",
            "- **wire** (2026-01-01, commit abc1234): each answer is synced.",
            "- With redis-server 7.0.15.",
        ] {
            assert!(part.lines().any(|found| found == line), "{line} is not in\n{part}");
        }
    }
}

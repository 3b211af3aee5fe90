//! Generates the tables of benchmark results: headline figures for the README, and all rows with
//! their origin for docs/performance.md.

use std::fmt::Write;

use agenix_harness::generated::spliced;

use super::{
    document::ResultsDocument,
    machine,
    row::{Origin, ResultRow},
    table::{bound_marks, figure, marks},
};

/// Rows that the README shows: title of the row, name of the peer, and description.
const HEADLINES: [(&str, &str, &str); 8] = [
    ("10000 × true", "xargs -P2", "10,000 × `true`"),
    ("10000 × true", "GNU Parallel", "10,000 × `true`"),
    ("10000 × sort FILE | uniq -c", "xargs -P2 sh -c", "10,000 × `sort FILE \\| uniq -c`"),
    ("1000 MB through three tasks", "bash", "1 GB through a pipeline of three tasks"),
    ("1 client, 100 B, empty queue", "beanstalkd -f0", "job cycles of 1 client, empty queue"),
    ("8 clients, 100 B, 100,000 queued", "redis Lua", "job cycles of 8 clients, 100,000 jobs queued"),
    ("8 clients, 100 B, 100,000 queued", "PostgreSQL", "job cycles of 8 clients, 100,000 jobs queued"),
    ("8 producers and 8 consumers, 100 B", "BullMQ", "8 producers and 8 consumers"),
];

/// Returns the README with its table of headline figures generated from `document`.
pub(crate) fn readme(page: &str, document: &ResultsDocument) -> anyhow::Result<String> {
    spliced(page, "bench", &headlines(document))
}

/// Returns docs/performance.md with its tables generated from `document`.
pub(crate) fn performance(page: &str, document: &ResultsDocument) -> anyhow::Result<String> {
    spliced(&spliced(page, "bench-tasks", &tasks(document))?, "bench", &all(document))
}

/// Renders a line for each of `HEADLINES` that was measured.
fn headlines(document: &ResultsDocument) -> String {
    let mut text = String::from("| | AGEniX | Peer | | Ratio |\n|---|---:|---|---:|---:|\n");
    for (title, peer, description) in HEADLINES {
        let Some(row) = document.rows.iter().find(|row| row.title == title) else { continue };
        let Some(measurement) = row.measurements.iter().find(|measurement| measurement.name == peer) else {
            continue;
        };
        let (ours, theirs, unit) = (figure(row.ours().median), figure(measurement.median), &row.unit);
        let ratio = row.ratio_to(measurement);
        text += &format!("| {description} | {ours} {unit} | {} | {theirs} | **{ratio:.2}** |\n", cell(peer));
    }
    let (machine, date) = (machine::description(&document.machine), &document.date);
    text + &format!(
        "\nMedians on one machine ({machine}), {date}. \
         A ratio above 1 means that AGEniX is faster than the peer.\n"
    )
}

/// Renders the section `tasks`: a line for each program, the fastest first, and a column for each
/// row.
fn tasks(document: &ResultsDocument) -> String {
    let rows: Vec<&ResultRow> = document.rows.iter().filter(|row| row.section == "tasks").collect();
    let Some(leading) = rows.first() else { return String::new() };
    let mut text = String::from("| tasks a second, two at a time |");
    for row in &rows {
        let _written = write!(text, " {} |", cell(&row.title));
    }
    text += &format!("\n|---|{}\n", "---:|".repeat(rows.len()));
    let mut measurements: Vec<usize> =
        (0..leading.measurements.len()).filter(|&at| leading.measurements[at].name != LIMIT).collect();
    measurements.sort_by(|&one, &other| {
        leading.measurements[other].median.total_cmp(&leading.measurements[one].median)
    });
    for at in measurements {
        let name = if at == 0 { format!("**{OURS}**") } else { cell(&leading.measurements[at].name) };
        // `xargs -P2 sh -c` is xargs, too. A contender that was skipped in a row has no figure
        // there.
        let figure_of = |row: &&ResultRow| {
            let measurement = row
                .measurements
                .iter()
                .find(|measurement| measurement.name.starts_with(&leading.measurements[at].name));
            measurement.map_or_else(|| "–".to_owned(), |measurement| figure(measurement.median))
        };
        let figures: Vec<String> = rows.iter().map(figure_of).collect();
        text += &format!("| {name} | {} |\n", figures.join(" | "));
    }
    text
}

/// Contender that is an upper bound, and not a program.
const LIMIT: &str = "spawn limit";
/// Description of the first contender.
const OURS: &str = "AGEniX: submissions and results are durable";

/// Renders all rows with a goal or a bound, and the origin of each section.
fn all(document: &ResultsDocument) -> String {
    let mut text = String::new();
    let mut put = |line: &str| {
        let _written = writeln!(text, "{line}");
    };
    let shown: Vec<&ResultRow> =
        document.rows.iter().filter(|row| !row.goals.is_empty() || row.bound.is_some()).collect();
    put("![Ratios to peers](img/bench.svg)\n");
    put("| | AGEniX | | against | ratio | floor / aim |");
    put("|---|---:|---|---:|---:|---|");
    for row in &shown {
        for line in lines(row) {
            put(&line);
        }
    }
    put("");
    let machine = machine::description(&document.machine);
    put(&format!(
        "Medians of interleaved rounds; each section ran completely on one machine ({machine}). A ratio above 1 is better than the peer, \
         whatever the unit. `cargo xtask bench` prints every round. Minimum, maximum and median: [bench.json](bench.json).\n"
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

/// Returns a line for each goal of a row, and one for the goal of our own figure.
fn lines(row: &ResultRow) -> Vec<String> {
    let (ours, unit, title) = (figure(row.ours().median), &row.unit, cell(&row.title));
    let goals = row.goals.iter().filter_map(|goal| {
        let peer = row.measurements.iter().find(|measurement| measurement.name == goal.peer)?;
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

/// Returns each section with its origins and its notes.
fn sections(rows: &[&ResultRow]) -> Vec<(String, String, Vec<String>)> {
    let mut sections: Vec<(String, String, Vec<String>)> = Vec::new();
    for row in rows {
        let Origin { date, commit, kernel, is_quick } = &row.origin;
        let quick = if *is_quick { ", a quick run" } else { "" };
        let origin = format!("{date}, commit {commit}, Linux {kernel}{quick}");
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

/// Escapes text for a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::{HEADLINES, ResultRow, all, headlines, performance, readme, tasks};
    use crate::{
        comparison::Better,
        document::ResultsDocument,
        row::{self, Measurement},
    };
    use agenix_harness::report::root;

    fn document(rows: Vec<ResultRow>) -> ResultsDocument {
        ResultsDocument {
            date: "2026-01-01".into(),
            commit: "abc1234".into(),
            machine: json!({"cpus": 2, "model": "X", "memory_gib": 24.0, "file_system": "ext4"}),
            versions: BTreeMap::from([("redis-server".into(), "7.0.15".into())]),
            is_quick: false,
            rows,
        }
    }

    #[test]
    fn tasks_table_has_no_figure_for_a_peer_that_was_skipped() {
        let task = |title: &str| {
            let row = row::tests::row(Better::More, 150.0);
            ResultRow { section: "tasks".into(), title: title.into(), ..row }
        };
        let (one, mut other) = (task("one"), task("other"));
        other.measurements.retain(|measurement| measurement.name != "redis");
        other.measurements.push(Measurement { name: "spawn limit".into(), ..other.measurements[0].clone() });
        let document = document(vec![one, other]);
        let tasks = tasks(&document);
        assert!(tasks.lines().any(|line| line == "| redis | 100 | – |"), "{tasks}");
    }

    #[test]
    fn pages_show_the_recorded_figures() {
        let document = ResultsDocument::read(&root().join("docs/bench.json")).unwrap();
        for (name, generate) in
            [("README.md", readme as fn(&str, &ResultsDocument) -> _), ("docs/performance.md", performance)]
        {
            let page = std::fs::read_to_string(root().join(name)).unwrap();
            let should = generate(&page, &document).unwrap();
            assert!(page == should, "{name} differs from docs/bench.json; it should be\n{should}");
        }
        let lines = headlines(&document).lines().filter(|line| line.contains("**")).count();
        assert_eq!(lines, HEADLINES.len(), "a headline names a row or a peer that was not measured");
    }

    #[test]
    fn full_table_has_a_line_for_each_goal() {
        let mut row = row::tests::row(Better::More, 150.0);
        row.title = "a | b".into();
        let all = all(&document(vec![row]));
        for line in [
            "| a \\| b | 150 ops/s | redis | 100 | **1.50** | 0.80 / 1.00 aim |",
            "| a \\| b | 150 ops/s | | | | at least 100 / 200 ops/s ok |",
            "- **wire** (2026-01-01, commit abc1234, Linux 6.1): each answer is synced.",
            "- With redis-server 7.0.15.",
        ] {
            assert!(all.lines().any(|found| found == line), "{line} is not in\n{all}");
        }
    }
}

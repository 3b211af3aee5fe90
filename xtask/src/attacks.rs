//! `cargo xtask attacks`: tries the attacks of the threat model on sandboxes of this machine, and
//! prints what has stopped each one.

use std::{collections::BTreeMap, fs};

use agenix_harness::{
    binaries,
    report::{RunReport, cargo, must},
    tools,
};
use anyhow::{Context, bail};
use serde_json::Value;

/// Environment variable of the test with the file of its report.
const REPORT: &str = "AGENIX_ATTACKS";
/// Columns of the table: how the test calls the sandbox, and the width.
const COLUMNS: [(&str, usize); 4] =
    [("outside", 10), ("all mechanisms", 36), ("without namespaces", 36), ("without Landlock", 18)];
const NAME_WIDTH: usize = 64;

/// Runs the end-to-end tests of attacks, and prints their table. Returns an error if an attack has
/// succeeded, or if a test has failed.
pub(crate) fn run() -> anyhow::Result<()> {
    let mut report = RunReport::default();
    tools::cargo_tool(&mut report, "nextest")?;
    let bin = binaries::build_debug()?;
    let lines = tempfile::NamedTempFile::new()?;
    let mut tests = cargo(&["nextest", "run", "--workspace", "--all-features", "--test", "end_to_end"]);
    tests.args(["--locked", "--no-fail-fast", "-E", "test(/^attacks::/)"]);
    let tested = must(tests.env("AGENIX_BIN", bin).env(REPORT, lines.path()));
    let attacks = parse(&fs::read_to_string(lines.path())?)?;
    print!("\n{}", table(&attacks));
    let (tried, succeeded) = sum(&attacks);
    println!("\n{tried} attacks tried, {succeeded} succeeded");
    if succeeded > 0 {
        bail!("{succeeded} attacks succeeded");
    }
    tested
}

/// Result of an attack with one sandbox.
#[derive(Debug)]
struct Attacked {
    number: u64,
    name: String,
    regime: String,
    wall: String,
    outcome: String,
    has_succeeded: bool,
}

fn parse(lines: &str) -> anyhow::Result<Vec<Attacked>> {
    let attacked = |line: &str| {
        let line: Value = serde_json::from_str(line)?;
        let text = |field: &str| line[field].as_str().unwrap_or_default().to_owned();
        Ok(Attacked {
            number: line["number"].as_u64().context("the number of an attack is missing")?,
            name: text("attack"),
            regime: text("regime"),
            wall: text("wall"),
            outcome: text("outcome"),
            has_succeeded: line["succeeded"].as_bool().unwrap_or(true),
        })
    };
    lines.lines().map(attacked).collect()
}

/// Returns the number of attacks that were tried in a sandbox, and of those that succeeded.
fn sum(attacks: &[Attacked]) -> (usize, usize) {
    let succeeded = attacks.iter().filter(|attack| attack.has_succeeded).count();
    let stopped = attacks.iter().filter(|attack| attack.outcome.starts_with("stopped")).count();
    (stopped + succeeded, succeeded)
}

fn table(attacks: &[Attacked]) -> String {
    let mut text = format!("{:>2}  {:<NAME_WIDTH$}", "", "A TASK …");
    for (column, width) in COLUMNS {
        text += &format!("  {:<width$}", column.to_uppercase());
    }
    let mut rows: BTreeMap<(u64, usize, &str), BTreeMap<&str, String>> = BTreeMap::new();
    let mut order: Vec<&str> = Vec::new();
    for attack in attacks {
        let place = order.iter().position(|name| *name == attack.name).unwrap_or_else(|| {
            order.push(&attack.name);
            order.len() - 1
        });
        rows.entry((attack.number, place, &attack.name)).or_default().insert(&attack.regime, cell(attack));
    }
    for ((number, _, name), cells) in rows {
        text = format!("{}\n{number:>2}  {:<NAME_WIDTH$}", text.trim_end(), cut(name, NAME_WIDTH));
        for (column, width) in COLUMNS {
            let cell = cells.get(column).map_or("", |cell| cell);
            text += &format!("  {:<width$}", cut(cell, width));
        }
    }
    text.trim_end().to_owned() + "\n"
}

/// Returns the wall that has stopped an attack, or the outcome.
fn cell(attack: &Attacked) -> String {
    if attack.has_succeeded {
        return attack.outcome.clone();
    }
    if attack.outcome.starts_with("stopped") {
        return attack.wall.clone();
    }
    // The reason after the colon is in the report of the test.
    attack.outcome.split(": ").next().unwrap_or_default().to_owned()
}

fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::{parse, sum, table};

    const LINES: &str = r#"{"number":8,"attack":"connects","regime":"outside","wall":"","outcome":"succeeds","succeeded":false}
{"number":8,"attack":"connects","regime":"all mechanisms","wall":"seccomp","outcome":"stopped","succeeded":false}
{"number":8,"attack":"connects","regime":"without namespaces","wall":"","outcome":"NOT STOPPED: it is","succeeded":true}
{"number":8,"attack":"connects","regime":"without Landlock","wall":"","outcome":"agw does not start","succeeded":false}
{"number":1,"attack":"reads","regime":"outside","wall":"","outcome":"not tried: harmful","succeeded":false}"#;

    #[test]
    fn table_has_a_row_for_each_attack_with_its_walls() {
        let table = table(&parse(LINES).unwrap());
        let rows: Vec<Vec<&str>> = table
            .lines()
            .map(|line| line.split("  ").map(str::trim).filter(|word| !word.is_empty()).collect())
            .collect();
        assert_eq!(
            rows[0],
            ["A TASK …", "OUTSIDE", "ALL MECHANISMS", "WITHOUT NAMESPACES", "WITHOUT LANDLOCK"]
        );
        assert_eq!(rows[1], ["1", "reads", "not tried"]);
        assert_eq!(
            rows[2],
            ["8", "connects", "succeeds", "seccomp", "NOT STOPPED: it is", "agw does not start"]
        );
    }

    #[test]
    fn sum_counts_attacks_that_were_tried_in_a_sandbox() {
        assert_eq!(sum(&parse(LINES).unwrap()), (2, 1));
        assert!(parse("{}").is_err());
    }
}

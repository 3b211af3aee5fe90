//! Formats rows for the terminal, and figures for the terminal and the README.

use std::fmt::Write;

use super::{
    comparison::{Better, Bound},
    row::{GoalResult, Measurement, ResultRow},
};

/// Formats a row: its title, one line for each contender, and the note.
pub(crate) fn block(row: &ResultRow) -> String {
    let better = match row.better {
        Better::More => "more",
        Better::Less => "less",
    };
    let width = row
        .measurements
        .iter()
        .map(|measurement| measurement.name.chars().count())
        .max()
        .unwrap_or_default()
        .max(20);
    let mut text = format!("{}: {}  [{}, {better} is better]\n", row.section, row.title, row.unit);
    let columns = ["min", "median", "max", "ratio"];
    let [min, median, max, ratio] = columns;
    let head = format!("  {:<width$}  {min:>10}  {median:>10}  {max:>10}  {ratio:>6}", "");
    text.push_str(head.trim_end());
    for (at, measurement) in row.measurements.iter().enumerate() {
        let marks = if at == 0 { bound_text(row) } else { goals_text(row, measurement) };
        let ratio = if at == 0 { String::new() } else { format!("{:.2}", row.ratio_to(measurement)) };
        let figures = [measurement.min, measurement.median, measurement.max].map(figure);
        let [min, median, max] = figures;
        let name = &measurement.name;
        let line = format!("  {name:<width$}  {min:>10}  {median:>10}  {max:>10}  {ratio:>6}  {marks}");
        text.push('\n');
        text.push_str(line.trim_end());
    }
    if !row.note.is_empty() {
        let _written = write!(text, "\n  ({})", row.note);
    }
    text
}

/// Formats a figure with three or more significant digits.
pub(crate) fn figure(value: f64) -> String {
    match value.abs() {
        size if size >= 1000.0 => grouped_digits(&format!("{value:.0}")),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 0.1 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

/// Formats floor and aim of a goal as `0.80 / 1.00`.
pub(crate) fn marks(goal: &GoalResult) -> String {
    let mark = |mark: Option<f64>| mark.map_or_else(|| "–".to_owned(), |mark| format!("{mark:.2}"));
    format!("{} / {}", mark(goal.floor), mark(goal.aim))
}

/// Formats floor and aim of our own figure.
pub(crate) fn bound_marks(bound: Bound, better: Better, unit: &str) -> String {
    let direction = match better {
        Better::More => "at least",
        Better::Less => "at most",
    };
    format!("{direction} {} / {} {unit}", figure(bound.floor), figure(bound.aim))
}

fn bound_text(row: &ResultRow) -> String {
    let Some((bound, verdict)) = row.bound.zip(row.bound_verdict()) else { return String::new() };
    format!("floor / aim {}: {}", bound_marks(bound, row.better, &row.unit), verdict.word())
}

fn goals_text(row: &ResultRow, measurement: &Measurement) -> String {
    let goals = row.goals.iter().filter(|goal| goal.peer == measurement.name);
    let marked: Vec<String> =
        goals.map(|goal| format!("floor / aim {}: {}", marks(goal), goal.verdict().word())).collect();
    marked.join("; ")
}

/// Formats a count as `1,234,567`.
pub(crate) fn grouped(count: usize) -> String {
    grouped_digits(&count.to_string())
}

fn grouped_digits(digits: &str) -> String {
    let (sign, digits) = digits.strip_prefix('-').map_or(("", digits), |digits| ("-", digits));
    let mut text = sign.to_owned();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{block, figure};
    use crate::{comparison::Better, row};

    #[test]
    fn figure_has_significant_digits_only() {
        let shown = [1_234_567.8, 1000.0, 123.4, 12.34, 1.234, 0.0123].map(figure);
        assert_eq!(shown, ["1,234,568", "1,000", "123", "12.3", "1.23", "0.0123"]);
    }

    #[test]
    fn block_shows_title_contenders_and_note() {
        let expected = "\
wire: SET, pipeline 16  [ops/s, more is better]
                               min      median         max   ratio
  agq                         89.0        90.0        91.0          floor / aim at least 100 / 200 ops/s: BELOW
  redis                       90.0         100         110    0.90  floor / aim 0.80 / 1.00: ok
  (each answer is synced)";
        assert_eq!(block(&row::tests::row(Better::More, 90.0)), expected);
    }
}

//! The rows as a person reads them, in a terminal and in the README.

use std::fmt::Write;

use super::{
    contest::{Better, Bound},
    row::{Judged, Row, Side},
};

/// A row as it is printed: a line for what is measured, one for each who took part, one for what has to be known.
pub(crate) fn block(row: &Row) -> String {
    let better = match row.better {
        Better::More => "more",
        Better::Less => "less",
    };
    let width = row.sides.iter().map(|side| side.name.chars().count()).max().unwrap_or_default().max(20);
    let mut text = format!("{}: {}  [{}, {better} is better]\n", row.section, row.title, row.unit);
    let columns = ["min", "median", "max", "ratio"];
    let [min, median, max, ratio] = columns;
    let head = format!("  {:<width$}  {min:>10}  {median:>10}  {max:>10}  {ratio:>6}", "");
    text.push_str(head.trim_end());
    for (at, side) in row.sides.iter().enumerate() {
        let said = if at == 0 { bound_said(row) } else { goal_said(row, side) };
        let ratio = if at == 0 { String::new() } else { format!("{:.2}", row.ratio_to(side)) };
        let figures = [side.min, side.median, side.max].map(figure);
        let [min, median, max] = figures;
        let name = &side.name;
        let line = format!("  {name:<width$}  {min:>10}  {median:>10}  {max:>10}  {ratio:>6}  {said}");
        text.push('\n');
        text.push_str(line.trim_end());
    }
    if !row.note.is_empty() {
        let _written = write!(text, "\n  ({})", row.note);
    }
    text
}

/// A figure with as many digits as say something.
pub(crate) fn figure(value: f64) -> String {
    match value.abs() {
        size if size >= 1000.0 => grouped(&format!("{value:.0}")),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 0.1 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

/// Floor and aim of a goal, `0.80 / 1.00`.
pub(crate) fn marks(goal: &Judged) -> String {
    let mark = |mark: Option<f64>| mark.map_or_else(|| "–".to_owned(), |mark| format!("{mark:.2}"));
    format!("{} / {}", mark(goal.floor), mark(goal.aim))
}

/// Floor and aim of our own figure.
pub(crate) fn bound_marks(bound: Bound, better: Better, unit: &str) -> String {
    let side = match better {
        Better::More => "at least",
        Better::Less => "at most",
    };
    format!("{side} {} / {} {unit}", figure(bound.floor), figure(bound.aim))
}

fn bound_said(row: &Row) -> String {
    let Some((bound, verdict)) = row.bound.zip(row.bound_verdict()) else { return String::new() };
    format!("floor / aim {}: {}", bound_marks(bound, row.better, &row.unit), verdict.word())
}

fn goal_said(row: &Row, side: &Side) -> String {
    let goals = row.goals.iter().filter(|goal| goal.peer == side.name);
    let said: Vec<String> =
        goals.map(|goal| format!("floor / aim {}: {}", marks(goal), goal.verdict().word())).collect();
    said.join("; ")
}

/// `1234567` as `1,234,567`.
fn grouped(digits: &str) -> String {
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
    use crate::{contest::Better, row};

    #[test]
    fn figures_have_as_many_digits_as_say_something() {
        let shown = [1_234_567.8, 1000.0, 123.4, 12.34, 1.234, 0.0123].map(figure);
        assert_eq!(shown, ["1,234,568", "1,000", "123", "12.3", "1.23", "0.0123"]);
    }

    #[test]
    fn a_row_says_everything() {
        let expected = "\
wire: SET, pipeline 16  [ops/s, more is better]
                               min      median         max   ratio
  agq                         89.0        90.0        91.0          floor / aim at least 100 / 200 ops/s: BELOW
  redis                       90.0         100         110    0.90  floor / aim 0.80 / 1.00: ok
  (each answer is synced)";
        assert_eq!(block(&row::tests::row(Better::More, 90.0)), expected);
    }
}

//! Refusals: the part of a pipeline that a plan cannot express, its position, and an alternative.

use std::fmt;

use brush_parser::SourceSpan;

/// Refused part of a pipeline.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Refusal {
    /// Text of the whole pipeline.
    text: String,
    /// Range of the refused part in characters, counted from 0. The end is exclusive.
    at: (usize, usize),
    reason: String,
    /// Alternative.
    instead: String,
}

/// Reason of a refusal, and the alternative.
pub(crate) type Advice = (&'static str, &'static str);

/// Refusal without the text of the pipeline. Positions are counted in characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unsupported {
    pub(crate) at: (usize, usize),
    pub(crate) reason: String,
    pub(crate) instead: String,
}

impl Unsupported {
    pub(crate) fn new(at: (usize, usize), reason: impl Into<String>, instead: impl Into<String>) -> Self {
        Self { at, reason: reason.into(), instead: instead.into() }
    }

    pub(crate) fn within(self, text: &str) -> Refusal {
        Refusal { text: text.to_owned(), at: self.at, reason: self.reason, instead: self.instead }
    }
}

/// Returns the range of a span in characters.
pub(crate) fn place(span: &SourceSpan) -> (usize, usize) {
    (span.start.index, span.end.index)
}

impl Refusal {
    /// Returns the line with the refused part, and a line with a mark below it.
    pub fn marked(&self) -> String {
        let (start, end) = self.at;
        let before = self.text.chars().take(start);
        // Only the line with the refused part is shown.
        let line_start = before.clone().collect::<String>().rfind('\n').map_or(0, |at| at + 1);
        let line_start = self.text.get(..line_start).map_or(0, |text| text.chars().count());
        let line: String = self.text.chars().skip(line_start).take_while(|&c| c != '\n').collect();
        let column = start.saturating_sub(line_start).min(line.chars().count());
        let room = (line.chars().count() - column).max(1);
        let width = end.saturating_sub(start).clamp(1, room);
        // Tabs stay in the indentation, so that the mark is below its text.
        let indent: String = line.chars().take(column).map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
        format!("{line}\n{indent}{}", "^".repeat(width))
    }

    /// Returns the alternative.
    pub fn instead(&self) -> &str {
        &self.instead
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let marked = self.marked().replace('\n', "\n    ");
        write!(f, "{}\n    {marked}", self.reason)
    }
}

#[cfg(test)]
mod tests {
    use super::Unsupported;

    #[test]
    fn refusal_mark_is_below_the_refused_text() {
        let marked = |text: &str, at| Unsupported::new(at, "", "").within(text).marked();
        assert_eq!(marked("sort $x", (5, 7)), "sort $x\n     ^^");
        assert_eq!(marked("sört\t$x | y", (5, 7)), "sört\t$x | y\n    \t^^");
        assert_eq!(marked("a |\nsort $x", (9, 11)), "sort $x\n     ^^");
        assert_eq!(marked("sort", (4, 4)), "sort\n    ^", "behind the end");
        assert_eq!(marked("a b\nc", (2, 5)), "a b\n  ^", "to the end of its line");
    }
}

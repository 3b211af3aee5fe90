//! Lines of a log that may name the cause of a failure.

/// Prefixes of lines of a usage error that do not name its cause.
const EMPTY_WORDS: [&str; 2] = ["Usage: ", "For more information, try "];

/// Returns the last lines of `text`, at most `most`, that may name the cause of a failure.
pub(super) fn last_lines(text: &str, most: usize) -> Vec<&str> {
    let is_telling = |line: &&str| {
        !line.trim().is_empty()
            && !line.contains(" INFO ")
            && !EMPTY_WORDS.iter().any(|words| line.starts_with(words))
    };
    let lines: Vec<&str> = text.lines().filter(is_telling).map(str::trim_end).collect();
    lines[lines.len().saturating_sub(most)..].to_vec()
}

#[cfg(test)]
mod tests {
    use super::last_lines;

    #[test]
    fn log_lines_omit_boilerplate_of_usage_errors() {
        let text = "error: unexpected argument '--no-such' found\n\n  tip: a similar argument exists: '--no-tcp'\n\n\
                    Usage: agq --end-with-stdin <COMMAND>\n\nFor more information, try '--help'.\n";
        let lines =
            ["error: unexpected argument '--no-such' found", "  tip: a similar argument exists: '--no-tcp'"];
        assert_eq!(last_lines(text, 3), lines);
        assert_eq!(last_lines(text, 1), lines[1..]);
        assert!(last_lines("2026-01-01T00:00:00Z  INFO agq: started\n", 3).is_empty());
    }
}

//! Checks of comments and pages against the style of text (CONTRIBUTING.md): width of comments, and
//! openings of sentences.

/// Maximum width of a line with a comment, in characters.
const MAX_WIDTH: usize = 100;
/// Words that begin no sentence, because the sentence then has no named subject.
const OPENINGS: [&str; 7] = ["What", "Who", "Whoever", "Whose", "Where", "Whatever", "Whichever"];
/// Numbers of sentences with such an opening that are left, by the beginning of the path. Lower a
/// number when you rewrite a sentence; no number may rise.
const LEFT: [(&str, usize); 0] = [];

/// Returns the lines of `text` whose comments are too wide.
pub(super) fn wide(text: &str) -> Vec<usize> {
    let is_wide = |line: &str| line.chars().count() > MAX_WIDTH && comment(line).is_some();
    (1..).zip(text.lines()).filter(|(_, line)| is_wide(line)).map(|(number, _)| number).collect()
}

/// Returns the comment that a line consists of, without its marker.
fn comment(line: &str) -> Option<&str> {
    let line = line.trim_start();
    ["///", "//!", "//"].iter().find_map(|marker| line.strip_prefix(marker))
}

/// Returns the sentences in the comments or in the page `text` that have a bad opening, with their
/// lines.
fn openings(is_page: bool, text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let (mut is_start, mut is_code) = (true, false);
    for (number, line) in (1..).zip(text.lines()) {
        let Some(prose) = (if is_page { Some(line) } else { comment(line) }) else {
            is_start = true;
            continue;
        };
        let is_fence = prose.trim_start().starts_with("```");
        is_code ^= is_fence;
        if is_code || is_fence || prose.trim().is_empty() {
            is_start = true;
            continue;
        }
        for word in prose.split_whitespace() {
            if is_start && OPENINGS.contains(&word.trim_end_matches(',')) {
                found.push((number, word.to_owned()));
            }
            is_start = word.ends_with(['.', ':']) && !word.ends_with("e.g.");
        }
    }
    found
}

/// Returns the faults in the openings of all `files`, given as path and text.
pub(super) fn opening_faults(files: &[(String, String)]) -> Vec<String> {
    let mut faults = Vec::new();
    let mut counts = LEFT.map(|(place, _)| (place, 0));
    let is_checked = |path: &str| path.ends_with(".rs") || path.ends_with(".md");
    for (path, text) in files.iter().filter(|(path, _)| is_checked(path)) {
        let found = openings(path.ends_with(".md"), text);
        match counts.iter_mut().find(|(place, _)| path.starts_with(place)) {
            Some((_, count)) => *count += found.len(),
            None => faults.extend(
                found.iter().map(|(line, word)| format!("{path}:{line}: a sentence begins with {word}")),
            ),
        }
    }
    for ((place, allowed), (_, count)) in LEFT.iter().zip(counts) {
        if count != *allowed {
            faults.push(format!(
                "{place}: {count} sentences begin with one of {OPENINGS:?}, and the list allows {allowed}: \
                 rewrite new ones, and lower the number for those that are gone"
            ));
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::{openings, wide};

    #[test]
    fn comment_over_100_columns_is_wide_and_code_is_not() {
        let line = "x".repeat(101);
        assert_eq!(wide(&format!("/// {line}\nlet a = \"{line}\";\n// short")), [1]);
    }

    #[test]
    fn opening_without_a_subject_is_found_at_the_start_of_each_sentence() {
        let text = "/// Returns what is there. Who asks\n/// waits.\nfn a() {}\n// What else\n/// Tells where\n/// Who it is";
        let lines: Vec<usize> = openings(false, text).into_iter().map(|(line, _)| line).collect();
        assert_eq!(lines, [1, 4]);
        let page = "## Where it is\n\nWhoever asks. Ask:\n\n```\nWho\n```\n| Who | c |";
        let lines: Vec<usize> = openings(true, page).into_iter().map(|(line, _)| line).collect();
        assert_eq!(lines, [3]);
    }
}

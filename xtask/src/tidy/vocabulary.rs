//! Check of the sources and the documentation against the retired vocabulary (CONTRIBUTING.md,
//! glossary).

/// Retired words. A word counts wherever it is a part of an identifier or a word of a text, with
/// one of [`ENDINGS`] or without: `house`, `begun_house`, `HouseKey`. Words that are also standard
/// terms are not in the list.
const RETIRED: [&str; 41] = [
    "abilities",
    "anew",
    "arrivals",
    "berth",
    "booking",
    "bury",
    "crew",
    "departures",
    "desk",
    "door",
    "errand",
    "farewell",
    "furnish",
    "glance",
    "guest",
    "helm",
    "herald",
    "house",
    "insist",
    "janitor",
    "joint",
    "keeper",
    "lacking",
    "lately",
    "manner",
    "matchmaker",
    "mend",
    "mover",
    "nudge",
    "outfit",
    "outlet",
    "patience",
    "patient",
    "reckon",
    "roster",
    "setback",
    "shelf",
    "toolbox",
    "trained",
    "twin",
    "vitals",
];
/// Endings of a word with which it is still the same word.
const ENDINGS: [&str; 5] = ["s", "ed", "ing", "er", "ly"];
/// Files that may have retired words: the glossary, and this list. A code of conduct is about
/// people.
const ALLOWED: [&str; 3] = ["CONTRIBUTING.md", "CODE_OF_CONDUCT.md", "xtask/src/tidy/vocabulary.rs"];
/// Ends of the names of the files that are checked. A released migration of SQL never changes.
const CHECKED: [&str; 4] = [".rs", ".md", ".js", ".py"];

/// Returns the retired words in the name of the file `path`, and in its `text`.
pub(super) fn faults(path: &str, text: &str) -> Vec<String> {
    if ALLOWED.contains(&path) || !CHECKED.iter().any(|end| path.ends_with(end)) {
        return Vec::new();
    }
    let file = path.rsplit('/').next().unwrap_or(path);
    let in_name = retired_word(file).map(|word| format!("{path}: its name has the retired word {word}"));
    let lines = (1..).zip(text.lines());
    let words = lines.flat_map(|(number, line)| words_of(line).map(move |word| (number, word)));
    let in_text = words.filter_map(|(number, word)| {
        let retired = retired_word(word)?;
        Some(format!("{path}:{number}: {word} has the retired word {retired}"))
    });
    in_name.into_iter().chain(in_text).collect()
}

/// Returns the identifiers and words of a line.
fn words_of(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// Returns the first retired word of an identifier in snake case, camel case or upper case.
fn retired_word(identifier: &str) -> Option<&'static str> {
    let is_camel_case = !identifier.contains('_') && identifier.contains(char::is_lowercase);
    let mut words = vec![String::new()];
    for c in identifier.chars() {
        if !c.is_alphanumeric() || is_camel_case && c.is_uppercase() {
            words.push(String::new());
        }
        if c.is_alphanumeric() {
            words.last_mut()?.extend(c.to_lowercase());
        }
    }
    let is_it = |word: &str, retired: &str| {
        word.strip_prefix(retired).is_some_and(|end| end.is_empty() || ENDINGS.contains(&end))
    };
    words.iter().find_map(|word| RETIRED.into_iter().find(|retired| is_it(word, retired)))
}

#[cfg(test)]
mod tests {
    use super::faults;

    #[test]
    fn retired_word_is_found_in_identifiers_and_file_names() {
        let text = "fn begun_house(guest: GuestList) {}\nconst HERALD: u8 = 1;";
        let expected = [
            "1: begun_house has the retired word house",
            "1: guest has the retired word guest",
            "1: GuestList has the retired word guest",
            "2: HERALD has the retired word herald",
        ];
        assert_eq!(faults("src/a.rs", text), expected.map(|fault| format!("src/a.rs:{fault}")));
        assert_eq!(faults("src/herald.rs", "").len(), 1);
        assert!(faults("src/a.rs", "struct Household; fn warehouse() {}").is_empty());
    }

    #[test]
    fn retired_word_is_found_in_texts_with_its_endings() {
        let found = |path: &str, text: &str| faults(path, text).len();
        assert_eq!(found("src/a.rs", "let s = \"waits patiently\"; // at the desk"), 2);
        assert_eq!(found("docs/a.md", "Doors are mended."), 2);
        assert_eq!(found("docs/a.md", "The document ends."), 0);
        assert_eq!(found("CONTRIBUTING.md", "The desk."), 0);
        assert_eq!(found("src/a.sql", "-- The desk."), 0);
    }
}

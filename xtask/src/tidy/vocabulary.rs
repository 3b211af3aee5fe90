//! Check of identifiers and file names against the retired vocabulary (CONTRIBUTING.md, glossary).

use std::collections::BTreeSet;

use proc_macro2::{TokenStream, TokenTree};

/// Retired words. A word counts wherever it is a part of an identifier: `house`, `begun_house`,
/// `HouseKey`. Words that are also standard terms are not in the list.
const RETIRED: [&str; 48] = [
    "anew",
    "arrivals",
    "berth",
    "berths",
    "bury",
    "crew",
    "departures",
    "desk",
    "door",
    "doors",
    "errand",
    "farewell",
    "furnish",
    "furnished",
    "glance",
    "guest",
    "guests",
    "helm",
    "herald",
    "house",
    "insist",
    "janitor",
    "joint",
    "joints",
    "keeper",
    "lacking",
    "lately",
    "manner",
    "matchmaker",
    "mend",
    "mended",
    "mover",
    "nudge",
    "outfit",
    "outlet",
    "patience",
    "patient",
    "reckon",
    "reckoned",
    "roster",
    "setback",
    "setbacks",
    "shelf",
    "toolbox",
    "trained",
    "twin",
    "twins",
    "vitals",
];

/// Returns the retired words in the name and the identifiers of the file `path`.
pub(super) fn faults(path: &str, text: &str) -> Vec<String> {
    let mut found = BTreeSet::new();
    let file = path.rsplit('/').next().unwrap_or(path).trim_end_matches(".rs");
    found.extend(retired_word(file).map(|word| format!("{path}: its name has the retired word {word}")));
    if let Ok(tokens) = text.parse::<TokenStream>() {
        let mut identifiers = BTreeSet::new();
        collect(tokens, &mut identifiers);
        for identifier in identifiers {
            if let Some(word) = retired_word(&identifier) {
                found.insert(format!("{path}: {identifier} has the retired word {word}"));
            }
        }
    }
    found.into_iter().collect()
}

fn collect(tokens: TokenStream, identifiers: &mut BTreeSet<String>) {
    for token in tokens {
        match token {
            TokenTree::Ident(ident) => drop(identifiers.insert(ident.to_string())),
            TokenTree::Group(group) => collect(group.stream(), identifiers),
            _ => {}
        }
    }
}

/// Returns the first retired word of an identifier in snake case or camel case.
fn retired_word(identifier: &str) -> Option<String> {
    let mut words = vec![String::new()];
    for c in identifier.chars() {
        if c == '_' || c == '-' || c.is_uppercase() && !identifier.contains('_') {
            words.push(String::new());
        }
        if c.is_alphanumeric() {
            words.last_mut()?.extend(c.to_lowercase());
        }
    }
    words.into_iter().find(|word| RETIRED.contains(&word.as_str()))
}

#[cfg(test)]
mod tests {
    use super::faults;

    #[test]
    fn retired_word_is_found_in_identifiers_and_file_names() {
        let text = "fn begun_house(guest: GuestList) { let s = \"desk\"; } // desk";
        let expected = [
            "GuestList has the retired word guest",
            "begun_house has the retired word house",
            "guest has the retired word guest",
        ];
        assert_eq!(faults("src/a.rs", text), expected.map(|fault| format!("src/a.rs: {fault}")));
        assert_eq!(faults("src/herald.rs", "").len(), 1);
        assert!(faults("src/a.rs", "struct Household; fn warehouse() {}").is_empty());
    }
}

//! Checks that a type name has one definition in the repository, because a reader searches by name.

use std::collections::BTreeMap;

/// Type names with several definitions.
const SHARED: [&str; 8] = [
    // The root type of a program's command line, and its subcommands.
    "Cli",
    "Command",
    // The alias for results with the error type of a crate or a module.
    "Result",
    // Pairs, of which the target system selects one.
    "IoCounters",
    "JobSandbox",
    "SandboxedTask",
    "Sandboxes",
    "UnendedProcess",
];
const KEYWORDS: [&str; 4] = ["struct ", "enum ", "trait ", "union "];

/// Returns a fault for each further definition of a type name.
pub(super) fn faults(files: &[(String, String)]) -> Vec<String> {
    let mut places: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (path, text) in files.iter().filter(|(path, _)| path.ends_with(".rs")) {
        for (number, line) in (1..).zip(text.lines()) {
            if let Some(name) = defined_type(line).filter(|name| !SHARED.contains(name)) {
                places.entry(name).or_default().push(format!("{path}:{number}"));
            }
        }
    }
    let repeated = |(name, places): (&str, Vec<String>)| {
        let (first, others) = places.split_first()?;
        let others = others.iter().map(|other| format!("{other}: {first} also defines a type {name}"));
        Some(others.collect::<Vec<_>>())
    };
    places.into_iter().filter_map(repeated).flatten().collect()
}

/// Returns the name of the type that a line defines. An indented alias belongs to a trait.
fn defined_type(line: &str) -> Option<&str> {
    let code = without_visibility(line.trim_start());
    let is_indented = line.starts_with(char::is_whitespace);
    let alias = (!is_indented).then(|| code.strip_prefix("type ")).flatten();
    let rest = KEYWORDS.iter().find_map(|keyword| code.strip_prefix(keyword)).or(alias)?;
    let end = rest.find(|c: char| !c.is_alphanumeric()).unwrap_or(rest.len());
    let name = &rest[..end];
    name.starts_with(char::is_uppercase).then_some(name)
}

/// Removes `pub` and `pub(…)` from the start of a line of code.
fn without_visibility(code: &str) -> &str {
    let Some(rest) = code.strip_prefix("pub") else { return code };
    let rest = rest.strip_prefix('(').and_then(|rest| Some(rest.split_once(')')?.1)).unwrap_or(rest);
    rest.trim_start()
}

#[cfg(test)]
mod tests {
    use super::faults;

    #[test]
    fn second_definition_of_a_type_is_reported_with_both_places() {
        let file = |path: &str, text: &str| (path.to_owned(), text.to_owned());
        let first = file("a.rs", "struct Job<T>(T);\ntype Result<T> = ();\n// struct Plan is a word\n");
        let second = file("b.rs", "mod tests {\n    pub(crate) enum Job {}\n}\npub type Plan = ();\n");
        let third = file("c.rs", "impl Iterator for Jobs {\n    type Plan = ();\n}\ntype Result<T> = T;\n");
        assert_eq!(faults(&[first, second, third]), ["b.rs:2: a.rs:1 also defines a type Job"]);
    }
}

//! The floors: a module imports only modules below it (docs/architecture.md). Cargo guards the crates, this the modules.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

/// The modules of a crate, and which of its modules each one imports, tests left out.
fn imports(sources: &[(String, String)]) -> BTreeMap<String, BTreeSet<String>> {
    let mut graph: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let modules: BTreeSet<String> = sources.iter().map(|(path, _)| module_of(path)).collect();
    // The contract's scripts are tests, though they have files of their own.
    for (path, text) in sources.iter().filter(|(path, _)| !is_test(path)) {
        let text = without_tests(text);
        let module = module_of(path);
        let words = text.split("crate::").skip(1).flat_map(first_names);
        let used = words.filter(|word| modules.contains(word) && *word != module);
        graph.entry(module.clone()).or_default().extend(used);
    }
    graph
}

fn is_test(path: &str) -> bool {
    path.contains("/contract/") || path.contains("/tests/") || path.ends_with("/tests.rs")
}

/// The text without the test module at its end; a declaration of one elsewhere hides nothing.
fn without_tests(text: &str) -> &str {
    text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default()
}

/// `src/store/redb/writer.rs` belongs to the module `store`.
fn module_of(path: &str) -> String {
    let inside = path.rsplit_once("src/").map_or(path, |(_, inside)| inside);
    inside.split('/').next().unwrap_or(inside).trim_end_matches(".rs").to_owned()
}

/// The names that follow `crate::`: one, or those at the first level of `{…}`.
fn first_names(after: &str) -> Vec<String> {
    let name =
        |text: &str| text.trim().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let Some(inside) = after.strip_prefix('{') else { return vec![name(after)] };
    let (mut depth, mut names, mut start) = (0, Vec::new(), 0);
    for (at, c) in inside.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => {
                names.push(name(&inside[start..at]));
                break;
            }
            '}' => depth -= 1,
            ',' if depth == 0 => {
                names.push(name(&inside[start..at]));
                start = at + 1;
            }
            _ => {}
        }
    }
    names
}

/// What is wrong with the imports of the crate at `path`.
pub(crate) fn faults(path: &Path, sources: &[(String, String)]) -> Vec<String> {
    let graph = imports(sources);
    let shown = path.display();
    let mut faults: Vec<String> = graph
        .keys()
        .filter_map(|module| cycle(&graph, module))
        .map(|cycle| format!("{shown}: modules import each other: {}", cycle.join(" → ")))
        .collect();
    for (file, text) in sources {
        let text = without_tests(text);
        let names_store = text.contains("redb::RedbStore");
        let is_agq = file.starts_with("crates/agq/");
        if is_agq && names_store && !is_test(file) && !may_name_store(file) {
            faults.push(format!("{file}: names a concrete store; only main does"));
        }
        if file.contains("/commands/") && text.contains("crate::server") {
            faults.push(format!("{file}: a command knows no socket"));
        }
    }
    faults
}

/// Where the floors are put on each other; and where they are played, as one room.
fn may_name_store(file: &str) -> bool {
    file.ends_with("/src/lib.rs") || file.contains("/store/") || file.contains("/simulation/")
}

/// A way from `start` back to itself.
fn cycle(graph: &BTreeMap<String, BTreeSet<String>>, start: &str) -> Option<Vec<String>> {
    let mut ways = vec![vec![start.to_owned()]];
    let mut seen = BTreeSet::new();
    while let Some(way) = ways.pop() {
        for next in graph.get(way.last()?)? {
            let mut longer = way.clone();
            longer.push(next.clone());
            if next == start {
                return Some(longer);
            }
            if seen.insert(next.clone()) {
                ways.push(longer);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::faults;

    fn sources(texts: &[(&str, &str)]) -> Vec<(String, String)> {
        texts.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect()
    }

    #[test]
    fn a_cycle_is_found_and_tests_do_not_count() {
        let up = ("src/commands/job.rs", "use crate::{house::House, server::{a, b}};");
        let down = ("src/server/mod.rs", "use crate::commands;");
        let house = ("src/house.rs", "#[cfg(test)]\nmod tests { use crate::server; }");
        let found = faults(Path::new("x"), &sources(&[up, down, house]));
        assert!(found.iter().any(|fault| fault.contains("commands → server → commands")), "{found:?}");
        assert_eq!(faults(Path::new("x"), &sources(&[down, house, ("src/commands/job.rs", "")])), [""; 0]);
    }

    #[test]
    fn only_main_names_a_store() {
        let text = "use crate::store::redb::RedbStore;";
        assert_eq!(faults(Path::new("x"), &sources(&[("crates/agq/src/reaper.rs", text)])).len(), 1);
        assert_eq!(faults(Path::new("x"), &sources(&[("crates/agq/src/lib.rs", text)])).len(), 0);
    }
}

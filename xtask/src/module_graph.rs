//! Checks of the module graph of a crate: no circle, at any level of folders
//! (docs/architecture.md).
//!
//! A parent and its child may import each other. Cargo guards the graph of the crates.

mod imports;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use imports::Module;

type Graph = BTreeMap<Module, BTreeSet<Module>>;

/// Returns the faults in the imports of the crate at `path`, whose source files are `sources`.
pub(crate) fn faults(path: &Path, sources: &[(String, String)]) -> Vec<String> {
    let sources: Vec<&(String, String)> = sources.iter().filter(|(file, _)| is_module(file)).collect();
    let modules: BTreeSet<Module> = sources.iter().map(|(file, _)| module_of(file)).collect();
    let (mut graph, mut faults) = (Graph::new(), Vec::new());
    for (file, text) in sources {
        let module = module_of(file);
        match syn::parse_file(text) {
            Ok(parsed) => {
                let found = imports::of(&parsed, &module, &modules);
                graph.entry(module).or_default().extend(found);
            }
            Err(error) => faults.push(format!("{file}: cannot be parsed: {error}")),
        }
        faults.extend(boundary_faults(file, text));
    }
    let deepest = modules.iter().map(Vec::len).max().unwrap_or_default();
    let circles = (1..=deepest).map(|depth| circles(&at_depth(&graph, depth)));
    // The circles of the highest level come first: the levels below have the same circles.
    for circle in circles.into_iter().find(|circles| !circles.is_empty()).unwrap_or_default() {
        let names: Vec<String> = circle.iter().map(|module| module.join("::")).collect();
        faults.push(format!("{}: modules import each other: {}", path.display(), names.join(" → ")));
    }
    faults
}

/// Returns false for tests in files of their own, for further programs of a crate, and for files
/// that are not Rust.
fn is_module(file: &str) -> bool {
    let is_test = file.contains("/contract/") || file.contains("/tests/") || file.ends_with("/tests.rs");
    file.ends_with(".rs") && !is_test && !file.contains("/src/bin/")
}

/// Returns `["store", "redb"]` for `src/store/redb/mod.rs`, and an empty path for the root.
fn module_of(file: &str) -> Module {
    let inside = file.rsplit_once("src/").map_or(file, |(_, inside)| inside).trim_end_matches(".rs");
    let inside = inside.strip_suffix("/mod").unwrap_or(inside);
    if matches!(inside, "lib" | "main") {
        return Module::new();
    }
    inside.split('/').map(str::to_owned).collect()
}

/// Returns the graph of the folders at `depth`. Imports between a parent and its child are left
/// out.
fn at_depth(graph: &Graph, depth: usize) -> Graph {
    let cut = |module: &Module| module[..module.len().min(depth)].to_vec();
    let mut folders = Graph::new();
    for (from, found) in graph {
        let from = cut(from);
        let others = found.iter().map(cut).filter(|to| !to.starts_with(&from) && !from.starts_with(to));
        folders.entry(from.clone()).or_default().extend(others);
    }
    folders
}

/// Returns one circle for each set of modules that import each other.
fn circles(graph: &Graph) -> Vec<Vec<Module>> {
    let mut found: Vec<Vec<Module>> = Vec::new();
    for module in graph.keys() {
        if found.iter().flatten().any(|known| known == module) {
            continue;
        }
        found.extend(circle(graph, module));
    }
    found
}

/// Returns a way from `start` back to `start`.
fn circle(graph: &Graph, start: &Module) -> Option<Vec<Module>> {
    let mut ways = vec![vec![start.clone()]];
    let mut seen = BTreeSet::new();
    while let Some(way) = ways.pop() {
        for next in graph.get(way.last()?).into_iter().flatten() {
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

/// Returns the faults of a file of agq that crosses a boundary which the graph does not show.
fn boundary_faults(file: &str, text: &str) -> Vec<String> {
    let Some(inside) = file.strip_prefix("crates/agq/src/") else { return Vec::new() };
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let mut faults = Vec::new();
    let may_name_store = ["store/", "simulation/", "startup/"].iter().any(|dir| inside.starts_with(dir));
    if text.contains("redb::RedbStore") && !may_name_store && inside != "lib.rs" {
        faults.push(format!("{file}: names a concrete store, which only startup and simulation do"));
    }
    let is_service = inside.starts_with("service/");
    let names_wire = text.contains("protocol::resp") || text.contains("    resp::") || text.contains("axum");
    if is_service && names_wire {
        faults.push(format!("{file}: an operation of the service layer names a wire type"));
    }
    faults
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::faults;

    fn found(texts: &[(&str, &str)]) -> Vec<String> {
        let own = |(path, text): &(&str, &str)| ((*path).to_owned(), (*text).to_owned());
        faults(Path::new("x"), &texts.iter().map(own).collect::<Vec<_>>())
    }

    #[test]
    fn circle_of_two_files_in_one_folder_is_found() {
        let up = ("src/store/a.rs", "use super::b::B; pub struct A;");
        let down = ("src/store/b.rs", "pub struct B(crate::store::a::A);");
        let root = ("src/store/mod.rs", "mod a; mod b;");
        assert_eq!(
            found(&[root, up, down]),
            ["x: modules import each other: store::a → store::b → store::a"]
        );
        assert_eq!(found(&[root, up, ("src/store/b.rs", "pub struct B;")]), [""; 0]);
    }

    #[test]
    fn circle_of_folders_is_found_even_if_no_files_form_one() {
        let files = [
            ("src/http/jobs.rs", "use crate::service::jobs;"),
            ("src/service/jobs.rs", ""),
            ("src/service/plans.rs", "fn f() { println!(\"{}\", crate::http::form::NAME) }"),
            ("src/http/form.rs", ""),
        ];
        assert_eq!(found(&files), ["x: modules import each other: http → service → http"]);
    }

    #[test]
    fn upward_import_through_an_imported_module_is_found() {
        let files = [
            ("src/a/mod.rs", "use crate::b; fn f() { b::c::g() }"),
            ("src/b/mod.rs", "pub mod c;"),
            ("src/b/c.rs", "use crate::a;"),
        ];
        assert_eq!(found(&files), ["x: modules import each other: a → b → a"]);
    }

    #[test]
    fn parents_children_and_tests_may_import_each_other() {
        let parent = ("src/a/mod.rs", "mod b; use b::B; pub struct A;");
        let child = ("src/a/b.rs", "use super::A; pub struct B;");
        let test = ("src/c.rs", "#[cfg(test)] mod tests { use crate::d::D; }");
        let user = ("src/d.rs", "use crate::c; pub struct D;");
        assert_eq!(found(&[parent, child, test, user]), [""; 0]);
    }

    #[test]
    fn service_layer_names_no_wire_type() {
        let text = "use agenix_protocol::resp::Reply;";
        assert_eq!(found(&[("crates/agq/src/service/jobs.rs", text)]).len(), 1);
        assert_eq!(found(&[("crates/agq/src/resp/dispatch.rs", text)]).len(), 0);
    }

    #[test]
    fn only_startup_names_a_concrete_store() {
        let text = "use crate::store::redb::RedbStore;";
        assert_eq!(found(&[("crates/agq/src/background/reaper.rs", text)]).len(), 1);
        assert_eq!(found(&[("crates/agq/src/startup/open_store.rs", text)]).len(), 0);
    }
}

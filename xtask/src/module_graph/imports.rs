//! Imports of one source file: the modules of its crate that the file names, tests left out.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{TokenStream, TokenTree};
use syn::{
    Attribute, File, ItemMod, ItemUse, Macro, Path, UseTree,
    visit::{self, Visit},
};

/// Path of a module, from the root of its crate.
pub(super) type Module = Vec<String>;

/// Returns the modules of `modules` that `file`, the source of `module`, names.
pub(super) fn of(file: &File, module: &Module, modules: &BTreeSet<Module>) -> BTreeSet<Module> {
    let mut names = Names { scope: module.clone(), ..Names::default() };
    names.visit_file(file);
    let resolve = |(scope, path): &(Module, Vec<String>)| {
        let absolute = absolute(path, scope, &names.imported, modules)?;
        (1..=absolute.len()).rev().map(|len| absolute[..len].to_vec()).find(|path| modules.contains(path))
    };
    names.paths.iter().filter_map(resolve).filter(|found| found != module).collect()
}

/// Returns `path` from the root of the crate, or nothing if the path leads out of the crate.
fn absolute(
    path: &[String],
    scope: &[String],
    imported: &BTreeMap<String, Module>,
    modules: &BTreeSet<Module>,
) -> Option<Module> {
    let (first, rest) = path.split_first()?;
    let join = |base: &[String], rest: &[String]| [base, rest].concat();
    match first.as_str() {
        "crate" => Some(rest.to_vec()),
        "self" => Some(join(scope, rest)),
        "super" => {
            let ups = path.iter().take_while(|segment| *segment == "super").count();
            Some(join(&scope[..scope.len().checked_sub(ups)?], &path[ups..]))
        }
        name => match imported.get(name) {
            Some(module) => Some(join(module, rest)),
            None => Some(join(scope, path)).filter(|path| modules.contains(&path[..=scope.len()])),
        },
    }
}

/// Collector of the paths in a file.
#[derive(Default)]
struct Names {
    /// Module of the visited item. Inline modules are modules, too.
    scope: Module,
    paths: Vec<(Module, Vec<String>)>,
    /// Paths of the imported names of this crate.
    imported: BTreeMap<String, Module>,
}

impl Names {
    fn add(&mut self, path: Vec<String>) {
        self.paths.push((self.scope.clone(), path));
    }

    fn add_tree(&mut self, tree: &UseTree, prefix: &[String]) {
        let with = |name: &dyn ToString| [prefix, &[name.to_string()]].concat();
        let (path, name) = match tree {
            UseTree::Path(path) => return self.add_tree(&path.tree, &with(&path.ident)),
            UseTree::Group(group) => return group.items.iter().for_each(|tree| self.add_tree(tree, prefix)),
            UseTree::Glob(_) => return self.add(prefix.to_vec()),
            UseTree::Name(name) if name.ident == "self" => {
                (prefix.to_vec(), prefix.last().cloned().unwrap_or_default())
            }
            UseTree::Name(name) => (with(&name.ident), name.ident.to_string()),
            UseTree::Rename(rename) => (with(&rename.ident), rename.rename.to_string()),
        };
        if let Some(absolute) = absolute(&path, &self.scope, &BTreeMap::new(), &BTreeSet::new()) {
            self.imported.insert(name, absolute);
        }
        self.add(path);
    }

    /// Adds the paths in the tokens of a macro, which syn does not parse.
    fn add_tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(ident) if colons == 2 || path.is_empty() => path.push(ident.to_string()),
                TokenTree::Punct(punct) if punct.as_char() == ':' => {
                    colons += 1;
                    continue;
                }
                other => {
                    self.add(std::mem::take(&mut path));
                    match other {
                        TokenTree::Ident(ident) => path.push(ident.to_string()),
                        TokenTree::Group(group) => self.add_tokens(group.stream()),
                        _ => {}
                    }
                }
            }
            colons = 0;
        }
        self.add(path);
    }
}

impl<'ast> Visit<'ast> for Names {
    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        if item.content.is_none() || item.attrs.iter().any(is_test) {
            return;
        }
        self.scope.push(item.ident.to_string());
        visit::visit_item_mod(self, item);
        self.scope.pop();
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        if !item.attrs.iter().any(is_test) {
            self.add_tree(&item.tree, &[]);
        }
    }

    fn visit_path(&mut self, path: &'ast Path) {
        self.add(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, called: &'ast Macro) {
        self.add_tokens(called.tokens.clone());
    }
}

fn is_test(attribute: &Attribute) -> bool {
    let words = attribute.meta.require_list().map(|list| list.tokens.to_string());
    attribute.path().is_ident("cfg") && words.is_ok_and(|words| words == "test")
}

//! Grammars of common tools, which a policy can use by name.

use std::{collections::BTreeMap, sync::LazyLock};

use crate::tool::{Tool, ToolTable};

mod files;

/// Parsed grammars by name. A file that is invalid is absent; a test parses all of them.
static TOOLS: LazyLock<BTreeMap<&'static str, Tool>> = LazyLock::new(|| {
    files::FILES.iter().filter_map(|(name, text)| Some((*name, parse(name, text).ok()?))).collect()
});

/// Parses a file of the library.
fn parse(name: &str, text: &str) -> Result<Tool, String> {
    let table: ToolTable = toml::from_str(text).map_err(|error| error.to_string())?;
    Tool::parse(name, table, |_| None)
}

/// Returns the tool `name` of the library.
pub(crate) fn tool(name: &str) -> Option<&'static Tool> {
    TOOLS.get(name)
}

/// Returns all tools of the library.
pub(crate) fn tools() -> impl Iterator<Item = &'static Tool> {
    TOOLS.values()
}

/// Returns the names of all tools of the library.
pub(crate) fn names() -> String {
    TOOLS.keys().copied().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::{files::FILES, parse};

    #[test]
    fn all_files_of_the_library_are_valid() {
        for (name, text) in FILES {
            let tool = parse(name, text).unwrap_or_else(|reason| panic!("{name}: {reason}"));
            assert!(!tool.ok.is_empty() && !tool.no.is_empty(), "{name} has examples of both kinds");
            assert!(tool.class.is_none() && tool.path.is_none(), "{name} is a plain grammar");
        }
        assert!(FILES.is_sorted_by_key(|(name, _)| *name));
        assert!(FILES.len() >= 40);
    }
}

//! Check of the paths in the paragraphs `Code:` of the decisions in docs/adr.

/// Returns a fault for each path that none of `files` has, given as path and text.
pub(super) fn faults(files: &[(String, String)]) -> Vec<String> {
    let pages = files.iter().filter(|(path, _)| path.starts_with("docs/adr/"));
    pages
        .flat_map(|(page, text)| {
            let unknown = unknown_paths(text, files).into_iter();
            unknown.map(move |path| format!("{page}: there is no {path}"))
        })
        .collect()
}

/// Returns the paths of `text` that lead to no file or folder. A path begins at the root of the
/// repository, or is a part of a path in the crate that the paragraph has named before.
fn unknown_paths(text: &str, files: &[(String, String)]) -> Vec<String> {
    let (mut unknown, mut crate_dir) = (Vec::new(), None);
    for path in paths(text) {
        crate_dir = crate_of(&path).or(crate_dir);
        if !files.iter().any(|(file, _)| has_path(file, &path, crate_dir.as_deref())) {
            unknown.push(path);
        }
    }
    unknown
}

/// Returns the paths between backticks in the paragraphs that begin with `Code:`.
fn paths(text: &str) -> Vec<String> {
    let paragraphs = text.split("\n\n").filter(|paragraph| paragraph.starts_with("Code:"));
    let spans = paragraphs.flat_map(|paragraph| paragraph.split('`').skip(1).step_by(2));
    let paths = spans.filter(|span| span.contains('/') || span.ends_with(".rs"));
    paths.flat_map(alternatives).map(|path| path.trim_matches(['.', '/']).to_owned()).collect()
}

/// Returns `a/b.rs` and `a/c.rs` for `a/{b,c}.rs`.
fn alternatives(span: &str) -> Vec<String> {
    let Some((before, rest)) = span.split_once('{') else { return vec![span.to_owned()] };
    let (names, after) = rest.split_once('}').unwrap_or((rest, ""));
    names.split(',').map(|name| format!("{before}{}{after}", name.trim())).collect()
}

fn crate_of(path: &str) -> Option<String> {
    let mut parts = path.split('/');
    let dir = parts.next().filter(|dir| ["crates", "tools"].contains(dir))?;
    Some(format!("{dir}/{}", parts.next()?))
}

fn has_path(file: &str, path: &str, crate_dir: Option<&str>) -> bool {
    let (file, path) = (format!("/{file}/"), format!("/{path}/"));
    let is_inside = crate_dir.is_some_and(|dir| file.starts_with(&format!("/{dir}/")));
    file.starts_with(&path) || is_inside && file.contains(&path)
}

#[cfg(test)]
mod tests {
    use super::faults;

    #[test]
    fn code_path_that_leads_nowhere_is_named() {
        let text = "# A\n\n`crates/a/src/gone.rs`\n\nCode: `crates/a/src/b/`: `c.rs` (`d`), `e.rs`;\n\
                    `../{b,f}/c.rs`, `tools/x/src/y.rs`, `c.rs`.\n";
        let paths = ["docs/adr/1.md", "crates/a/src/b/c.rs", "crates/g/src/e.rs", "tools/x/src/y.rs"];
        let files = paths.map(|path| (path.to_owned(), text.to_owned()));
        let expected = ["e.rs", "f/c.rs", "c.rs"];
        assert_eq!(faults(&files), expected.map(|path| format!("docs/adr/1.md: there is no {path}")));
    }
}

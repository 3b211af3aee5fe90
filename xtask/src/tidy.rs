//! The rules that no other tool checks.

mod code_paths;
mod comments;
mod features;
mod type_names;
mod vocabulary;

use std::{fs, path::Path, process::Command};

use anyhow::{Context, bail};

use crate::{module_graph, report::root};

/// The one crate that calls the system by itself.
const MAY_BE_UNSAFE: &str = "crates/sys/src/lib.rs";
/// Longest source file; a longer one holds two things.
const MAX_LINES: usize = 400;

/// Checks every file that git knows or would know.
pub(crate) fn run() -> anyhow::Result<()> {
    let files = files()?;
    let mut faults: Vec<String> = files.iter().flat_map(|(path, text)| faults_of(path, text)).collect();
    for crate_dir in [
        "crates/protocol",
        "crates/rules",
        "crates/client",
        "crates/cli",
        "crates/sys",
        "crates/sandbox",
        "crates/policy",
        "crates/order",
        "crates/shell",
        "crates/mcp",
        "crates/agq",
        "crates/agw",
        "crates/agx",
        "xtask",
        "tools/bench",
        "tools/chaos",
        "tools/harness",
    ] {
        let inside = format!("{crate_dir}/src/");
        let sources: Vec<_> = files.iter().filter(|(path, _)| path.starts_with(&inside)).cloned().collect();
        faults.extend(module_graph::faults(Path::new(crate_dir), &sources));
    }
    faults.extend(not_in_the_book(&files));
    faults.extend(code_paths::faults(&files));
    faults.extend(comments::opening_faults(&files));
    faults.extend(type_names::faults(&files));
    faults.extend(features::faults()?);
    if !faults.is_empty() {
        bail!("{} things are untidy:\n  {}", faults.len(), faults.join("\n  "));
    }
    println!("{} files are tidy", files.len());
    Ok(())
}

/// The text files of the repository: path, text.
fn files() -> anyhow::Result<Vec<(String, String)>> {
    let mut git = Command::new("git");
    git.args(["ls-files", "--cached", "--others", "--exclude-standard"]).current_dir(root());
    let listed = git.output().context("git is needed to know which files there are")?;
    if !listed.status.success() {
        bail!("git cannot list the files: {}", String::from_utf8_lossy(&listed.stderr).trim());
    }
    let listed = String::from_utf8(listed.stdout)?;
    let read = |path: &str| Some((path.to_owned(), fs::read_to_string(root().join(path)).ok()?));
    Ok(listed.lines().filter_map(read).collect())
}

fn faults_of(path: &str, text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let mut fault = |line: usize, description: &str| faults.push(format!("{path}:{line}: {description}"));
    // A corpus file has the bytes that a fuzzer found.
    let is_ours =
        !path.ends_with(".lock") && !path.starts_with("LICENSE") && !path.starts_with("fuzz/corpus/");
    if is_ours && !text.is_empty() && !text.ends_with('\n') {
        fault(text.lines().count(), "the last line does not end");
    }
    for (number, line) in (1..).zip(text.lines()) {
        if is_ours && line.ends_with([' ', '\t', '\r']) {
            fault(number, "white space at the end");
        }
        // The paths are split, so that this line has none of them.
        let machine = [["/ro", "ot/"], ["/ho", "me/"], ["/wo", "rk/"]];
        if is_ours && machine.iter().any(|parts| line.contains(&parts.concat())) {
            fault(number, "a path of one machine");
        }
        if path.ends_with(".rs") && line.trim_start().starts_with(concat!("#[ign", "ore")) {
            fault(number, "an ignored test");
        }
    }
    if path.ends_with(".rs") {
        rust_faults(path, text, &mut fault);
    }
    if path.ends_with(".md") {
        for (number, target) in broken_links(path, text) {
            fault(number, &format!("the link to {target} leads nowhere"));
        }
    }
    faults.extend(vocabulary::faults(path, text));
    faults
}

/// Returns the pages that docs/SUMMARY.md, the table of contents of mdBook, does not name.
fn not_in_the_book(files: &[(String, String)]) -> Vec<String> {
    const SUMMARY: &str = "docs/SUMMARY.md";
    let contents = files.iter().find(|(path, _)| path == SUMMARY).map_or("", |(_, text)| text);
    let pages = files.iter().filter(|(path, _)| path.ends_with(".md") && path != SUMMARY);
    let named = pages.filter_map(|(path, _)| path.strip_prefix("docs/"));
    let missing = named.filter(|page| !contents.contains(&format!("({page})")));
    missing.map(|page| format!("docs/{page} is not in {SUMMARY}")).collect()
}

fn rust_faults(path: &str, text: &str, fault: &mut impl FnMut(usize, &str)) {
    if !text.starts_with("//!") {
        fault(1, "a module starts by saying what it is for (//!)");
    }
    let lines = text.lines().count();
    if lines > MAX_LINES {
        fault(lines, &format!("more than {MAX_LINES} lines: it holds two things"));
    }
    for line in comments::wide(text) {
        fault(line, "a comment is wider than 100 columns");
    }
    let is_root = path.ends_with("src/lib.rs") || path.ends_with("src/main.rs");
    if is_root && path != MAY_BE_UNSAFE && !text.contains("#![forbid(unsafe_code)]") {
        fault(1, "#![forbid(unsafe_code)] is missing");
    }
}

/// Links to files that are not there.
fn broken_links(path: &str, text: &str) -> Vec<(usize, String)> {
    let base = root().join(path);
    let base = base.parent().unwrap_or(root());
    let links = |line: &str| -> Vec<String> {
        let targets = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        targets.map(|target| target.split('#').next().unwrap_or_default().to_owned()).collect()
    };
    let lines = (1..).zip(text.lines());
    let targets =
        lines.flat_map(|(number, line)| links(line).into_iter().map(move |target| (number, target)));
    targets.filter(|(_, target)| is_file(target) && !base.join(target).exists()).collect()
}

fn is_file(target: &str) -> bool {
    !target.is_empty() && !target.contains("://") && !target.contains(' ')
}

#[cfg(test)]
mod tests {
    use super::faults_of;

    #[test]
    fn page_that_is_not_in_the_book_is_reported() {
        let file = |path: &str, text: &str| (path.to_owned(), text.to_owned());
        let files =
            [file("docs/SUMMARY.md", "- [A](a.md)"), file("docs/a.md", ""), file("docs/adr/1.md", "")];
        assert_eq!(super::not_in_the_book(&files), ["docs/adr/1.md is not in docs/SUMMARY.md"]);
    }

    #[test]
    fn untidy_lines_are_reported_with_their_places() {
        assert_eq!(faults_of("a.rs", "//! x\n"), [""; 0]);
        assert_eq!(
            faults_of("a.rs", "fn a() {}"),
            ["a.rs:1: the last line does not end", "a.rs:1: a module starts by saying what it is for (//!)"]
        );
        assert_eq!(faults_of("a.md", "see [b](nowhere.md) \n").len(), 2);
        assert_eq!(faults_of("a.md", &format!("{}ot/x\n", "/ro")).len(), 1);
    }
}

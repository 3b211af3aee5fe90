//! Lookup of the programs and libraries that `cargo xtask test` has installed into one directory.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use e2e::Lab;

/// Returns a program of the directory or of PATH. Prints a note if there is no such program.
pub(crate) fn program(name: &str) -> Option<PathBuf> {
    let answers = |program: &Path| {
        let run = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        run.is_ok_and(|status| status.success())
    };
    let found = [tools().join("bin").join(name), PathBuf::from(name)].into_iter().find(|path| answers(path));
    if found.is_none() {
        skipped(name);
    }
    found
}

/// Returns a directory of libraries. Prints a note if there is no such directory.
pub(crate) fn library(name: &str) -> Option<PathBuf> {
    let found = Some(tools().join(name)).filter(|path| path.is_dir());
    if found.is_none() {
        skipped(name);
    }
    found
}

/// Returns `AGENIX_TOOLS`, or `target/tools` of this repository if the variable is unset.
fn tools() -> PathBuf {
    std::env::var_os("AGENIX_TOOLS").map_or_else(|| Lab::repository("target/tools"), PathBuf::from)
}

fn skipped(name: &str) {
    println!("SKIPPED: there is no {name}; `cargo xtask test` installs it, or says why not");
}

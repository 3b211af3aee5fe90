//! Where the programs and libraries are that `cargo xtask test` has put into one directory.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use e2e::Lab;

/// A program of that directory, or else of PATH; says so where there is none.
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

/// A directory of libraries there; says so where there is none.
pub(crate) fn library(name: &str) -> Option<PathBuf> {
    let found = Some(tools().join(name)).filter(|path| path.is_dir());
    if found.is_none() {
        skipped(name);
    }
    found
}

/// `AGENIX_TOOLS`, or else `target/tools` of this repository.
fn tools() -> PathBuf {
    std::env::var_os("AGENIX_TOOLS").map_or_else(|| Lab::repository("target/tools"), PathBuf::from)
}

fn skipped(name: &str) {
    println!("SKIPPED: there is no {name}; `cargo xtask test` installs it, or says why not");
}

//! The environment that everything which is measured starts in. What cargo adds for a program that it runs is left out: every process
//! would get twenty variables more than from a shell, and look for its libraries in cargo's directories first.

use std::{ffi::OsStr, os::unix::process::CommandExt, process::Command};

use anyhow::Context;

/// Set by `cargo run`. Of the paths to libraries, what was set before goes with what cargo has put in front of it.
const BY_CARGO: [&str; 6] = [
    "CARGO",
    "CARGO_MANIFEST_DIR",
    "CARGO_MANIFEST_PATH",
    "RUST_RECURSION_COUNT",
    "LD_LIBRARY_PATH",
    "DYLD_FALLBACK_LIBRARY_PATH",
];

/// Returns true if `cargo run` sets the variable `name` for the program that it runs.
pub fn is_by_cargo(name: &OsStr) -> bool {
    name.to_str().is_some_and(|name| BY_CARGO.contains(&name) || name.starts_with("CARGO_PKG_"))
}

/// Begins this very command anew without what cargo has set, where cargo has begun it.
pub fn leave_cargo() -> anyhow::Result<()> {
    if std::env::var_os("CARGO_MANIFEST_DIR").is_none() {
        return Ok(());
    }
    let program = std::env::current_exe().context("it is not known which program this is")?;
    let mut anew = Command::new(program);
    anew.args(std::env::args_os().skip(1));
    for (name, _) in std::env::vars_os().filter(|(name, _)| is_by_cargo(name)) {
        anew.env_remove(name);
    }
    Err(anew.exec()).context("the benchmark cannot begin anew without cargo's variables")
}

#[cfg(test)]
mod tests {
    use super::is_by_cargo;

    #[test]
    fn what_cargo_sets_for_a_program_is_told_from_what_people_set_for_cargo() {
        for name in ["CARGO", "CARGO_PKG_NAME", "CARGO_MANIFEST_DIR", "LD_LIBRARY_PATH"] {
            assert!(is_by_cargo(name.as_ref()), "{name}");
        }
        for name in ["CARGO_HOME", "CARGO_TARGET_DIR", "CARGO_BUILD_JOBS", "RUSTUP_TOOLCHAIN", "PATH"] {
            assert!(!is_by_cargo(name.as_ref()), "{name}");
        }
    }
}

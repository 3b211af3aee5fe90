//! Removes the variables that `cargo run` sets. Otherwise each measured process would start with
//! more variables than from a shell, and search cargo's directories for libraries first.

use std::{ffi::OsStr, os::unix::process::CommandExt, process::Command};

use anyhow::Context;

/// Names of variables that `cargo run` sets, besides `CARGO_PKG_*`. cargo prepends its directories
/// to the library paths; the earlier values of these are removed as well.
const BY_CARGO: [&str; 6] = [
    "CARGO",
    "CARGO_MANIFEST_DIR",
    "CARGO_MANIFEST_PATH",
    "RUST_RECURSION_COUNT",
    "LD_LIBRARY_PATH",
    "DYLD_FALLBACK_LIBRARY_PATH",
];

/// Returns true if `cargo run` sets the variable `name` for the program that it runs.
pub fn is_set_by_cargo(name: &OsStr) -> bool {
    name.to_str().is_some_and(|name| BY_CARGO.contains(&name) || name.starts_with("CARGO_PKG_"))
}

/// Replaces this process by the same command without the variables of cargo, if cargo started it.
/// Returns if cargo has not started this process, or after an error.
pub fn leave_cargo() -> anyhow::Result<()> {
    if std::env::var_os("CARGO_MANIFEST_DIR").is_none() {
        return Ok(());
    }
    let program = std::env::current_exe().context("the path of this program is unknown")?;
    let mut command = Command::new(program);
    command.args(std::env::args_os().skip(1));
    for (name, _) in std::env::vars_os().filter(|(name, _)| is_set_by_cargo(name)) {
        command.env_remove(name);
    }
    Err(command.exec()).context("cannot start again without cargo's variables")
}

#[cfg(test)]
mod tests {
    use super::is_set_by_cargo;

    #[test]
    fn variables_that_cargo_sets_differ_from_those_that_people_set_for_cargo() {
        for name in ["CARGO", "CARGO_PKG_NAME", "CARGO_MANIFEST_DIR", "LD_LIBRARY_PATH"] {
            assert!(is_set_by_cargo(name.as_ref()), "{name}");
        }
        for name in ["CARGO_HOME", "CARGO_TARGET_DIR", "CARGO_BUILD_JOBS", "RUSTUP_TOOLCHAIN", "PATH"] {
            assert!(!is_set_by_cargo(name.as_ref()), "{name}");
        }
    }
}

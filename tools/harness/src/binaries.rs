//! Builds the programs of AGEniX.

use std::{path::PathBuf, process::Command};

use crate::report::{cargo, must, root};

/// Names of the programs that are shipped.
pub const PROGRAMS: [&str; 3] = ["agq", "agw", "agx"];

/// Program for tests that serves the conformance suite of MCP.
pub const FIXTURES: &str = "agenix-mcp-fixtures";

/// Builds the programs as `cargo build --release` does, and returns their directory.
pub fn build() -> anyhow::Result<PathBuf> {
    must(&mut release())?;
    Ok(target()?.join("release"))
}

/// Builds the fixtures of the conformance suite of MCP beside the programs of [`build`].
pub fn build_fixtures() -> anyhow::Result<()> {
    let mut build = cargo(&["build", "--release", "--locked", "--package", "agenix-mcp"]);
    must(build.args(["--features", "fixtures", "--bin", FIXTURES]))
}

/// Builds the programs without optimisation, and returns their directory. The build is the fastest
/// one, because it shares all dependencies with xtask, and all crates with the tests.
pub fn build_debug() -> anyhow::Result<PathBuf> {
    let mut build = cargo(&["build", "--workspace", "--all-features", "--locked"]);
    must(build.args(PROGRAMS.iter().flat_map(|program| ["--bin", program])))?;
    Ok(target()?.join("debug"))
}

/// Returns the command that builds the programs as they are shipped: a release build with line
/// tables, which are split from the programs later.
pub fn shipped() -> Command {
    let mut build = release();
    build.env("CARGO_PROFILE_RELEASE_DEBUG", "line-tables-only");
    build
}

fn release() -> Command {
    let mut build = cargo(&["build", "--release", "--locked"]);
    build.args(PROGRAMS.iter().flat_map(|program| ["--package", program]));
    build
}

/// Returns cargo's target directory as an absolute path.
pub fn target() -> anyhow::Result<PathBuf> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    Ok(std::path::absolute(target)?)
}

/// Builds all programs and all tests with the profile `checked`, and returns the directory of the
/// programs. One build keeps all processors busy longer than several builds do.
pub fn build_all_checked() -> anyhow::Result<PathBuf> {
    let mut build = cargo(&["build", "--profile", "checked", "--workspace", "--all-features", "--locked"]);
    must(build.args(["--bins", "--tests"]))?;
    Ok(target()?.join("checked"))
}

/// Builds `programs`, which may be those of the simulation, with the profile `checked`, and returns
/// their directory.
pub fn build_checked(programs: &[&str]) -> anyhow::Result<PathBuf> {
    let mut build = cargo(&["build", "--profile", "checked", "--workspace", "--all-features", "--locked"]);
    must(build.args(programs.iter().flat_map(|program| ["--bin", program])))?;
    Ok(target()?.join("checked"))
}

//! Builds the three binaries as `cargo build --release` does.

use std::{path::PathBuf, process::Command};

use crate::report::{cargo, must, root};

/// The programs that are shipped.
pub const PROGRAMS: [&str; 3] = ["agq", "agw", "agx"];

/// Builds them, and says where they are.
pub fn build() -> anyhow::Result<PathBuf> {
    must(&mut release())?;
    Ok(target()?.join("release"))
}

/// What builds them.
pub fn release() -> Command {
    let mut build = cargo(&["build", "--release", "--locked"]);
    build.args(PROGRAMS.iter().flat_map(|program| ["--package", program]));
    build
}

/// Where cargo builds.
pub fn target() -> anyhow::Result<PathBuf> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    Ok(std::path::absolute(target)?)
}

/// Builds a program of agq with the checks of a debug build and the speed of a release, and says where it is.
pub fn build_simulation(name: &str) -> anyhow::Result<PathBuf> {
    must(&mut cargo(&[
        "build",
        "--profile",
        "simulation",
        "--locked",
        "--package",
        "agq",
        "--features",
        "simulation",
        "--bin",
        name,
    ]))?;
    Ok(target()?.join("simulation").join(name))
}

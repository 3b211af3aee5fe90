//! Builds the three binaries as they are shipped.

use std::path::PathBuf;

use crate::report::{cargo, must, root};

/// Builds them, and says where they are.
pub(crate) fn build() -> anyhow::Result<PathBuf> {
    must(&mut cargo(&[
        "build",
        "--release",
        "--locked",
        "--package",
        "agq",
        "--package",
        "agw",
        "--package",
        "agx",
    ]))?;
    Ok(target()?.join("release"))
}

/// Where cargo builds.
pub(crate) fn target() -> anyhow::Result<PathBuf> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    Ok(std::path::absolute(target)?)
}

/// Builds a program of agq with the checks of a debug build and the speed of a release, and says where it is.
pub(crate) fn build_simulation(name: &str) -> anyhow::Result<PathBuf> {
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

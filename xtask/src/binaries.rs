//! Builds the three binaries as they are shipped.

use std::{
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use crate::report::{cargo, must, root};

const BUILD: [&str; 9] =
    ["build", "--release", "--locked", "--package", "agq", "--package", "agw", "--package", "agx"];

/// Builds them, and says where they are.
pub(crate) fn build() -> anyhow::Result<PathBuf> {
    must(&mut cargo(&BUILD))?;
    Ok(target()?.join("release"))
}

/// They are being built, aside: that takes longest of all, and half of it on one processor. Whoever builds them meanwhile waits for
/// that, and says what was wrong.
pub(crate) struct Underway(Option<Child>);

/// Begins to build them, after whatever else is to be done.
pub(crate) fn begin() -> Underway {
    let build = cargo(&BUILD);
    let mut nice = Command::new("nice");
    nice.args(["-n", "19"]).arg(build.get_program()).args(build.get_args()).current_dir(root());
    // Where there is no such program, they are built when they are needed.
    Underway(nice.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok())
}

impl Drop for Underway {
    fn drop(&mut self) {
        if let Some(build) = &mut self.0 {
            // It has ended by itself, unless something else has failed.
            let _ended = (build.kill(), build.wait());
        }
    }
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

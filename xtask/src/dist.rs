//! `cargo xtask dist`: makes the files of a release, namely an archive of static programs, one of
//! their debug information, a Debian package, the source with a Homebrew formula, the dashboard for
//! Grafana, and the checksums of all files.

mod archive;
mod debian;
mod manuals;
mod symbols;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use agenix_harness::{
    binaries::{self, PROGRAMS},
    pgo,
    report::{RunReport, cargo, must, root, tool},
    tools,
};
use anyhow::{Context, ensure};

/// Version of all programs.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Makes all files in the directory `out`.
pub(crate) fn run(out: &Path) -> anyhow::Result<()> {
    let mut report = RunReport::default();
    let out = std::path::absolute(out)?;
    let changed = Command::new("git").args(["status", "--porcelain"]).current_dir(root()).output()?;
    ensure!(
        changed.stdout.is_empty(),
        "commit your changes first, because the archive of the source is made from the commit"
    );
    archive::cleared(&out).with_context(|| format!("cannot clear {}", out.display()))?;
    let target = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
    let mut bin = PathBuf::new();
    report.step("static programs", |report| {
        bin = static_programs(report, &target)?;
        Ok(())
    })?;
    report.step("man pages and completions", |_| manuals::make(&bin))?;
    report.step("archive", |_| archive::of_programs(&bin, &format!("agenix-{VERSION}-{target}"), &out))?;
    report.step("archive of debug information", |_| {
        archive::of_symbols(&bin, &format!("agenix-{VERSION}-{target}-debug"), &out)
    })?;
    report.step("Debian package", |report| debian::package(report, Some((&target, &bin)), &out).map(drop))?;
    report.step("the package under systemd", |report| debian::check(report, &debian::found(&out)?))?;
    report.step("source and formula", |_| archive::of_source(VERSION, &out))?;
    report.step("dashboard", |_| {
        let dashboard = "packaging/grafana/agenix.json";
        Ok(fs::copy(root().join(dashboard), out.join("agenix-grafana.json")).map(drop)?)
    })?;
    report.step("cargo install", |_| install())?;
    report.step("checksums", |_| archive::sums(&out))?;
    report.print();
    println!("the files are in {}", out.display());
    Ok(())
}

/// Tests the Debian package under systemd, with the programs in `bin`, which have the profile
/// `checked`.
pub(crate) fn test(report: &mut RunReport, bin: &Path) -> anyhow::Result<()> {
    manuals::make(bin)?;
    let out = tempfile::tempdir()?;
    match debian::package(report, None, out.path())? {
        Some(package) => debian::check(report, &package),
        None => Ok(()),
    }
}

/// Builds static programs, PGO-optimised if possible, and returns the directory of the stripped
/// ones.
fn static_programs(report: &mut RunReport, target: &str) -> anyhow::Result<PathBuf> {
    ensure!(cfg!(target_os = "linux"), "static programs are made on Linux");
    ensure!(
        tools::debian_program(report, "musl-gcc", "musl-tools"),
        "musl-gcc is missing, which compiles the C code of static programs: install the package musl-tools"
    );
    let added = Command::new("rustup").args(["target", "add", target]).status();
    ensure!(
        added.is_ok_and(|status| status.success()),
        "Rust's standard library for {target} is missing: `rustup target add {target}` has to bring it"
    );
    let bin = match pgo::build(report, Some(target), pgo_workload)? {
        Some(bin) => bin,
        None => {
            let built = binaries::target()?.join("static");
            must(binaries::shipped().args(["--target", target, "--target-dir"]).arg(&built))?;
            built.join(target).join("release")
        }
    };
    // cargo-deb searches for programs in the directory `TARGET/release`.
    let shipped = binaries::target()?.join("shipped").join(target).join("release");
    symbols::split(&bin, &shipped)?;
    for program in PROGRAMS {
        // A program that lacks something would fail only on the machines of users.
        let output = Command::new(shipped.join(program)).arg("--version").output()?;
        ensure!(
            output.stdout.ends_with(format!("{program} {VERSION}\n").as_bytes()),
            "{program} does not run"
        );
    }
    Ok(shipped)
}

/// Runs the workload during which instrumented programs record their profile.
fn pgo_workload(bin: &Path) -> anyhow::Result<()> {
    must(&mut tool("agenix-bench", &[Path::new("pgo-workload"), bin]))
}

/// Installs each program from its crate, as users of Rust do.
fn install() -> anyhow::Result<()> {
    let into = tempfile::tempdir()?;
    for program in PROGRAMS {
        let mut install = cargo(&["install", "--locked", "--path", &format!("crates/{program}"), "--root"]);
        must(install.arg(into.path()))?;
        ensure!(into.path().join("bin").join(program).is_file(), "cargo install has not brought {program}");
    }
    Ok(())
}

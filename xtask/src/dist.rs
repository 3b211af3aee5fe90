//! `cargo xtask dist`: what is shipped. Static programs for every Linux in an archive, a Debian package, the source with a Homebrew
//! formula, the dashboard for Grafana, and the sums of all of them.

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
    report::{Report, cargo, must, root, tool},
    tools,
};
use anyhow::{Context, ensure};

/// The version of all of them.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Makes everything, and puts it into a directory.
pub(crate) fn run(out: &Path) -> anyhow::Result<()> {
    let mut report = Report::default();
    let out = std::path::absolute(out)?;
    let changed = Command::new("git").args(["status", "--porcelain"]).current_dir(root()).output()?;
    ensure!(
        changed.stdout.is_empty(),
        "commit what has changed first: the source that is shipped is the commit's"
    );
    archive::cleared(&out).with_context(|| format!("cannot make {} anew", out.display()))?;
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
    report.step("sums", |_| archive::sums(&out))?;
    report.print();
    println!("it is in {}", out.display());
    Ok(())
}

/// What `cargo xtask test` tries of it: the package with the programs that the stories have used, under systemd.
pub(crate) fn test(report: &mut Report) -> anyhow::Result<()> {
    let bin = binaries::build()?;
    manuals::make(&bin)?;
    let out = tempfile::tempdir()?;
    match debian::package(report, None, out.path())? {
        Some(package) => debian::check(report, &package),
        None => Ok(()),
    }
}

/// Builds the programs without any library of the system's, trained where that can be done; where they are.
fn static_programs(report: &mut Report, target: &str) -> anyhow::Result<PathBuf> {
    ensure!(cfg!(target_os = "linux"), "static programs are made on Linux");
    tools::debian_program(report, "musl-gcc", "musl-tools");
    let added = Command::new("rustup").args(["target", "add", target]).status();
    ensure!(
        added.is_ok_and(|status| status.success()),
        "Rust's standard library for {target} is missing: `rustup target add {target}` has to bring it"
    );
    let bin = match pgo::build(report, Some(target), train)? {
        Some(bin) => bin,
        None => {
            let built = binaries::target()?.join("static");
            must(binaries::shipped().args(["--target", target, "--target-dir"]).arg(&built))?;
            built.join(target).join("release")
        }
    };
    // cargo-deb looks for programs in such a directory.
    let shipped = binaries::target()?.join("shipped").join(target).join("release");
    symbols::split(&bin, &shipped)?;
    for program in PROGRAMS {
        // What is missing from the machine that it runs on would be found out there.
        let said = Command::new(shipped.join(program)).arg("--version").output()?;
        ensure!(said.stdout.ends_with(format!("{program} {VERSION}\n").as_bytes()), "{program} does not run");
    }
    Ok(shipped)
}

/// What the programs do while they count what they do.
fn train(bin: &Path) -> anyhow::Result<()> {
    must(&mut tool("agenix-bench", &[Path::new("train"), bin]))
}

/// Whoever has Rust installs a program from its crate.
fn install() -> anyhow::Result<()> {
    let into = tempfile::tempdir()?;
    for program in PROGRAMS {
        let mut install = cargo(&["install", "--locked", "--path", &format!("crates/{program}"), "--root"]);
        must(install.arg(into.path()))?;
        ensure!(into.path().join("bin").join(program).is_file(), "cargo install has not brought {program}");
    }
    Ok(())
}

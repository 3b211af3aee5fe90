//! `cargo xtask test`: runs everything that CI runs for each change. The steps that fail fastest
//! come first. The nightly run searches longer: more seeds and crash images, mutations, chaos.

use std::{
    path::{Path, PathBuf},
    process::Command,
    thread,
};

use ::e2e::SHARED;
use agenix_harness::{
    binaries,
    report::{RunReport, cargo, must},
    tools,
};

use crate::{
    dist,
    e2e::{self, EndToEndTests},
    simulate, tidy, vm,
};

/// Profile of all tests, so that each crate is built once for them.
const CHECKED: &str = "checked";

pub(crate) fn run() -> anyhow::Result<()> {
    let mut report = RunReport::default();
    report.step("format", |_| must(&mut cargo(&["fmt", "--all", "--check"])))?;
    report.step("tidy", |_| tidy::run())?;
    let bin = build(&mut report)?;
    unit_tests(&mut report)?;
    simulations(&mut report, &bin)?;
    end_to_end_tests(&mut report, &bin)?;
    report.print();
    Ok(())
}

/// Checks the sources, and builds all programs and tests. Returns the directory of the programs.
fn build(report: &mut RunReport) -> anyhow::Result<PathBuf> {
    report.step("clippy", |_| {
        let mut clippy = cargo(&["clippy", "--workspace", "--all-targets", "--all-features", "--locked"]);
        must(clippy.args(["--profile", CHECKED, "--", "--deny", "warnings"]))
    })?;
    report.step("cargo-deny", deny)?;
    let mut bin = PathBuf::new();
    report.step("build of all programs and tests", |_| {
        bin = binaries::build_all_checked()?;
        Ok(())
    })?;
    Ok(bin)
}

fn unit_tests(report: &mut RunReport) -> anyhow::Result<()> {
    report.step("unit tests and store contract", |report| {
        tools::cargo_tool(report, "nextest")?;
        // The examples of policies run with the real tools, and under strace.
        for program in ["file", "jq", "strace"] {
            tools::debian_program(report, program, program);
        }
        let cluster = tools::postgres(report);
        // `--exclude` would select other features of dependencies, which were then built once more.
        let mut excluded = "binary(end_to_end)".to_owned();
        if cluster.is_none() {
            excluded += " | test(on_postgres) | test(/^store::postgres::/)";
        }
        let mut nextest = cargo(&["nextest", "run", "--workspace", "--all-features", "--locked"]);
        nextest.args(["--cargo-profile", CHECKED, "-E", &format!("not ({excluded})")]);
        // Tests of PostgreSQL wait for half of their time.
        let threads = 2 * thread::available_parallelism().map_or(1, usize::from);
        nextest.args(["--test-threads", &threads.to_string()]);
        must(nextest.envs(cluster.as_ref().map(|cluster| (SHARED, cluster.path()))))
    })?;
    report.step("documentation", |_| {
        must(
            cargo(&["doc", "--workspace", "--all-features", "--no-deps", "--locked", "--quiet"])
                .args(["--profile", CHECKED])
                .env("RUSTDOCFLAGS", "--deny warnings"),
        )?;
        // nextest runs no examples of the documentation.
        must(
            cargo(&["test", "--doc", "--workspace", "--all-features", "--locked", "--quiet"])
                .args(["--profile", CHECKED]),
        )
    })
}

fn simulations(report: &mut RunReport, bin: &Path) -> anyhow::Result<()> {
    report.step("simulated seeds", |_| simulate::test())?;
    report.step("seeds on both stores", simulate::test_both_stores)?;
    report.step("crash images and damage", |_| simulate::test_crash_images())?;
    report.step("instruction counts", |report| {
        report.run(Command::new(bin.join("agenix-bench")).args(["bench", "--check"]))
    })
}

fn end_to_end_tests(report: &mut RunReport, bin: &Path) -> anyhow::Result<()> {
    let tests = EndToEndTests { bin, profile: CHECKED, filter: None };
    report.step("end-to-end tests", |report| e2e::on_redb(report, tests))?;
    report.step("end-to-end tests on PostgreSQL", |report| e2e::on_postgres(report, tests))?;
    let in_vm = EndToEndTests { filter: Some(e2e::IN_VM), ..tests };
    report.step("control groups in a virtual machine", |report| vm::test(report, in_vm))?;
    report.step("the Debian package under systemd", |report| dist::test(report, bin))
}

/// Checks licences, bans and sources, and advisories if their database can be fetched.
fn deny(report: &mut RunReport) -> anyhow::Result<()> {
    tools::cargo_tool(report, "deny")?;
    must(&mut cargo(&[
        "deny",
        "--locked",
        "check",
        "--hide-inclusion-graph",
        "bans",
        "licenses",
        "sources",
    ]))?;
    let fetched = cargo(&["deny", "fetch", "db"]).output()?;
    if !fetched.status.success() {
        report.skip("advisories", "the database of advisories cannot be reached from here");
        return Ok(());
    }
    must(&mut cargo(&["deny", "--locked", "check", "advisories"]))
}

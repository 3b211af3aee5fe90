//! `cargo xtask test`: runs everything that CI runs. The steps that fail fastest come first.

use std::path::PathBuf;

use ::e2e::SHARED;
use agenix_harness::{
    binaries::{self, PROGRAMS},
    report::{Report, cargo, must, tool},
    tools,
};

use crate::{
    dist,
    e2e::{self, Stories},
    simulate, tidy, vm,
};

/// Profile of all tests, so that each crate is built once for them.
const CHECKED: &str = "checked";

pub(crate) fn run() -> anyhow::Result<()> {
    let mut report = Report::default();
    report.step("format", |_| must(&mut cargo(&["fmt", "--all", "--check"])))?;
    report.step("tidy", |_| tidy::run())?;
    report.step("clippy", |_| {
        must(&mut cargo(&[
            "clippy",
            "--workspace",
            "--all-targets",
            "--all-features",
            "--locked",
            "--",
            "--deny",
            "warnings",
        ]))
    })?;
    report.step("cargo-deny", deny)?;
    report.step("unit tests and store contract", |report| {
        tools::cargo_tool(report, "nextest")?;
        // The examples of policies run with the real tools, and under strace.
        for program in ["file", "jq", "strace"] {
            tools::debian_program(report, program, program);
        }
        let cluster = tools::postgres(report);
        let mut nextest =
            cargo(&["nextest", "run", "--workspace", "--exclude", "e2e", "--all-features", "--locked"]);
        nextest.args(["--cargo-profile", CHECKED]);
        // Tests of PostgreSQL wait for half of their time.
        let threads = 2 * std::thread::available_parallelism().map_or(1, usize::from);
        nextest.args(["--test-threads", &threads.to_string()]);
        if cluster.is_none() {
            nextest.args(["-E", "not (test(on_postgres) | test(/^store::postgres::/))"]);
        }
        must(nextest.envs(cluster.as_ref().map(|cluster| (SHARED, cluster.path()))))
    })?;
    report.step("documentation", |_| {
        must(
            cargo(&["doc", "--workspace", "--all-features", "--no-deps", "--locked", "--quiet"])
                .env("RUSTDOCFLAGS", "--deny warnings"),
        )?;
        // nextest runs no examples of the documentation.
        must(
            cargo(&["test", "--doc", "--workspace", "--all-features", "--locked", "--quiet"])
                .args(["--profile", CHECKED]),
        )
    })?;
    let mut bin = PathBuf::new();
    report.step("build of the programs under test", |_| {
        bin = binaries::build_checked(
            &[&PROGRAMS[..], &["agq-simulate", "agq-paths", binaries::FIXTURES]].concat(),
        )?;
        Ok(())
    })?;
    report.step("ten thousand simulated seeds", |_| simulate::test())?;
    report.step("two hundred seeds on both stores", simulate::test_both_stores)?;
    report.step("crash images and damage", |_| simulate::test_crash_images())?;
    report
        .step("instruction counts", |report| report.run(&mut tool("agenix-bench", &["bench", "--check"])))?;
    let stories = Stories { bin: &bin, profile: CHECKED, filter: None };
    report.step("end-to-end tests", |report| e2e::on_redb(report, stories))?;
    report.step("end-to-end tests on PostgreSQL", |report| e2e::on_postgres(report, stories))?;
    let in_vm = Stories { filter: Some(e2e::IN_VM), ..stories };
    report.step("control groups in a virtual machine", |report| vm::test(report, in_vm))?;
    report.step("the Debian package under systemd", |report| dist::test(report, &bin))?;
    report.step("a minute of chaos", |_| {
        must(tool("agenix-chaos", &["--minutes", "1"]).arg("--bin").arg(&bin))
    })?;
    report.print();
    Ok(())
}

/// Checks licences, bans and sources, and advisories if their database can be fetched.
fn deny(report: &mut Report) -> anyhow::Result<()> {
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

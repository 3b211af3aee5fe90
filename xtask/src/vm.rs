//! `cargo xtask vm`: runs end-to-end tests in a virtual machine that has the files of this machine,
//! the kernel of the newest Debian release, no systemd, and free control groups of version 2.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use agenix_harness::{
    binaries,
    report::{RunReport, cargo, must, root},
    tools,
};
use anyhow::{Context, bail};
use serde_json::Value;

use crate::e2e::{EndToEndTests, IN_VM};

/// Name in the report for machines that cannot start a virtual machine.
const SUBJECT: &str = "tests in a virtual machine";
/// Exit code of the script if the virtual machine does not start the tests.
const NOT_STARTED: i32 = 3;
/// File server for virtual machines, of the Debian package qemu-system-common.
const FILE_SERVER: &str = "/usr/lib/qemu/virtiofsd";

/// Runs the tests whose names contain `filter` with programs of the debug build.
pub(crate) fn run(filter: Option<&str>) -> anyhow::Result<()> {
    let mut report = RunReport::default();
    let bin = binaries::build_debug()?;
    let tests = EndToEndTests { bin: &bin, profile: "dev", filter: Some(filter.unwrap_or(IN_VM)) };
    test(&mut report, tests)?;
    report.print();
    Ok(())
}

/// Runs tests in a virtual machine, if one can start.
pub(crate) fn test(report: &mut RunReport, tests: EndToEndTests<'_>) -> anyhow::Result<()> {
    if !rustix::process::geteuid().is_root() {
        report.skip(SUBJECT, "only root can give its files to a virtual machine");
        return Ok(());
    }
    let has_all = tools::debian_program(report, "qemu-system-x86_64", "qemu-system-x86")
        && (Path::new("/bin/busybox").exists() || tools::debian_package(report, "busybox", "busybox-static"));
    if !has_all {
        return Ok(());
    }
    if !Path::new(FILE_SERVER).exists() {
        report.skip(SUBJECT, &format!("there is no {FILE_SERVER}"));
        return Ok(());
    }
    let scripts = root().join("packaging/vm-test");
    let kernel = root().join("target/tools/vm");
    if !kernel.join("vmlinuz").exists()
        && let Err(error) = must(Command::new(scripts.join("kernel")).arg(&kernel))
    {
        report.skip(SUBJECT, &format!("there is no kernel for it: {error:#}"));
        return Ok(());
    }
    let program = kernel.join("program");
    fs::write(&program, program_text(tests)?)?;
    fs::set_permissions(&program, Permissions::from_mode(0o755))?;
    let status = Command::new(scripts.join("run")).args([kernel, program]).status()?;
    match status.code() {
        Some(0) => Ok(()),
        Some(NOT_STARTED) => {
            report.skip(SUBJECT, "the virtual machine did not start; see its output above");
            Ok(())
        }
        _ => bail!("the tests in the virtual machine have failed: {status}"),
    }
}

/// Returns the first program of the virtual machine, which runs the tests and ends the machine.
fn program_text(selected: EndToEndTests<'_>) -> anyhow::Result<String> {
    let program = tests_program(selected.profile)?;
    let path = std::env::var("PATH").context("PATH is not set")?;
    Ok(format!(
        "#!/bin/sh\n\
         export HOME=/root PATH='{path}' AGENIX_BIN='{bin}'\n\
         cd '{tests_dir}'\n\
         echo started\n\
         '{program}' --test-threads 2 {filter} && echo passed\n\
         echo o > /proc/sysrq-trigger\n\
         sleep 60\n",
        bin = selected.bin.display(),
        tests_dir = root().join("tests").display(),
        program = program.display(),
        filter = selected.filter.unwrap_or_default(),
    ))
}

/// Builds the program of the end-to-end tests, and returns its path.
fn tests_program(profile: &str) -> anyhow::Result<PathBuf> {
    let mut build =
        cargo(&["test", "--no-run", "--workspace", "--all-features", "--test", "end_to_end", "--locked"]);
    build.args(["--profile", profile, "--message-format", "json"]);
    let output = build.stderr(std::process::Stdio::inherit()).output()?;
    let messages = String::from_utf8(output.stdout)?;
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut programs = messages.filter_map(|message| {
        let is_tests = message["target"]["name"] == "end_to_end";
        message["executable"].as_str().filter(|_| is_tests).map(PathBuf::from)
    });
    programs.next().context("cargo names no program of the end-to-end tests")
}

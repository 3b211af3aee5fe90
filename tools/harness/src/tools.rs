//! Tools that the checks need besides the Rust toolchain. Missing tools are installed if that is
//! allowed, and named in the report otherwise.

mod clients;

use std::{
    path::Path,
    process::{Command, Stdio},
};

pub use self::clients::{on_path, real_clients};
use e2e::{FOR_TESTS, Postgres};

use crate::report::{RunReport, cargo, must};

/// Server with the interface of S3, and the newest version that the pinned toolchain builds.
const S3S_FS: &str = "s3s-fs";
const S3S_FS_VERSION: &str = "0.14.1";

/// Returns true if a command exits with 0.
fn succeeds(program: &Path, args: &[&str]) -> bool {
    let run = Command::new(program).args(args).stdout(Stdio::null()).stderr(Stdio::null()).status();
    run.is_ok_and(|status| status.success())
}

/// Returns the command that builds and installs a package of the registry. An optimised build and
/// debug information would take far longer than they save.
fn install(args: &[&str]) -> Command {
    let mut install = cargo(&["install", "--debug", "--locked"]);
    install.args(args).env("CARGO_PROFILE_DEV_DEBUG", "0");
    install
}

/// Installs a cargo subcommand if it is missing.
pub fn cargo_tool(report: &mut RunReport, name: &str) -> anyhow::Result<()> {
    if cargo(&[name, "--version"]).output().is_ok_and(|output| output.status.success()) {
        return Ok(());
    }
    let package = format!("cargo-{name}");
    println!("{package} is missing: installing it with cargo install --debug --locked {package}");
    must(&mut install(&[&package]))?;
    report.installed(&format!("{package} with cargo install"));
    Ok(())
}

/// Installs s3s-fs, a server with the interface of S3, into `bin` of the directory `tools` if it is
/// missing. Returns true if the server is there.
pub fn s3_server(report: &mut RunReport, tools: &Path) -> bool {
    let package = format!("{S3S_FS}@{S3S_FS_VERSION}");
    if succeeds(&tools.join("bin").join(S3S_FS), &["--version"]) {
        return true;
    }
    println!("{S3S_FS} is missing: installing it with cargo install --debug --locked {package}");
    match must(install(&["--features", "binary", &package]).arg("--root").arg(tools)) {
        Ok(()) => {
            report.installed(&format!("{S3S_FS} with cargo install"));
            true
        }
        Err(error) => {
            report.skip(S3S_FS, &format!("it could not be installed: {error:#}"));
            false
        }
    }
}

/// Starts a PostgreSQL cluster for tests in a temporary directory. Returns `None` if PostgreSQL is
/// missing and cannot be installed.
pub fn postgres(report: &mut RunReport) -> Option<Postgres> {
    if Postgres::programs().is_none() {
        debian_package(report, "PostgreSQL", "postgresql");
    }
    Postgres::programs().map(|_| Postgres::start(&FOR_TESTS))
}

/// Installs a missing Chromium, and its driver. Returns true if both are there.
pub fn browser(report: &mut RunReport) -> bool {
    debian_program(report, "chromedriver", "chromium-driver")
}

/// Installs a missing pgbouncer. Returns true if pgbouncer is there. Debian installs the program in
/// a directory that only the PATH of root has.
pub fn pooler(report: &mut RunReport) -> bool {
    succeeds(Path::new("/usr/sbin/pgbouncer"), &["--version"])
        || debian_program(report, "pgbouncer", "pgbouncer")
}

/// Installs the Debian package of a program if the program is missing. Returns true if the program
/// is there.
pub fn debian_program(report: &mut RunReport, program: &str, package: &str) -> bool {
    if succeeds(Path::new(program), &["--version"]) {
        return true;
    }
    debian_package(report, program, package)
}

/// Installs the Debian package that has `program`. Returns true on success; the reason of a failure
/// is in the report.
pub fn debian_package(report: &mut RunReport, program: &str, package: &str) -> bool {
    let is_allowed = rustix::process::geteuid().is_root() && succeeds(Path::new("apt-get"), &["--version"]);
    if !is_allowed {
        report
            .skip(program, &format!("it is not installed, and only root with apt-get may install {package}"));
        return false;
    }
    println!("{program} is missing: installing {package} with apt-get");
    let apt = |args: &[&str]| {
        let mut command = Command::new("apt-get");
        command
            .args(args)
            .env("DEBIAN_FRONTEND", "noninteractive")
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        must(&mut command)
    };
    match apt(&["update"]).and_then(|()| apt(&["install", "-y", "--no-install-recommends", package])) {
        Ok(()) => {
            report.installed(&format!("{package} with apt-get"));
            true
        }
        Err(error) => {
            report.skip(program, &format!("{package} could not be installed: {error:#}"));
            false
        }
    }
}

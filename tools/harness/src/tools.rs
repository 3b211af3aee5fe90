//! What the checks need beside the Rust toolchain: installed where it is missing and may be, named where not.

mod clients;

use std::{
    path::Path,
    process::{Command, Stdio},
};

pub use self::clients::{on_path, real_clients};
use e2e::{FOR_TESTS, Postgres};

use crate::report::{Report, cargo, must};

/// Whether a command can be run.
fn answers(program: &Path, args: &[&str]) -> bool {
    let run = Command::new(program).args(args).stdout(Stdio::null()).stderr(Stdio::null()).status();
    run.is_ok_and(|status| status.success())
}

/// Makes sure that there is a cargo subcommand.
pub fn cargo_tool(report: &mut Report, name: &str) -> anyhow::Result<()> {
    if cargo(&[name, "--version"]).output().is_ok_and(|output| output.status.success()) {
        return Ok(());
    }
    let package = format!("cargo-{name}");
    println!("{package} is missing: installing it with cargo install --debug --locked {package}");
    // To build it well takes three times as long, and to use it a moment less.
    must(&mut cargo(&["install", "--debug", "--locked", &package]))?;
    report.installed(&format!("{package} with cargo install"));
    Ok(())
}

/// A PostgreSQL of our own for tests, in a directory that disappears; `None` where there is none and it may not be installed.
pub fn postgres(report: &mut Report) -> Option<Postgres> {
    if Postgres::programs().is_none() {
        debian_package(report, "PostgreSQL", "postgresql");
    }
    Postgres::programs().map(|_| Postgres::start(&FOR_TESTS))
}

/// Makes sure that there is a browser, and what leads it; whether there is in the end.
pub fn browser(report: &mut Report) -> bool {
    debian_program(report, "chromedriver", "chromium-driver")
}

/// Installs pgbouncer if it is missing, and returns whether it is there. Debian installs the
/// program in a directory that only the PATH of root has.
pub fn pooler(report: &mut Report) -> bool {
    answers(Path::new("/usr/sbin/pgbouncer"), &["--version"])
        || debian_program(report, "pgbouncer", "pgbouncer")
}

/// Makes sure that there is a program of a Debian package; whether there is one in the end.
pub fn debian_program(report: &mut Report, program: &str, package: &str) -> bool {
    if answers(Path::new(program), &["--version"]) {
        return true;
    }
    debian_package(report, program, package)
}

/// Installs a Debian package for the sake of a program; whether that went well.
pub fn debian_package(report: &mut Report, program: &str, package: &str) -> bool {
    let may = rustix::process::geteuid().is_root() && answers(Path::new("apt-get"), &["--version"]);
    if !may {
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

//! What the checks need beside the Rust toolchain: installed where it is missing and may be, named where not.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::report::{Report, cargo, must, root};

/// Whether a command can be run.
fn answers(program: &str, args: &[&str]) -> bool {
    let run = Command::new(program).args(args).stdout(Stdio::null()).stderr(Stdio::null()).status();
    run.is_ok_and(|status| status.success())
}

/// Makes sure that there is a cargo subcommand.
pub(crate) fn cargo_tool(report: &mut Report, name: &str) -> anyhow::Result<()> {
    if cargo(&[name, "--version"]).output().is_ok_and(|output| output.status.success()) {
        return Ok(());
    }
    let package = format!("cargo-{name}");
    println!("{package} is missing: installing it with cargo install --locked {package}");
    must(&mut cargo(&["install", "--locked", &package]))?;
    report.installed(&format!("{package} with cargo install"));
    Ok(())
}

/// Makes sure that there is a program of a Debian package; whether there is one in the end.
pub(crate) fn debian_program(report: &mut Report, program: &str, package: &str) -> bool {
    if answers(program, &["--version"]) {
        return true;
    }
    let may = rustix::process::geteuid().is_root() && answers("apt-get", &["--version"]);
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

/// A Python that has redis-py, in a directory of its own under `target`.
pub(crate) fn python_with_redis(report: &mut Report) -> Option<PathBuf> {
    let home = root().join("target/python");
    let python = home.join("bin/python");
    if has_redis(&python) {
        return Some(python);
    }
    if !answers("python3", &["--version"]) {
        report.skip("redis-py", "there is no python3");
        return None;
    }
    println!("redis-py is missing: installing it into target/python");
    let mut venv = Command::new("python3");
    venv.args(["-m", "venv"]).arg(&home);
    let mut pip = Command::new(&python);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "redis"]);
    match must(&mut venv).and_then(|()| must(&mut pip)) {
        Ok(()) => {
            report.installed("redis-py into target/python");
            Some(python)
        }
        Err(error) => {
            report.skip("redis-py", &format!("it could not be installed: {error:#}"));
            None
        }
    }
}

fn has_redis(python: &Path) -> bool {
    python.to_str().is_some_and(|python| answers(python, &["-c", "import redis"]))
}

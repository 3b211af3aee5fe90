//! Makes the Debian package with cargo-deb, and tests it on a copy of this machine under its own
//! systemd.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use agenix_harness::{
    report::{RunReport, cargo, must, root},
    tools,
};
use anyhow::{Context, bail};

/// Makes the package from programs that are built: those of `target`, which are in
/// `TARGET/release`, or those of this machine with the profile `checked`. Returns `None` if a tool
/// is missing and cannot be installed.
pub(super) fn package(
    report: &mut RunReport,
    target: Option<(&str, &Path)>,
    out: &Path,
) -> anyhow::Result<Option<PathBuf>> {
    if !tools::debian_program(report, "dpkg-shlibdeps", "dpkg-dev") {
        return Ok(None);
    }
    tools::cargo_tool(report, "deb")?;
    let mut deb = cargo(&["deb", "--package", "agx", "--no-build", "--strip", "--quiet"]);
    // A package for a test is made fast, and is larger.
    match target {
        Some((target, bin)) => {
            let directory = bin.ancestors().nth(2).context("programs are built in `TARGET/release`")?;
            deb.args(["--target", target]).env("CARGO_TARGET_DIR", directory)
        }
        None => deb.args(["--profile", "checked", "--fast"]),
    };
    must(deb.arg("--output").arg(out))?;
    found(out).map(Some)
}

/// Returns the package in a directory.
pub(super) fn found(out: &Path) -> anyhow::Result<PathBuf> {
    let files = fs::read_dir(out)?.collect::<Result<Vec<_>, _>>()?;
    let package =
        files.into_iter().map(|file| file.path()).find(|path| path.extension() == Some("deb".as_ref()));
    package.with_context(|| format!("there is no package in {}", out.display()))
}

/// Installs, starts, uses, upgrades, removes and purges the package in namespaces, if this machine
/// allows them. The check does not change this machine.
pub(super) fn check(report: &mut RunReport, package: &Path) -> anyhow::Result<()> {
    const SUBJECT: &str = "the package under systemd";
    if !rustix::process::geteuid().is_root() {
        report.skip(SUBJECT, "only root can make a copy of the machine to install it on");
        return Ok(());
    }
    if !tools::debian_program(report, "systemctl", "systemd") {
        return Ok(());
    }
    let namespaces = ["--mount", "--pid", "--fork", "--uts", "--ipc", "--cgroup", "--net", "--kill-child"];
    let unshare = || {
        let mut command = Command::new("unshare");
        command.args(namespaces).stdin(Stdio::null());
        command
    };
    let allowed = unshare().args(["mount", "-t", "tmpfs", "tmpfs", "/mnt"]).status();
    if !allowed.is_ok_and(|status| status.success()) {
        report.skip(SUBJECT, "this machine does not allow namespaces");
        return Ok(());
    }
    let scratch = tempfile::tempdir()?;
    let boot = root().join("packaging/debian-test/boot");
    // The exit status has no meaning, because the copy is halted from inside.
    let _halted = unshare().arg(boot).arg(scratch.path()).arg(package).status()?;
    let read = |name: &str| fs::read_to_string(scratch.path().join("srv").join(name)).unwrap_or_default();
    print!("{}", read("said"));
    match read("status").trim() {
        "0" => Ok(()),
        "" => bail!("systemd did not come up on the copy of this machine"),
        code => bail!("the test in the package ended with exit code {code}; see its output above"),
    }
}

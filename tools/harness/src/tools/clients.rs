//! Installs real clients of Redis and of MCP, and a real Redis, for the end-to-end tests, in one
//! directory below the target directory. No service is started.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, bail, ensure};

use super::{debian_package, debian_program, succeeds};
use crate::report::{RunReport, must, root};

/// Python packages: directory, requirement for pip, and module.
const PYTHON_PACKAGES: [(&str, &str, &str); 4] = [
    ("redis-py-4", "redis>=4,<5", "redis"),
    ("redis-py-5", "redis>=5,<6", "redis"),
    ("redis-py-newest", "redis", "redis"),
    ("mcp-py", "mcp==2.3.0", "mcp"),
];
/// Lowest major version of Node that the conformance suite of MCP runs on. ioredis 6 and node-redis
/// 6 need 20.
const NEEDED_NODE: u32 = 22;

/// Installs missing clients as far as possible. Returns the directory of the clients, which the
/// end-to-end tests get as `AGENIX_TOOLS`.
pub fn real_clients(report: &mut RunReport) -> anyhow::Result<PathBuf> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    let tools = std::path::absolute(target)?.join("tools");
    fs::create_dir_all(tools.join("bin")).with_context(|| format!("cannot make {}", tools.display()))?;
    redis_programs(report, &tools.join("bin"));
    if has_pip(report) {
        for (directory, requirement, module) in PYTHON_PACKAGES {
            python_package(report, &tools.join(directory), requirement, module);
        }
    }
    if debian_program(report, "node", "nodejs") && debian_program(report, "npm", "npm") {
        node_packages(report, &tools.join("node"));
        recent_node(report, &tools);
    }
    Ok(tools)
}

/// Links redis-cli and redis-server into `bin`. Debian has both in redis-tools, redis-server by the
/// name redis-check-rdb. The package redis-server would only add that name, and a service.
fn redis_programs(report: &mut RunReport, bin: &Path) {
    let is_there = |name: &str| succeeds(&bin.join(name), &["--version"]);
    if is_there("redis-cli") && is_there("redis-server") {
        return;
    }
    let names: [(&str, &[&str]); 2] =
        [("redis-cli", &["redis-cli"]), ("redis-server", &["redis-server", "redis-check-rdb"])];
    let is_missing = |others: &[&str]| others.iter().all(|other| on_path(other).is_none());
    if names.iter().any(|(_, others)| is_missing(others)) && rustix::process::geteuid().is_root() {
        debian_package(report, "redis-tools", "redis-tools");
    }
    for (name, others) in names {
        let linked = match others.iter().find_map(|other| on_path(other)) {
            Some(program) => link(&program, &bin.join(name)),
            None => unpacked(bin).and_then(|usr| link(&usr.join(others[others.len() - 1]), &bin.join(name))),
        };
        let checked = linked.and_then(|()| check_redis(&bin.join(name)));
        if let Err(error) = checked {
            report.skip(name, &format!("{error:#}"));
        }
    }
}

/// Returns the path of a program on PATH.
pub fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(name)).find(|program| program.is_file())
}

/// Makes `name` a symbolic link to the program.
fn link(program: &Path, name: &Path) -> anyhow::Result<()> {
    if name.symlink_metadata().is_ok() {
        fs::remove_file(name)?;
    }
    symlink(program, name).with_context(|| format!("cannot link {} to {}", name.display(), program.display()))
}

/// Returns an error if the program does not run, or is a redis-server of another version than 7,
/// with which agq is not compared.
fn check_redis(program: &Path) -> anyhow::Result<()> {
    let output = Command::new(program).arg("--version").output()?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    ensure!(output.status.success(), "{} does not run: {}", program.display(), text.trim());
    let is_server = program.ends_with("redis-server");
    ensure!(!is_server || text.contains("v=7."), "Redis 7 is needed, this is {}", text.trim());
    Ok(())
}

/// Unpacks redis-tools beside `bin`, which needs no root, and returns the directory of its
/// programs.
fn unpacked(bin: &Path) -> anyhow::Result<PathBuf> {
    let home = bin.with_file_name("redis-tools");
    let programs = home.join("usr/bin");
    if programs.join("redis-cli").is_file() {
        return Ok(programs);
    }
    fs::create_dir_all(&home)?;
    let mut download = Command::new("apt-get");
    download.args(["download", "redis-tools"]).current_dir(&home).stdin(Stdio::null()).stdout(Stdio::null());
    must(&mut download).context("it is not installed and cannot be downloaded")?;
    for file in fs::read_dir(&home)? {
        let file = file?.path();
        if file.extension().is_some_and(|extension| extension == "deb") {
            must(Command::new("dpkg").arg("-x").arg(&file).arg(&home))?;
            return Ok(programs);
        }
    }
    bail!("apt-get left no package in {}", home.display())
}

/// Returns true if there is a Python with pip, which are installed if they are missing.
fn has_pip(report: &mut RunReport) -> bool {
    debian_program(report, "python3", "python3")
        && (succeeds(Path::new("python3"), &["-m", "pip", "--version"])
            || debian_package(report, "pip", "python3-pip"))
}

/// Installs a Python package into a directory of its own.
fn python_package(report: &mut RunReport, home: &Path, requirement: &str, module: &str) {
    if home.join(module).join("__init__.py").is_file() {
        return;
    }
    let name = home.file_name().unwrap_or_default().to_string_lossy();
    println!("{name} is missing: installing it with pip");
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"])
        .args(["--retries", "1", "--target"])
        .arg(home)
        .arg(requirement)
        .env("PIP_ROOT_USER_ACTION", "ignore")
        .stdin(Stdio::null());
    match must(&mut pip) {
        Ok(()) => report.installed(&format!("{name} with pip into {}", relative(home))),
        Err(error) => {
            // An incomplete installation would count as complete in the next run.
            let _removed = fs::remove_dir_all(home);
            report.skip(&name, &format!("it could not be installed: {error:#}"));
        }
    }
}

/// Installs the packages for Node in the versions of tests/sessions/node/package.json.
fn node_packages(report: &mut RunReport, home: &Path) {
    match npm_install(home) {
        Ok(false) => {}
        Ok(true) => report.installed(&format!("the packages for Node with npm into {}", relative(home))),
        Err(error) => {
            report.skip("the packages for Node", &format!("npm could not install them: {error:#}"));
        }
    }
}

/// Installs a newer Node with npm if the one of the system is too old for the newest clients.
fn recent_node(report: &mut RunReport, tools: &Path) {
    let (link_to, home) = (tools.join("bin/node"), tools.join("node-newest"));
    if major_of(&link_to).or_else(|| major_of(Path::new("node"))).is_some_and(|major| major >= NEEDED_NODE) {
        return;
    }
    println!("Node is older than {NEEDED_NODE}: installing a newer one with npm");
    let installed = fs::create_dir_all(&home).map_err(anyhow::Error::from).and_then(|()| {
        must(npm(&home).args(["--prefix", ".", "node@22"]))?;
        link(&home.join("node_modules/node/bin/node"), &link_to)
    });
    match installed {
        Ok(()) => report.installed(&format!("Node 22 with npm into {}", relative(&home))),
        Err(error) => report.skip(
            "the conformance suite of MCP",
            &format!("it needs Node {NEEDED_NODE}, and npm could not install one: {error:#}"),
        ),
    }
}

/// Returns the major version of a Node program.
fn major_of(node: &Path) -> Option<u32> {
    let output =
        Command::new(node).arg("--version").output().ok().filter(|output| output.status.success())?;
    let version = String::from_utf8_lossy(&output.stdout);
    version.trim().trim_start_matches('v').split('.').next()?.parse().ok()
}

/// Returns a quiet `npm install` in a directory.
fn npm(home: &Path) -> Command {
    let mut npm = Command::new("npm");
    npm.args(["install", "--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error"])
        .arg("--fetch-retries=1")
        .current_dir(home)
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    npm
}

/// Installs the packages of the end-to-end tests. Returns false if the packages are installed
/// already.
fn npm_install(home: &Path) -> anyhow::Result<bool> {
    let wanted = fs::read_to_string(root().join("tests/sessions/node/package.json"))?;
    let done = home.join("installed.json");
    if fs::read_to_string(&done).is_ok_and(|installed| installed == wanted) {
        return Ok(false);
    }
    println!("the packages for Node are missing: installing them with npm");
    fs::create_dir_all(home)?;
    fs::write(home.join("package.json"), &wanted)?;
    must(&mut npm(home))?;
    fs::write(done, wanted)?;
    Ok(true)
}

/// Returns a directory relative to the repository, if it is inside.
fn relative(directory: &Path) -> std::path::Display<'_> {
    let inside = std::path::absolute(root()).ok().and_then(|root| directory.strip_prefix(root).ok());
    inside.unwrap_or(directory).display()
}

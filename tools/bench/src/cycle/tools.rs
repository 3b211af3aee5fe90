//! Finds the programs of the peers, or installs them below the target directory. Missing programs
//! are reported. No service is started.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use agenix_harness::{
    report::must,
    tools::{debian_package, on_path},
};
use anyhow::{Context, bail};
use e2e::Postgres;

use super::server::file;
use crate::{Bench, ProgramDirs};

/// Programs that were found.
pub(super) struct Tools {
    pub(super) redis: Option<PathBuf>,
    pub(super) beanstalkd: Option<PathBuf>,
    /// True if there is a PostgreSQL with pgbench.
    pub(super) has_postgres: bool,
    pub(super) node: Option<NodeTools>,
}

/// A Node with the packages of tools/bench/assets/node/package.json.
pub(super) struct NodeTools {
    pub(super) program: PathBuf,
    pub(super) modules: PathBuf,
}

impl Tools {
    /// Finds all programs, and installs missing ones if that is allowed.
    pub(super) fn find(bench: &mut Bench, programs: &ProgramDirs) -> Self {
        let redis = Some(programs.tools.join("bin/redis-server")).filter(|program| program.exists());
        if redis.is_none() {
            bench.skip("redis Lua and BullMQ", "there is no redis-server");
        }
        let beanstalkd = reported(bench, "beanstalkd", beanstalkd(&programs.tools));
        let node = reported(bench, "BullMQ and graphile-worker", node(&programs.tools));
        Self { redis, beanstalkd, has_postgres: has_postgres(bench), node }
    }
}

/// A program, and how it was installed if it was installed now.
type ToolInstallation<T> = (T, Option<String>);

/// Returns the program, and reports its installation or why it is missing.
fn reported<T>(bench: &mut Bench, name: &str, found: anyhow::Result<ToolInstallation<T>>) -> Option<T> {
    match found {
        Ok((thing, installed)) => {
            if let Some(how) = installed {
                bench.report.installed(&how);
            }
            Some(thing)
        }
        Err(error) => {
            bench.skip(name, &format!("{error:#}"));
            None
        }
    }
}

/// Unpacks the Debian package without installing it, because it would start a service.
fn beanstalkd(tools: &Path) -> anyhow::Result<ToolInstallation<PathBuf>> {
    if let Some(program) = on_path("beanstalkd") {
        return Ok((program, None));
    }
    let home = tools.join("beanstalkd");
    let program = home.join("usr/bin/beanstalkd");
    if program.is_file() {
        return Ok((program, None));
    }
    println!("beanstalkd is missing: unpacking Debian's package");
    fs::create_dir_all(&home)?;
    must(quiet(Command::new("apt-get").args(["download", "beanstalkd"])).current_dir(&home))
        .context("it is not installed and cannot be downloaded")?;
    for entry in fs::read_dir(&home)? {
        let package = entry?.path();
        if package.extension().is_some_and(|extension| extension == "deb") {
            must(Command::new("dpkg").arg("-x").arg(&package).arg(&home))?;
            return Ok((program, Some("beanstalkd, unpacked below the target directory".into())));
        }
    }
    bail!("apt-get left no package in {}", home.display())
}

/// Returns true if there is a PostgreSQL with pgbench, which is installed if it is missing. The
/// benchmark does not use a server that the package starts.
pub(crate) fn has_postgres(bench: &mut Bench) -> bool {
    let has_all = || Postgres::programs().is_some_and(|bin| bin.join("pgbench").is_file());
    has_all() || debian_package(&mut bench.report, "PostgreSQL", "postgresql") && has_all()
}

/// Finds Node, and installs the packages of the peers.
fn node(tools: &Path) -> anyhow::Result<ToolInstallation<NodeTools>> {
    let recent = Some(tools.join("bin/node")).filter(|program| program.exists());
    let program = recent.or_else(|| on_path("node")).context("there is no Node")?;
    let home = tools.join("bench-node");
    let modules = home.join("node_modules");
    let wanted = fs::read_to_string(file("node/package.json"))?;
    let done = home.join("installed.json");
    let found = NodeTools { program, modules };
    if fs::read_to_string(&done).is_ok_and(|installed| installed == wanted) {
        return Ok((found, None));
    }
    println!("BullMQ and graphile-worker are missing: installing them with npm");
    fs::create_dir_all(&home)?;
    fs::write(home.join("package.json"), &wanted)?;
    let mut npm = Command::new("npm");
    npm.args(["install", "--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error"])
        .arg("--fetch-retries=1");
    must(quiet(&mut npm).current_dir(&home)).context("npm could not install them")?;
    fs::write(done, wanted)?;
    Ok((found, Some("BullMQ and graphile-worker with npm below the target directory".into())))
}

fn quiet(command: &mut Command) -> &mut Command {
    command.stdin(Stdio::null()).stdout(Stdio::null())
}

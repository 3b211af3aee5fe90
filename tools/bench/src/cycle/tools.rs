//! The peers' programs: found, or installed below the target directory, or named as missing. No service is started.

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
use crate::{Bench, Place};

/// What there is.
pub(super) struct Tools {
    pub(super) redis: Option<PathBuf>,
    pub(super) beanstalkd: Option<PathBuf>,
    /// Whether there is a PostgreSQL, with pgbench.
    pub(super) has_postgres: bool,
    pub(super) node: Option<NodeTools>,
}

/// A Node with the packages of tools/bench/assets/node/package.json.
pub(super) struct NodeTools {
    pub(super) program: PathBuf,
    pub(super) modules: PathBuf,
}

impl Tools {
    /// Looks for everything, and installs what may be installed.
    pub(super) fn ready(bench: &mut Bench, place: &Place) -> Self {
        let redis = Some(place.tools.join("bin/redis-server")).filter(|program| program.exists());
        if redis.is_none() {
            bench.skip("redis Lua and BullMQ", "there is no redis-server");
        }
        let beanstalkd = told(bench, "beanstalkd", beanstalkd(&place.tools));
        let node = told(bench, "BullMQ and graphile-worker", node(&place.tools));
        Self { redis, beanstalkd, has_postgres: has_postgres(bench), node }
    }
}

/// A thing, and how it was installed, if it was just now.
type Found<T> = (T, Option<String>);

/// The thing; how it was installed, or why it is not there, goes into the report.
fn told<T>(bench: &mut Bench, name: &str, found: anyhow::Result<Found<T>>) -> Option<T> {
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

/// The package would start a service: it is only unpacked, as anybody may.
fn beanstalkd(tools: &Path) -> anyhow::Result<Found<PathBuf>> {
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

/// Whether there is a PostgreSQL. Where its package starts a server, that is none of ours: ours has its own directory.
pub(super) fn has_postgres(bench: &mut Bench) -> bool {
    let has_all = || Postgres::programs().is_some_and(|bin| bin.join("pgbench").is_file());
    has_all() || debian_package(&mut bench.report, "PostgreSQL", "postgresql") && has_all()
}

/// Node, and the packages beside the other tools.
fn node(tools: &Path) -> anyhow::Result<Found<NodeTools>> {
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

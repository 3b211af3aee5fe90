//! Celery and RQ as contenders: two worker processes each, on a private Redis that syncs each
//! write. The Python scripts measure the time themselves, so that the start of Python does not
//! count.

use std::{
    env,
    ffi::{OsStr, OsString},
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use agenix_harness::report::{RunReport, must, root};
use anyhow::{Context, ensure};

use super::{
    CELERY, RQ, SLOTS,
    daemon::Daemon,
    workspace::{TaskKind, Workspace},
};
use crate::{
    measure::per_second,
    redis_server::{Persistence, RedisServer},
};

/// Packages of pip for one contender.
pub(super) struct Packages {
    name: &'static str,
    /// Directory below the tools
    home: &'static str,
    requirements: &'static [&'static str],
    /// Files that exist when all packages are installed
    installed: &'static [&'static str],
}

pub(super) const QUEUES: Packages = Packages {
    name: "Celery and RQ",
    home: "bench-python",
    requirements: &["celery[redis]", "rq"],
    installed: &["celery/__init__.py", "rq/__init__.py", "redis/__init__.py"],
};

pub(super) const HYPERQUEUE: Packages = Packages {
    name: super::HYPERQUEUE,
    home: "bench-hyperqueue",
    requirements: &["hyperqueue"],
    installed: &["hyperqueue/__init__.py", "cloudpickle/__init__.py", "tqdm/__init__.py"],
};

pub(super) const HYPERSHELL: Packages = Packages {
    name: super::HYPERSHELL,
    home: "bench-hypershell",
    requirements: &["hypershell"],
    installed: &["hypershell/__init__.py", "bin/hs"],
};

pub(super) const JOBD: Packages = Packages {
    name: super::JOBD,
    home: "bench-jobd",
    requirements: &["jobd[worker]"],
    installed: &["jobd/__init__.py", "psutil/__init__.py", "bin/jobd-worker"],
};

/// Returns the directory of the packages, which are installed if they are missing. Returns `None`
/// if the installation fails.
pub(super) fn packages(report: &mut RunReport, tools: &Path, packages: &Packages) -> Option<PathBuf> {
    let Packages { name, home, requirements, installed } = packages;
    let directory = tools.join(home);
    if installed.iter().all(|file| directory.join(file).is_file()) {
        return Some(directory);
    }
    println!("{name} is missing: installing it with pip");
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"])
        .args(["--retries", "1", "--target"])
        .arg(&directory)
        .args(*requirements)
        .env("PIP_ROOT_USER_ACTION", "ignore")
        .stdin(Stdio::null());
    match must(&mut pip) {
        Ok(()) => {
            report.installed(&format!("{name} with pip into target/tools/{home}"));
            Some(directory)
        }
        Err(error) => {
            // An incomplete installation would count as complete in the next run.
            let _removed = fs::remove_dir_all(&directory);
            report.skip(name, &format!("it could not be installed: {error:#}"));
            None
        }
    }
}

/// Returns the tasks per second from the output of a script, which is the time in seconds.
pub(super) fn rate(count: usize, output: &[u8]) -> anyhow::Result<f64> {
    let text = String::from_utf8_lossy(output);
    let seconds = text.trim().parse::<f64>().with_context(|| format!("the script printed '{text}'"))?;
    Ok(per_second(count, Duration::try_from_secs_f64(seconds)?))
}

/// Idle workers, and the script that gives them tasks.
pub(super) struct Team {
    // The workers are dropped first.
    _workers: Vec<Daemon>,
    _redis: RedisServer,
    url: String,
    path: OsString,
    script: &'static str,
}

impl Team {
    pub(super) fn celery(packages: &Path, tools: &Path, workspace: &Workspace) -> anyhow::Result<Self> {
        let args = [
            "celery",
            "--app",
            "celery_app",
            "worker",
            "--pool",
            "prefork",
            "--concurrency",
            SLOTS,
            "--loglevel",
            "WARNING",
            "--without-gossip",
            "--without-mingle",
            "--without-heartbeat",
        ];
        Self::start(CELERY, "celery_run.py", &[&args], packages, tools, workspace)
    }

    pub(super) fn rq(packages: &Path, tools: &Path, workspace: &Workspace) -> anyhow::Result<Self> {
        let args = ["rq.cli", "worker", "--quiet"];
        Self::start(RQ, "rq_run.py", &[&args, &args], packages, tools, workspace)
    }

    /// Starts the modules with their arguments, and waits until one task has run.
    fn start(
        name: &str,
        script: &'static str,
        modules: &[&[&str]],
        packages: &Path,
        tools: &Path,
        workspace: &Workspace,
    ) -> anyhow::Result<Self> {
        let path = env::join_paths([packages.to_owned(), root().join("tools/bench/assets/python")])?;
        let directory = workspace.lab.path().join(format!("{name}-redis"));
        let redis = RedisServer::start(tools, &directory, workspace.lab.key(), Persistence::Always)?;
        let url = format!("redis://:{}@127.0.0.1:{}/0", workspace.lab.key(), redis.port());
        let workers = modules.iter().enumerate().map(|(number, module)| {
            let mut worker = python(&url, &path);
            worker.arg("-m").args(*module);
            Daemon::start(&format!("{name}-{number}"), workspace, worker)
        });
        let team =
            Self { _workers: workers.collect::<anyhow::Result<_>>()?, _redis: redis, url, path, script };
        team.run(workspace, TaskKind::True, 1)?;
        Ok(team)
    }

    pub(super) fn run(&self, workspace: &Workspace, work: TaskKind, count: usize) -> anyhow::Result<f64> {
        let mut python = python(&self.url, &self.path);
        python
            .arg(root().join("tools/bench/assets/python").join(self.script))
            .args([work.id(), &count.to_string(), &workspace.argument(work, 0)])
            .current_dir(workspace.lab.path());
        let output = python.output().context("python3 cannot be started")?;
        let why = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success(),
            "{}: {}",
            self.script,
            why.trim().lines().last().unwrap_or_default()
        );
        rate(count, &output.stdout)
    }
}

/// Returns a Python command with the path for imports, and the URL of Redis.
fn python(url: &str, path: &OsStr) -> Command {
    let mut python = Command::new("python3");
    python
        .env("PYTHONPATH", path)
        // Python must not write compiled files beside the sources.
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("BENCH_REDIS", url)
        .env("RQ_REDIS_URL", url)
        .stdin(Stdio::null());
    python
}

//! Celery and RQ: two processes of workers each, behind a Redis of their own that syncs everything. Python measures itself,
//! so that its start does not count.

use std::{
    env,
    ffi::{OsStr, OsString},
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use agenix_harness::report::{Report, must, root};
use anyhow::{Context, ensure};

use super::{
    CELERY, RQ, SLOTS,
    daemon::Daemon,
    desk::{Desk, Work},
};
use crate::{
    measure::per_second,
    peers::{Persistence, Redis},
};

/// What pip is asked for.
pub(super) struct Packages {
    name: &'static str,
    /// Below the tools.
    home: &'static str,
    asked: &'static [&'static str],
    /// What is there when they are.
    installed: &'static [&'static str],
}

pub(super) const QUEUES: Packages = Packages {
    name: "Celery and RQ",
    home: "bench-python",
    asked: &["celery[redis]", "rq"],
    installed: &["celery/__init__.py", "rq/__init__.py", "redis/__init__.py"],
};

pub(super) const HYPERQUEUE: Packages = Packages {
    name: super::HYPERQUEUE,
    home: "bench-hyperqueue",
    asked: &["hyperqueue"],
    installed: &["hyperqueue/__init__.py", "cloudpickle/__init__.py", "tqdm/__init__.py"],
};

/// The directory of the packages, installed where they are missing and can be.
pub(super) fn packages(report: &mut Report, tools: &Path, packages: &Packages) -> Option<PathBuf> {
    let Packages { name, home, asked, installed } = packages;
    let directory = tools.join(home);
    if installed.iter().all(|file| directory.join(file).is_file()) {
        return Some(directory);
    }
    println!("{name} is missing: installing it with pip");
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"])
        .args(["--retries", "1", "--target"])
        .arg(&directory)
        .args(*asked)
        .env("PIP_ROOT_USER_ACTION", "ignore")
        .stdin(Stdio::null());
    match must(&mut pip) {
        Ok(()) => {
            report.installed(&format!("{name} with pip into target/tools/{home}"));
            Some(directory)
        }
        Err(error) => {
            // What is there in part would be taken for the whole the next time.
            let _removed = fs::remove_dir_all(&directory);
            report.skip(name, &format!("it could not be installed: {error:#}"));
            None
        }
    }
}

/// How many tasks a second that is, when a script says how many seconds they took.
pub(super) fn rate(count: usize, said: &[u8]) -> anyhow::Result<f64> {
    let said = String::from_utf8_lossy(said);
    let seconds = said.trim().parse::<f64>().with_context(|| format!("the script said '{said}'"))?;
    Ok(per_second(count, Duration::try_from_secs_f64(seconds)?))
}

/// Workers that wait, and the script that gives them tasks.
pub(super) struct Team {
    // The first to be dropped.
    _workers: Vec<Daemon>,
    _redis: Redis,
    url: String,
    path: OsString,
    script: &'static str,
}

impl Team {
    pub(super) fn celery(packages: &Path, tools: &Path, desk: &Desk) -> anyhow::Result<Self> {
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
        Self::start(CELERY, "celery_run.py", &[&args], packages, tools, desk)
    }

    pub(super) fn rq(packages: &Path, tools: &Path, desk: &Desk) -> anyhow::Result<Self> {
        let args = ["rq.cli", "worker", "--quiet"];
        Self::start(RQ, "rq_run.py", &[&args, &args], packages, tools, desk)
    }

    /// Starts the modules with their arguments, and waits until a task was done.
    fn start(
        name: &str,
        script: &'static str,
        modules: &[&[&str]],
        packages: &Path,
        tools: &Path,
        desk: &Desk,
    ) -> anyhow::Result<Self> {
        let path = env::join_paths([packages.to_owned(), root().join("tools/bench/assets/python")])?;
        let directory = desk.lab.path().join(format!("{name}-redis"));
        let redis = Redis::start(tools, &directory, desk.lab.key(), Persistence::Always)?;
        let url = format!("redis://:{}@127.0.0.1:{}/0", desk.lab.key(), redis.port());
        let workers = modules.iter().enumerate().map(|(number, module)| {
            let mut worker = python(&url, &path);
            worker.arg("-m").args(*module);
            Daemon::start(&format!("{name}-{number}"), desk, worker)
        });
        let team =
            Self { _workers: workers.collect::<anyhow::Result<_>>()?, _redis: redis, url, path, script };
        team.run(desk, Work::True, 1)?;
        Ok(team)
    }

    pub(super) fn run(&self, desk: &Desk, work: Work, count: usize) -> anyhow::Result<f64> {
        let mut python = python(&self.url, &self.path);
        python
            .arg(root().join("tools/bench/assets/python").join(self.script))
            .args([work.id(), &count.to_string(), &desk.argument(work, 0)])
            .current_dir(desk.lab.path());
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

/// Python with what the workers and the scripts import, and where their Redis is.
fn python(url: &str, path: &OsStr) -> Command {
    let mut python = Command::new("python3");
    python
        .env("PYTHONPATH", path)
        // No compiled files among the sources.
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("BENCH_REDIS", url)
        .env("RQ_REDIS_URL", url)
        .stdin(Stdio::null());
    python
}

//! jobd as a contender, from its Python package: a broker with an SQLite database, and a worker.
//! One command submits all tasks as an array, and another waits for the last of them.

use std::{
    net::TcpListener,
    path::{Path, PathBuf},
    process::Command,
};

use agenix_harness::tools;
use anyhow::{Context, ensure};
use serde_json::Value;

use super::{
    SLOTS,
    daemon::Daemon,
    workspace::{TaskKind, Workspace},
};

/// Programs that the worker finds. Without `systemd-run`, the worker starts a task by itself
/// instead of in a scope of systemd, which costs more and does not work in every container.
const PROGRAMS: [&str; 4] = ["true", "sh", "sort", "uniq"];

pub(super) struct Jobd {
    // The worker is dropped first.
    _worker: Daemon,
    _broker: Daemon,
    client: JobdClient,
}

/// Client, and the environment that it shares with the servers.
struct JobdClient {
    /// The interpreter itself, because a wrapper on PATH may need a shell.
    python: PathBuf,
    packages: PathBuf,
    port: String,
}

impl Jobd {
    /// Starts the broker and the worker, and runs one task.
    pub(super) fn start(packages: &Path, workspace: &Workspace) -> anyhow::Result<Self> {
        // The port is free again when the listener is dropped.
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port().to_string();
        let home = workspace.lab.path().join("jobd");
        for directory in ["config", "logs", "state", "bin"] {
            std::fs::create_dir_all(home.join(directory))?;
        }
        std::fs::write(home.join("config/projects.yaml"), "projects:\n  bench:\n    priority: 50\n")?;
        for program in PROGRAMS {
            let path = tools::on_path(program).with_context(|| format!("{program} is not on PATH"))?;
            std::os::unix::fs::symlink(path, home.join("bin").join(program))?;
        }
        let client = JobdClient { python: interpreter()?, packages: packages.to_owned(), port };
        let mut broker = client.command("jobd", workspace);
        broker
            .env("JOBD_CONFIG_DIR", home.join("config"))
            .env("JOBD_DB_URL", format!("sqlite:///{}", home.join("jobd.db").display()))
            .env("JOBD_LOGS_DIR", home.join("logs"))
            .env("JOBD_STATE_DIR", home.join("state"))
            .env("JOBD_PORT", &client.port);
        let broker = Daemon::start("jobd", workspace, broker)?;
        broker.wait(|| {
            client.command("job", workspace).arg("ping").output().is_ok_and(|ping| ping.status.success())
        })?;
        let mut worker = client.command("jobd-worker", workspace);
        worker.env("JOBD_WORKER_MAX_CONCURRENT_JOBS", SLOTS).env("PATH", home.join("bin"));
        let worker = Daemon::start("jobd-worker", workspace, worker)?;
        let jobd = Self { _worker: worker, _broker: broker, client };
        // An array has at least two jobs.
        jobd.run(workspace, TaskKind::True, 2)?;
        Ok(jobd)
    }

    pub(super) fn run(&self, workspace: &Workspace, work: TaskKind, count: usize) -> anyhow::Result<f64> {
        // The tasks append to the file by its name.
        drop(workspace.results_file()?);
        let line = workspace.appending_line();
        let members = count.to_string();
        let mut submit = vec!["submit", "--project", "bench", "--no-eta", "--count", &members, "--"];
        match work {
            TaskKind::True => submit.extend(["true", "{i}"]),
            TaskKind::Count => submit.extend(["sh", "-c", &line]),
        }
        workspace.rate(work, count, || {
            let submitted: Value = serde_json::from_str(&self.job(workspace, &submit)?)?;
            let array = format!("A{}", submitted["array_id"]);
            self.job(workspace, &["status", &array, "--watch", "--interval", "0.1"]).map(drop)
        })
    }

    /// Runs the client, and returns its output.
    fn job(&self, workspace: &Workspace, args: &[&str]) -> anyhow::Result<String> {
        let output = self.client.command("job", workspace).args(args).output()?;
        let why = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "job: {}", why.trim().lines().last().unwrap_or_default());
        Ok(String::from_utf8(output.stdout)?)
    }
}

impl JobdClient {
    /// Returns a program of the package, which knows the broker and the key of the workspace.
    fn command(&self, program: &str, workspace: &Workspace) -> Command {
        let mut command = Command::new(&self.python);
        command
            .arg(self.packages.join("bin").join(program))
            .env("PYTHONPATH", &self.packages)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("JOBD_URL", format!("http://127.0.0.1:{}", self.port))
            .env("JOBD_API_TOKEN", workspace.lab.key())
            .env("HOME", workspace.lab.path())
            .current_dir(workspace.lab.path());
        command
    }
}

/// Returns the path of the Python interpreter.
fn interpreter() -> anyhow::Result<PathBuf> {
    let output = Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output();
    let output = output.context("python3 cannot be started")?;
    Ok(PathBuf::from(String::from_utf8(output.stdout)?.trim()))
}

//! HyperShell as a contender, from its Python package, in its fastest mode: without a database,
//! without TLS on loopback, and with a hundred tasks in a bundle. HyperShell is a command that
//! starts a server and a client for one list of tasks, so its start is measured.

use std::{
    net::TcpListener,
    path::{Path, PathBuf},
    process::Command,
};

use super::{
    SLOTS, shell,
    workspace::{TaskKind, Workspace},
};

pub(super) struct HyperShell {
    packages: PathBuf,
}

impl HyperShell {
    /// Runs one task, to check that the package works.
    pub(super) fn start(packages: &Path, workspace: &Workspace) -> anyhow::Result<Self> {
        let hypershell = Self { packages: packages.to_owned() };
        hypershell.run(workspace, TaskKind::True, 1)?;
        Ok(hypershell)
    }

    pub(super) fn run(&self, workspace: &Workspace, work: TaskKind, count: usize) -> anyhow::Result<f64> {
        let template = match work {
            TaskKind::True => "true {}",
            TaskKind::Count => "sort {} | uniq -c",
        };
        // The port is free again when the listener is dropped.
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port().to_string();
        let mut cluster = Command::new("python3");
        cluster
            .arg(self.packages.join("bin/hs"))
            .args(["cluster", "--num-threads", SLOTS, "--no-db", "--no-tls", "--port", &port])
            .args(["--bundlesize", "100", "--bundlewait", "1", "--template", template])
            .env("PYTHONPATH", &self.packages)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("HYPERSHELL_LOGGING_LEVEL", "error")
            // HOME gets the settings and logs of HyperShell.
            .env("HOME", workspace.lab.path());
        shell::run(&mut cluster, workspace, work, count)
    }
}

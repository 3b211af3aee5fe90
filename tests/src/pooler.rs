//! pgbouncer process in front of a PostgreSQL, on a port of its own.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    process::{Child, Command, Stdio},
};

use tempfile::TempDir;

use crate::{Postgres, eventually, port::unused_port, postgres::unprivileged};

/// Running pgbouncer, which ends when this value is dropped.
pub struct Pooler {
    server: Child,
    port: u16,
    _dir: TempDir,
}

impl Pooler {
    /// Starts a pgbouncer with `pool_mode` set to `mode`, and with the required settings alone.
    pub fn start(to: &Postgres, mode: &str) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory can be made");
        let port = unused_port();
        let server = to.address().replace(':', " port=");
        let settings = format!(
            "[databases]\n* = host={server} user=agq\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n\
             auth_type = any\npool_mode = {mode}\nunix_socket_dir =\n"
        );
        let file = dir.path().join("pgbouncer.ini");
        fs::write(&file, settings).expect("the directory can be written");
        for (path, mode) in [(dir.path(), 0o755), (&file, 0o644)] {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("it is ours");
        }
        let mut command = Command::new(program());
        unprivileged(command.arg("--quiet").arg(&file).current_dir(dir.path()));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let server =
            command.spawn().expect("pgbouncer is installed: `cargo xtask` sees to that on Debian, as root");
        let mut is_ready = to.client("pg_isready");
        is_ready.env("PGHOST", "127.0.0.1").env("PGPORT", port.to_string()).arg("--quiet");
        eventually("an answer of pgbouncer", || {
            is_ready.status().is_ok_and(|status| status.success()).then_some(())
        });
        Self { server, port, _dir: dir }
    }

    /// Returns the URL of `database` through this pgbouncer.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://agq@127.0.0.1:{}/{database}", self.port)
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        // The pooler may have ended already.
        let _ended = self.server.kill();
        let _ended = self.server.wait();
    }
}

/// Returns the path of the program in Debian, or its name for a search of PATH if that path does
/// not exist.
fn program() -> &'static str {
    let debians = "/usr/sbin/pgbouncer";
    if fs::exists(debians).unwrap_or_default() { debians } else { "pgbouncer" }
}

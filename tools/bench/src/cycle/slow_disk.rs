//! Runs the cycle on a slow disk: a preloaded library (tools/bench/assets/slow_disk.c) adds two
//! milliseconds to each sync of the servers.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use agenix_harness::report::must;
use anyhow::{Context, ensure};
use tempfile::TempDir;

use super::{
    AGQ, POSTGRES, REDIS, SECTION, agenix,
    agq::{AgqServer, SyncMode},
    postgres, redis_lua,
    server::{directory, file},
    setting::Setting,
    span,
    tools::Tools,
    with_peer,
};
use crate::{Bench, Better, ContenderComparison, ProgramDirs};

const NOTE: &str = "the disk of this machine, with 2 ms added to every fsync and fdatasync";
/// Upper bound of the cycles per second of a client, whose submission and completion each wait for
/// a sync.
const MAX_PER_CLIENT: f64 = 1000.0 / (2.0 * 2.0);

pub(super) fn run(bench: &mut Bench, programs: &ProgramDirs, tools: &Tools) -> anyhow::Result<()> {
    let title = format!("slow disk, {}", Setting::SLOW_DISK.title());
    if !bench.wants(&title) {
        return Ok(());
    }
    let library = match Library::build() {
        Ok(library) => library,
        Err(error) => {
            bench.skip("slow disk", &format!("the library that delays syncs cannot be built: {error:#}"));
            return Ok(());
        }
    };
    let (setting, span, slow) = (Setting::SLOW_DISK, span(bench), Some(library.path.as_path()));
    let agq = AgqServer::start(&programs.bin, SyncMode::Always, slow)?;
    library.check(agq.pid())?;
    let mut agenix = agenix::clients(vec![agq], setting)?;
    let mut comparison = ContenderComparison::new(title, "cycles/s", Better::More)
        .with_note(NOTE)
        .with(AGQ, move || plausible(agenix.cycles_per_sec(span)?, setting));
    if let Some(program) = &tools.redis {
        let run = redis_lua::clients(program, setting, slow).and_then(|mut clients| {
            library.check(clients.server().server().pid())?;
            Ok(move || plausible(clients.cycles_per_sec(span)?, setting))
        });
        comparison = with_peer(bench, comparison, REDIS, run);
    }
    if tools.has_postgres {
        let run = postgres::queue(postgres::cluster(slow), setting).and_then(|mut queue| {
            library.check(queue.pid().context("PostgreSQL has ended")?)?;
            Ok(move || plausible(queue.cycles_per_sec(span)?, setting))
        });
        comparison = with_peer(bench, comparison, POSTGRES, run);
    }
    bench.compare(SECTION, comparison.with_goal(REDIS, 1.0, 1.2).with_goal(POSTGRES, 1.5, 1.9))
}

/// Returns an error for a rate that a slow disk does not allow, because then the server bypasses
/// the library.
fn plausible(rate: f64, setting: Setting) -> anyhow::Result<f64> {
    #[expect(clippy::cast_precision_loss, reason = "a few clients")]
    let most = setting.clients as f64 * MAX_PER_CLIENT;
    ensure!(rate <= most, "{rate:.0} cycles/s are more than the slow disk allows, {most:.0}");
    Ok(rate)
}

/// The library in a directory that all users can read, because PostgreSQL may run as another user.
struct Library {
    _dir: TempDir,
    path: PathBuf,
}

impl Library {
    fn build() -> anyhow::Result<Self> {
        ensure!(cfg!(target_os = "linux"), "LD_PRELOAD needs Linux");
        let dir = directory()?;
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755))?;
        let path = dir.path().join("slow_disk.so");
        must(compiler(&path).arg(file("slow_disk.c")).arg("-ldl"))?;
        Ok(Self { _dir: dir, path })
    }

    /// Checks that a process has loaded the library, because the loader only warns if it cannot.
    fn check(&self, pid: u32) -> anyhow::Result<()> {
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        let is_loaded = maps.contains(&self.path.display().to_string());
        ensure!(is_loaded, "the library that delays syncs was not loaded");
        Ok(())
    }
}

fn compiler(library: &Path) -> Command {
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-O2", "-o"]).arg(library);
    cc
}

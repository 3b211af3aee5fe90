//! The cycle on a disk that needs two milliseconds more for every sync, as a library makes each server believe
//! (tools/bench/assets/slow_disk.c).

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
    AGQ, POSTGRES, REDIS, SECTION,
    agq::{Agq, Durability},
    joined, ours, postgres, redis_lua,
    server::{directory, file},
    setting::Setting,
    span,
    tools::Tools,
};
use crate::{Bench, Better, Contest, Place};

const NOTE: &str = "as on the disk of this machine, and 2 ms more for every fsync and fdatasync";
/// The most cycles a second that a client can do: its submission and its completion wait for a sync each, one after the other.
const MOST_A_CLIENT: f64 = 1000.0 / (2.0 * 2.0);

/// The one contest of this kind.
pub(super) fn run(bench: &mut Bench, place: &Place, tools: &Tools) -> anyhow::Result<()> {
    let title = format!("slow disk, {}", Setting::SLOW_DISK.title());
    if !bench.wants(&title) {
        return Ok(());
    }
    let library = match Library::build() {
        Ok(library) => library,
        Err(error) => {
            bench.skip("slow disk", &format!("the library that slows it down cannot be made: {error:#}"));
            return Ok(());
        }
    };
    let (setting, span, slow) = (Setting::SLOW_DISK, span(bench), Some(library.path.as_path()));
    let agq = Agq::start(&place.bin, Durability::Always, slow)?;
    library.check(agq.pid())?;
    let mut ours = ours::crew(vec![agq], setting)?;
    let mut contest = Contest::new(title, "cycles/s", Better::More)
        .noting(NOTE)
        .with(AGQ, move || plausible(ours.cycles_per_sec(span)?, setting));
    if let Some(program) = &tools.redis {
        let run = redis_lua::crew(program, setting, slow).and_then(|mut crew| {
            library.check(crew.server().server().pid())?;
            Ok(move || plausible(crew.cycles_per_sec(span)?, setting))
        });
        contest = joined(bench, contest, REDIS, run);
    }
    if tools.has_postgres {
        let run = postgres::queue(postgres::cluster(slow), setting).and_then(|mut queue| {
            library.check(queue.pid().context("PostgreSQL has ended")?)?;
            Ok(move || plausible(queue.cycles_per_sec(span)?, setting))
        });
        contest = joined(bench, contest, POSTGRES, run);
    }
    bench.hold(SECTION, contest.against(REDIS, 1.0, 1.2).against(POSTGRES, 1.5, 1.9))
}

/// A figure that a slow disk allows. A server that syncs without asking the library would be faster.
fn plausible(rate: f64, setting: Setting) -> anyhow::Result<f64> {
    #[expect(clippy::cast_precision_loss, reason = "a few clients")]
    let most = setting.clients as f64 * MOST_A_CLIENT;
    ensure!(rate <= most, "{rate:.0} cycles/s are more than the slow disk allows, {most:.0}");
    Ok(rate)
}

/// The library, where everybody can read it.
struct Library {
    _dir: TempDir,
    path: PathBuf,
}

impl Library {
    fn build() -> anyhow::Result<Self> {
        ensure!(cfg!(target_os = "linux"), "only Linux loads it in this way");
        let dir = directory()?;
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755))?;
        let path = dir.path().join("slow_disk.so");
        must(compiler(&path).arg(file("slow_disk.c")).arg("-ldl"))?;
        Ok(Self { _dir: dir, path })
    }

    /// A library that cannot be loaded is only warned of. Only Linux says what is loaded into a process.
    fn check(&self, pid: u32) -> anyhow::Result<()> {
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        let is_loaded = maps.contains(&self.path.display().to_string());
        ensure!(is_loaded, "the library that slows the disk down was not loaded");
        Ok(())
    }
}

fn compiler(library: &Path) -> Command {
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-O2", "-o"]).arg(library);
    cc
}

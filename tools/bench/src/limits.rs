//! Section `limits`: measures the machine itself. The section starts processes, syncs files, and
//! sends a byte over loopback. These figures are upper bounds for the other sections.

use std::{
    fs::File,
    io::{self, Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    os::unix::fs::FileExt,
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, anyhow, ensure};
use e2e::Lab;

use super::{
    ProgramDirs,
    comparison::{Better, ContenderComparison},
    measure::{Bench, per_second},
};

const SECTION: &str = "limits";
const THIS: &str = "this machine";
/// A record that is appended to a file, and a page that is overwritten in a preallocated file.
const RECORD: [u8; 512] = [7; 512];
const PAGE: [u8; 4096] = [7; 4096];
const PAGES: u64 = 16 * 1024;

pub(crate) fn run(bench: &mut Bench, programs: &ProgramDirs) -> anyhow::Result<()> {
    let program = agenix_harness::tools::on_path("true").context("there is no `true` on PATH")?;
    // The lab is on the file system on which all servers have their data.
    let lab = Lab::with_binaries(programs.bin.clone());
    let spawns = bench.scaled(3000, 600);
    for threads in [1, 2] {
        let s = if threads == 1 { "" } else { "s" };
        let comparison = limit(format!("posix_spawn and wait of `true`, {threads} thread{s}"), "processes/s")
            .with(THIS, || spawn(&program, threads, spawns));
        bench.compare(SECTION, comparison)?;
    }
    let within = Duration::from_millis(if bench.is_quick { 300 } else { 1500 });
    let appended = lab.path().join("appended");
    bench.compare(
        SECTION,
        limit("append 512 B, fdatasync".into(), "syncs/s").with(THIS, || append(&appended, within)),
    )?;
    let allocated = allocate(&lab.path().join("allocated"))?;
    bench.compare(
        SECTION,
        limit("overwrite 4 KiB of a file that is there, fdatasync".into(), "syncs/s")
            .with(THIS, || overwrite(&allocated, within)),
    )?;
    bench.compare(
        SECTION,
        limit("1 byte there and back over loopback, 1 connection".into(), "round trips/s")
            .with(THIS, || ping_pong(within)),
    )
}

fn limit<'a>(title: String, unit: &'static str) -> ContenderComparison<'a> {
    ContenderComparison::new(title, unit, Better::More)
}

/// Starts `count` processes on `threads` threads, each of which waits for its process.
fn spawn(program: &Path, threads: usize, count: usize) -> anyhow::Result<f64> {
    let each = count / threads;
    let started = Instant::now();
    thread::scope(|scope| {
        let spawner = || -> anyhow::Result<()> {
            for _ in 0..each {
                let status = Command::new(program).status().context("`true` cannot be started")?;
                ensure!(status.success(), "`true` ended with {status}");
            }
            Ok(())
        };
        let spawners: Vec<_> = (0..threads).map(|_| scope.spawn(spawner)).collect();
        spawners
            .into_iter()
            .try_for_each(|spawner| spawner.join().map_err(|_| anyhow!("a thread panicked"))?)
    })?;
    Ok(per_second(each * threads, started.elapsed()))
}

/// Repeats `work` for the time `within`, and returns the repetitions per second.
fn rate(within: Duration, mut work: impl FnMut(u64) -> io::Result<()>) -> anyhow::Result<f64> {
    let started = Instant::now();
    let mut count = 0;
    while started.elapsed() < within {
        work(count)?;
        count += 1;
    }
    Ok(per_second(usize::try_from(count)?, started.elapsed()))
}

fn append(path: &Path, within: Duration) -> anyhow::Result<f64> {
    let mut file = File::create(path)?;
    rate(within, |_| file.write_all(&RECORD).and_then(|()| file.sync_data()))
}

/// Creates a file and writes all of its blocks, because the first sync of a new block writes
/// metadata, too.
fn allocate(path: &Path) -> anyhow::Result<File> {
    let file = File::create(path)?;
    for page in 0..PAGES {
        file.write_all_at(&[0; PAGE.len()], page * PAGE.len() as u64)?;
    }
    file.sync_all()?;
    Ok(file)
}

fn overwrite(file: &File, within: Duration) -> anyhow::Result<f64> {
    rate(within, |count| {
        file.write_all_at(&PAGE, count % PAGES * PAGE.len() as u64).and_then(|()| file.sync_data())
    })
}

fn ping_pong(within: Duration) -> anyhow::Result<f64> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let mut here = TcpStream::connect(listener.local_addr()?)?;
    let (mut there, _) = listener.accept()?;
    here.set_nodelay(true)?;
    there.set_nodelay(true)?;
    let echo = thread::spawn(move || {
        let mut byte = [0];
        // The loop ends when the other end is closed.
        while there.read_exact(&mut byte).and_then(|()| there.write_all(&byte)).is_ok() {}
    });
    let mut byte = [7];
    let trips = rate(within, |_| here.write_all(&byte).and_then(|()| here.read_exact(&mut byte)));
    drop(here);
    echo.join().map_err(|_| anyhow!("the echo panicked"))?;
    trips
}

//! Checks that the memory of `agx map --pipe` does not grow with its input.

use std::{
    fs::File,
    io::{self, Write},
    process::{Child, Stdio},
};

use e2e::{Lab, peak_memory_kib};

/// Bytes of stdin, which are well above the bound of memory.
const STREAM_BYTES: usize = 256 * 1024 * 1024;
/// Greatest peak of memory of agx, whose buffers for reading and submitting ahead have 16 and 64
/// MiB.
const MAX_KIB: u64 = 128 * 1024;
const LINE: &[u8; 64] = b"a line of text that is one of very many, as a log may have them\n";

/// Feeds an `agx map` with its own agq and worker. Returns an error message if the map fails.
pub(super) fn check(lab: &Lab) -> Option<String> {
    match peak(lab) {
        Ok(Some(kib)) if kib > MAX_KIB => {
            Some(format!("agx map --pipe had {kib} KiB of memory, and may have {MAX_KIB}"))
        }
        Ok(Some(_)) => None,
        Ok(None) => Some("agx map --pipe failed or lost bytes".into()),
        Err(error) => Some(format!("agx map --pipe could not be fed: {error}")),
    }
}

/// Returns the peak of agx's memory after it has read nearly all of the stream, or `None` if the
/// jobs did not get every byte.
fn peak(lab: &Lab) -> io::Result<Option<u64>> {
    let mut agx = lab.command("agx");
    agx.args(["map", "--pipe", "-j2", "--", "wc", "-c"]).env("TMPDIR", lab.path());
    let log = File::create(lab.path().join("agx-map.log"))?;
    let mut child = agx.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log).spawn()?;
    let fed = feed(&mut child);
    if fed.is_err() {
        child.kill()?;
    }
    let output = child.wait_with_output()?;
    let kib = fed?;
    let counts = String::from_utf8_lossy(&output.stdout);
    let counted: usize = counts.lines().filter_map(|line| line.trim().parse::<usize>().ok()).sum();
    Ok((output.status.success() && counted == STREAM_BYTES).then_some(kib))
}

/// Writes the stream. agx ends only after its stdin has ended, so its peak can still be read here.
fn feed(child: &mut Child) -> io::Result<u64> {
    let pid = child.id();
    let Some(mut stdin) = child.stdin.take() else { return Err(io::ErrorKind::BrokenPipe.into()) };
    let chunk = LINE.repeat(1024);
    for _ in 0..STREAM_BYTES / chunk.len() {
        stdin.write_all(&chunk)?;
    }
    peak_memory_kib(pid).ok_or_else(|| io::Error::other("the memory of agx could not be read"))
}

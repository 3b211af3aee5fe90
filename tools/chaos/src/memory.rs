//! Memory of `agx map --pipe`: what agx holds does not grow with what comes.

use std::{
    fs::{self, File},
    io::{self, Write},
    process::{Child, Stdio},
};

use e2e::Lab;

/// Bytes that come over stdin. All of them together are well above the bound.
const STREAM_BYTES: usize = 256 * 1024 * 1024;
/// Most memory that agx may have had. What it reads and submits ahead has bounds of 16 and 64 MiB.
const MOST_KIB: u64 = 128 * 1024;
const LINE: &[u8; 64] = b"a line of text that is one of very many, as a log may have them\n";

/// Feeds a map that has its own agq and worker. Returns what is wrong, if anything is.
pub(super) fn check(lab: &Lab) -> Option<String> {
    match peak(lab) {
        Ok(Some(kib)) if kib > MOST_KIB => {
            Some(format!("agx map --pipe had {kib} KiB of memory, and may have {MOST_KIB}"))
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

/// Writes the stream. agx ends only after its stdin has, so its peak can still be read here.
fn feed(child: &mut Child) -> io::Result<u64> {
    let pid = child.id();
    let Some(mut stdin) = child.stdin.take() else { return Err(io::ErrorKind::BrokenPipe.into()) };
    let piece = LINE.repeat(1024);
    for _ in 0..STREAM_BYTES / piece.len() {
        stdin.write_all(&piece)?;
    }
    peak_of(pid)
}

/// Returns the most memory that a process has had, in KiB.
fn peak_of(pid: u32) -> io::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok());
    kib.ok_or_else(|| io::Error::other("there is no VmHWM"))
}

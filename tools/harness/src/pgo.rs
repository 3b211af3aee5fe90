//! The programs as they are shipped (ADR 16): built so that they count what they do, set to work, and built again for what they did.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::SystemTime,
};

use anyhow::{Context, ensure};

use crate::{
    binaries::{self, PROGRAMS},
    report::{Report, must},
};

/// Builds them for a target, or for this machine, and says where they are; `None` where what merges counts is missing and cannot be
/// had. What they do meanwhile is `work`, which is told where they are. What was trained already and has not changed is as it was.
pub fn build(
    report: &mut Report,
    target: Option<&str>,
    work: impl FnOnce(&Path) -> anyhow::Result<()>,
) -> anyhow::Result<Option<PathBuf>> {
    let host = host()?;
    let Some(merger) = merger(report, &host)? else { return Ok(None) };
    let target = target.unwrap_or(&host);
    let home = binaries::target()?.join("trained").join(target);
    let (seen, profile, into) = (home.join("seen"), home.join("programs.profdata"), home.join("programs"));
    println!(
        "programs for {target} are trained: they are built twice, which takes some minutes where they have changed"
    );
    let counting = built(&home.join("counting"), target, &format!("-Cprofile-generate={}", seen.display()))?;
    if !is_current(&profile, &counting)? {
        // Of a profile cargo knows the name alone: it would take what was built for the one before.
        emptied(&into)?;
        emptied(&seen)?;
        work(&counting)?;
        merge(&merger, &seen, &profile)?;
    }
    built(&into, target, &format!("-Cprofile-use={}", profile.display())).map(Some)
}

/// The machine that all of this runs on, as Rust calls it.
fn host() -> anyhow::Result<String> {
    let said = said(Command::new("rustc").arg("-vV"))?;
    let host = said.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc does not say which machine this is")?.to_owned())
}

/// What makes one profile of many counts: it has to be of the compiler's own version, and rustup has it.
fn merger(report: &mut Report, host: &str) -> anyhow::Result<Option<PathBuf>> {
    let sysroot = said(Command::new("rustc").args(["--print", "sysroot"]))?;
    let program = Path::new(sysroot.trim()).join("lib/rustlib").join(host).join("bin/llvm-profdata");
    if program.is_file() {
        return Ok(Some(program));
    }
    println!("llvm-profdata is missing: rustup brings it");
    // Where there is no rustup, or it cannot reach anybody, there is none.
    let _status = Command::new("rustup").args(["component", "add", "llvm-tools"]).status();
    if program.is_file() {
        report.installed("llvm-tools with rustup");
        return Ok(Some(program));
    }
    report.skip(
        "training",
        "llvm-profdata is missing, and `rustup component add llvm-tools` does not bring it",
    );
    Ok(None)
}

/// What a command says, which has to succeed.
fn said(command: &mut Command) -> anyhow::Result<String> {
    let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
    ensure!(output.status.success(), "{command:?} ended with {}", output.status);
    Ok(String::from_utf8(output.stdout)?)
}

/// Builds them in a directory, with a flag for the compiler; where they are then. Whatever else is set for the compiler is left out: a
/// profile fits what was built in the same way alone.
fn built(directory: &Path, target: &str, flag: &str) -> anyhow::Result<PathBuf> {
    let mut build = binaries::shipped();
    build.args(["--target", target, "--target-dir"]).arg(directory);
    must(build.env_remove("RUSTFLAGS").env("CARGO_ENCODED_RUSTFLAGS", flag))?;
    Ok(directory.join(target).join("release"))
}

fn emptied(directory: &Path) -> anyhow::Result<()> {
    if directory.exists() {
        fs::remove_dir_all(directory)?;
    }
    Ok(fs::create_dir_all(directory)?)
}

/// Whether a profile is of these programs: there is one, and none of them was built since.
fn is_current(profile: &Path, programs: &Path) -> anyhow::Result<bool> {
    let Ok(made) = modified(profile) else { return Ok(false) };
    let built: Vec<SystemTime> =
        PROGRAMS.iter().map(|program| modified(&programs.join(program))).collect::<Result<_, _>>()?;
    Ok(built.into_iter().all(|built| built < made))
}

fn modified(path: &Path) -> std::io::Result<SystemTime> {
    fs::metadata(path)?.modified()
}

/// Makes one profile of everything that was counted.
fn merge(merger: &Path, seen: &Path, profile: &Path) -> anyhow::Result<()> {
    let counts: Vec<PathBuf> =
        fs::read_dir(seen)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?;
    // Each program leaves its own when it ends by itself.
    ensure!(counts.len() >= PROGRAMS.len(), "only {} programs have left what they counted", counts.len());
    must(Command::new(merger).args(["merge", "--sparse", "-o"]).arg(profile).args(counts))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::time::{Duration, SystemTime};

    use super::{PROGRAMS, emptied, is_current};

    #[test]
    fn a_profile_is_of_what_was_built_before_it() {
        let place = tempfile::tempdir().unwrap();
        let profile = place.path().join("programs.profdata");
        let touch = |name: &str, secs: u64| {
            let file = File::create(place.path().join(name)).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(secs)).unwrap();
        };
        PROGRAMS.iter().for_each(|program| touch(program, 10));
        assert!(!is_current(&profile, place.path()).unwrap(), "there is none");
        touch("programs.profdata", 20);
        assert!(is_current(&profile, place.path()).unwrap());
        touch(PROGRAMS[1], 30);
        assert!(!is_current(&profile, place.path()).unwrap());
        fs::remove_file(place.path().join(PROGRAMS[1])).unwrap();
        assert!(is_current(&profile, place.path()).is_err(), "what is not there was not built");
    }

    #[test]
    fn a_directory_that_is_emptied_is_there_and_has_nothing() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("a/b");
        emptied(&directory).unwrap();
        fs::write(directory.join("file"), "x").unwrap();
        emptied(&directory).unwrap();
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);
    }
}

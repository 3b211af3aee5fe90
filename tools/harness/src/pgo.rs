//! Profile-guided optimisation (PGO, ADR 16): builds instrumented programs, lets them work, merges
//! the profiles that they write, and builds the programs again with the merged profile.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::SystemTime,
};

use anyhow::{Context, ensure};

use crate::{
    binaries::{self, PROGRAMS},
    report::{RunReport, must},
};

/// Builds PGO-optimised programs for `target`, or for the host, and returns their directory. `work`
/// runs the instrumented programs, whose directory is its argument. `work` does not run if a
/// profile of the same instrumented programs exists. Returns `None` if `llvm-profdata` is missing
/// and cannot be installed.
pub fn build(
    report: &mut RunReport,
    target: Option<&str>,
    work: impl FnOnce(&Path) -> anyhow::Result<()>,
) -> anyhow::Result<Option<PathBuf>> {
    let host = host()?;
    let Some(profdata) = llvm_profdata(report, &host)? else { return Ok(None) };
    let target = target.unwrap_or(&host);
    let home = binaries::target()?.join("pgo").join(target);
    let (counts, profile, into) =
        (home.join("counts"), home.join("programs.profdata"), home.join("programs"));
    println!(
        "programs for {target} get profile-guided optimisation: they are built twice, which takes minutes if they have changed"
    );
    let instrumented =
        built(&home.join("instrumented"), target, &format!("-Cprofile-generate={}", counts.display()))?;
    if !is_current(&profile, &instrumented)? {
        // cargo compares only the name of the profile, so it would keep programs of an older one.
        emptied(&into)?;
        emptied(&counts)?;
        work(&instrumented)?;
        merge(&profdata, &counts, &profile)?;
    }
    built(&into, target, &format!("-Cprofile-use={}", profile.display())).map(Some)
}

/// Returns the target triple of this machine.
fn host() -> anyhow::Result<String> {
    let version = output(Command::new("rustc").arg("-vV"))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("`rustc -vV` has no line `host:`")?.to_owned())
}

/// Returns the path of `llvm-profdata` of the compiler's own version, which rustup installs if it
/// is missing.
fn llvm_profdata(report: &mut RunReport, host: &str) -> anyhow::Result<Option<PathBuf>> {
    let sysroot = output(Command::new("rustc").args(["--print", "sysroot"]))?;
    let program = Path::new(sysroot.trim()).join("lib/rustlib").join(host).join("bin/llvm-profdata");
    if program.is_file() {
        return Ok(Some(program));
    }
    println!("llvm-profdata is missing: installing it with rustup");
    // A failure shows in the missing program.
    let _status = Command::new("rustup").args(["component", "add", "llvm-tools"]).status();
    if program.is_file() {
        report.installed("llvm-tools with rustup");
        return Ok(Some(program));
    }
    report.skip(
        "profile-guided optimisation",
        "llvm-profdata is missing, and `rustup component add llvm-tools` does not install it",
    );
    Ok(None)
}

/// Runs a command, which has to succeed, and returns its stdout.
fn output(command: &mut Command) -> anyhow::Result<String> {
    let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
    ensure!(output.status.success(), "{command:?} ended with {}", output.status);
    Ok(String::from_utf8(output.stdout)?)
}

/// Builds the programs below `directory` with one flag for the compiler, and returns their
/// directory. Other flags from the environment are left out, because a profile fits only programs
/// that were built with the same flags.
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

/// Returns true if the profile exists and is newer than each of the instrumented programs.
fn is_current(profile: &Path, programs: &Path) -> anyhow::Result<bool> {
    let Ok(made) = modified(profile) else { return Ok(false) };
    let built: Vec<SystemTime> =
        PROGRAMS.iter().map(|program| modified(&programs.join(program))).collect::<Result<_, _>>()?;
    Ok(built.into_iter().all(|built| built < made))
}

fn modified(path: &Path) -> std::io::Result<SystemTime> {
    fs::metadata(path)?.modified()
}

/// Merges the files in `counts` into one profile.
fn merge(profdata: &Path, counts: &Path, profile: &Path) -> anyhow::Result<()> {
    let counts: Vec<PathBuf> =
        fs::read_dir(counts)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?;
    // A program writes its file when it exits by itself.
    ensure!(counts.len() >= PROGRAMS.len(), "only {} programs have written a profile", counts.len());
    must(Command::new(profdata).args(["merge", "--sparse", "-o"]).arg(profile).args(counts))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::time::{Duration, SystemTime};

    use super::{PROGRAMS, emptied, is_current};

    #[test]
    fn pgo_profile_is_current_until_a_program_is_built_again() {
        let place = tempfile::tempdir().unwrap();
        let profile = place.path().join("programs.profdata");
        let touch = |name: &str, secs: u64| {
            let file = File::create(place.path().join(name)).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(secs)).unwrap();
        };
        PROGRAMS.iter().for_each(|program| touch(program, 10));
        assert!(!is_current(&profile, place.path()).unwrap(), "there is no profile");
        touch("programs.profdata", 20);
        assert!(is_current(&profile, place.path()).unwrap());
        touch(PROGRAMS[1], 30);
        assert!(!is_current(&profile, place.path()).unwrap());
        fs::remove_file(place.path().join(PROGRAMS[1])).unwrap();
        assert!(is_current(&profile, place.path()).is_err(), "a program is missing");
    }

    #[test]
    fn emptied_creates_a_directory_and_removes_its_content() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("a/b");
        emptied(&directory).unwrap();
        fs::write(directory.join("file"), "x").unwrap();
        emptied(&directory).unwrap();
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);
    }
}

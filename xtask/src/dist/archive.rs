//! Archives of programs, of debug information, and of the source with its Homebrew formula.

use std::{fs, path::Path, process::Command};

use agenix_harness::{
    binaries::PROGRAMS,
    report::{must, root},
};
use anyhow::{Context, bail, ensure};

use super::{manuals, symbols::debug_file};

/// Files that are packed with the programs.
const EXTRAS: [&str; 5] = ["README.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE", "packaging/systemd"];

/// Creates the directory, or removes the files of an earlier run. Other files in the directory are
/// an error.
pub(super) fn cleared(out: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(out)?;
    for entry in fs::read_dir(out)? {
        let (path, name) = entry.map(|entry| (entry.path(), entry.file_name()))?;
        let is_ours = name.to_string_lossy().starts_with("agenix") || name == "SHA256SUMS";
        ensure!(is_ours, "the directory has another file: {}", path.display());
        fs::remove_file(path)?;
    }
    Ok(())
}

/// Makes an archive of the programs, their man pages and completions.
pub(super) fn of_programs(bin: &Path, name: &str, out: &Path) -> anyhow::Result<()> {
    let stage = tempfile::tempdir()?;
    let top = stage.path().join(name);
    fs::create_dir(&top)?;
    for program in PROGRAMS {
        fs::copy(bin.join(program), top.join(program))?;
    }
    for extra in EXTRAS.map(|extra| root().join(extra)).iter().chain([&manuals::directory(bin)]) {
        must(Command::new("cp").arg("-R").arg(extra).arg(&top))?;
    }
    packed(stage.path(), name, out)
}

/// Makes an archive of the debug information of the programs.
pub(super) fn of_symbols(bin: &Path, name: &str, out: &Path) -> anyhow::Result<()> {
    let stage = tempfile::tempdir()?;
    let top = stage.path().join(name);
    fs::create_dir(&top)?;
    for program in PROGRAMS {
        fs::copy(debug_file(bin, program), debug_file(&top, program))?;
    }
    packed(stage.path(), name, out)
}

/// Packs the directory `name` of `stage`.
fn packed(stage: &Path, name: &str, out: &Path) -> anyhow::Result<()> {
    let archive = out.join(format!("{name}.tar.gz"));
    // The archive is reproducible: it has no times, and no users of this machine.
    let reproducible = ["--sort=name", "--mtime=@0", "--owner=0", "--group=0", "--numeric-owner"];
    must(Command::new("tar").args(reproducible).arg("-C").arg(stage).arg("-czf").arg(archive).arg(name))
}

/// Makes an archive of the committed source, and the formula with its checksum.
pub(super) fn of_source(version: &str, out: &Path) -> anyhow::Result<()> {
    let (name, file) = (format!("agenix-{version}"), format!("agenix-{version}.tar.gz"));
    let archive = out.join(file);
    let mut git = Command::new("git");
    git.current_dir(root()).args(["archive", "--format=tar.gz", &format!("--prefix={name}/"), "-o"]);
    must(git.arg(&archive).arg("HEAD"))?;
    let formula = fs::read_to_string(root().join("packaging/homebrew/agenix.rb"))?;
    let formula = formula
        .replace("@VERSION@", version)
        .replace("@HOMEPAGE@", env!("CARGO_PKG_REPOSITORY"))
        .replace("@SHA256@", &sum(&archive)?);
    Ok(fs::write(out.join("agenix.rb"), formula)?)
}

/// Writes the checksums of all files in the format of `sha256sum --check`.
pub(super) fn sums(out: &Path) -> anyhow::Result<()> {
    let list = out.join("SHA256SUMS");
    let mut names: Vec<_> = fs::read_dir(out)?.collect::<Result<_, _>>()?;
    names.retain(|entry| entry.path().is_file() && entry.path() != list);
    names.sort_by_key(fs::DirEntry::file_name);
    let mut lines = String::new();
    for entry in names {
        lines += &format!("{}  {}\n", sum(&entry.path())?, entry.file_name().display());
    }
    print!("{lines}");
    Ok(fs::write(list, lines)?)
}

fn sum(file: &Path) -> anyhow::Result<String> {
    let output = Command::new("sha256sum").arg(file).output().context("cannot start sha256sum")?;
    let text = String::from_utf8(output.stdout)?;
    match text.split_once(' ') {
        Some((sum, _)) if output.status.success() => Ok(sum.to_owned()),
        _ => bail!("sha256sum cannot read {}", file.display()),
    }
}

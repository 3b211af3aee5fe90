//! Splits programs into a stripped program and a file of debug information.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use agenix_harness::{binaries::PROGRAMS, report::must};
use anyhow::Context;

/// Copies the programs of `bin` into `into` without debug information, which goes into a file
/// beside each program. Debuggers, and the backtraces of Rust, find the file by the name in the
/// program.
pub(super) fn split(bin: &Path, into: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(into)?;
    for program in PROGRAMS {
        let (built, stripped, debug) = (bin.join(program), into.join(program), debug_file(into, program));
        let run = |command: &str, args: &[&str], files: &[&Path]| {
            must(Command::new(command).args(args).args(files).current_dir(into))
        };
        run("objcopy", &["--only-keep-debug"], &[&built, &debug])?;
        run("strip", &["-o"], &[&stripped, &built])?;
        let name = debug.file_name().context("a debug file has a name")?;
        run("objcopy", &["--add-gnu-debuglink"], &[Path::new(name), &stripped])?;
    }
    Ok(())
}

/// Returns the path of the debug information of a program.
pub(super) fn debug_file(bin: &Path, program: &str) -> PathBuf {
    bin.join(format!("{program}.debug"))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::fs;

    use super::{PROGRAMS, debug_file, split};

    #[test]
    fn split_strips_programs_and_names_their_debug_files() {
        let home = tempfile::tempdir().unwrap();
        let (bin, into) = (home.path().join("bin"), home.path().join("into"));
        fs::create_dir(&bin).unwrap();
        let this_test = std::env::current_exe().unwrap();
        for program in PROGRAMS {
            fs::copy(&this_test, bin.join(program)).unwrap();
        }
        split(&bin, &into).unwrap();
        let size = |path| fs::metadata(path).unwrap().len();
        for program in PROGRAMS {
            let (built, stripped) = (bin.join(program), into.join(program));
            assert!(size(stripped.clone()) < size(built));
            assert!(size(debug_file(&into, program)) > 0);
            let name = format!("{program}.debug");
            let content = fs::read(stripped).unwrap();
            assert!(content.windows(name.len()).any(|part| part == name.as_bytes()));
        }
    }
}

//! Man pages and completions, which the programs themselves write.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use agenix_harness::{binaries::PROGRAMS, report::must};
use anyhow::ensure;

/// Shells, with the prefix and the suffix of the names of their completion files.
const SHELLS: [(&str, &str, &str); 3] = [("bash", "", ""), ("zsh", "_", ""), ("fish", "", ".fish")];

/// Returns the directory of man pages and completions, which is beside the programs.
pub(super) fn directory(bin: &Path) -> PathBuf {
    bin.join("share")
}

/// Writes man pages and completions of all programs.
pub(super) fn make(bin: &Path) -> anyhow::Result<()> {
    let share = directory(bin);
    if share.exists() {
        fs::remove_dir_all(&share)?;
    }
    for program in PROGRAMS {
        let run = || Command::new(bin.join(program));
        must(run().arg("man").arg(share.join("man")))?;
        for (shell, before, after) in SHELLS {
            let completions = run().args(["completions", shell]).output()?;
            ensure!(completions.status.success(), "{program} completions {shell} has failed");
            fs::create_dir_all(share.join(shell))?;
            fs::write(share.join(shell).join(format!("{before}{program}{after}")), completions.stdout)?;
        }
    }
    Ok(())
}

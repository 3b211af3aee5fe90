//! Man pages and completions, as the programs write them.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use agenix_harness::{binaries::PROGRAMS, report::must};
use anyhow::ensure;

/// Where completions are put, and what their files are called there, by shell.
const SHELLS: [(&str, &str, &str); 3] = [("bash", "", ""), ("zsh", "_", ""), ("fish", "", ".fish")];

/// Where they are, beside the programs.
pub(super) fn place(bin: &Path) -> PathBuf {
    bin.join("share")
}

/// Lets the programs write them.
pub(super) fn make(bin: &Path) -> anyhow::Result<()> {
    let share = place(bin);
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

//! `agq completions` and `agq man`: generates shell completions and man pages from the command
//! line.

use std::path::Path;

use anyhow::Context;
use clap::CommandFactory;
use clap_complete::Shell;

use super::print;
use crate::config::Cli;

pub(super) fn completions(shell: Shell) -> anyhow::Result<()> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "agq", &mut text);
    print(&text)
}

pub(super) fn man(directory: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(directory)
        .and_then(|()| clap_mangen::generate_to(Cli::command(), directory))
        .with_context(|| format!("cannot write into {}", directory.display()))
}

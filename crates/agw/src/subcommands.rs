//! Commands of agw besides the worker itself: `completions`, `man` and `sandbox`.

use std::{io::Write, process::ExitCode};

use anyhow::Context;
use clap::CommandFactory;

use crate::{
    config::{Cli, Command},
    sandbox_check,
};

pub(crate) fn run(command: &Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Completions { shell } => {
            let mut text = Vec::new();
            clap_complete::generate(*shell, &mut Cli::command(), "agw", &mut text);
            print(&text)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Man { directory } => {
            let cannot = || format!("the man page could not be written into {}", directory.display());
            std::fs::create_dir_all(directory).with_context(cannot)?;
            clap_mangen::generate_to(Cli::command(), directory).with_context(cannot)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Sandbox { json } => {
            let (text, code) = sandbox_check::run(*json)?;
            print(text.as_bytes())?;
            Ok(code)
        }
    }
}

fn print(text: &[u8]) -> anyhow::Result<()> {
    let written = agenix_cli::stdout().and_then(|mut out| {
        out.write_all(text)?;
        out.flush()
    });
    written.context("the output could not be written")
}

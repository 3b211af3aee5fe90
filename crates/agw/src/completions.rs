//! Commands `agw completions` and `agw man`: print shell completions, and write the man page.

use std::io::Write;

use clap::CommandFactory;

use crate::config::{Cli, Command};

/// Runs `command`, and returns an error if its output cannot be written.
pub(crate) fn run(command: &Command) -> std::io::Result<()> {
    match command {
        Command::Completions { shell } => {
            let mut text = Vec::new();
            clap_complete::generate(*shell, &mut Cli::command(), "agw", &mut text);
            let mut out = agenix_cli::stdout()?;
            out.write_all(&text)?;
            out.flush()
        }
        Command::Man { directory } => {
            std::fs::create_dir_all(directory)?;
            clap_mangen::generate_to(Cli::command(), directory)
        }
    }
}

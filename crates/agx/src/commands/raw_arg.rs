//! `--raw` of the commands that print the output of tasks.

use clap::Args;

use crate::output::OutputFormat;

#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct RawArg {
    /// Write the output of tasks to a terminal unchanged, for colours and progress bars; otherwise
    /// agx escapes control characters there. Pipes and files always get the bytes unchanged
    #[arg(long)]
    raw: bool,
}

impl RawArg {
    pub(super) fn apply(self, output: OutputFormat) -> OutputFormat {
        OutputFormat { is_raw: self.raw, ..output }
    }
}

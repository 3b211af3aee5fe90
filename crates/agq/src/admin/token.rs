//! `agq token`: the line that makes another machine a worker.

use std::io::{IsTerminal, Write};

use secrecy::ExposeSecret;

use super::say;
use crate::config::TokenArgs;

/// Prints the line, and to a person what it is.
pub(super) fn token(args: &TokenArgs) -> anyhow::Result<()> {
    let token = args.token()?;
    if std::io::stdout().is_terminal() {
        // Whether anyone reads stderr is not ours to judge.
        let _unread = writeln!(
            std::io::stderr(),
            "On the other machine, with agx and agw installed; it holds the key, so hand it on with care:\n"
        );
    }
    say(&format!("agx join {}", token.encode().expose_secret()))
}

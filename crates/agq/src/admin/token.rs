//! `agq token`: prints a token with which another machine becomes a worker of this agq.

use std::io::{IsTerminal, Write};

use secrecy::ExposeSecret;

use super::say;
use crate::config::TokenArgs;

/// Prints the token on stdout. If stdout is a terminal, also prints an explanation on stderr.
pub(super) fn token(args: &TokenArgs) -> anyhow::Result<()> {
    let token = args.token()?;
    if std::io::stdout().is_terminal() {
        // Nothing is left to do if stderr cannot be written.
        let _unread = writeln!(
            std::io::stderr(),
            "On the other machine, with agx and agw installed; it holds the key, so hand it on with care:\n"
        );
    }
    say(&format!("agx join {}", token.encode().expose_secret()))
}

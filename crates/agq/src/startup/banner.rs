//! Lines that the server prints at its start.

use std::io::{IsTerminal, Write};

use tracing::warn;

use crate::config::{ServerConfig, StoreLocation};

/// A key that was generated for this run is printed on a terminal only.
pub(crate) fn print_banner(config: &ServerConfig, addresses: &[String]) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    let (version, listed) = (env!("CARGO_PKG_VERSION"), addresses.join(", "));
    match &config.store {
        StoreLocation::DataDir => {
            writeln!(out, "agq {version} listens on {listed}, data in {}", config.data_dir.display())?;
        }
        StoreLocation::Postgres { .. } => {
            writeln!(out, "agq {version} listens on {listed}, data in PostgreSQL")?;
        }
    }
    if let Some(key) = &config.random_key {
        if out.is_terminal() {
            let (key, address) = (key.reveal(), addresses.first().map_or("", String::as_str));
            writeln!(
                out,
                "\nNo session key was given, so agq has generated one for this run. In another shell:\n"
            )?;
            writeln!(out, "  export AGQ_ADDR={address} AGQ_SESSION_KEY={key}")?;
            writeln!(out, "  agw                                   # a worker on this machine")?;
            writeln!(out, "  agx plan submit plan.json             # and a plan for it\n")?;
        } else {
            warn!(
                "no session key was given and there is no terminal to print one on: only keys of the config file can log in; set AGQ_SESSION_KEY or --session-key-file"
            );
        }
    }
    Ok(out.flush()?)
}

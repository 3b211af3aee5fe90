//! Log on stderr, filtered by `AGQ_LOG`.

use std::io::IsTerminal;

use agenix_cli::log::OneLineFields;
use tracing_subscriber::{EnvFilter, fmt::MakeWriter};

/// `AGQ_LOG` has the syntax of `RUST_LOG`: `info`, `debug`, `agq::server=trace`.
pub(crate) fn start() {
    let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    start_on(std::io::stderr, colour);
}

/// Drops a line that `writer` does not take. By default the subscriber reports the failed write on
/// stderr, and panics in the thread that logged if that report fails as well.
pub(crate) fn start_on(writer: impl for<'w> MakeWriter<'w> + Send + Sync + 'static, colour: bool) {
    let filter = EnvFilter::try_from_env("AGQ_LOG").unwrap_or_else(|_| EnvFilter::new("info,sqlx=warn"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(writer)
        .with_ansi(colour)
        .with_target(false)
        .fmt_fields(OneLineFields::default())
        .log_internal_errors(false)
        .init();
}

//! Log on stderr, filtered by `AGQ_LOG`.

use std::io::IsTerminal;

use agenix_cli::log::{OneLineFields, filter, has_colours};
use tracing_subscriber::fmt::MakeWriter;

/// `AGQ_LOG` has the syntax of `RUST_LOG`: `info`, `debug`, `agq::server=trace`.
pub(crate) fn start() {
    let no_color = std::env::var_os("NO_COLOR");
    start_on(std::io::stderr, has_colours(std::io::stderr().is_terminal(), no_color.as_deref()));
}

/// Drops a line that `writer` does not take. By default the subscriber reports the failed write on
/// stderr, and panics in the thread that logged if that report fails as well.
pub(crate) fn start_on(writer: impl for<'w> MakeWriter<'w> + Send + Sync + 'static, colour: bool) {
    let given = std::env::var("AGQ_LOG").ok();
    tracing_subscriber::fmt()
        .with_env_filter(filter(given.as_deref(), "info,sqlx=warn"))
        .with_writer(writer)
        .with_ansi(colour)
        .with_target(false)
        .fmt_fields(OneLineFields::default())
        .log_internal_errors(false)
        .init();
}

//! Settings of a log, and the fields of its lines. Texts from other machines cannot add lines to a
//! log, nor act on the terminal that shows it.

use std::{
    ffi::OsStr,
    fmt::{self, Debug},
};

use agenix_protocol::printable::one_line;
use tracing::field::{Field, Visit};
use tracing_subscriber::{
    EnvFilter,
    field::{MakeVisitor, VisitFmt, VisitOutput},
    fmt::format::{DefaultFields, DefaultVisitor, Writer},
};

/// Returns the filter in `value`, the value of a variable with the syntax of `RUST_LOG`, or the
/// filter `default` if the variable is not set, has no directive, or cannot be parsed.
#[must_use]
pub fn filter(value: Option<&str>, default: &str) -> EnvFilter {
    // Without a directive, a filter drops all lines, errors too.
    let has_directive = |text: &&str| text.contains(|c: char| c != ',' && !c.is_whitespace());
    let given = value.filter(has_directive).and_then(|text| EnvFilter::try_new(text).ok());
    given.unwrap_or_else(|| EnvFilter::new(default))
}

/// Returns true if a log has colours. `no_color` is the value of the variable `NO_COLOR`, and an
/// empty one counts as not set.
#[must_use]
pub fn has_colours(is_terminal: bool, no_color: Option<&OsStr>) -> bool {
    is_terminal && no_color.is_none_or(OsStr::is_empty)
}

/// Formatter of fields that writes the value of each field on one line, and escapes its hidden
/// characters. Everything else is as with [`DefaultFields`], such as the colours.
#[derive(Debug, Default)]
pub struct OneLineFields(DefaultFields);

/// Visitor of [`OneLineFields`].
#[derive(Debug)]
pub struct OneLineVisitor<'w>(DefaultVisitor<'w>);

impl<'w> MakeVisitor<Writer<'w>> for OneLineFields {
    type Visitor = OneLineVisitor<'w>;

    fn make_visitor(&self, target: Writer<'w>) -> Self::Visitor {
        OneLineVisitor(self.0.make_visitor(target))
    }
}

impl Visit for OneLineVisitor<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            self.record_debug(field, &format_args!("{value}"));
        } else {
            self.record_debug(field, &value);
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.record_debug(field, &format_args!("{}", one_line(&format!("{value:?}"))));
    }
}

impl VisitOutput<fmt::Result> for OneLineVisitor<'_> {
    fn finish(self) -> fmt::Result {
        self.0.finish()
    }
}

impl VisitFmt for OneLineVisitor<'_> {
    fn writer(&mut self) -> &mut dyn fmt::Write {
        self.0.writer()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        ffi::OsStr,
        io::{self, Write},
        sync::{Arc, Mutex},
    };

    use super::{OneLineFields, filter, has_colours};

    #[derive(Clone, Default)]
    struct LogBuffer(Arc<Mutex<Vec<u8>>>);

    impl Write for LogBuffer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Returns the text that `log` writes to a log.
    fn logged(colour: bool, log: impl FnOnce()) -> String {
        let buffer = LogBuffer::default();
        let writer = buffer.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(move || writer.clone())
            .with_ansi(colour)
            .without_time()
            .with_target(false)
            .fmt_fields(OneLineFields::default())
            .finish();
        tracing::subscriber::with_default(subscriber, log);
        String::from_utf8(buffer.0.lock().unwrap().clone()).unwrap()
    }

    const HOSTILE: &str = "no\r\n WARN forged\u{1b}[2J\u{9b}1m\u{7f}\u{85}\u{2028}\u{2029}\u{202e}é";
    const SHOWN: &str = r"no\r\n WARN forged\x1b[2J\u009b1m\u007f\u0085\u2028\u2029\u202eé";

    #[test]
    fn log_filter_without_a_directive_is_the_default() {
        let shown = |value: Option<&str>| filter(value, "info").to_string();
        for value in [None, Some(""), Some(" "), Some(","), Some(" , "), Some("agq=loud")] {
            assert_eq!(shown(value), "info", "{value:?}");
        }
        assert_eq!(shown(Some("debug")), "debug");
        assert_eq!(shown(Some("off")), "off");
    }

    #[test]
    fn log_has_colours_on_a_terminal_unless_no_color_has_a_value() {
        for (is_terminal, no_color, expected) in
            [(true, None, true), (true, Some(""), true), (true, Some("1"), false), (false, None, false)]
        {
            assert_eq!(has_colours(is_terminal, no_color.map(OsStr::new)), expected, "{no_color:?}");
        }
    }

    #[test]
    fn log_fields_take_one_line() {
        assert_eq!(
            logged(false, || tracing::warn!("refused: {HOSTILE}")),
            format!(" WARN refused: {SHOWN}\n")
        );
        let error = io::Error::other(HOSTILE);
        let line = logged(false, || tracing::info!(%error, job = 1, "it failed"));
        assert_eq!(line, format!(" INFO it failed error={SHOWN} job=1\n"));
        let line = logged(false, || tracing::info!(error = &error as &dyn std::error::Error, "it failed"));
        assert_eq!(line, format!(" INFO it failed error={SHOWN}\n"));
        let line = logged(false, || tracing::info!(name = HOSTILE, list = ?["a\n\u{1b}"]));
        assert_eq!(line.matches('\n').count(), 1, "{line}");
        assert!(!line.trim_end().contains(char::is_control), "{line}");
    }

    #[test]
    fn log_lines_keep_their_colours() {
        let line = logged(true, || tracing::warn!(reason = %HOSTILE, "refused"));
        assert!(line.starts_with("\u{1b}[33m WARN\u{1b}[0m refused \u{1b}[3mreason\u{1b}[0m"), "{line:?}");
        assert!(line.ends_with(&format!("{SHOWN}\n")), "{line:?}");
    }
}

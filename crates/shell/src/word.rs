//! A word of the shell as a text of a plan: quotes removed as POSIX says, placeholders put in.

use brush_parser::{
    ParserOptions,
    ast::Word,
    word::{self, WordPiece, WordPieceWithSource},
};

use crate::refusal::{No, place};

/// What stands between braces, as a text of a plan: `input.file`, without its braces, becomes `{{input.file}}`, and what is no
/// placeholder None.
pub type Placeholders<'p> = &'p dyn Fn(&str) -> Option<String>;

/// The text of `word`.
pub(crate) fn text(
    word: &Word,
    options: &ParserOptions,
    placeholders: Placeholders<'_>,
) -> Result<String, No> {
    let at = word.loc.as_ref().map_or((0, word.value.chars().count()), place);
    let pieces = word::parse(&word.value, options)
        .map_err(|_| No::new(at, "this word cannot be read as a shell would", "look at its quotes"))?;
    let mut reading = Reading { source: &word.value, at, text: String::new() };
    reading.pieces(&pieces, false)?;
    filled(&reading.text, placeholders).map_err(|what| no_placeholder(at, what))
}

/// Braces that are no placeholder.
pub(crate) fn no_placeholder(at: (usize, usize), what: String) -> No {
    No::new(at, what, "separate the two braces, as in `{ {`, or write {input.FIELD} for a field of the input")
}

/// A word that is being read.
struct Reading<'w> {
    source: &'w str,
    at: (usize, usize),
    text: String,
}

impl Reading<'_> {
    fn pieces(&mut self, pieces: &[WordPieceWithSource], is_quoted: bool) -> Result<(), No> {
        pieces.iter().try_for_each(|piece| self.piece(piece, is_quoted))
    }

    fn piece(&mut self, piece: &WordPieceWithSource, is_quoted: bool) -> Result<(), No> {
        match &piece.piece {
            WordPiece::Text(text) if is_quoted => self.text.push_str(text),
            WordPiece::Text(text) => self.unquoted(text, piece)?,
            WordPiece::SingleQuotedText(text) => self.text.push_str(text),
            WordPiece::DoubleQuotedSequence(inner) => self.pieces(inner, true)?,
            WordPiece::EscapeSequence(escaped) => {
                // A backslash before the end of a line takes that away.
                self.text.extend(escaped.chars().skip(1).filter(|&c| c != '\n'));
            }
            WordPiece::ParameterExpansion(_) => {
                return Err(self.no(
                    piece,
                    "a variable would be filled in by a shell, and there is none",
                    "let your own shell fill it in, by double quotes around the pipeline; for a field of the input write {input.FIELD}; \
                     for a $ that is meant as it is, single quotes",
                ));
            }
            WordPiece::CommandSubstitution(_) | WordPiece::BackquotedCommandSubstitution(_) => {
                return Err(self.no(
                    piece,
                    "the output of a command would be put in by a shell, and there is none",
                    "make that output the inputs: COMMAND | agx map -- '…{}…'",
                ));
            }
            WordPiece::ArithmeticExpression(_) => {
                return Err(self.no(
                    piece,
                    "a shell would do this sum, and there is none",
                    "write its result",
                ));
            }
            WordPiece::TildeExpansion(_) => {
                return Err(self.no(
                    piece,
                    "~ stands for a home directory, and whose is not known yet",
                    "write the whole path, or quote the ~ where it is meant as it is",
                ));
            }
            WordPiece::AnsiCQuotedText(_) | WordPiece::GettextDoubleQuotedSequence(_) => {
                return Err(self.no(piece, "this kind of quotes is not of POSIX", "use '…' or \"…\""));
            }
        }
        Ok(())
    }

    fn unquoted(&mut self, text: &str, piece: &WordPieceWithSource) -> Result<(), No> {
        let is_set = text.find('[').is_some_and(|open| text[open..].contains(']'));
        if text.contains(['*', '?']) || is_set {
            return Err(self.no(
                piece,
                "a shell would put the names of files here, and there is none",
                "give the files as inputs: agx map -- '…{}…' ::: *.csv; quote it where it is meant as it is",
            ));
        }
        if is_brace_expansion(text) {
            return Err(self.no(
                piece,
                "braces are expanded by some shells only, and not by POSIX",
                "write the words out, or quote the braces where they are meant as they are",
            ));
        }
        self.text.push_str(text);
        Ok(())
    }

    fn no(&self, piece: &WordPieceWithSource, what: &str, instead: &str) -> No {
        let chars = |bytes: usize| self.source.get(..bytes).map_or(0, |text| text.chars().count());
        let (start, end) = (chars(piece.start_index), chars(piece.end_index));
        No::new((self.at.0 + start, self.at.0 + end.max(start + 1)), what, instead)
    }
}

/// `{a,b}` and `{1..3}`, which bash would write out.
fn is_brace_expansion(text: &str) -> bool {
    text.match_indices('{').any(|(open, _)| {
        let inner = &text[open + 1..];
        let inner = inner.split_once('}').map(|(inner, _)| inner);
        inner.is_some_and(|inner| inner.contains(',') || (inner.contains("..") && inner != ".."))
    })
}

/// The text with its placeholders put in. The error is what is wrong.
pub(crate) fn filled(text: &str, placeholders: Placeholders<'_>) -> Result<String, String> {
    let mut filled = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(open) = rest.find('{') {
        filled.push_str(&rest[..open]);
        rest = &rest[open..];
        let own = rest.strip_prefix("{{").and_then(|inner| inner.split_once("}}"));
        if let Some((inner, after)) = own.filter(|(inner, _)| inner.trim().starts_with("input.")) {
            filled.push_str(&format!("{{{{{inner}}}}}"));
            rest = after;
            continue;
        }
        let closed = rest[1..].find(['{', '}']).filter(|&at| rest[1 + at..].starts_with('}'));
        let put_in = closed.and_then(|at| Some((placeholders(&rest[1..=at])?, at)));
        if let Some((placeholder, at)) = put_in {
            filled.push_str(&placeholder);
            rest = &rest[at + 2..];
        } else if rest.starts_with("{{") {
            return Err("'{{' begins a placeholder of a plan, and this is none".into());
        } else {
            filled.push('{');
            rest = &rest[1..];
        }
    }
    filled.push_str(rest);
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::{filled, is_brace_expansion};

    #[test]
    fn placeholders_are_put_in_and_other_braces_left_alone() {
        let placeholders = |name: &str| (name.is_empty()).then(|| "{{input.line}}".to_owned());
        let of = |text: &str| filled(text, &placeholders);
        assert_eq!(of("a{}b{}").unwrap(), "a{{input.line}}b{{input.line}}");
        assert_eq!(of("{print $1}").unwrap(), "{print $1}");
        assert_eq!(of("{a{}").unwrap(), "{a{{input.line}}");
        assert_eq!(of("{{input.x}}{").unwrap(), "{{input.x}}{");
        assert!(of("{{print}}").unwrap_err().contains("'{{'"));
        assert_eq!(of("{{}}").unwrap_err(), "'{{' begins a placeholder of a plan, and this is none");
    }

    #[test]
    fn what_bash_would_write_out() {
        for text in ["{a,b}", "x{1..3}", "{}{a,b}"] {
            assert!(is_brace_expansion(text), "{text}");
        }
        for text in ["{}", "{..}", "{input.a.b}", "{", "a,b", "{.}", "{/.}"] {
            assert!(!is_brace_expansion(text), "{text}");
        }
    }
}

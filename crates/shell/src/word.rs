//! Word of the shell, with quote removal according to POSIX.

use brush_parser::{
    ParserOptions,
    ast::Word,
    word::{self, WordPiece, WordPieceWithSource},
};

use crate::{
    braces::{Placeholders, Unquoted, filled},
    refusal::{Unsupported, place},
    role::WordRole,
};

/// Returns the text of `word` with its placeholders replaced.
pub(crate) fn text(
    word: &Word,
    role: WordRole,
    options: &ParserOptions,
    placeholders: Placeholders<'_>,
) -> Result<String, Unsupported> {
    let at = word.loc.as_ref().map_or((0, word.value.chars().count()), place);
    let pieces = word::parse(&word.value, options).map_err(|_| {
        Unsupported::new(at, "this word cannot be read as a shell would", "look at its quotes")
    })?;
    let mut reading = WordReader { source: &word.value, at, text: String::new(), literal: Vec::new() };
    reading.pieces(&pieces, false)?;
    let word = Unquoted { text: &reading.text, literal: &reading.literal, role };
    filled(&word, placeholders).map_err(|(what, instead)| Unsupported::new(at, what, instead))
}

/// Word under construction.
struct WordReader<'w> {
    source: &'w str,
    at: (usize, usize),
    text: String,
    /// Offsets of braces in `text` after a backslash.
    literal: Vec<usize>,
}

impl WordReader<'_> {
    fn pieces(&mut self, pieces: &[WordPieceWithSource], is_quoted: bool) -> Result<(), Unsupported> {
        pieces.iter().try_for_each(|piece| self.piece(piece, is_quoted))
    }

    fn piece(&mut self, piece: &WordPieceWithSource, is_quoted: bool) -> Result<(), Unsupported> {
        match &piece.piece {
            WordPiece::Text(text) if is_quoted => self.text.push_str(text),
            WordPiece::Text(text) => self.unquoted(text, piece)?,
            WordPiece::SingleQuotedText(text) => self.text.push_str(text),
            WordPiece::DoubleQuotedSequence(inner) => self.pieces(inner, true)?,
            WordPiece::EscapeSequence(escaped) => {
                if escaped == "\\{" {
                    self.literal.push(self.text.len());
                }
                // A backslash at the end of a line removes the line feed.
                self.text.extend(escaped.chars().skip(1).filter(|&c| c != '\n'));
            }
            WordPiece::ParameterExpansion(_) => {
                return Err(self.unsupported(
                    piece,
                    "a variable would be filled in by a shell, and there is none",
                    "let your own shell fill it in, by double quotes around the pipeline; for a field of the input write {input.FIELD}; \
                     for a $ that is meant as it is, single quotes",
                ));
            }
            WordPiece::CommandSubstitution(_) | WordPiece::BackquotedCommandSubstitution(_) => {
                return Err(self.unsupported(
                    piece,
                    "the output of a command would be put in by a shell, and there is none",
                    "make that output the inputs: COMMAND | agx map -- '…{}…'",
                ));
            }
            WordPiece::ArithmeticExpression(_) => {
                return Err(self.unsupported(
                    piece,
                    "a shell would do this sum, and there is none",
                    "write its result",
                ));
            }
            WordPiece::TildeExpansion(_) => {
                return Err(self.unsupported(
                    piece,
                    "~ stands for a home directory, and whose is not known yet",
                    "write the whole path, or quote the ~ where it is meant as it is",
                ));
            }
            WordPiece::AnsiCQuotedText(_) | WordPiece::GettextDoubleQuotedSequence(_) => {
                return Err(self.unsupported(piece, "this quoting is not POSIX", "use '…' or \"…\""));
            }
        }
        Ok(())
    }

    fn unquoted(&mut self, text: &str, piece: &WordPieceWithSource) -> Result<(), Unsupported> {
        let is_set = text.find('[').is_some_and(|open| text[open..].contains(']'));
        if text.contains(['*', '?']) || is_set {
            return Err(self.unsupported(
                piece,
                "a shell would put the names of files here, and there is none",
                "give the files as inputs: agx map -- '…{}…' ::: *.csv; quote it where it is meant as it is",
            ));
        }
        if text.contains('\r') {
            return Err(self.unsupported(
                piece,
                "a carriage return stands here: the text has the line ends of Windows (CRLF)",
                "remove it, as `tr -d '\\r'` does; quote it where it is meant as it is",
            ));
        }
        if is_brace_expansion(text) {
            return Err(self.unsupported(
                piece,
                "braces are expanded by some shells only, and not by POSIX",
                "write the words out, or quote the braces where they are meant as they are",
            ));
        }
        self.text.push_str(text);
        Ok(())
    }

    fn unsupported(&self, piece: &WordPieceWithSource, what: &str, instead: &str) -> Unsupported {
        let chars = |bytes: usize| self.source.get(..bytes).map_or(0, |text| text.chars().count());
        let (start, end) = (chars(piece.start_index), chars(piece.end_index));
        Unsupported::new((self.at.0 + start, self.at.0 + end.max(start + 1)), what, instead)
    }
}

/// Returns true for `{a,b}` and `{1..3}`, which bash would expand.
fn is_brace_expansion(text: &str) -> bool {
    text.match_indices('{').any(|(open, _)| {
        let inner = &text[open + 1..];
        let inner = inner.split_once('}').map(|(inner, _)| inner);
        inner.is_some_and(|inner| inner.contains(',') || (inner.contains("..") && inner != ".."))
    })
}

#[cfg(test)]
mod tests {
    use super::is_brace_expansion;

    #[test]
    fn brace_expansions_of_bash_are_recognised() {
        for text in ["{a,b}", "x{1..3}", "{}{a,b}"] {
            assert!(is_brace_expansion(text), "{text}");
        }
        for text in ["{}", "{..}", "{input.a.b}", "{", "a,b", "{.}", "{/.}"] {
            assert!(!is_brace_expansion(text), "{text}");
        }
    }
}

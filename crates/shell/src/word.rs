//! Word of the shell, with quote removal according to POSIX.

use brush_parser::{
    ParserOptions,
    ast::Word,
    word::{self, WordPiece, WordPieceWithSource},
};

use crate::{
    braces::{Placeholders, Unquoted, filled},
    refusal::{Advice, Unsupported, place},
    role::WordRole,
};

pub(crate) const VARIABLE: Advice = (
    "variables need a shell, and no shell runs the pipeline",
    "let your own shell expand it, with double quotes around the pipeline; for a field of the input write {input.FIELD}; \
     for a literal $, single quotes",
);
pub(crate) const COMMAND_SUBSTITUTION: Advice = (
    "command substitution needs a shell, and no shell runs the pipeline",
    "make that output the inputs: COMMAND | agx map -- '…{}…'",
);
pub(crate) const ARITHMETIC: Advice =
    ("arithmetic needs a shell, and no shell runs the pipeline", "write its result");
pub(crate) const HOME: Advice =
    ("~ is a home directory, which depends on the worker", "write the whole path, or quote a literal ~");
/// `$'…'` and `$"…"`
pub(crate) const OTHER_QUOTES: Advice = ("this quoting is not POSIX", "use '…' or \"…\"");
const PATTERN: Advice = (
    "file name patterns need a shell, and no shell runs the pipeline",
    "give the files as inputs: agx map -- '…{}…' ::: *.csv; quote a literal pattern",
);
const CARRIAGE_RETURN: Advice = (
    "there is a carriage return here: the text has the line ends of Windows (CRLF)",
    "remove it, as `tr -d '\\r'` does; quote a literal one",
);
const BRACES: Advice = (
    "braces are expanded by some shells only, and not by POSIX",
    "write the words out, or quote literal braces",
);

/// Returns the text of `word` with its placeholders replaced.
pub(crate) fn text(
    word: &Word,
    role: WordRole,
    options: &ParserOptions,
    placeholders: Placeholders<'_>,
) -> Result<String, Unsupported> {
    let at = word.loc.as_ref().map_or((0, word.value.chars().count()), place);
    let pieces = word::parse(&word.value, options)
        .map_err(|_| Unsupported::new(at, "this word is not valid in a shell", "look at its quotes"))?;
    let mut reading = WordReader {
        source: &word.value,
        at,
        text: String::new(),
        literal: Vec::new(),
        backslashes: Vec::new(),
        has_open_bracket: false,
    };
    reading.pieces(&pieces, false)?;
    let WordReader { text, literal, backslashes, .. } = &reading;
    let word = Unquoted { text, literal, backslashes, role };
    filled(&word, placeholders).map_err(|(reason, instead)| Unsupported::new(at, reason, instead))
}

/// Word under construction.
struct WordReader<'w> {
    source: &'w str,
    at: (usize, usize),
    text: String,
    /// Offsets of braces in `text` after a backslash.
    literal: Vec<usize>,
    /// Offsets in `text` behind backslashes that other quotes than those of the next character, or
    /// another backslash, make literal.
    backslashes: Vec<usize>,
    /// True after an unquoted `[`, which begins a file name pattern if an unquoted `]` follows.
    has_open_bracket: bool,
}

impl WordReader<'_> {
    fn pieces(&mut self, pieces: &[WordPieceWithSource], is_quoted: bool) -> Result<(), Unsupported> {
        pieces.iter().try_for_each(|piece| self.piece(piece, is_quoted))
    }

    fn piece(&mut self, piece: &WordPieceWithSource, is_quoted: bool) -> Result<(), Unsupported> {
        match &piece.piece {
            WordPiece::Text(text) if is_quoted => self.text.push_str(text),
            WordPiece::Text(text) => self.unquoted(text, piece)?,
            WordPiece::SingleQuotedText(text) => {
                self.text.push_str(text);
                if text.ends_with('\\') {
                    self.backslashes.push(self.text.len());
                }
            }
            WordPiece::DoubleQuotedSequence(inner) => self.pieces(inner, true)?,
            WordPiece::EscapeSequence(escaped) => {
                if escaped == "\\{" {
                    self.literal.push(self.text.len());
                }
                // A backslash at the end of a line removes the line feed.
                self.text.extend(escaped.chars().skip(1).filter(|&c| c != '\n'));
                if escaped == "\\\\" {
                    self.backslashes.push(self.text.len());
                }
            }
            WordPiece::ParameterExpansion(_) => return Err(self.unsupported(piece, VARIABLE)),
            WordPiece::CommandSubstitution(_) | WordPiece::BackquotedCommandSubstitution(_) => {
                return Err(self.unsupported(piece, COMMAND_SUBSTITUTION));
            }
            WordPiece::ArithmeticExpression(_) => return Err(self.unsupported(piece, ARITHMETIC)),
            WordPiece::TildeExpansion(_) => return Err(self.unsupported(piece, HOME)),
            WordPiece::AnsiCQuotedText(_) | WordPiece::GettextDoubleQuotedSequence(_) => {
                return Err(self.unsupported(piece, OTHER_QUOTES));
            }
        }
        Ok(())
    }

    fn unquoted(&mut self, text: &str, piece: &WordPieceWithSource) -> Result<(), Unsupported> {
        let is_set = match text.find('[') {
            Some(open) => text[open..].contains(']') || (self.has_open_bracket && text.contains(']')),
            None => self.has_open_bracket && text.contains(']'),
        };
        self.has_open_bracket |= text.contains('[');
        if text.contains(['*', '?']) || is_set {
            return Err(self.unsupported(piece, PATTERN));
        }
        if text.contains('\r') {
            return Err(self.unsupported(piece, CARRIAGE_RETURN));
        }
        if is_brace_expansion(text) {
            return Err(self.unsupported(piece, BRACES));
        }
        self.text.push_str(text);
        Ok(())
    }

    fn unsupported(&self, piece: &WordPieceWithSource, (reason, instead): Advice) -> Unsupported {
        let chars = |bytes: usize| self.source.get(..bytes).map_or(0, |text| text.chars().count());
        let (start, end) = (chars(piece.start_index), chars(piece.end_index));
        Unsupported::new((self.at.0 + start, self.at.0 + end.max(start + 1)), reason, instead)
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

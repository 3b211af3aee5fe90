//! Program texts in the arguments of a command.

/// Language of a program text in an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    /// `sh -c TEXT`
    Shell,
    /// `awk TEXT`
    Awk,
    /// `perl -e TEXT`
    Perl,
    /// `python3 -c TEXT`
    Python,
    /// `ruby -e TEXT`
    Ruby,
    /// `node -e TEXT`
    Node,
    /// `php -r TEXT`
    Php,
    /// `ssh HOST TEXT`, which a shell of the host runs.
    Remote,
}

/// Position of the program text of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Script {
    /// The command probably has no program text.
    None,
    /// The next word is the program text.
    Next(Language),
    /// The next word is a further part of the program text.
    Continued(Language),
    /// A previous word is the program text, and the next word an argument of it.
    Given,
}

impl Script {
    /// Returns the position of the program text of an interpreter behind its first operand. Without
    /// a program text, the operand is a program in a file, which may have options of its own.
    pub(crate) fn after_operand(has_text: bool) -> Self {
        if has_text { Self::Given } else { Self::None }
    }
}

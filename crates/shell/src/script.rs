//! Languages of program texts in the arguments of a command.

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

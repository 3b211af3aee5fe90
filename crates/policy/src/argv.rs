//! Match of the arguments of a task against the grammar of its tool.
//!
//! The reading follows getopt_long of GNU: options and other arguments in any order, `--`, bundles
//! of flags, attached values. Abbreviated long options are refused.

use crate::{
    option::{OptionGrammar, OptionValues},
    path::Access,
    scope::{Fault, Scope},
    tool::Grammar,
    value_type::ValueType,
    word::{Value, Word},
};

/// File that an argument names, with the index of the argument.
pub(crate) type ArgumentFile = (usize, Access, String);
/// Index of an argument, and the reason against it.
pub(crate) type ArgumentFault = (usize, Fault);

/// Arguments that are read from left to right.
struct Reader<'a> {
    grammar: &'a Grammar,
    scope: &'a Scope<'a>,
    words: &'a [Word<'a>],
    /// Index of the next word.
    next: usize,
    /// Index of the word that is checked.
    at: usize,
    /// Indexes of the options that were given.
    given: Vec<usize>,
    positionals: Vec<usize>,
    is_after_dashes: bool,
    files: Vec<ArgumentFile>,
}

/// Checks all arguments, and returns the files that they name.
///
/// # Errors
///
/// Returns the first argument that is not allowed.
pub(crate) fn files(
    grammar: &Grammar,
    scope: &Scope<'_>,
    words: &[Word<'_>],
) -> Result<Vec<ArgumentFile>, ArgumentFault> {
    let mut reader = Reader {
        grammar,
        scope,
        words,
        next: 0,
        at: 0,
        given: Vec::new(),
        positionals: Vec::new(),
        is_after_dashes: false,
        files: Vec::new(),
    };
    while let Some(word) = words.get(reader.next) {
        let index = reader.next;
        reader.next += 1;
        reader.at = index;
        reader.read(index, word).map_err(|fault| (reader.at, fault))?;
    }
    reader.positionals()?;
    Ok(reader.files)
}

impl<'a> Reader<'a> {
    /// Reads one word as an option with its values, or puts it aside.
    fn read(&mut self, index: usize, word: &'a Word<'a>) -> Result<(), Fault> {
        let value = word.value();
        let literal = value.literal();
        if self.is_after_dashes {
            self.positionals.push(index);
            return Ok(());
        }
        if self.grammar.has_words {
            return self.read_word(index, value);
        }
        if literal == Some("--") {
            self.is_after_dashes = true;
            return Ok(());
        }
        if value.prefix.starts_with("--") {
            return self.long(index, value);
        }
        match value.prefix.strip_prefix('-') {
            // A lone dash is stdin.
            Some("") if literal.is_some() => self.positionals.push(index),
            Some(_) => return self.bundle(index, value),
            None if value.may_be_an_option(self.scope.types) => {
                let reason = format!("the input in '{}' may begin with '-' and be an option", value.shown());
                return Err(Fault::new(reason, "write -- before it"));
            }
            None => self.positionals.push(index),
        }
        Ok(())
    }

    /// Reads one word of a tool with options like `-name`.
    fn read_word(&mut self, index: usize, value: Value<'a>) -> Result<(), Fault> {
        let Some(text) = value.literal() else {
            let is_operator = value.prefix.starts_with(['-', '(', ')', '!', ',']);
            if is_operator || value.may_be_an_option(self.scope.types) {
                let reason = format!("the input in '{}' may be an option", value.shown());
                return Err(Fault::new(reason, "write a directory before it"));
            }
            self.positionals.push(index);
            return Ok(());
        };
        let Some((option, grammar)) = self.grammar.option(text) else {
            if text.starts_with('-') && text.len() > 1 || matches!(text, "(" | ")" | "!" | ",") {
                return Err(self.unknown(text));
            }
            self.positionals.push(index);
            return Ok(());
        };
        self.given.push(option);
        self.following(text, grammar, 0)
    }

    /// Reads `--name`, `--name=value` or `--name value`.
    fn long(&mut self, index: usize, value: Value<'a>) -> Result<(), Fault> {
        let (name, attached) = match value.prefix.find('=') {
            Some(at) => (&value.prefix[..at], Some(value.skip(at + 1))),
            None => (value.prefix, None),
        };
        if attached.is_none() && value.literal().is_none() {
            let reason = format!("'{}' has an input in the name of an option", value.shown());
            return Err(Fault::new(reason, "write the name of the option in the plan"));
        }
        let Some((option, grammar)) = self.grammar.option(name) else { return Err(self.unknown(name)) };
        self.given.push(option);
        match (&grammar.values, attached) {
            (OptionValues::None, Some(_)) => {
                Err(Fault::new(format!("{name} takes no value"), format!("write {name}")))
            }
            (OptionValues::None | OptionValues::Optional(_), None) => Ok(()),
            (OptionValues::Attached(_), None) => {
                Err(Fault::new(format!("{name} has no value"), format!("write {}", grammar.source)))
            }
            (OptionValues::Required(types), Some(value)) => {
                let first = types.first().unwrap_or(&ValueType::Text);
                self.check(index, first, value)?;
                self.following(name, grammar, 1)
            }
            (OptionValues::Required(_), None) => self.following(name, grammar, 0),
            (OptionValues::Attached(one) | OptionValues::Optional(one), Some(value)) => {
                self.check(index, one, value)
            }
        }
    }

    /// Reads `-r`, `-rn`, `-k2` or `-k 2`.
    fn bundle(&mut self, index: usize, value: Value<'a>) -> Result<(), Fault> {
        let flags = &value.prefix[1..];
        for (at, c) in flags.char_indices() {
            let name = format!("-{c}");
            let Some((option, grammar)) = self.grammar.option(&name) else { return Err(self.unknown(&name)) };
            self.given.push(option);
            let rest = value.skip(1 + at + c.len_utf8());
            let is_last = rest.literal() == Some("");
            match &grammar.values {
                OptionValues::None => {}
                OptionValues::Required(_) if is_last => return self.following(&name, grammar, 0),
                OptionValues::Required(types) => {
                    // Without text, the next argument would become the value.
                    if !rest.is_never_empty(self.scope.types) {
                        let reason = format!("the input in '{}' may be empty", value.shown());
                        let instead = format!("write {name} and the value as two arguments");
                        return Err(Fault::new(reason, instead));
                    }
                    self.check(index, types.first().unwrap_or(&ValueType::Text), rest)?;
                    return self.following(&name, grammar, 1);
                }
                OptionValues::Optional(_) | OptionValues::Attached(_) if is_last => return Ok(()),
                OptionValues::Optional(one) | OptionValues::Attached(one) => {
                    return self.check(index, one, rest);
                }
            }
        }
        if value.literal().is_some() {
            return Ok(());
        }
        let reason = format!("'{}' has an input in the name of an option", value.shown());
        Err(Fault::new(reason, "write the name of the option in the plan"))
    }

    /// Checks the values of an option that are arguments of their own, from the type `first`.
    fn following(&mut self, name: &str, grammar: &OptionGrammar, first: usize) -> Result<(), Fault> {
        for value_type in grammar.types().iter().skip(first) {
            let index = self.next;
            let missing = || Fault::new(format!("{name} has no value"), format!("write {}", grammar.source));
            let word = self.words.get(index).ok_or_else(missing)?;
            self.next += 1;
            self.at = index;
            if word.is_list {
                return Err(Fault::new(format!("a list cannot be the value of {name}"), "name one field"));
            }
            self.check(index, value_type, word.value())?;
        }
        Ok(())
    }

    /// Checks the arguments that are not options.
    fn positionals(&mut self) -> Result<(), ArgumentFault> {
        let indexes = std::mem::take(&mut self.positionals);
        let usage = |grammar: &Grammar| format!("write {}", grammar.usage());
        let Some(positionals) = self.grammar.positionals(&self.given) else {
            return Err((0, Fault::new("two of the options exclude each other", usage(self.grammar))));
        };
        let items = positionals.assign(indexes.len()).map_err(|at| match indexes.get(at) {
            Some(index) => {
                let shown = self.words.get(*index).map_or_else(String::new, |word| word.value().shown());
                (*index, Fault::new(format!("'{shown}' is one argument too many"), usage(self.grammar)))
            }
            None => {
                let reason = format!("an argument is missing: '{}'", positionals.source);
                (self.words.len(), Fault::new(reason, usage(self.grammar)))
            }
        })?;
        for (index, item) in indexes.into_iter().zip(items) {
            let Some(word) = self.words.get(index) else { continue };
            let wrong = |fault| (index, fault);
            if word.is_list && !(item.is_repeated() && item.before.is_empty()) {
                let reason = "a list of arguments stands for one argument";
                return Err(wrong(Fault::new(reason, "name one field, without []")));
            }
            let Some(rest) = word.value().prefix.strip_prefix(item.before) else {
                let reason = format!("'{}' does not begin with '{}'", word.value().shown(), item.before);
                return Err(wrong(Fault::new(reason, usage(self.grammar))));
            };
            let value = word.value().skip(word.value().prefix.len() - rest.len());
            self.check(index, &item.value_type, value).map_err(wrong)?;
        }
        Ok(())
    }

    fn check(&mut self, index: usize, value_type: &ValueType, value: Value<'_>) -> Result<(), Fault> {
        if let Some((access, path)) = self.scope.value(value_type, value)? {
            self.files.push((index, access, path));
        }
        Ok(())
    }

    /// Returns the fault of an option that the grammar does not list.
    fn unknown(&self, name: &str) -> Fault {
        let shown = name.escape_debug();
        match self.grammar.abbreviated(name).filter(|_| name.len() > 2) {
            Some(long) => Fault::new(format!("'{shown}' abbreviates an option"), format!("write {long}")),
            None => {
                let reason = format!("the option '{shown}' is not listed");
                Fault::new(reason, format!("leave {shown} out: {}", self.grammar.usage()))
            }
        }
    }
}

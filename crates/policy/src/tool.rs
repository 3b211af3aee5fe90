//! Grammar of one tool: its options, its other arguments, and examples of both.

use std::collections::{BTreeMap, HashMap};

use agenix_protocol::template::is_secret_name;
use serde::Deserialize;

use crate::{option::OptionGrammar, positional::Positionals, value_type::ValueType};

/// Class of a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Class {
    /// Program that runs code of the plan. Any arguments are legal, and a person has to approve.
    Interpreter,
}

/// Table `[tools.NAME]` of a policy, and a file of the library.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ToolTable {
    pub(crate) path: Option<String>,
    pub(crate) sha256: Option<String>,
    pub(crate) like: Option<String>,
    pub(crate) class: Option<Class>,
    pub(crate) ask: bool,
    pub(crate) options: Vec<String>,
    pub(crate) args: String,
    pub(crate) args_with: BTreeMap<String, String>,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) secrets: Vec<String>,
    pub(crate) ok: Vec<Vec<String>>,
    pub(crate) no: Vec<Vec<String>>,
}

/// Tool of a policy.
#[derive(Debug, Clone)]
pub(crate) struct Tool {
    pub(crate) name: String,
    /// Name for people, as `tools.sort`.
    pub(crate) rule: String,
    pub(crate) path: Option<String>,
    pub(crate) sha256: Option<String>,
    pub(crate) class: Option<Class>,
    pub(crate) ask: bool,
    pub(crate) env: BTreeMap<String, ValueType>,
    /// Names of the secrets that variables of the tool may have.
    pub(crate) secrets: Vec<String>,
    pub(crate) grammar: Grammar,
    pub(crate) ok: Vec<Vec<String>>,
    pub(crate) no: Vec<Vec<String>>,
}

/// Grammar of the arguments of a tool.
#[derive(Debug, Clone, Default)]
pub(crate) struct Grammar {
    options: Vec<OptionGrammar>,
    /// Index of the option of each name.
    by_name: HashMap<String, usize>,
    /// Arguments that are not options.
    positionals: Positionals,
    /// Arguments that are not options where an option is given, by the index of the option.
    positionals_with: Vec<(usize, Positionals)>,
    /// True if options are words after one dash, as those of find.
    pub(crate) has_words: bool,
}

impl Grammar {
    fn parse(table: &ToolTable) -> Result<Self, String> {
        let options = table.options.iter().map(|source| OptionGrammar::parse(source));
        let options = options.collect::<Result<Vec<_>, _>>()?;
        let mut by_name = HashMap::new();
        for (index, option) in options.iter().enumerate() {
            for name in &option.names {
                if by_name.insert(name.clone(), index).is_some() {
                    return Err(format!("the option '{name}' is listed twice"));
                }
            }
        }
        let with = table.args_with.iter().map(|(name, source)| {
            let index = by_name.get(name).ok_or_else(|| format!("args_with: '{name}' is not in options"))?;
            Ok((*index, Positionals::parse(source)?))
        });
        let positionals_with = with.collect::<Result<Vec<_>, String>>()?;
        let has_words = options.iter().any(OptionGrammar::is_word);
        Ok(Self {
            positionals: Positionals::parse(&table.args)?,
            options,
            by_name,
            positionals_with,
            has_words,
        })
    }

    /// Returns the option `name`, and its index.
    pub(crate) fn option(&self, name: &str) -> Option<(usize, &OptionGrammar)> {
        let index = *self.by_name.get(name)?;
        Some((index, self.options.get(index)?))
    }

    /// Returns the grammar of the other arguments if the options with the indexes `given` are
    /// there, or `None` if two of these options contradict each other.
    pub(crate) fn positionals(&self, given: &[usize]) -> Option<&Positionals> {
        let mut with = self.positionals_with.iter().filter(|(index, _)| given.contains(index));
        let Some((_, first)) = with.next() else { return Some(&self.positionals) };
        with.all(|(_, other)| other.source == first.source).then_some(first)
    }

    /// Returns the long option that `name` abbreviates.
    pub(crate) fn abbreviated(&self, name: &str) -> Option<&str> {
        let mut names = self.options.iter().flat_map(|option| &option.names);
        names.find(|long| long.starts_with("--") && long.starts_with(name)).map(String::as_str)
    }

    /// Returns the whole grammar on one line.
    pub(crate) fn usage(&self) -> String {
        let options = self.options.iter().map(|option| format!("[{}]", option.source));
        let all: Vec<String> = options.chain([self.positionals.source.clone()]).collect();
        all.join(" ").trim_end().to_owned()
    }
}

impl Tool {
    /// Checks a table, and parses its grammar. `library` finds the grammars that the table can be
    /// like.
    pub(crate) fn parse(
        name: &str,
        table: ToolTable,
        library: impl Fn(&str) -> Option<&'static Tool>,
    ) -> Result<Self, String> {
        if name.is_empty() || name.contains(['/', '\0']) {
            return Err("the name of a tool is not empty, and has no '/'".into());
        }
        if table.path.as_ref().is_some_and(|path| !path.starts_with('/')) {
            return Err("path is not absolute".into());
        }
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if table.sha256.as_ref().is_some_and(|hash| hash.len() != 64 || !hash.bytes().all(is_digit)) {
            return Err("sha256 is not 64 hexadecimal digits in lower case".into());
        }
        if table.sha256.is_some() && table.path.is_none() {
            return Err("sha256 needs path, so that one file is meant".into());
        }
        if let Some(secret) = table.secrets.iter().find(|secret| !is_secret_name(secret)) {
            return Err(format!("secrets: '{}' is not the name of a secret", secret.escape_debug()));
        }
        let has_grammar = !(table.options.is_empty() && table.args.is_empty() && table.args_with.is_empty());
        if has_grammar && (table.class.is_some() || table.like.is_some()) {
            return Err("options and args cannot be combined with class and like".into());
        }
        if table.class.is_some() && table.like.is_some() {
            return Err("class cannot be combined with like".into());
        }
        let grammar = match &table.like {
            Some(like) => {
                let model = library(like).ok_or_else(|| format!("like: the library has no '{like}'"))?;
                model.grammar.clone()
            }
            None => Grammar::parse(&table)?,
        };
        Ok(Self {
            name: name.to_owned(),
            rule: format!("tools.{name}"),
            env: environment(&table.env)?,
            path: table.path,
            sha256: table.sha256,
            secrets: table.secrets,
            class: table.class,
            ask: table.ask,
            grammar,
            ok: table.ok,
            no: table.no,
        })
    }
}

/// Parses the types of environment variables.
pub(crate) fn environment(table: &BTreeMap<String, String>) -> Result<BTreeMap<String, ValueType>, String> {
    let variable = |(name, value_type): (&String, &String)| {
        if name.is_empty() || name.contains(['=', '\0']) {
            return Err(format!("env: '{name}' is not the name of a variable"));
        }
        let value_type = ValueType::parse(value_type).map_err(|reason| format!("env.{name}: {reason}"))?;
        Ok((name.clone(), value_type))
    };
    table.iter().map(variable).collect()
}

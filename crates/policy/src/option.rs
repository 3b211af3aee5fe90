//! Grammar of one option: its names and its values, as in `-n, --lines COUNT`.

use crate::value_type::ValueType;

/// Option of a tool.
#[derive(Debug, Clone)]
pub(crate) struct OptionGrammar {
    /// Names with their dashes.
    pub(crate) names: Vec<String>,
    pub(crate) values: OptionValues,
    /// Grammar as it is in the policy.
    pub(crate) source: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OptionValues {
    /// None: the option is a flag.
    None,
    /// One value for each type. The first value may be attached: `-k2`, `--lines=2`.
    Required(Vec<ValueType>),
    /// One value, which only `=` can attach: `--color=auto`.
    Attached(ValueType),
    /// At most one value, which has to be attached: `--color`, `--color=auto`, `-w`, `-w80`.
    Optional(ValueType),
}

impl OptionGrammar {
    /// Parses the grammar of an option.
    pub(crate) fn parse(source: &str) -> Result<Self, String> {
        let wrong = |reason: String| format!("option '{source}': {reason}");
        let mut words = source.split_whitespace();
        let mut names = Vec::new();
        let (mut attached, mut is_complete) = (None, false);
        for word in words.by_ref() {
            let (name, is_last) = match word.strip_suffix(',') {
                Some(name) => (name, false),
                None => (word, true),
            };
            let at = name.find(['=', '[']).unwrap_or(name.len());
            if at < name.len() {
                if !is_last {
                    return Err(wrong("only the last name can have a value".into()));
                }
                attached = Some(attached_value(&name[at..]).map_err(wrong)?);
            }
            let name = &name[..at];
            if !is_name(name) {
                return Err(wrong(format!("'{name}' is not the name of an option")));
            }
            names.push(name.to_owned());
            is_complete = is_last;
            if is_last {
                break;
            }
        }
        let types = words.map(ValueType::parse).collect::<Result<Vec<_>, _>>().map_err(wrong)?;
        let values = match (attached, types.is_empty()) {
            (Some(values), true) => values,
            (Some(_), false) => return Err(wrong("a value is attached, so no other can follow".into())),
            (None, true) => OptionValues::None,
            (None, false) => OptionValues::Required(types),
        };
        if !is_complete {
            return Err(wrong("a name is missing".into()));
        }
        let has_short = names.iter().any(|name| !name.starts_with("--"));
        if has_short && matches!(values, OptionValues::Attached(_)) {
            return Err(wrong("write -x[TYPE] for an optional value, and -x TYPE for a required one".into()));
        }
        Ok(Self { names, values, source: source.to_owned() })
    }

    /// Returns true if the option is a word after one dash, as `-name` of find.
    pub(crate) fn is_word(&self) -> bool {
        self.names.iter().any(|name| !name.starts_with("--") && name.chars().count() != 2)
    }

    /// Returns all types of values.
    pub(crate) fn types(&self) -> &[ValueType] {
        match &self.values {
            OptionValues::None => &[],
            OptionValues::Required(types) => types,
            OptionValues::Attached(one) | OptionValues::Optional(one) => std::slice::from_ref(one),
        }
    }
}

/// Parses `=TYPE`, `[=TYPE]` or `[TYPE]`.
fn attached_value(text: &str) -> Result<OptionValues, String> {
    if let Some(required) = text.strip_prefix('=') {
        return Ok(OptionValues::Attached(ValueType::parse(required)?));
    }
    let inside = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let inside = inside.ok_or_else(|| format!("'{text}' is not [=TYPE] or [TYPE]"))?;
    Ok(OptionValues::Optional(ValueType::parse(inside.strip_prefix('=').unwrap_or(inside))?))
}

/// Returns true for `-x`, `--long`, `-word`, and for the operators `(`, `)` and `!` of find.
fn is_name(name: &str) -> bool {
    let is_legal = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let long = name.strip_prefix("--").filter(|long| long.len() > 1);
    let short = name.strip_prefix('-').filter(|short| !short.is_empty() && !short.starts_with('-'));
    matches!(name, "(" | ")" | "!") || long.or(short).is_some_and(|rest| rest.chars().all(is_legal))
}

#[cfg(test)]
mod tests {
    use super::{OptionGrammar, OptionValues};
    use crate::value_type::ValueType;

    #[test]
    fn grammars_of_options_are_parsed() {
        let option = OptionGrammar::parse("-n, --lines COUNT").unwrap();
        assert_eq!(option.names, ["-n", "--lines"]);
        assert_eq!(option.values, OptionValues::Required(vec![ValueType::Count]));
        let optional = OptionGrammar::parse("--color[=ENUM(auto|never)]").unwrap();
        assert!(matches!(optional.values, OptionValues::Optional(ValueType::Enum(_))));
        let attached = OptionGrammar::parse("--color=TEXT").unwrap();
        assert_eq!(attached.values, OptionValues::Attached(ValueType::Text));
        let several = OptionGrammar::parse("--arg NAME TEXT").unwrap();
        assert_eq!(several.types(), [ValueType::Name, ValueType::Text]);
        assert!(OptionGrammar::parse("-name GLOB").unwrap().is_word());
    }

    #[test]
    fn wrong_grammars_of_options_are_errors() {
        for source in
            ["", "-", "--", "r", "-k NUMBER", "-n,", "-n=TEXT", "-a[TEXT", "--a[=TEXT] TEXT", "--a=TEXT, -b"]
        {
            assert!(OptionGrammar::parse(source).is_err(), "{source}");
        }
    }
}

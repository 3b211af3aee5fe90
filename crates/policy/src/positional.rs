//! Grammar of the arguments that are not options, as `TEXT read*`.

use crate::value_type::ValueType;

/// Number of arguments of one type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Count {
    One,
    AtMostOne,
    Any,
    AtLeastOne,
}

/// Arguments of one type.
#[derive(Debug, Clone)]
pub(crate) struct Item {
    /// Text before the value, as `+` of date.
    pub(crate) before: &'static str,
    pub(crate) value_type: ValueType,
    count: Count,
}

impl Item {
    /// Returns true if any number of arguments may follow.
    pub(crate) fn is_repeated(&self) -> bool {
        matches!(self.count, Count::Any | Count::AtLeastOne)
    }

    fn is_required(&self) -> bool {
        matches!(self.count, Count::One | Count::AtLeastOne)
    }
}

/// Arguments that are not options.
#[derive(Debug, Clone, Default)]
pub(crate) struct Positionals {
    pub(crate) items: Vec<Item>,
    /// Grammar as it is in the policy.
    pub(crate) source: String,
}

impl Positionals {
    /// Parses a grammar. At most one item can be repeated, so that each argument has one type.
    pub(crate) fn parse(source: &str) -> Result<Self, String> {
        let items = source.split_whitespace().map(item).collect::<Result<Vec<_>, _>>();
        let items = items.map_err(|reason| format!("args '{source}': {reason}"))?;
        if items.iter().filter(|item| item.is_repeated()).count() > 1 {
            return Err(format!("args '{source}': two items are repeated"));
        }
        Ok(Self { items, source: source.to_owned() })
    }

    /// Returns the item of each of `given` arguments. Items in front take optional arguments first.
    ///
    /// # Errors
    ///
    /// Returns the first index that has no item, or the number of arguments if some are missing.
    pub(crate) fn assign(&self, given: usize) -> Result<Vec<&Item>, usize> {
        let required = self.items.iter().filter(|item| item.is_required()).count();
        let mut left = given.checked_sub(required).ok_or(given)?;
        let mut assigned = Vec::with_capacity(given);
        for item in &self.items {
            let further = match item.count {
                Count::One => 0,
                Count::AtMostOne => left.min(1),
                Count::Any | Count::AtLeastOne => left,
            };
            left -= further;
            assigned.extend(std::iter::repeat_n(item, further + usize::from(item.is_required())));
        }
        if left > 0 { Err(given - left) } else { Ok(assigned) }
    }
}

fn item(word: &str) -> Result<Item, String> {
    let (rest, count) = match word.char_indices().last() {
        Some((at, '?')) => (&word[..at], Count::AtMostOne),
        Some((at, '*')) => (&word[..at], Count::Any),
        Some((at, '+')) => (&word[..at], Count::AtLeastOne),
        _ => (word, Count::One),
    };
    let (before, name) = match rest.strip_prefix('+') {
        Some(name) => ("+", name),
        None => ("", rest),
    };
    Ok(Item { before, value_type: ValueType::parse(name)?, count })
}

#[cfg(test)]
mod tests {
    use super::Positionals;

    fn types(source: &str, given: usize) -> Result<String, usize> {
        let grammar = Positionals::parse(source).unwrap();
        let assigned = grammar.assign(given)?;
        Ok(assigned.iter().map(|item| item.value_type.to_string()).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn each_argument_gets_one_item() {
        assert_eq!(types("TEXT read*", 3), Ok("TEXT read read".into()));
        assert_eq!(types("read+ write", 3), Ok("read read write".into()));
        assert_eq!(types("TEXT? read", 1), Ok("read".into()));
        assert_eq!(types("", 0), Ok(String::new()));
        assert_eq!(types("TEXT read*", 0), Err(0));
        assert_eq!(types("read write?", 3), Err(2));
        assert_eq!(types("+TEXT?", 1), Ok("TEXT".into()));
    }

    #[test]
    fn grammar_is_unambiguous() {
        assert!(Positionals::parse("read* write*").is_err());
        assert!(Positionals::parse("file").is_err());
    }
}

//! Types that a plan declares for its inputs, and the properties of every value of a type.

use std::collections::BTreeMap;

use agenix_protocol::documents::InputType;

use crate::value_type::ValueType;

/// Types of the inputs of a plan.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Types<'p>(&'p BTreeMap<String, InputType>);

impl<'p> Types<'p> {
    pub(crate) fn new(inputs: &'p BTreeMap<String, InputType>) -> Self {
        Self(inputs)
    }

    /// Returns the type of a field, if the plan declares one.
    pub(crate) fn get(self, field: &str) -> Option<&'p InputType> {
        self.0.get(field)
    }

    /// Returns true if a value of the field may begin an option or be an operator of find. An empty
    /// value counts, because the text after it then begins the argument.
    pub(crate) fn may_be_an_option(self, field: &str) -> bool {
        match self.get(field) {
            Some(InputType::Path { .. } | InputType::Name {}) => false,
            Some(InputType::Int { min, .. }) => min.is_none_or(|min| min < 0),
            Some(InputType::Enum { values }) => {
                values.iter().any(|value| value.is_empty() || value.starts_with(['-', '(', ')', '!', ',']))
            }
            Some(InputType::Text {}) | None => true,
        }
    }

    /// Returns true if no value of the field is empty.
    pub(crate) fn is_never_empty(self, field: &str) -> bool {
        match self.get(field) {
            Some(InputType::Path { .. } | InputType::Name {} | InputType::Int { .. }) => true,
            Some(InputType::Enum { values }) => values.iter().all(|value| !value.is_empty()),
            Some(InputType::Text {}) | None => false,
        }
    }

    /// Returns true if each value of the field can be a part of the name of a file, and neither
    /// leads out of a directory nor is a directory.
    pub(crate) fn is_part_of_a_name(self, field: &str) -> bool {
        match self.get(field) {
            Some(InputType::Name {} | InputType::Int { .. }) => true,
            Some(InputType::Enum { values }) => values.iter().all(|value| InputType::is_name(value)),
            Some(InputType::Path { .. } | InputType::Text {}) | None => false,
        }
    }
}

/// Returns true if every value of the input type has the type of the argument.
pub(crate) fn is_subtype(input_type: &InputType, value_type: &ValueType) -> bool {
    match (input_type, value_type) {
        (InputType::Int { min: Some(min), max: Some(max) }, ValueType::Int { least, most }) => {
            least <= min && max <= most
        }
        (InputType::Int { min, .. }, ValueType::Int { least, most: i64::MAX }) => {
            *least == i64::MIN || min.is_some_and(|min| *least <= min)
        }
        (InputType::Int { .. }, ValueType::Count) | (InputType::Name {}, ValueType::Name) => true,
        (InputType::Int { min, .. }, ValueType::Name) => min.is_some_and(|min| min >= 0),
        (InputType::Enum { values }, value_type) if !value_type.is_file() => {
            values.iter().all(|value| value_type.check(value).is_ok())
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use agenix_protocol::documents::InputType;

    use super::is_subtype;
    use crate::value_type::ValueType;

    #[test]
    fn input_type_fits_only_if_each_value_does() {
        let fits = |input: InputType, grammar: &str| is_subtype(&input, &ValueType::parse(grammar).unwrap());
        let int = |min, max| InputType::Int { min, max };
        assert!(fits(int(Some(1), Some(3)), "INT(0..4)") && fits(int(None, None), "INT"));
        assert!(!fits(int(Some(1), Some(5)), "INT(0..4)") && !fits(int(Some(1), None), "INT(0..4)"));
        assert!(fits(int(None, None), "COUNT") && fits(InputType::Name {}, "NAME"));
        assert!(fits(int(Some(0), None), "NAME") && !fits(int(None, None), "NAME"));
        let words =
            |words: &[&str]| InputType::Enum { values: words.iter().map(ToString::to_string).collect() };
        assert!(fits(words(&["a", "b"]), "ENUM(a|b|c)") && !fits(words(&["a", "d"]), "ENUM(a|b|c)"));
        assert!(fits(words(&[",", ";"]), "CHAR") && !fits(words(&["/etc/passwd"]), "read"));
        assert!(!fits(InputType::Text {}, "NAME") && !fits(InputType::Name {}, "read"));
    }
}

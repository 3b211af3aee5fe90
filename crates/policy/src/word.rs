//! Argument of a plan, split into its literal beginning and its placeholders.

use std::borrow::Cow;

use agenix_protocol::{
    documents::InputType,
    template::{self, TemplateError, TemplatePart},
};

use crate::inputs::Types;

/// Text that stands for the number of a slot while a plan is judged.
const SLOT: &str = "1";

/// Argument of a task.
#[derive(Debug)]
pub(crate) struct Word<'t> {
    /// Literal text before the first placeholder.
    prefix: Cow<'t, str>,
    /// First placeholder, and everything after it.
    rest: Vec<TemplatePart<'t>>,
    /// True if the word is the placeholder of a list of arguments.
    pub(crate) is_list: bool,
}

/// Part of a word: the word without the option that precedes the value.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Value<'w> {
    /// Literal text before the first placeholder.
    pub(crate) prefix: &'w str,
    rest: &'w [TemplatePart<'w>],
}

impl<'t> Word<'t> {
    /// Splits an argument. An invalid placeholder is an error.
    pub(crate) fn parse(argument: &'t str) -> Result<Self, TemplateError> {
        if !argument.contains("{{") {
            return Ok(Self { prefix: argument.into(), rest: Vec::new(), is_list: false });
        }
        if let Some(field) = template::list(argument) {
            return Ok(Self { prefix: "".into(), rest: vec![TemplatePart::Field(field)], is_list: true });
        }
        let mut prefix = String::new();
        let mut rest = Vec::new();
        for part in template::parts(argument)? {
            match part {
                TemplatePart::Text("") => {}
                TemplatePart::Text(text) if rest.is_empty() => prefix.push_str(text),
                TemplatePart::Slot if rest.is_empty() => prefix.push_str(SLOT),
                TemplatePart::Slot => rest.push(TemplatePart::Text(SLOT)),
                part => rest.push(part),
            }
        }
        Ok(Self { prefix: prefix.into(), rest, is_list: false })
    }

    /// Returns the whole word as a value.
    pub(crate) fn value(&self) -> Value<'_> {
        Value { prefix: &self.prefix, rest: &self.rest }
    }
}

impl<'w> Value<'w> {
    /// Returns the value without the first `bytes` bytes of its literal beginning.
    pub(crate) fn skip(self, bytes: usize) -> Self {
        Self { prefix: self.prefix.get(bytes..).unwrap_or_default(), ..self }
    }

    /// Returns the text, if it has no placeholder.
    pub(crate) fn literal(self) -> Option<&'w str> {
        self.rest.is_empty().then_some(self.prefix)
    }

    /// Returns the first placeholder, and everything after it.
    pub(crate) fn rest(self) -> &'w [TemplatePart<'w>] {
        self.rest
    }

    /// Returns the type of the placeholder, if the value is nothing else.
    pub(crate) fn only_type(self, types: Types<'w>) -> Option<&'w InputType> {
        match self.rest {
            [TemplatePart::Field(field)] if self.prefix.is_empty() => types.get(field),
            _ => None,
        }
    }

    /// Returns true if the input in front may make the value an option.
    pub(crate) fn may_be_an_option(self, types: Types<'_>) -> bool {
        match self.rest.first() {
            Some(TemplatePart::Field(field)) if self.prefix.is_empty() => types.may_be_an_option(field),
            _ => false,
        }
    }

    /// Returns true if the value contains text for any input.
    pub(crate) fn is_never_empty(self, types: Types<'_>) -> bool {
        let has_text = |part: &TemplatePart<'_>| match part {
            TemplatePart::Text(text) => !text.is_empty(),
            TemplatePart::Field(field) => types.is_never_empty(field),
            TemplatePart::Slot => true,
        };
        !self.prefix.is_empty() || self.rest.iter().any(has_text)
    }

    /// Returns the value as it is in the plan, apart from blanks in placeholders.
    pub(crate) fn shown(self) -> String {
        let mut shown = self.prefix.to_owned();
        for part in self.rest {
            match part {
                TemplatePart::Text(text) => shown.push_str(text),
                TemplatePart::Field(field) => shown.extend(["{{input.", field, "}}"]),
                TemplatePart::Slot => shown.push_str(SLOT),
            }
        }
        shown
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{Types, Word};

    #[test]
    fn word_is_split_at_its_first_placeholder() {
        let word = Word::parse("--in={{ input.file }}.txt").unwrap();
        assert_eq!((word.value().prefix, word.value().literal()), ("--in=", None));
        assert_eq!(word.value().skip(5).shown(), "{{input.file}}.txt");
        let none = BTreeMap::new();
        let types = Types::new(&none);
        assert!(word.value().skip(5).is_never_empty(types), "it ends with .txt");
        assert!(!Word::parse("{{input.a}}{{input.b}}").unwrap().value().is_never_empty(types));
        assert!(Word::parse("{{input.files[]}}").unwrap().is_list);
    }

    #[test]
    fn quoted_braces_and_slots_are_literal_text() {
        assert_eq!(Word::parse(r#"a{{"{{"}}b"#).unwrap().value().literal(), Some("a{{b"));
        assert_eq!(Word::parse("gpu{{slot}}").unwrap().value().literal(), Some("gpu1"));
        assert!(Word::parse("{{input}}").is_err());
    }
}

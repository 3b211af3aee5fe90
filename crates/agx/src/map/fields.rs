//! Fields of the input of a job: the values of the placeholders of a command.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::{columns::Columns, placeholders::Placeholder};

/// Placeholders of a command, and the columns that they name.
#[derive(Debug, Clone, Default)]
pub(crate) struct InputFields {
    pub(crate) placeholders: BTreeSet<Placeholder>,
    pub(crate) columns: Columns,
}

impl InputFields {
    /// Returns the fields of job `number`, from 1.
    pub(crate) fn of(&self, args: &[String], number: u64) -> Map<String, Value> {
        let field = |(placeholder, mut values): (Placeholder, Vec<String>)| {
            let value = if placeholder.is_list() { values.into() } else { values.pop().into() };
            (placeholder.field(), value)
        };
        self.filled(args, number).into_iter().map(field).collect()
    }

    /// Returns the values of the placeholders in job `number`, from 1.
    pub(crate) fn values(&self, args: &[String], number: u64) -> Vec<String> {
        self.filled(args, number).into_iter().flat_map(|(_, values)| values).collect()
    }

    fn filled(&self, args: &[String], number: u64) -> Vec<(Placeholder, Vec<String>)> {
        let columns = self.columns_of(args);
        let columns = columns.as_deref().unwrap_or(args);
        let filled = |&placeholder: &Placeholder| {
            let args = if placeholder.source().is_some() { columns } else { args };
            (placeholder, placeholder.values(args, number))
        };
        self.placeholders.iter().map(filled).collect()
    }

    fn columns_of(&self, args: &[String]) -> Option<Vec<String>> {
        let is_named = self.placeholders.iter().any(|placeholder| placeholder.source().is_some());
        (is_named && self.columns.is_split()).then(|| self.columns.split(args))
    }
}

impl From<BTreeSet<Placeholder>> for InputFields {
    fn from(placeholders: BTreeSet<Placeholder>) -> Self {
        Self { placeholders, columns: Columns::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::{Columns, InputFields, Placeholder};
    use crate::map::columns::Separator;

    #[test]
    fn fields_have_the_columns_and_the_whole_line() {
        let placeholders = ["", "2", "1.", "3"].map(|text| Placeholder::parse(text).unwrap());
        let columns = Columns::new(Some(Separator::parse(",").unwrap()));
        let fields = InputFields { placeholders: placeholders.into(), columns };
        let fields = serde_json::Value::from(fields.of(&["x.gz, b".to_owned()], 1)).to_string();
        assert_eq!(fields, r#"{"arg1_noext":"x","arg2":"b","arg3":"","line":"x.gz, b"}"#);
    }

    #[test]
    fn fields_of_a_group_are_lists() {
        let placeholders = ["", "2"].map(|text| Placeholder::parse(text).unwrap().of_group());
        let fields = InputFields::from(std::collections::BTreeSet::from(placeholders));
        let args = ["a".to_owned(), "b".to_owned()];
        let document = serde_json::Value::from(fields.of(&args, 1)).to_string();
        assert_eq!(document, r#"{"arg2":"b","lines":["a","b"]}"#);
        assert_eq!(fields.values(&args, 1), ["a", "b", "b"]);
    }
}

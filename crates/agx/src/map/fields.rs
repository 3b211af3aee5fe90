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
        let columns = self.columns_of(args);
        let columns = columns.as_deref().unwrap_or(args);
        let fields = self.placeholders.iter().map(|placeholder| {
            let args = if placeholder.source().is_some() { columns } else { args };
            (placeholder.field(), Value::from(placeholder.value(args, number)))
        });
        fields.collect()
    }

    /// Returns the values of the placeholders in job `number`, from 1.
    pub(crate) fn values(&self, args: &[String], number: u64) -> Vec<String> {
        let columns = self.columns_of(args);
        let columns = columns.as_deref().unwrap_or(args);
        let value = |placeholder: &Placeholder| {
            let args = if placeholder.source().is_some() { columns } else { args };
            placeholder.value(args, number)
        };
        self.placeholders.iter().map(value).collect()
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
}

//! Tables as trait objects, for the work that is done for every table alike: creating, opening,
//! copying, and writing rows.

use std::any::Any;

use redb::{ReadTransaction, ReadableTable, TableHandle, Value, WriteTransaction};

use crate::store::redb::{
    engine::{apply_rows, sorted_runs::SortedRuns},
    schema::{Definition, KeyCompare, Ordered, Result, tables},
};

macro_rules! define_all {
    ($(
        $(#[$doc:meta])*
        $name:ident $text:literal $field:ident: $key:ty => $value:ty
        $(, adjacent if $adjoins:ident)? $(, wrapped by $wrapper:ident)?;
    )*) => {
        /// Every table, at the index of its number.
        pub(crate) const ALL: &[&dyn AnyTable] = &[$(&tables::$name,)*];
    };
}
tables::for_each_table!(define_all);

pub(crate) trait AnyTable: Sync {
    fn name(&'static self) -> &'static str;
    fn number(&self) -> usize;
    fn open(&self, from: &ReadTransaction) -> Result<Box<dyn Any + Send + Sync>>;
    fn order(&self) -> KeyCompare;
    fn create(&self, to: &WriteTransaction) -> Result<()>;
    fn write(&self, to: &WriteTransaction, rows: &SortedRuns) -> Result<()>;
    /// Copies the table into another database. Rows are written in the order of their keys, because
    /// sequential inserts are the fastest for a B-tree.
    fn copy(&self, from: &ReadTransaction, to: &WriteTransaction) -> Result<()>;
}

impl<K: Ordered + Send + Sync, V: Value + Send + Sync + 'static> AnyTable for Definition<K, V> {
    fn name(&'static self) -> &'static str {
        self.table.name()
    }

    fn number(&self) -> usize {
        self.number
    }

    fn open(&self, from: &ReadTransaction) -> Result<Box<dyn Any + Send + Sync>> {
        Ok(Box::new(from.open_table(self.table)?))
    }

    fn order(&self) -> KeyCompare {
        K::ORDER
    }

    fn create(&self, to: &WriteTransaction) -> Result<()> {
        to.open_table(self.table)?;
        Ok(())
    }

    fn write(&self, to: &WriteTransaction, rows: &SortedRuns) -> Result<()> {
        apply_rows::write(&mut to.open_table(self.table)?, rows, self.adjoins)
    }

    fn copy(&self, from: &ReadTransaction, to: &WriteTransaction) -> Result<()> {
        let mut copy = to.open_table(self.table)?;
        for entry in from.open_table(self.table)?.iter()? {
            let (key, value) = entry?;
            copy.insert(key.value(), value.value())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::ALL;

    #[test]
    fn all_has_every_table_at_its_number() {
        assert!(ALL.iter().enumerate().all(|(place, table)| table.number() == place));
    }
}

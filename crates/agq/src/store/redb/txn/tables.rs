//! The tables of a write transaction, with the changes that it makes in each.

use crate::store::redb::{
    engine::{Memtable, Snapshot, Table},
    schema::tables,
    txn::{key_cache::KeyTable, list_readahead::ListTable},
};

macro_rules! table_type {
    ($t:lifetime, $key:ty, $value:ty) => {
        Table<$t, $key, $value>
    };
    ($t:lifetime, $key:ty, $value:ty, $wrapper:ident) => {
        $wrapper<$t>
    };
}

macro_rules! define_tables {
    ($(
        $(#[$doc:meta])*
        $name:ident $text:literal $field:ident: $key:ty => $value:ty
        $(, adjacent if $adjoins:ident)? $(, wrapped by $wrapper:ident)?;
    )*) => {
        pub(crate) struct Tables<'t> {
            $(
                $(#[$doc])*
                pub(crate) $field: table_type!('t, $key, $value $(, $wrapper)?),
            )*
        }

        impl<'t> Tables<'t> {
            pub(crate) fn open(snapshot: &'t Snapshot<'t>) -> Self {
                Self { $($field: snapshot.table(&tables::$name).into(),)* }
            }

            pub(crate) fn take_changes(&mut self) -> Memtable {
                let mut changes = Memtable::default();
                $(self.$field.take_changes(&mut changes);)*
                changes
            }
        }
    };
}
tables::for_each_table!(define_tables);

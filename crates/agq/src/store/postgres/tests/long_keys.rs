//! Keys and members that are longer than an entry of an index.

use std::{
    ops::Bound,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use e2e::Database;
use sqlx::{Connection, PgConnection, raw_sql};

use super::{super::schema::migrate_first, store_on};
use crate::store::{KeyEntry, Keyspace, RangeSlice, StoredValue, postgres::PostgresStore};

/// Rows of the version before the digests: a text, a list and a sorted set.
const BEFORE: &str = "INSERT INTO agq.keys (key, number, text) VALUES ('text', 1, 'v'); \
    INSERT INTO agq.keys (key, number, head, tail) VALUES ('list', 2, 0, 2); \
    INSERT INTO agq.keys (key, number, members) VALUES ('set', 3, 2); \
    INSERT INTO agq.list_items (key, place, item) VALUES ('list', 0, 'a'), ('list', 1, 'b'); \
    INSERT INTO agq.scores (key, member, score) VALUES ('set', 'n', 2), ('set', 'm', 2)";

/// Returns the members of the sorted set `set`, in descending order.
async fn members(store: &PostgresStore) -> Vec<Bytes> {
    let found = Arc::new(Mutex::new(Vec::new()));
    let slot = Arc::clone(&found);
    let part = RangeSlice { is_reversed: true, skip: 0, take: 10 };
    let all = (Bound::Unbounded, Bound::Unbounded);
    let look = store.read(Box::new(move |keys| {
        let members = keys.members(b"set", all, part)?;
        *slot.lock().unwrap() = members.into_iter().map(|(member, _)| member).collect();
        Ok(())
    }));
    look.await.unwrap();
    found.lock().unwrap().clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn migration_keeps_keys_of_the_previous_version() {
    let database = Database::new();
    let mut connection = PgConnection::connect(&database.url()).await.unwrap();
    migrate_first(6, &mut connection).await.unwrap();
    raw_sql(BEFORE).execute(&mut connection).await.unwrap();
    let store = store_on(&database).await;
    assert_eq!(members(&store).await, ["n", "m"]);
    let long = Bytes::from(vec![b'm'; 100_000]);
    let member = long.clone();
    let change = store.update(
        0,
        Box::new(move |keys| {
            let text = StoredValue::Text(Bytes::from_static(b"v"));
            assert_eq!(keys.entry(b"text")?, Some(KeyEntry { content: text, expires_at: None }));
            assert_eq!(keys.items(b"list", 0..2)?, ["a", "b"]);
            // A score of a member is changed, and no second row is made.
            keys.put_score(b"set", b"m", 3.0)?;
            keys.put_score(b"set", &member, 2.0)
        }),
    );
    change.await.unwrap();
    assert_eq!(members(&store).await, ["m".into(), "n".into(), long]);
}

#[tokio::test(flavor = "multi_thread")]
async fn migration_locks_out_the_previous_version() {
    let database = Database::new();
    store_on(&database).await;
    let mut connection = PgConnection::connect(&database.url()).await.unwrap();
    let refused = migrate_first(6, &mut connection).await.unwrap_err().to_string();
    assert!(refused.contains("migration 7"), "{refused}");
    // A node of the earlier version that runs already reads neither lists nor sorted sets.
    let old = "SELECT item FROM agq.list_items WHERE key = 'list'";
    let refused = raw_sql(old).execute(&mut connection).await.unwrap_err().to_string();
    assert!(refused.contains("column \"key\" does not exist"), "{refused}");
}

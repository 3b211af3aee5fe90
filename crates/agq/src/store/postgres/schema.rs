//! Schema and its migrations. Each migration is applied once, by one node, while the other nodes
//! wait.

use sqlx::{
    PgConnection, Result, SqlSafeStr,
    migrate::{MigrateError, Migration, MigrationType, Migrator},
    query_scalar,
};

use crate::store::postgres::connection::errors;

/// Migrations: number, name, SQL. A released migration is never changed.
const MIGRATIONS: [(i64, &str, &str); 12] = [
    (1, "queue", include_str!("migrations/0001_queue.sql")),
    (2, "listening", include_str!("migrations/0002_listening.sql")),
    (3, "open job spec", include_str!("migrations/0003_open_job_spec.sql")),
    (4, "lanes", include_str!("migrations/0004_lanes.sql")),
    (5, "node settings", include_str!("migrations/0005_node_settings.sql")),
    (6, "started", include_str!("migrations/0006_started.sql")),
    (7, "long keys", include_str!("migrations/0007_long_keys.sql")),
    (8, "owners", include_str!("migrations/0008_owners.sql")),
    (9, "orders", include_str!("migrations/0009_orders.sql")),
    (10, "limit ends", include_str!("migrations/0010_limit_ends.sql")),
    (11, "node numbers", include_str!("migrations/0011_node_numbers.sql")),
    (12, "ended jobs", include_str!("migrations/0012_ended_jobs.sql")),
];

/// Migrates the schema to the version of this program, however long the migration takes. Fails if a
/// newer program has migrated the schema. If no migration is missing, reads only the list of
/// migrations, so that a node needs no right to create anything.
pub(super) async fn migrate(connection: &mut PgConnection) -> Result<(), MigrateError> {
    if is_up_to_date(connection).await? {
        return Ok(());
    }
    migrate_by(&MIGRATIONS, connection).await
}

async fn migrate_by(
    migrations: &[(i64, &'static str, &'static str)],
    connection: &mut PgConnection,
) -> Result<(), MigrateError> {
    let migration = |&(version, name, sql): &(i64, &'static str, &'static str)| {
        Migration::new(version, name.into(), MigrationType::Simple, sql.into_sql_str(), false)
    };
    let mut migrator = Migrator::with_migrations(migrations.iter().map(migration).collect());
    migrator.create_schema("agq");
    migrator.dangerous_set_table_name("agq.migrations");
    migrator.run_direct(None, connection, false).await
}

/// Creates the schema of an earlier version, which had the first `count` migrations.
#[cfg(test)]
pub(super) async fn migrate_first(count: usize, connection: &mut PgConnection) -> Result<(), MigrateError> {
    migrate_by(&MIGRATIONS[..count], connection).await
}

async fn is_up_to_date(connection: &mut PgConnection) -> Result<bool> {
    let sql = "SELECT to_regclass('agq.migrations') IS NOT NULL";
    if !query_scalar::<_, bool>(sql).fetch_one(&mut *connection).await? {
        return Ok(false);
    }
    let sql = "SELECT version FROM agq.migrations WHERE success ORDER BY version";
    let applied: Vec<i64> = query_scalar(sql).fetch_all(connection).await?;
    Ok(applied == MIGRATIONS.map(|(version, ..)| version))
}

/// Returns the message of the database without the context that the migrator adds.
pub(super) fn message(error: &MigrateError) -> String {
    match error {
        MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => errors::message(error),
        other => other.to_string(),
    }
}

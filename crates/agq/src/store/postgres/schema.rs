//! The tables, and how they come to be: migrations, each applied once, by one node while the others wait.

use sqlx::{
    Connection, PgConnection, SqlSafeStr,
    migrate::{MigrateError, Migration, MigrationType, Migrator},
    postgres::PgConnectOptions,
};

use super::writer;

/// Number, name, SQL. What was released is never changed.
const MIGRATIONS: [(i64, &str, &str); 3] = [
    (1, "queue", include_str!("migrations/0001_queue.sql")),
    (2, "listening", include_str!("migrations/0002_listening.sql")),
    (3, "open job spec", include_str!("migrations/0003_open_job_spec.sql")),
];

/// Brings the schema to that of this program, however long that takes. Fails where a newer one has been at work.
pub(super) async fn migrate(options: &PgConnectOptions) -> Result<(), MigrateError> {
    let migration = |(version, name, sql): (i64, &'static str, &'static str)| {
        Migration::new(version, name.into(), MigrationType::Simple, sql.into_sql_str(), false)
    };
    let mut migrator = Migrator::with_migrations(MIGRATIONS.map(migration).into());
    migrator.create_schema("agq");
    migrator.dangerous_set_table_name("agq.migrations");
    migrator.run_direct(None, &mut PgConnection::connect_with(options).await?, false).await
}

/// What was said, once.
pub(super) fn said(error: &MigrateError) -> String {
    match error {
        MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => writer::said(error),
        other => other.to_string(),
    }
}

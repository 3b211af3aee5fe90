//! `agq migrate`: creates or upgrades the tables in a PostgreSQL database.

use super::say;
use crate::{config::MigrateArgs, store::postgres};

pub(super) fn migrate(args: &MigrateArgs) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let place = runtime.block_on(postgres::migrate(&args.store))?;
    say(&format!("the tables of agq in {place} are up to date"))
}

//! Contract tests: scripts that every store runs, with equal answers. A script has commands and
//! their expected answers (golden files in `scripts`).
//!
//! `UPDATE_GOLDENFILES=1 cargo nextest run contract` rewrites the expected answers. Review the
//! difference before you commit it.

mod budgets;
mod claims;
mod commands;
mod concurrency_keys;
mod keys;
mod own;
mod shares;
mod shown;

use std::{cell::OnceCell, error::Error, path::Path, sync::Arc};

use e2e::Database;
use futures_util::FutureExt;
use goldenscript::{Command, Context, Runner};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::{
    OpenOptions, Store,
    postgres::{PostgresSettings, PostgresStore},
    redb::RedbStore,
};

type Opener = fn(&StoreEnvironment) -> Arc<dyn Store>;

struct StoreEnvironment {
    dir: TempDir,
    runtime: Runtime,
    database: OnceCell<Database>,
}

struct Contract {
    environment: StoreEnvironment,
    open: Opener,
    store: Option<Arc<dyn Store>>,
}

impl Contract {
    fn new(open: Opener) -> Self {
        let (runtime, dir) = (Runtime::new().unwrap(), tempfile::tempdir().unwrap());
        let environment = StoreEnvironment { dir, runtime, database: OnceCell::new() };
        let store = Some(open(&environment));
        Self { environment, open, store }
    }
}

impl Runner for Contract {
    type Command = Command;

    fn run(&mut self, command: &Command, _context: &Context) -> Result<String, Box<dyn Error>> {
        let mut args = command.consume_args();
        let runtime = self.environment.runtime.handle().clone();
        let _inside = runtime.enter();
        if command.name == "reopen" {
            args.reject_next()?;
            self.store = None;
            self.store = Some((self.open)(&self.environment));
            return Ok(String::new());
        }
        let store = Arc::clone(self.store.as_ref().ok_or("no store")?);
        let mut answer = None;
        for run in [keys::run, budgets::run, own::run, commands::run] {
            if answer.is_none() {
                answer = run(&*store, &command.name, &mut args)?;
            }
        }
        let answer = answer.ok_or_else(|| format!("unknown command {}", command.name))?;
        args.reject_next()?;
        let mut lines = runtime.block_on(answer)?;
        // The notifications of the store are part of the answer.
        let jobs = runtime.block_on(async { store.notifier().jobs().now_or_never() });
        let lists = runtime.block_on(async { store.notifier().lists().now_or_never() });
        if jobs.is_some() {
            lines.push("announced: jobs".into());
        }
        for list in lists.into_iter().flat_map(|pushed| pushed.lists) {
            lines.push(format!("announced: {}", keys::text(&list)));
        }
        Ok(lines.join("\n"))
    }
}

fn run(script: &str, open: Opener) {
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/store/contract/scripts");
    goldenscript::run(&mut Contract::new(open), scripts.join(script)).unwrap();
}

fn redb(environment: &StoreEnvironment) -> Arc<dyn Store> {
    let store =
        RedbStore::open(&environment.dir.path().join("contract.redb"), OpenOptions::default()).unwrap();
    wanting(Arc::new(store))
}

fn postgres(environment: &StoreEnvironment) -> Arc<dyn Store> {
    let url = environment.database.get_or_init(Database::new).url();
    wanting(Arc::new(
        environment
            .runtime
            .handle()
            .block_on(PostgresStore::open(&url, PostgresSettings::default()))
            .unwrap(),
    ))
}

/// Enables wake-ups for jobs and list elements, so that the notifier announces them.
fn wanting(store: Arc<dyn Store>) -> Arc<dyn Store> {
    store.notifier().set_job_interest(true);
    store.notifier().set_list_interest(true);
    store
}

macro_rules! contract {
    ($($script:ident)*) => {
        mod on_redb {
            $(#[test]
            fn $script() {
                super::run(stringify!($script), super::redb);
            })*
        }

        mod on_postgres {
            $(#[test]
            fn $script() {
                super::run(stringify!($script), super::postgres);
            })*
        }
    };
}

/// On redb alone: PostgreSQL finds a limit unused only after the lanes that name it are removed.
#[test]
fn unused_limits_are_removed() {
    run("unused_limits", redb);
}

contract! { unique_jobs budgets blobs plans actions open_actions halts retention queues claims sandboxes updates due workers strings lists sorted_sets long_keys notes own_jobs limits owners quantities reservations memory_retries held_back }

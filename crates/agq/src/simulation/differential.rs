//! Differential simulation: repeats the operations of a world on PostgreSQL. Both stores must give
//! the same replies.

use std::{cell::RefCell, rc::Rc, sync::Arc};

use agenix_protocol::{
    request::{Command, Request},
    resp::Reply,
};
use bytes::Bytes;
use futures_executor::{LocalPool, LocalSpawner};
use futures_util::{
    FutureExt,
    future::{AbortHandle, abortable},
    task::LocalSpawnExt,
};
use tokio::runtime::Runtime;

use crate::{
    app::{AppState, PlanPolicy},
    auth::audit_log::AuditLog,
    clock::{Clock, TimeSource},
    resp::dispatch,
    resp::outcome::CommandOutcome,
    settings::ServiceSettings,
    simulation::{
        actors::close_connection,
        blob_disk::BlobDisk,
        ojs_jobs,
        operations::Operation,
        run::{SeedFailure, SeedScript, guarded},
        steps::key_command,
        time::SimulatedTime,
        world::World,
    },
    startup::services,
    store::{DocumentStore, Store, postgres::PostgresStore},
};

/// Commands whose replies depend on the store.
const OWN: [&str; 1] = ["INFO"];

/// Runs a seed without faults on redb, and then on the PostgreSQL at `url`, whose content is
/// deleted.
///
/// Returns the number of compared replies. `event_log` gets the events on redb.
pub(super) fn compare(
    script: &SeedScript,
    image: &[u8],
    url: &str,
    event_log: &mut Vec<String>,
) -> Result<usize, SeedFailure> {
    let at = |step| move |message| SeedFailure { step, message };
    let mut world = World::orderly(script.seed, image, true).map_err(at(Some(0)))?;
    let played = script.play(&mut world);
    *event_log = world.event_log.take().unwrap_or_default();
    played?;
    let (settings, time) = (world.settings.clone(), SimulatedTime::new(world.time_seed));
    let operations = world.operations.take().unwrap_or_default().all;
    guarded_count(|| PostgresReplica::begin(url, &time, &settings)?.run_all(&operations)).map_err(at(None))
}

fn guarded_count(work: impl FnOnce() -> Result<usize, String>) -> Result<usize, String> {
    let mut count = 0;
    guarded(|| {
        count = work()?;
        Ok(())
    })?;
    Ok(count)
}

/// agq without its network layer, on PostgreSQL.
struct PostgresReplica {
    app: Arc<AppState>,
    store: Arc<PostgresStore>,
    time: SimulatedTime,
    pool: LocalPool,
    spawner: LocalSpawner,
    replies: Rc<RefCell<Vec<(u64, Reply)>>>,
    aborts: Vec<(u64, AbortHandle)>,
    /// Requests since the last comparison, for the message of a failure.
    asked: Vec<(u64, String)>,
    // Declared last, because the other fields need the runtime until they are dropped.
    runtime: Runtime,
}

impl PostgresReplica {
    fn begin(url: &str, time: &SimulatedTime, settings: &ServiceSettings) -> Result<Self, String> {
        let shown = |error: anyhow::Error| format!("{error:#}");
        let runtime = Runtime::new().map_err(|error| error.to_string())?;
        // The store on redb draws a random number to name its write-ahead log. Draw one here as
        // well, so that later numbers are equal.
        let _name = time.random();
        let store = runtime.block_on(PostgresStore::open_empty(url)).map_err(shown)?;
        let store = Arc::new(store);
        let clock = Clock::of(Arc::new(time.clone()));
        let audit = AuditLog::open(None).map_err(shown)?;
        let (blobs, of_store) = (Arc::new(BlobDisk::new(time)), Arc::clone(&store) as Arc<dyn Store>);
        let (app, works) = services::build(
            of_store,
            Some(blobs),
            None,
            clock,
            audit,
            PlanPolicy::default(),
            settings.clone(),
        );
        let mut pool = LocalPool::new();
        {
            let _inside = runtime.enter();
            pool.run_until(crate::service::workers::recover_after_restart(&app))
                .map_err(|error| error.to_string())?;
        }
        let spawner = pool.spawner();
        for work in works {
            spawner.spawn_local(work).expect("the pool is there as long as its replica");
        }
        let (replies, time) = (Rc::default(), time.clone());
        let mut replica =
            Self { app, store, time, pool, spawner, replies, aborts: Vec::new(), asked: Vec::new(), runtime };
        replica.rest();
        Ok(replica)
    }

    /// Executes the operations. Returns the number of equal replies.
    fn run_all(mut self, operations: &[Operation]) -> Result<usize, String> {
        let mut compared = 0;
        for one in operations {
            match one {
                Operation::Ask { number, caller, words } => {
                    let bytes: Vec<Bytes> =
                        words.iter().map(|word| Bytes::copy_from_slice(word.as_bytes())).collect();
                    let (command, request): (&'static Command, Request) =
                        Request::parse(&bytes).map_err(|error| error.line())?;
                    let run = dispatch::run(Arc::clone(&self.app), Arc::clone(caller), command, request);
                    self.asked.push((*number, words.join(" ")));
                    self.spawn(*number, run);
                }
                Operation::Transact { number, commands } => {
                    let queued = commands.iter().map(|words| key_command(words)).collect::<Result<_, _>>()?;
                    self.asked.push((*number, format!("MULTI {commands:?}")));
                    self.spawn(*number, dispatch::exec(Arc::clone(&self.app), queued));
                }
                Operation::Ojs { number, operation } => {
                    self.asked.push((*number, format!("{operation:?}")));
                    self.spawn(*number, ojs_jobs::act(Arc::clone(&self.app), operation.clone()));
                }
                Operation::Forgotten { notes, lanes } => self.compare_rows(notes, *lanes)?,
                Operation::GoAway(number) => {
                    if let Some(at) = self.aborts.iter().position(|(known, _)| known == number) {
                        self.aborts.swap_remove(at).1.abort();
                    }
                    self.rest();
                }
                Operation::Close(actor) => {
                    let close = close_connection(&self.app, actor).map(drop);
                    self.spawner.spawn_local(close).expect("the pool is there as long as its replica");
                    self.rest();
                }
                Operation::Pass(ms) => {
                    self.time.pass(*ms);
                    self.rest();
                }
                Operation::Rest(expected) => {
                    self.rest();
                    compared += self.compare(expected)?;
                }
            }
        }
        Ok(compared)
    }

    fn spawn(&mut self, number: u64, work: impl Future<Output = CommandOutcome> + 'static) {
        let (work, abort) = abortable(work);
        let replies = Rc::clone(&self.replies);
        let told =
            work.map(move |done| replies.borrow_mut().extend(done.ok().map(|done| (number, done.reply))));
        self.spawner.spawn_local(told).expect("the pool is there as long as its replica");
        self.aborts.push((number, abort));
        self.rest();
    }

    /// Runs all tasks until they wait for time or for a request.
    fn rest(&mut self) {
        let _inside = self.runtime.enter();
        loop {
            self.pool.run_until(self.store.until_idle());
            self.pool.run_until_stalled();
            if self.store.is_idle() {
                return;
            }
        }
    }

    /// Compares the documents of limits and unique kinds, and checks that every lane has jobs.
    fn compare_rows(&self, notes: &[Vec<(String, String)>], lanes: usize) -> Result<(), String> {
        for (kind, theirs) in ojs_jobs::OF_JOBS.into_iter().zip(notes) {
            let ours =
                self.runtime.block_on(self.store.documents(kind)).map_err(|error| error.to_string())?;
            if ours != *theirs {
                return Err(format!("the notes are {theirs:?} on redb, and {ours:?} on PostgreSQL"));
            }
        }
        let kept = self.runtime.block_on(self.store.lane_count()).map_err(|error| error.to_string())?;
        if kept > lanes {
            return Err(format!("PostgreSQL keeps {kept} lanes, and jobs are in {lanes}"));
        }
        Ok(())
    }

    fn compare(&mut self, expected: &[(u64, Reply)]) -> Result<usize, String> {
        let mut replies = self.replies.take();
        replies.sort_by_key(|(number, _)| *number);
        let asked = std::mem::take(&mut self.asked);
        let question = |number: u64| {
            asked
                .iter()
                .find(|(known, _)| *known == number)
                .map_or("what was asked before", |(_, words)| words)
        };
        for at in 0..replies.len().max(expected.len()) {
            let (theirs, ours) = (expected.get(at), replies.get(at));
            let number = theirs.or(ours).map_or(0, |(number, _)| *number);
            let is_own = OWN.iter().any(|word| question(number).starts_with(word));
            if theirs != ours
                && !(is_own && theirs.map(|(number, _)| number) == ours.map(|(number, _)| number))
            {
                return Err(format!(
                    "{number}: {} is answered {:?} on redb, and {:?} on PostgreSQL",
                    question(number),
                    theirs,
                    ours
                ));
            }
        }
        Ok(replies.len())
    }
}

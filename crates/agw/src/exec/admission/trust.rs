//! Trust: checks the signed orders of jobs with the trust file of the worker's owner (ADR 25).
//!
//! agq stores orders and decides nothing about them. The signatures of an envelope are checked
//! once. Time and input are checked for each attempt.

use std::{
    collections::{BTreeSet, VecDeque},
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock},
};

use agenix_order::{Grant, Opened, TrustFile, Unacceptable, open};
use agenix_protocol::{
    documents::{JobDocument, Plan, PlanCache},
    ids::{JobId, PlanId},
    time::Timestamp,
};
use anyhow::{Context, bail};
use tracing::info;

use super::{
    denied::Denied,
    rights::Rights,
    serial_file::{SerialFile, UseError},
};
use crate::{clock::now, exec::spool::SpoolError};

/// Maximum number of orders whose verified signatures are cached.
const MAX_ORDERS: usize = 16;
/// Maximum number of bytes of the cached envelopes.
const MAX_BYTES: usize = 1024 * 1024;

/// Table `[trust]` of the file of `--config`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TrustSettings {
    /// Trust file.
    pub(crate) file: PathBuf,
    /// Cluster of this worker.
    pub(crate) cluster: String,
    /// File of the serials that were used.
    pub(crate) serials: Option<PathBuf>,
}

/// Trust file, and the orders that it has opened.
#[derive(Debug)]
pub(super) struct Trust {
    settings: TrustSettings,
    file: RwLock<Arc<TrustFile>>,
    opened: Mutex<VecDeque<Arc<OpenedOrder>>>,
    serials: Option<SerialFile>,
    /// Sandbox profiles of the worker. `None` if the worker runs no job in a sandbox.
    profiles: Option<BTreeSet<String>>,
}

/// Order whose signatures are valid by a trust file.
#[derive(Debug)]
struct OpenedOrder {
    envelope: Box<str>,
    by: Arc<TrustFile>,
    opened: Opened,
    plan: Arc<Plan>,
    /// Plan of a job that equals the plan of the order.
    same: Mutex<Option<Arc<Plan>>>,
}

impl Trust {
    pub(super) fn read(settings: TrustSettings) -> anyhow::Result<Self> {
        let file = read(&settings.file)?;
        log(&settings.file, &file);
        let serials = settings.serials.as_deref().map(|path| SerialFile::open(path, now())).transpose()?;
        let (file, opened) = (RwLock::new(Arc::new(file)), Mutex::default());
        Ok(Self { settings, file, opened, serials, profiles: None })
    }

    /// Sets the sandbox profiles that the trust file may grant after the start of the worker.
    pub(super) fn set_profiles(&mut self, profiles: Option<BTreeSet<String>>) {
        self.profiles = profiles;
    }

    /// Reads the trust file again. After an error, the former trust file stays valid, but a new
    /// file that only grants a profile that the worker lacks still revokes keys and serials.
    pub(super) fn reload(&self) -> anyhow::Result<()> {
        let file = read(&self.settings.file)?;
        if let Some((signer, profile)) = self.missing_profile(&file) {
            self.replace(self.file().with_revocations_of(&file));
            bail!(
                "signers.{signer}.profile is '{profile}', which this worker does not have: restart agw, or correct the name; only [revoked] of the new file holds"
            );
        }
        log(&self.settings.file, &file);
        self.replace(file);
        Ok(())
    }

    fn replace(&self, file: TrustFile) {
        *self.file.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(file);
        self.opened().clear();
    }

    /// Returns the first signer in `file` with a profile that the worker does not have.
    fn missing_profile(&self, file: &TrustFile) -> Option<(String, String)> {
        let profiles = self.profiles.as_ref()?;
        file.signers().find_map(|(name, signer)| match &signer.grant {
            Grant::Profile(profile) if !profiles.contains(profile) => {
                Some((name.to_owned(), profile.clone()))
            }
            Grant::Profile(_) | Grant::Full => None,
        })
    }

    /// Returns the sandbox profiles that the trust file grants.
    pub(super) fn profiles(&self) -> Vec<String> {
        let file = self.file();
        let profile = |grant: &Grant| match grant {
            Grant::Full => None,
            Grant::Profile(profile) => Some(profile.clone()),
        };
        file.signers().filter_map(|(_, signer)| profile(&signer.grant)).collect()
    }

    /// Returns the plan of a job, and its rights. The plan of a signed job comes from the signed
    /// bytes.
    pub(super) fn authorise(
        &self,
        job: &JobDocument,
        plans: &PlanCache,
        now: Timestamp,
    ) -> Result<(Arc<Plan>, Rights), Denied> {
        let plan = plans.read(job.plan.get());
        let plan = plan.map_err(|error| Denied::Failed(format!("the plan cannot be read: {error}")))?;
        let Some(envelope) = &job.order else { return Ok((plan, Rights::Stranger)) };
        let file = self.file();
        let order = self.open(envelope.get(), &file)?;
        if !order.has_plan(&plan, &job.plan_id) {
            return Err(Denied::Refused("the plan of the job is not the plan of its signed order".into()));
        }
        let verified = order.opened.verified(&file, &self.settings.cluster, now)?;
        verified.order.check_input(&job.inputs, verified.inputs)?;
        Ok((Arc::clone(&order.plan), Rights::Signed(Box::new(verified))))
    }

    /// Records a use of the order by `job` on disk, if its terms limit its uses or its jobs. The
    /// outer error is that of the disk, and a later call may succeed.
    pub(super) fn record_use(
        &self,
        rights: &Rights,
        job: &JobId,
        now: Timestamp,
    ) -> io::Result<Result<(), Denied>> {
        let Rights::Signed(verified) = rights else { return Ok(Ok(())) };
        let terms = &verified.order.terms;
        if terms.uses.is_none() && terms.limits.jobs.is_none() {
            return Ok(Ok(()));
        }
        let Some(serials) = &self.serials else {
            let reason =
                "the order limits its uses or its jobs, and this worker records none: set trust.serials";
            return Ok(Err(Denied::Refused(reason.into())));
        };
        match serials.use_once(terms, job, now) {
            Ok(()) => Ok(Ok(())),
            Err(UseError::Unacceptable(reason)) => Ok(Err(reason.into())),
            // No job causes the error, and the other jobs that start would meet it, too.
            Err(UseError::Unwritten(error)) => Err(SpoolError::of(serials.directory(), error)),
        }
    }

    /// Returns an order whose signatures are valid, from the cache if possible.
    fn open(&self, envelope: &str, file: &Arc<TrustFile>) -> Result<Arc<OpenedOrder>, Unacceptable> {
        // Another job may have opened an order with the trust file before a reload.
        let is_known =
            |known: &&Arc<OpenedOrder>| *known.envelope == *envelope && Arc::ptr_eq(&known.by, file);
        if let Some(known) = self.opened().iter().find(is_known) {
            return Ok(Arc::clone(known));
        }
        let opened = open(envelope, file)?;
        let plan = Arc::new(opened.order().plan.clone());
        let (envelope, by) = (envelope.into(), Arc::clone(file));
        let newest = OpenedOrder { envelope, by, opened, plan, same: Mutex::default() };
        let newest = Arc::new(newest);
        let mut known = self.opened();
        known.push_front(Arc::clone(&newest));
        known.truncate(MAX_ORDERS);
        let bytes = |known: &VecDeque<Arc<OpenedOrder>>| {
            known.iter().map(|known| known.envelope.len()).sum::<usize>()
        };
        while known.len() > 1 && bytes(&known) > MAX_BYTES {
            known.pop_back();
        }
        Ok(newest)
    }

    fn file(&self) -> Arc<TrustFile> {
        Arc::clone(&self.file.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn opened(&self) -> MutexGuard<'_, VecDeque<Arc<OpenedOrder>>> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenedOrder {
    /// Returns true if `plan`, which agq stores as `plan_id`, is that of the order. agq generates
    /// an id for a plan without one.
    fn has_plan(&self, plan: &Arc<Plan>, plan_id: &PlanId) -> bool {
        let mut same = self.same.lock().unwrap_or_else(PoisonError::into_inner);
        let is_known = same.as_ref().is_some_and(|same| Arc::ptr_eq(same, plan));
        if plan.plan_id.as_ref() != Some(plan_id) {
            return false;
        }
        let is_same = is_known
            || *self.plan == **plan
            || (self.plan.plan_id.is_none()
                && Plan { plan_id: Some(plan_id.clone()), ..Plan::clone(&self.plan) } == **plan);
        if is_same {
            *same = Some(Arc::clone(plan));
        }
        is_same
    }
}

fn read(path: &Path) -> anyhow::Result<TrustFile> {
    let shown = path.display();
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read the trust file {shown}"))?;
    TrustFile::parse(&text).with_context(|| format!("trust file {shown}"))
}

fn log(path: &Path, file: &TrustFile) {
    let shown = path.display();
    let names: Vec<&str> = file.signers().map(|(name, _)| name).collect();
    info!(
        "signed plans are checked with {shown}, which trusts {} signers: {}",
        names.len(),
        names.join(", ")
    );
}

#[cfg(test)]
mod tests;

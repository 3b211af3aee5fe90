//! What this machine offers: its programs, and what its agentic units say of themselves (worker spec §10).

use std::{
    collections::BTreeMap,
    ffi::OsString,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use tokio::{
    sync::Semaphore,
    task::{JoinHandle, JoinSet},
    time::timeout,
};
use tracing::{debug, warn};

use crate::exec::{helper_command, programs::Programs};

/// How long a unit may take to describe itself.
const DESCRIBE_BOUND: Duration = Duration::from_secs(5);
/// How long all of them may take: the worker registers after that.
const ALL_BOUND: Duration = Duration::from_secs(8);
/// How many are asked at once.
const AT_ONCE: usize = 4;

/// What a look at the machine found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FoundCapabilities {
    pub(crate) programs: Programs,
    /// By the names of the units.
    pub(crate) descriptions: BTreeMap<String, String>,
}

/// Where to look, and for what.
#[derive(Debug, Clone)]
pub(crate) struct CapabilitySearch {
    /// The directories, as the PATH variable lists them.
    pub(crate) path: OsString,
    /// Nothing but these programs, where it is given.
    pub(crate) allowed: Option<Vec<String>>,
}

impl CapabilitySearch {
    /// Looks, and asks the units.
    pub(crate) async fn look(self) -> FoundCapabilities {
        let Self { path, allowed } = self;
        let find = move || Programs::find(&path, allowed.as_deref());
        let programs = tokio::task::spawn_blocking(find).await.unwrap_or_default();
        programs.warn_of_gaps();
        let descriptions = descriptions(programs.units()).await;
        FoundCapabilities { programs, descriptions }
    }
}

async fn descriptions(units: Vec<(String, PathBuf)>) -> BTreeMap<String, String> {
    let slots = Arc::new(Semaphore::new(AT_ONCE));
    let mut asked = JoinSet::new();
    for (name, path) in units {
        let slots = Arc::clone(&slots);
        asked.spawn(async move {
            let _slot = slots.acquire().await;
            describe(&name, &path).await.map(|description| (name, description))
        });
    }
    let mut found = BTreeMap::new();
    let all = async {
        while let Some(told) = asked.join_next().await {
            found.extend(told.ok().flatten());
        }
    };
    if timeout(ALL_BOUND, all).await.is_err() {
        let seconds = ALL_BOUND.as_secs();
        warn!("not every agentic unit has described itself within {seconds} s; the others go without");
    }
    found
}

/// What a unit says of itself; one that fails or says nothing has no description.
async fn describe(name: &str, program: &Path) -> Option<String> {
    match helper_command::run(program, name, &["--describe".to_owned()], DESCRIBE_BOUND).await {
        Ok(said) if said.exit_code == 0 && !said.timed_out => {
            Some(said.stdout.trim().to_owned()).filter(|description| !description.is_empty())
        }
        Ok(said) => {
            debug!(exit_code = said.exit_code, timed_out = said.timed_out, "{name} --describe failed");
            None
        }
        Err(error) => {
            debug!(%error, "{name} --describe could not be run");
            None
        }
    }
}

/// Looks at the machine again, beside everything else.
pub(crate) struct Rescan {
    pub(crate) search: CapabilitySearch,
    under_way: Option<JoinHandle<FoundCapabilities>>,
}

impl Rescan {
    pub(crate) fn new(search: CapabilitySearch) -> Self {
        Self { search, under_way: None }
    }

    /// Goes off; only the last one sent comes back.
    pub(crate) fn send(&mut self) {
        let sent = tokio::spawn(self.search.clone().look());
        if let Some(before) = self.under_way.replace(sent) {
            before.abort();
        }
    }

    /// What was found, when it was sent and is back. Dropped before, it is not lost.
    pub(crate) async fn back(&mut self) -> FoundCapabilities {
        let found = match &mut self.under_way {
            Some(sent) => sent.await,
            None => std::future::pending().await,
        };
        self.under_way = None;
        match found {
            Ok(found) => found,
            Err(_aborted) => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::{CapabilitySearch, Rescan};

    #[tokio::test]
    async fn units_describe_themselves_or_do_without() {
        let dir = tempfile::tempdir().unwrap();
        for (name, script) in [
            ("agx-ocr", "test \"$*\" = --describe && echo ' reads text from images '"),
            ("agx-mute", "true"),
            ("agx-broken", "echo this does not count; exit 1"),
            ("sort", "echo not a unit"),
        ] {
            fs::write(dir.path().join(name), format!("#!/bin/sh\n{script}\n")).unwrap();
            fs::set_permissions(dir.path().join(name), fs::Permissions::from_mode(0o755)).unwrap();
        }
        let mut rescan = Rescan::new(CapabilitySearch { path: dir.path().into(), allowed: None });
        rescan.send();
        let found = rescan.back().await;
        assert_eq!(found.programs.len(), 4);
        let described = found.descriptions.into_iter().collect::<Vec<_>>();
        assert_eq!(described, [("agx-ocr".to_owned(), "reads text from images".to_owned())]);
    }
}

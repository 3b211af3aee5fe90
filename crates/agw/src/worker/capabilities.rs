//! Capabilities of this machine: its programs, and the descriptions of its agentic units (worker
//! spec §10).

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

use crate::exec::{helper_command, programs::OfferedPrograms, sandbox::sandboxes::Sandboxes};

/// Maximum run time of one `--describe` command.
const DESCRIBE_BOUND: Duration = Duration::from_secs(5);
/// Maximum time for the descriptions of all units, because the worker registers only afterwards.
const ALL_BOUND: Duration = Duration::from_secs(8);
/// Maximum number of `--describe` commands that run at the same time.
const AT_ONCE: usize = 4;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FoundCapabilities {
    pub(crate) programs: OfferedPrograms,
    /// Descriptions by the names of the units.
    pub(crate) descriptions: BTreeMap<String, String>,
}

#[derive(Debug, Clone)]
pub(crate) struct CapabilitySearch {
    /// Directories, separated as in the PATH variable.
    pub(crate) path: OsString,
    /// Names of the only programs to offer. `None` allows all programs.
    pub(crate) allowed: Option<Vec<String>>,
    /// True if a task may name any program by its path.
    pub(crate) has_paths: bool,
    /// Sandboxes of the worker, in which agentic units describe themselves.
    pub(crate) sandboxes: Option<Arc<Sandboxes>>,
}

impl CapabilitySearch {
    /// Finds the programs, and runs `--describe` of each agentic unit.
    pub(crate) async fn look(self) -> FoundCapabilities {
        let Self { path, allowed, has_paths, sandboxes } = self;
        let find = move || OfferedPrograms::find(&path, allowed.as_deref()).with_paths(has_paths);
        let programs = tokio::task::spawn_blocking(find).await.unwrap_or_default();
        programs.warn_of_gaps();
        let descriptions = descriptions(programs.units(), sandboxes.as_ref()).await;
        FoundCapabilities { programs, descriptions }
    }
}

async fn descriptions(
    units: Vec<(String, PathBuf)>,
    sandboxes: Option<&Arc<Sandboxes>>,
) -> BTreeMap<String, String> {
    let slots = Arc::new(Semaphore::new(AT_ONCE));
    let mut asked = JoinSet::new();
    for (name, path) in units {
        let (slots, sandboxes) = (Arc::clone(&slots), sandboxes.cloned());
        asked.spawn(async move {
            let _slot = slots.acquire().await;
            describe(&name, &path, sandboxes.as_deref()).await.map(|description| (name, description))
        });
    }
    let mut found = BTreeMap::new();
    let all = async {
        while let Some(described) = asked.join_next().await {
            found.extend(described.ok().flatten());
        }
    };
    if timeout(ALL_BOUND, all).await.is_err() {
        let seconds = ALL_BOUND.as_secs();
        warn!("some agentic units did not answer --describe within {seconds} s and have no description");
    }
    found
}

/// Returns the description that an agentic unit prints, unless it fails or prints nothing.
async fn describe(name: &str, program: &Path, sandboxes: Option<&Sandboxes>) -> Option<String> {
    let ran = async {
        let sandbox = match sandboxes {
            Some(sandboxes) => Some(sandboxes.begin_description(program).await?),
            None => None,
        };
        helper_command::run((program, name), &["--describe".to_owned()], DESCRIBE_BOUND, sandbox).await
    };
    match ran.await {
        Ok(output) if output.exit_code == 0 && !output.timed_out => {
            Some(output.stdout.trim().to_owned()).filter(|description| !description.is_empty())
        }
        Ok(output) => {
            debug!(exit_code = output.exit_code, timed_out = output.timed_out, "{name} --describe failed");
            None
        }
        Err(error) => {
            debug!(%error, "{name} --describe could not be run");
            None
        }
    }
}

/// Capability search that runs while the worker does its other work.
pub(crate) struct Rescan {
    pub(crate) search: CapabilitySearch,
    under_way: Option<JoinHandle<FoundCapabilities>>,
}

impl Rescan {
    pub(crate) fn new(search: CapabilitySearch) -> Self {
        Self { search, under_way: None }
    }

    /// Starts a search, and aborts an earlier search that is still running.
    pub(crate) fn send(&mut self) {
        let sent = tokio::spawn(self.search.clone().look());
        if let Some(before) = self.under_way.replace(sent) {
            before.abort();
        }
    }

    /// Waits for the result, for ever without a search. Cancel-safe: a drop loses no result.
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
    async fn capabilities_describe_units_that_answer_describe() {
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
        let mut rescan = Rescan::new(CapabilitySearch {
            path: dir.path().into(),
            allowed: None,
            has_paths: false,
            sandboxes: None,
        });
        rescan.send();
        let found = rescan.back().await;
        assert_eq!(found.programs.len(), 4);
        let described = found.descriptions.into_iter().collect::<Vec<_>>();
        assert_eq!(described, [("agx-ocr".to_owned(), "reads text from images".to_owned())]);
    }
}

//! File of the worker's policy.

use std::{path::Path, sync::Arc};

use agenix_order::sha256;
use agenix_policy::Policy;
use anyhow::Context;
use tracing::info;

/// Policy, and the digest of its file.
#[derive(Debug)]
pub(super) struct LoadedPolicy {
    pub(super) policy: Policy,
    /// SHA-256 of the file, as `sha256:…`.
    pub(super) digest: Arc<str>,
}

impl LoadedPolicy {
    pub(super) fn profile(&self) -> Option<&str> {
        self.policy.profile()
    }
}

/// Reads a policy, and checks its examples.
pub(super) fn read(file: &Path) -> anyhow::Result<LoadedPolicy> {
    let shown = file.display();
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read the policy {shown}"))?;
    let advice = || format!("policy {shown} (`agx policy check` shows all its faults)");
    let policy = Policy::parse_with_examples(&text).with_context(advice)?;
    let digest = sha256(text.as_bytes()).into();
    info!("jobs are judged by the policy {shown}, {digest}");
    Ok(LoadedPolicy { policy, digest })
}

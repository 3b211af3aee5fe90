//! File of the worker's policy.

use std::path::Path;

use agenix_policy::Policy;
use anyhow::Context;
use tracing::info;

/// Reads a policy, and checks its examples.
pub(super) fn read(file: &Path) -> anyhow::Result<Policy> {
    let shown = file.display();
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read the policy {shown}"))?;
    let advice = || format!("policy {shown} (`agx policy check` shows all its faults)");
    let policy = Policy::parse_with_examples(&text).with_context(advice)?;
    info!("jobs are judged by the policy {shown}");
    Ok(policy)
}

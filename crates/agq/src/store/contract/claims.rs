//! Claims of a script.

use std::sync::Arc;

use agenix_protocol::documents::{WorkerRegistration, WorkerSandbox, parse};
use agenix_rules::capability::ClaimantCapabilities;

use super::{
    commands::{Answer, Args, ScriptResult, at, number, show, words},
    shown,
};
use crate::store::{Claim, Claimant, Store};

/// Parses `can=sort,uniq sandbox=reader unmet=network offers='{"cpus":4}'`: a worker with two
/// programs, four processors, and two sandbox profiles, one of which it cannot enforce. Without
/// `can`, the claimant is no worker.
fn capabilities(args: &mut Args<'_>) -> ScriptResult<ClaimantCapabilities> {
    let (met, unmet) = (args.take_key("sandbox"), args.take_key("unmet"));
    let Some(can) = args.take_key("can") else { return Ok(ClaimantCapabilities::Anything) };
    let mut registration = WorkerRegistration::of("w".parse()?);
    registration.capabilities.tools = words(Some(can));
    let offers = args.take_key("offers").map(|json| parse(json.as_bytes())).transpose()?;
    registration.resources = offers.unwrap_or_default();
    let met_profiles = words(met).into_iter().map(|profile| (profile, Vec::new()));
    let profiles = words(unmet).into_iter().map(|profile| (profile, vec!["no Landlock".to_owned()]));
    let profiles = met_profiles.chain(profiles).collect();
    let has_sandbox = met.is_some() || unmet.is_some();
    registration.sandbox = has_sandbox.then(|| WorkerSandbox { profiles, ..WorkerSandbox::default() });
    Ok(ClaimantCapabilities::of(&registration))
}

pub(super) fn run(store: &dyn Store, name: &str, args: &mut Args<'_>) -> Answer {
    if name == "claim" {
        return claim(store, args);
    }
    Ok(show(store.used_resources(args.next_pos()), |used| {
        used.iter().map(|(holder, used)| format!("{holder}: {used}")).collect()
    }))
}

/// Parses `claim w1 w2 can=sort,uniq queues=fast,ready start=5`. w1 has waited longer than w2.
fn claim(store: &dyn Store, args: &mut Args<'_>) -> Answer {
    let now = at(args)?;
    let capabilities = Arc::new(capabilities(args)?);
    let holders: Vec<String> = std::iter::from_fn(|| args.next_pos()).map(str::to_owned).collect();
    let queues: Arc<[String]> = words(Some(args.take_key("queues").unwrap_or("ready"))).into();
    let start_timeout_ms = number(args, "start")?.unwrap_or(0);
    let claimant = |holder: &String| Claimant {
        holder: holder.as_str().into(),
        capabilities: Arc::clone(&capabilities),
        queues: Arc::clone(&queues),
        share_terms: Arc::default(),
        visibility_ms: None,
    };
    let claims = store.claim(holders.iter().map(claimant).collect(), now, start_timeout_ms);
    Ok(show(claims, move |claims| {
        let line = |(holder, claim): (&String, &Option<Claim>)| match claim {
            None => format!("{holder}: nothing"),
            Some(claim) => {
                let order = claim.order.as_ref().map_or(String::new(), |order| format!(" order={order}"));
                let uses = claim.resources.as_ref().map_or(String::new(), |uses| format!(" uses={uses}"));
                format!(
                    "{holder}: {} input={} plan={}{order}{uses}",
                    shown::job(&claim.job),
                    claim.input,
                    claim.plan
                )
            }
        };
        holders.iter().zip(&claims).map(line).collect()
    }))
}

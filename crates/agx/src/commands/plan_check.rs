//! `agx plan check`

use std::path::{Path, PathBuf};

use agenix_order::{Envelope, Grant, InputBounds, TrustFile};
use agenix_policy::{Decision, Judgement, Policy};
use agenix_protocol::{
    documents::{Plan, parse_object, profile_of_sandbox_tag, secret_of_tag},
    inputs::named_fields,
    limits::Limits,
    printable::one_line,
};
use agenix_rules::{capability::Needs, plan as rules};
use clap::Args;

use super::{
    plan_sign::{is_envelope, read_trust},
    policy::{self, read_policy},
    read,
};
use crate::{
    docs_url::docs_url,
    documents::{PlanChecked, PlanSignature},
    error::{CliError, Result},
    output::{OutputFormat, counted},
};

#[derive(Debug, Args)]
pub(crate) struct PlanCheckArgs {
    /// Plan in JSON, or a signed one; - reads stdin
    file: PathBuf,
    #[command(flatten)]
    judges: JudgeArgs,
}

#[derive(Debug, Default, PartialEq, Args)]
pub(super) struct JudgeArgs {
    /// Policy in TOML that judges the tasks too
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Trust file of a worker: shows how the worker would run the plan
    #[arg(long, value_name = "FILE")]
    trust: Option<PathBuf>,
    /// Signer of the trust file; without it, the plan is one that nobody has signed
    #[arg(long = "as", value_name = "NAME", requires = "trust")]
    signer: Option<String>,
}

impl JudgeArgs {
    /// Reads the files.
    pub(super) fn read(&self) -> Result<Judges> {
        let policy = self.policy.as_deref().map(read_policy).transpose()?;
        let trust = self.trust.as_deref().map(read_trust).transpose()?;
        let signer = self.signer.as_deref();
        let unknown = signer.zip(trust.as_ref()).filter(|(name, trust)| trust.signer(name).is_none());
        if let Some((name, trust)) = unknown {
            let names: Vec<&str> = trust.signers().map(|(name, _)| name).collect();
            return Err(CliError::usage(
                format!("--as: the trust file has no signer '{name}'"),
                format!("name one of {}", names.join(", ")),
            ));
        }
        Ok(Judges { policy, trust, signer: self.signer.clone() })
    }
}

/// Files that judge plans beside the rules.
pub(super) struct Judges {
    pub(super) policy: Option<Policy>,
    trust: Option<TrustFile>,
    /// Signer of the trust file.
    signer: Option<String>,
}

impl Judges {
    /// Judges a plan that the rules allow.
    pub(super) fn judge(&self, plan: &Plan) -> PlanChecked {
        let needs = rules::needs(plan);
        let signature = |trust: &TrustFile| signature_of(plan, trust, self.signer.as_deref());
        PlanChecked {
            valid: true,
            plan_id: plan.plan_id.clone(),
            tasks: plan.tasks.len(),
            tools: needs.tools,
            tags: needs.tags,
            labels: needs.labels,
            sandbox: plan.sandbox.clone(),
            judgement: self.policy.as_ref().map(|policy| policy.judge(plan)),
            signature: self.trust.as_ref().map(signature),
        }
    }
}

/// Checks a plan like agq with the default limits, judges it by a policy, and shows how a worker
/// with a trust file would run the plan.
pub(super) fn check(args: &PlanCheckArgs, output: OutputFormat) -> Result<()> {
    let plan = checked_plan(&args.file)?;
    let found = args.judges.read()?.judge(&plan);
    output.show("plan.check", &found, |found| text(found, &plan))?;
    verdict(&found)
}

/// Returns what is found about a plan as text for people.
pub(super) fn text(found: &PlanChecked, plan: &Plan) -> String {
    let tasks = counted(plan.tasks.len() as u64, "task", "tasks");
    let judged = found.judgement.iter().map(|judged| policy::plan_text(judged, &plan.tasks));
    let signature = found.signature.iter().map(signature_text);
    let needs = needs_text(&rules::needs(plan), plan);
    let lines = [format!("the plan is valid: {tasks}; its workers need {needs}")];
    lines.into_iter().chain(judged).chain(signature).collect::<Vec<_>>().join("\n")
}

/// Returns an error, and with it exit code 1, unless policy and worker allow the plan.
pub(super) fn verdict(found: &PlanChecked) -> Result<()> {
    policy::allowed(found.judgement.as_ref().map_or(Decision::Allow, |judgement| judgement.decision))?;
    match refusal(found).unbound_input {
        Some(_) => Err(CliError::NotAllowed("the worker refuses the order")),
        None => Ok(()),
    }
}

/// Reasons for which nobody runs a plan that the rules allow.
pub(super) struct RefusalReasons<'f> {
    /// Judgement of a policy that refuses the plan.
    pub(super) judgement: Option<&'f Judgement>,
    /// Input without a type, for which the worker refuses the plan.
    pub(super) unbound_input: Option<&'f str>,
}

/// Returns the reasons of a refusal, if there are any.
pub(super) fn refusal(found: &PlanChecked) -> RefusalReasons<'_> {
    let is_refused = |judgement: &&Judgement| judgement.decision == Decision::Refuse;
    RefusalReasons {
        judgement: found.judgement.as_ref().filter(is_refused),
        unbound_input: found.signature.as_ref().and_then(|signature| signature.unbound_input.as_deref()),
    }
}

/// Parses a plan, and checks it like agq with the default limits.
pub(super) fn parsed(json: &[u8]) -> Result<Plan, String> {
    rules::check_size(json.len(), &Limits::default()).map_err(|rejection| rejection.to_string())?;
    let plan = parse_object(json).map_err(|error| error.to_string())?;
    ruled(plan)
}

/// Returns the plan if the rules allow it.
fn ruled(plan: Plan) -> Result<Plan, String> {
    rules::check(&plan, &Limits::default()).map_err(|rejection| rejection.to_string())?;
    Ok(plan)
}

/// Reads a plan, or the plan of a signed order, and checks it.
fn checked_plan(file: &Path) -> Result<Plan> {
    let json = read(file)?;
    let plan = if is_envelope(&json) {
        let envelope = Envelope::parse(&json).map_err(|error| error.to_string());
        let order = envelope.and_then(|envelope| envelope.order().map_err(|error| error.to_string()));
        order.and_then(|order| ruled(order.plan))
    } else {
        parsed(&json)
    };
    plan.map_err(|problem| {
        CliError::usage(
            format!("{}: {problem}", file.display()),
            concat!("fix the plan; its form is described in ", docs_url!("protocol/plans.md")),
        )
    })
}

fn needs_text(needs: &Needs, plan: &Plan) -> String {
    // The text names the sandbox profile and the secrets instead of their tags.
    let tags = needs.tags.iter().filter(|tag| profile_of_sandbox_tag(tag).is_none());
    let tags = tags.map(|tag| match secret_of_tag(tag) {
        Some((name, tool)) => format!("the secret {name} for {tool}"),
        None => format!("the tag {tag}"),
    });
    let labels = needs.labels.iter().map(|(label, value)| format!("the label {label}={value}"));
    let sandbox = plan.sandbox.iter().map(|sandbox| format!("the sandbox profile {}", sandbox.profile));
    let all = needs.tools.iter().cloned().chain(tags).chain(labels).chain(sandbox);
    all.map(|need| one_line(&need)).collect::<Vec<_>>().join(", ")
}

/// Returns how a worker with the trust file runs a plan that `signer` has signed, or nobody.
fn signature_of(plan: &Plan, trust: &TrustFile, signer: Option<&str>) -> PlanSignature {
    let signer = signer.and_then(|name| Some((name, trust.signer(name)?)));
    let Some((name, signer)) = signer else { return PlanSignature::default() };
    let untyped = named_fields(plan).into_iter().map(|named| named.field);
    let mut untyped = untyped.filter(|field| !plan.inputs.contains_key(field));
    PlanSignature {
        signer: Some(name.to_owned()),
        full_trust: signer.grant == Grant::Full,
        profile: match &signer.grant {
            Grant::Full => None,
            Grant::Profile(profile) => Some(profile.clone()),
        },
        approvals: signer.approvals,
        approvers: signer.approvers.iter().cloned().collect(),
        unbound_input: untyped.next().filter(|_| signer.inputs == InputBounds::Required),
    }
}

fn signature_text(signature: &PlanSignature) -> String {
    let Some(signer) = &signature.signer else {
        return "signature: none; it runs in the sandbox profile of strangers, or is refused by a worker without one"
            .into();
    };
    let place = match &signature.profile {
        None => "outside of the sandbox".to_owned(),
        Some(profile) => format!("in the sandbox profile {profile}"),
    };
    let mut text = format!("signature of {signer}: it runs {place}");
    if signature.approvals > 0 {
        let approvers = signature.approvers.join(", ");
        text += &format!("; {} of {approvers} have to approve", signature.approvals);
    }
    if let Some(field) = &signature.unbound_input {
        text +=
            &format!("; refused, because the input '{field}' has no type: sign with --input {field}=TYPE");
    }
    text
}

#[cfg(test)]
mod tests {
    use agenix_protocol::documents::parse_object;
    use agenix_rules::plan::needs;

    use super::needs_text;

    #[test]
    fn needs_are_on_one_line() {
        let json =
            br#"{"tasks":[{"task_number":1,"command":"wc"}],"requires":{"tags":["a\nthe plan is valid"]}}"#;
        let plan = parse_object(json).unwrap();
        assert_eq!(needs_text(&needs(&plan), &plan), "wc, the tag a\\nthe plan is valid");
    }
}

//! `agx plan sign` and `agx plan verify`

use std::path::{Path, PathBuf};

use agenix_order::{
    Envelope, Grant, InputBounds, Order, OrderLimits, SignatureKind, Terms, TrustFile, inputs_root,
    verify as verify_order,
};
use agenix_protocol::{
    documents::{InputType, Plan, parse_object},
    limits::Limits,
    printable::one_line,
};
use agenix_rules::plan as rules;
use clap::Args;
use serde_json::Value;

use super::{plan_text::plan_lines, proved_inputs, read};
use crate::{
    docs_url::docs_url,
    documents::{PlanSigned, PlanVerified},
    error::{CliError, Result},
    output::OutputFormat,
    signing_keys::SigningKeys,
    util::{clock::now, duration::MAX_LIMIT_SECS},
};

/// Milliseconds of an hour.
const HOUR_MS: u64 = 3_600_000;
/// Maximum time for which an order is valid: a year.
const MAX_HOURS: u64 = 366 * 24;

#[derive(Debug, Args)]
pub(crate) struct SignArgs {
    /// Plan in JSON, or an order that others have signed and that you sign too; - reads stdin
    file: PathBuf,
    /// Your key; `agx key new` makes one
    #[arg(long, value_name = "NAME")]
    key: String,
    /// Only approve the order of another signer: the plan gets no rights from your key
    #[arg(long, conflicts_with = "TermArgs")]
    approve: bool,
    #[command(flatten)]
    terms: TermArgs,
}

#[derive(Debug, Default, PartialEq, Args)]
struct TermArgs {
    /// Cluster whose workers may run the plan; give the option again for more
    #[arg(long = "for", value_name = "CLUSTER")]
    clusters: Vec<String>,
    /// Hours in which jobs may start
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=MAX_HOURS))]
    hours: Option<u64>,
    /// Maximum number of attempts that one worker starts [default: no limit]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    uses: Option<u32>,
    /// Profile of the sandbox, at most what the worker grants to the key
    #[arg(long, value_name = "PROFILE")]
    sandbox: Option<String>,
    /// Type of a field of inputs: file=path:/data, n=int:1..9, n=int, s=text, s=name or s=enum:a,b
    #[arg(long = "input", value_name = "FIELD=TYPE", value_parser = parse_input)]
    inputs: Vec<(String, InputType)>,
    /// The only input for which the order is, in JSON
    #[arg(long, value_name = "JSON")]
    only_input: Option<String>,
    /// The only inputs for which the order is: a JSON array of objects, or objects one after the
    /// other; needs --proved-inputs
    #[arg(long, value_name = "FILE", requires = "proved_inputs", conflicts_with = "only_input")]
    only_inputs: Option<PathBuf>,
    /// Write the inputs of --only-inputs with their proofs to this file, and submit them from it
    #[arg(long, value_name = "FILE", requires = "only_inputs")]
    proved_inputs: Option<PathBuf>,
    /// Sign although inputs may have any value; workers refuse that by default
    #[arg(long)]
    any_input: bool,
    /// Name of the order [default: random]
    #[arg(long, value_name = "TEXT")]
    serial: Option<String>,
    /// Maximum number of jobs that a worker starts
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    jobs: Option<u32>,
    /// Maximum seconds of processor time of all tasks of an attempt
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=MAX_LIMIT_SECS))]
    cpu_secs: Option<u64>,
    /// Maximum seconds of an attempt
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=MAX_LIMIT_SECS))]
    wall_secs: Option<u64>,
    /// Maximum bytes of the files that take outputs of an attempt
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    output_bytes: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct PlanVerifyArgs {
    /// Signed order; - reads stdin
    file: PathBuf,
    /// Trust file of a worker [default: your own keys]
    #[arg(long, value_name = "FILE")]
    trust: Option<PathBuf>,
    /// Cluster of the worker [default: the first one of the order]
    #[arg(long, value_name = "NAME")]
    cluster: Option<String>,
}

pub(super) fn sign(args: SignArgs, output: OutputFormat) -> Result<()> {
    let SignArgs { file, key, approve, terms } = args;
    let key = SigningKeys::find()?.get(&key)?.current;
    let json = read(&file)?;
    let mut envelope = if is_envelope(&json) {
        if terms != TermArgs::default() {
            return Err(CliError::usage(
                "the order is signed already, and its terms cannot change",
                "sign it without options for terms, or sign the plan",
            ));
        }
        let envelope = Envelope::parse(&json).map_err(|error| wrong(&file, &error.to_string()))?;
        let order = envelope.order().map_err(|error| wrong(&file, &error.to_string()))?;
        check_plan(&order.plan, &file)?;
        output.notes(&format!("you sign this order of another signer:\n{}", order_text(&order)));
        envelope
    } else if approve {
        return Err(CliError::usage(
            format!("{} is no signed order, and only such a one can be approved", file.display()),
            "its author signs it with `agx plan sign` first",
        ));
    } else {
        let plan: Plan = parse_object(&json).map_err(|error| wrong(&file, &error.to_string()))?;
        check_plan(&plan, &file)?;
        let any_input = terms.any_input;
        let order = Order::new(plan, terms_of(terms)?);
        order.check().map_err(|error| wrong(&file, &error.to_string()))?;
        if let Some(field) = order.unbound_input().filter(|_| !any_input) {
            return Err(CliError::usage(
                format!("the input '{field}' may have any value, so agq would choose what the plan does"),
                format!("give its type, as --input {field}=path:/data, or --any-input"),
            ));
        }
        Envelope::new(&order)
    };
    envelope.sign(&key, if approve { SignatureKind::Approval } else { SignatureKind::Order });
    let json = envelope.to_json();
    let signed = PlanSigned { order: serde_json::from_str(&json).unwrap_or_default() };
    output.show("plan.sign", &signed, |_| json)
}

fn terms_of(args: TermArgs) -> Result<Terms> {
    let inputs_sha256 = permitted_inputs(&args)?;
    let TermArgs { jobs, cpu_secs, wall_secs, output_bytes, .. } = args;
    let TermArgs { clusters, hours, uses, sandbox, inputs, serial, .. } = args;
    let missing = |option: &str| {
        CliError::usage(format!("{option} is missing"), "an order names its clusters, and ends by itself")
    };
    if clusters.is_empty() {
        return Err(missing("--for"));
    }
    let not_after = now().plus_ms(hours.ok_or_else(|| missing("--hours"))? * HOUR_MS);
    Ok(Terms {
        clusters,
        not_before: None,
        not_after,
        serial: serial.unwrap_or_else(|| uuid::Uuid::new_v4().simple().to_string()),
        uses,
        profile: sandbox,
        inputs: inputs.into_iter().collect(),
        inputs_sha256,
        limits: OrderLimits { jobs, cpu_secs, wall_secs, output_bytes },
    })
}

/// Returns the root of the inputs that the order is for, if it is for some inputs only.
fn permitted_inputs(args: &TermArgs) -> Result<Option<String>> {
    if let (Some(inputs), Some(proved)) = (&args.only_inputs, &args.proved_inputs) {
        return proved_inputs::write(inputs, proved).map(Some);
    }
    let root = |input: &String| {
        inputs_root(input).ok_or_else(|| {
            CliError::usage("--only-input is not JSON with whole numbers", "give the input in JSON")
        })
    };
    args.only_input.as_ref().map(root).transpose()
}

fn check_plan(plan: &Plan, file: &Path) -> Result<()> {
    rules::check(plan, &Limits::default()).map_err(|rejection| wrong(file, &rejection.to_string()))
}

fn wrong(file: &Path, problem: &str) -> CliError {
    CliError::usage(
        format!("{}: {problem}", file.display()),
        concat!("plans and orders are described in ", docs_url!("protocol/plans.md")),
    )
}

/// Returns true for the JSON of an envelope, which no plan is.
pub(super) fn is_envelope(json: &[u8]) -> bool {
    parse_object::<Value>(json).is_ok_and(|value| value.get("payloadType").is_some())
}

/// Parses `file=path:/data`.
fn parse_input(text: &str) -> Result<(String, InputType), String> {
    let (field, grammar) = text.split_once('=').ok_or("give FIELD=TYPE, as file=path:/data")?;
    let (name, rest) = grammar.split_once(':').map_or((grammar, None), |(name, rest)| (name, Some(rest)));
    let bound = |text: &str| {
        let number = Some(text).filter(|text| !text.is_empty()).map(str::parse::<i64>).transpose();
        number.map_err(|_| format!("'{text}' is not a whole number"))
    };
    let input_type = match (name, rest) {
        ("text", None) => InputType::Text {},
        ("name", None) => InputType::Name {},
        ("int", None) => InputType::Int { min: None, max: None },
        ("int", Some(rest)) => {
            let (min, max) = rest.split_once("..").ok_or("give the bounds as int:1..9")?;
            InputType::Int { min: bound(min)?, max: bound(max)? }
        }
        ("path", Some(under)) if under == "/" || InputType::is_normal_path(under) => {
            InputType::Path { under: under.to_owned() }
        }
        ("path", _) => return Err("give the directory as path:/data".into()),
        ("enum", Some(values)) => InputType::Enum { values: values.split(',').map(str::to_owned).collect() },
        _ => return Err("the types are text, name, int, int:1..9, path:/DIRECTORY and enum:a,b".into()),
    };
    Ok((field.to_owned(), input_type))
}

pub(super) fn verify(args: &PlanVerifyArgs, output: OutputFormat) -> Result<()> {
    let json = read(&args.file)?;
    let envelope = Envelope::parse(&json).map_err(|error| wrong(&args.file, &error.to_string()))?;
    let order = envelope.order().map_err(|error| wrong(&args.file, &error.to_string()))?;
    let trust = trust(args.trust.as_deref())?;
    let cluster = args.cluster.as_ref().or(order.terms.clusters.first()).cloned().unwrap_or_default();
    let verified = verify_order(&envelope.to_json(), &trust, &cluster, now())
        .map_err(|reason| CliError::NotTrusted(reason.to_string()))?;
    if verified.inputs == InputBounds::Required
        && let Some(field) = order.unbound_input()
    {
        let reason = agenix_order::Unacceptable::UnboundInput(field);
        return Err(CliError::NotTrusted(reason.to_string()));
    }
    let shown = PlanVerified {
        valid: true,
        plan_id: order.plan.plan_id.clone(),
        signers: verified.signers,
        approvers: verified.approvers,
        profile: match verified.grant {
            Grant::Full => None,
            Grant::Profile(profile) => Some(profile),
        },
        terms: serde_json::to_value(&order.terms).unwrap_or_default(),
    };
    output.show("plan.verify", &shown, |shown| {
        let rights = shown
            .profile
            .as_ref()
            .map_or("outside of the sandbox".into(), |profile| format!("in the sandbox profile {profile}"));
        let (mut signers, until) = (shown.signers.join(", "), order.terms.not_after);
        if !shown.approvers.is_empty() {
            signers += &format!(", approved by {}", shown.approvers.join(", "));
        }
        let uses = order.terms.uses.map_or(String::new(), |uses| format!(", {uses} uses a worker"));
        let valid = format!(
            "the order is valid: signed by {signers}, runs {rights}, for {}, until {until}{uses}",
            order.terms.clusters.join(", ")
        );
        format!("{valid}\n{}", order_text(&order))
    })
}

/// Returns the plan of an order and its terms, as lines.
fn order_text(order: &Order) -> String {
    let terms = serde_json::to_string(&order.terms).unwrap_or_default();
    let lines = plan_lines(&order.plan).into_iter().chain([format!("  terms {}", one_line(&terms))]);
    lines.collect::<Vec<_>>().join("\n")
}

/// Reads and parses a trust file.
pub(super) fn read_trust(file: &Path) -> Result<TrustFile> {
    trust(Some(file))
}

/// Returns the trust file, or one that trusts the keys of the user.
pub(super) fn trust(file: Option<&Path>) -> Result<TrustFile> {
    let text = match file {
        Some(file) => String::from_utf8(read(file)?)
            .map_err(|_bytes| CliError::usage(format!("{} is not UTF-8", file.display()), "fix the file"))?,
        None => SigningKeys::find()?
            .all()?
            .iter()
            .map(|(name, keys)| {
                let previous = keys.previous.iter().map(|key| format!(", \"{}\"", key.public()));
                let previous: String = previous.collect();
                let current = keys.current.public();
                format!("[signers.\"{name}\"]\nkeys = [\"{current}\"{previous}]\ntrust = \"full\"\ninputs = \"any\"\n")
            })
            .collect(),
    };
    let named = || file.map_or("your keys".into(), |file| file.display().to_string());
    TrustFile::parse(&text).map_err(|error| CliError::Marked {
        problem: format!("{}: {}", named(), error.to_string().trim_end()),
        help: concat!("fix the trust file, which is described in ", docs_url!("security.md")).into(),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::{Value, json};

    use super::parse_input;

    #[test]
    fn types_of_inputs_are_words_with_bounds() {
        let types: BTreeMap<String, Value> =
            ["a=path:/data", "b=int:1..9", "c=int:..9", "d=int", "e=enum:x,y", "f=text", "g=name"]
                .into_iter()
                .map(|text| {
                    let (field, input_type) = parse_input(text).unwrap();
                    (field, serde_json::to_value(input_type).unwrap())
                })
                .collect();
        let expected = json!({
            "a": {"type": "path", "under": "/data"},
            "b": {"type": "int", "min": 1, "max": 9},
            "c": {"type": "int", "max": 9},
            "d": {"type": "int"},
            "e": {"type": "enum", "values": ["x", "y"]},
            "f": {"type": "text"},
            "g": {"type": "name"},
        });
        assert_eq!(json!(types), expected);
        for wrong in ["a", "a=", "a=path", "a=path:data", "a=path:/a/..", "a=int:1", "a=int:x..2", "a=text:x"]
        {
            assert!(parse_input(wrong).is_err(), "{wrong}");
        }
    }
}

//! Capabilities of workers and needs of jobs: a job goes only to a worker that covers all its
//! needs.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use agenix_protocol::documents::{
    Capabilities, Quantities, WorkerRegistration, WorkerSandbox, WorkerStatus, profile_of_sandbox_tag,
    secret_of_tag,
};
use serde::{Deserialize, Serialize, Serializer, ser::SerializeStruct};
use serde_json::{Map, Value};

use crate::resources;

/// Needs of a job. Durable and positional: append, never reorder.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Deserialize)]
pub struct Needs {
    /// Programs, sorted, without duplicates.
    pub tools: Vec<String>,
    /// Pools, sorted, without duplicates: tags of the worker with any value but false or null. The
    /// tag of a sandbox profile stands for the profile.
    pub tags: Vec<String>,
    /// Tags of the worker with exactly these values.
    pub labels: BTreeMap<String, String>,
    /// Key of the limit that applies to the job. Jobs of a limit wait in a lane of their own.
    #[serde(default)]
    pub limit: Option<String>,
    /// Name of the key whose budget the job is charged to. Jobs of a budget wait in lanes of their
    /// own.
    #[serde(default)]
    pub budget: Option<String>,
    /// Quantities that one job uses while it runs. Never empty, and no amount is 0.
    #[serde(default)]
    pub resources: Option<Box<Quantities>>,
    /// Share of the queue that the job belongs to. Jobs of a share wait in lanes of their own.
    #[serde(default)]
    pub share: Option<String>,
}

impl Serialize for Needs {
    /// Leaves out trailing fields without a value, because stores compare encoded needs with those
    /// of earlier versions.
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let optional =
            [self.limit.is_some(), self.budget.is_some(), self.resources.is_some(), self.share.is_some()];
        let written = optional.iter().rposition(|is_given| *is_given).map_or(0, |last| last + 1);
        let mut fields = to.serialize_struct("Needs", 3 + written)?;
        fields.serialize_field("tools", &self.tools)?;
        fields.serialize_field("tags", &self.tags)?;
        fields.serialize_field("labels", &self.labels)?;
        if written > 0 {
            fields.serialize_field("limit", &self.limit)?;
        }
        if written > 1 {
            fields.serialize_field("budget", &self.budget)?;
        }
        if written > 2 {
            fields.serialize_field("resources", &self.resources)?;
        }
        if written > 3 {
            fields.serialize_field("share", &self.share)?;
        }
        fields.end()
    }
}

impl Needs {
    /// Returns the sandbox profile that the jobs need, and the other tags.
    pub fn profile_and_tags(&self) -> (Option<&str>, Vec<String>) {
        let (mut profile, mut tags) = (None, Vec::new());
        for tag in &self.tags {
            match profile_of_sandbox_tag(tag) {
                Some(found) => profile = Some(found),
                None => tags.push(tag.clone()),
            }
        }
        (profile, tags)
    }
}

/// Sandbox profiles of a worker. A profile with texts cannot be enforced; the texts are the
/// reasons.
type Profiles = BTreeMap<String, Vec<String>>;

/// Capabilities of a claimant.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names say it")]
pub enum ClaimantCapabilities {
    /// Capabilities that a registered worker declared: programs, agentic units, tags, sandbox
    /// profiles, which are `None` if the worker runs no jobs in a sandbox, and quantities.
    Worker {
        commands: BTreeSet<String>,
        tags: Map<String, Value>,
        profiles: Option<Profiles>,
        offered: Quantities,
    },
    /// Every capability but a sandbox, secrets and quantities. A connection without a registered
    /// worker claims any job that needs no sandbox, secrets and quantities, because the connection
    /// has declared none of these.
    Anything,
    /// No capability. A worker that takes no jobs claims nothing.
    Nothing,
}

impl ClaimantCapabilities {
    /// Returns the capabilities that a worker declared.
    pub fn of(registration: &WorkerRegistration) -> Self {
        let sandbox = registration.sandbox.as_ref();
        Self::declared(&registration.capabilities, &registration.tags, sandbox, &registration.resources)
    }

    /// Returns the capabilities of a worker that agq lists.
    pub fn of_status(worker: &WorkerStatus) -> Self {
        Self::declared(&worker.capabilities, &worker.tags, worker.sandbox.as_ref(), &worker.resources)
    }

    /// Leaves out tags that stand for a sandbox profile, because only the profiles of
    /// [`WorkerSandbox`] count. An older agq has stored such tags unchecked.
    fn declared(
        capabilities: &Capabilities,
        tags: &Map<String, Value>,
        sandbox: Option<&WorkerSandbox>,
        offered: &Quantities,
    ) -> Self {
        let is_own = |(tag, _): &(&String, &Value)| profile_of_sandbox_tag(tag).is_none();
        Self::Worker {
            commands: capabilities.commands().cloned().collect(),
            tags: tags.iter().filter(is_own).map(|(tag, value)| (tag.clone(), value.clone())).collect(),
            profiles: sandbox.map(|sandbox| sandbox.profiles.clone()),
            offered: offered.clone(),
        }
    }

    /// Returns true if the capabilities cover `needs`.
    pub fn cover(&self, needs: &Needs) -> bool {
        match self {
            Self::Anything => {
                let mut names = needs.tags.iter().chain(needs.labels.keys());
                let is_plain =
                    |name: &String| profile_of_sandbox_tag(name).is_none() && secret_of_tag(name).is_none();
                needs.resources.is_none() && names.all(is_plain)
            }
            Self::Nothing => false,
            Self::Worker { commands, tags, profiles, offered } => {
                let has_tag = |tag: &String| missing_tag(tags, profiles.as_ref(), tag).is_none();
                needs.tools.iter().all(|tool| commands.contains(tool))
                    && needs.tags.iter().all(has_tag)
                    && needs.labels.iter().all(|(label, value)| has_label(tags, label, value))
                    && needs.resources.as_ref().is_none_or(|wanted| resources::covers(offered, wanted))
            }
        }
    }

    /// Returns the quantities that a worker offers; `None` for a claimant that offers none.
    pub fn offered(&self) -> Option<&Quantities> {
        match self {
            Self::Worker { offered, .. } => Some(offered),
            Self::Anything | Self::Nothing => None,
        }
    }

    /// Returns the needs that a worker does not cover, as `tool jq`, `tag gpu`, `label zone=eu`,
    /// `sandbox profile reader: its owner defines no such profile`, `secret TOKEN for curl: …`,
    /// `cpus 8 (it offers 4)`.
    pub fn missing(&self, needs: &Needs) -> Vec<String> {
        let Self::Worker { commands, tags, profiles, offered } = self else { return Vec::new() };
        let tools =
            needs.tools.iter().filter(|tool| !commands.contains(*tool)).map(|tool| format!("tool {tool}"));
        let pools = needs.tags.iter().filter_map(|tag| missing_tag(tags, profiles.as_ref(), tag));
        let pools = pools.map(|missing| missing.to_string());
        let labels = needs.labels.iter().filter(|(label, value)| !has_label(tags, label, value));
        let labels = labels.map(|(label, value)| format!("label {label}={value}"));
        let quantities = needs.resources.iter().flat_map(|wanted| resources::missing(offered, wanted));
        tools.chain(pools).chain(labels).chain(quantities).collect()
    }
}

/// Tag that a worker does not have, or sandbox profile in which it cannot run jobs.
enum MissingTag<'a> {
    /// Tag.
    Tag(&'a str),
    /// Secret that the worker does not give to a tool.
    Secret(&'a str, &'a str),
    /// Profile of a worker that runs no jobs in a sandbox.
    NoSandbox(&'a str),
    /// Profile that the worker does not have.
    NoProfile(&'a str),
    /// Profile that the worker cannot enforce, with the reasons.
    Unmet(&'a str, &'a [String]),
}

impl fmt::Display for MissingTag<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tag(tag) => write!(f, "tag {tag}"),
            Self::Secret(name, tool) => write!(
                f,
                "secret {name} for {tool}: its owner does not give it to this tool; [secrets] in the file of agw --config does"
            ),
            Self::NoSandbox(profile) => write!(
                f,
                "sandbox profile {profile}: the worker runs no job in a sandbox; start agw with --config or --sandbox"
            ),
            Self::NoProfile(profile) => {
                write!(f, "sandbox profile {profile}: its owner defines no such profile")
            }
            Self::Unmet(profile, reasons) => {
                write!(f, "sandbox profile {profile}: {}", reasons.join(", and "))
            }
        }
    }
}

fn missing_tag<'a>(
    tags: &Map<String, Value>,
    profiles: Option<&'a Profiles>,
    tag: &'a str,
) -> Option<MissingTag<'a>> {
    let Some(profile) = profile_of_sandbox_tag(tag) else {
        let has_tag = tags.get(tag).is_some_and(|value| !matches!(value, Value::Null | Value::Bool(false)));
        let missing =
            secret_of_tag(tag).map_or(MissingTag::Tag(tag), |(name, tool)| MissingTag::Secret(name, tool));
        return (!has_tag).then_some(missing);
    };
    match profiles.map(|profiles| profiles.get(profile)) {
        None => Some(MissingTag::NoSandbox(profile)),
        Some(None) => Some(MissingTag::NoProfile(profile)),
        Some(Some(reasons)) => (!reasons.is_empty()).then_some(MissingTag::Unmet(profile, reasons)),
    }
}

fn has_label(tags: &Map<String, Value>, label: &str, value: &str) -> bool {
    match tags.get(label) {
        Some(Value::String(text)) => text == value,
        // Labels compare with texts of numbers and booleans, never with objects or arrays.
        Some(Value::Number(number)) => number.to_string() == value,
        Some(Value::Bool(is_set)) => is_set.to_string() == value,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use agenix_protocol::{
        documents::{Quantities, WorkerRegistration, parse},
        time::Timestamp,
    };

    use super::{ClaimantCapabilities, Needs};
    use crate::worker::registered;

    fn worker() -> ClaimantCapabilities {
        let registration = br#"{"worker_id":"w","capabilities":["sort","uniq"],"tags":{"gpu":true,"slow":false,"zone":"eu","cores":4}}"#;
        ClaimantCapabilities::of(&parse(registration).unwrap())
    }

    fn needs(tools: &[&str], tags: &[&str], labels: &[(&str, &str)]) -> Needs {
        let texts = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let labels = labels.iter().map(|(label, value)| ((*label).to_owned(), (*value).to_owned())).collect();
        Needs { tools: texts(tools), tags: texts(tags), labels, ..Needs::default() }
    }

    #[test]
    fn capabilities_have_to_cover_every_need() {
        assert!(worker().cover(&needs(&["sort", "uniq"], &["gpu"], &[("zone", "eu"), ("cores", "4")])));
        assert!(worker().cover(&Needs::default()));
        for without in
            [needs(&["jq"], &[], &[]), needs(&[], &["slow"], &[]), needs(&[], &[], &[("zone", "us")])]
        {
            assert!(!worker().cover(&without), "{without:?}");
            assert!(ClaimantCapabilities::Anything.cover(&without));
        }
        assert!(!ClaimantCapabilities::Nothing.cover(&Needs::default()));
    }

    #[test]
    fn missing_needs_are_named() {
        let missing = worker().missing(&needs(&["sort", "jq"], &["tpu"], &[("zone", "us")]));
        assert_eq!(missing, ["tool jq", "tag tpu", "label zone=us"]);
    }

    #[test]
    fn quantities_need_a_worker_that_offers_them() {
        let wanted = |json: &str| Needs {
            resources: Some(Box::new(parse(json.as_bytes()).unwrap())),
            ..needs(&["sort"], &[], &[])
        };
        let small = able(r#""resources":{"cpus":4,"memory":"2G"}"#);
        assert!(small.cover(&wanted(r#"{"cpus":4}"#)) && small.cover(&needs(&["sort"], &[], &[])));
        let large = wanted(r#"{"cpus":8,"gpus":1}"#);
        assert!(!small.cover(&large));
        assert_eq!(small.missing(&large), ["cpus 8 (it offers 4)", "gpus 1 (it offers none)"]);
        let one = wanted(r#"{"cpus":0.01}"#);
        for without in
            [able(r#""tags":{"gpu":true}"#), ClaimantCapabilities::Anything, ClaimantCapabilities::Nothing]
        {
            assert!(!without.cover(&one), "{without:?}");
        }
    }

    fn able(rest: &str) -> ClaimantCapabilities {
        let json = format!(r#"{{"worker_id":"w","capabilities":["sort"],{rest}}}"#);
        ClaimantCapabilities::of(&parse(json.as_bytes()).unwrap())
    }

    const UNMET: &str = "files_read is not enforced: no Landlock; use Linux 6.2 or later";

    #[test]
    fn profile_needs_a_worker_that_registered_it_without_reasons_against_it() {
        let reader = needs(&["sort"], &["sandbox:reader"], &[]);
        let with = able(r#""sandbox":{"profiles":{"reader":[]}}"#);
        assert!(with.cover(&reader) && with.missing(&reader).is_empty());
        let unmet = format!(r#""sandbox":{{"profiles":{{"reader":["{UNMET}"],"other":[]}}}}"#);
        let unmet_twice = format!(r#""sandbox":{{"profiles":{{"reader":["{UNMET}","network is open"]}}}}"#);
        let none = "the worker runs no job in a sandbox; start agw with --config or --sandbox";
        let cases = [
            (unmet.as_str(), UNMET.to_owned()),
            (&unmet_twice, format!("{UNMET}, and network is open")),
            (r#""sandbox":{"profiles":{"other":[]}}"#, "its owner defines no such profile".to_owned()),
            (r#""tags":{"gpu":true}"#, none.to_owned()),
            (r#""tags":{"sandbox:reader":true}"#, none.to_owned()),
            (
                r#""tags":{"sandbox:reader":true},"sandbox":{"profiles":{}}"#,
                "its owner defines no such profile".to_owned(),
            ),
        ];
        for (rest, why) in cases {
            assert!(!able(rest).cover(&reader), "{rest}");
            assert_eq!(able(rest).missing(&reader), [format!("sandbox profile reader: {why}")]);
        }
        assert!(with.cover(&needs(&["sort"], &[], &[])), "other jobs need no sandbox");
    }

    #[test]
    fn connection_without_a_worker_covers_no_sandbox() {
        assert!(ClaimantCapabilities::Anything.cover(&needs(&["sort"], &["gpu"], &[("zone", "eu")])));
        assert!(!ClaimantCapabilities::Anything.cover(&needs(&[], &["gpu", "sandbox:reader"], &[])));
        assert!(!ClaimantCapabilities::Anything.cover(&needs(&[], &[], &[("sandbox:reader", "true")])));
        let tagged = able(r#""tags":{"sandbox:reader":true}"#);
        assert!(!tagged.cover(&needs(&[], &[], &[("sandbox:reader", "true")])));
    }

    #[test]
    fn secret_needs_a_worker_that_gives_it_to_the_tool() {
        let job = needs(&["sort"], &["secret:TOKEN:sort"], &[]);
        assert!(able(r#""tags":{"secret:TOKEN:sort":true}"#).cover(&job));
        for tags in [r#"{"secret:TOKEN:curl":true}"#, r#"{"secret:OTHER:sort":true}"#, "{}"] {
            let worker = able(&format!(r#""tags":{tags}"#));
            assert!(!worker.cover(&job), "{tags}");
            let missing = worker.missing(&job);
            assert!(
                missing[0].starts_with("secret TOKEN for sort: its owner does not give it"),
                "{missing:?}"
            );
        }
        assert!(!ClaimantCapabilities::Anything.cover(&job));
    }

    #[test]
    fn status_of_a_worker_has_the_same_capabilities_as_its_registration() {
        let json = r#"{"worker_id":"w","capabilities":["sort"],"tags":{"gpu":true},"sandbox":{"profiles":{"reader":[]}},"resources":{"cpus":2}}"#;
        let registration: WorkerRegistration = parse(json.as_bytes()).unwrap();
        let worker = registered(None, &registration, "c", Timestamp(1)).unwrap();
        let capabilities = ClaimantCapabilities::of(&registration);
        assert_eq!(
            ClaimantCapabilities::of_status(&worker.status(Some(registration), 0, Quantities::default())),
            capabilities
        );
    }

    #[test]
    fn profile_is_told_from_other_tags() {
        let both = needs(&[], &["gpu", "sandbox:reader", "slow"], &[]);
        assert_eq!(both.profile_and_tags(), (Some("reader"), vec!["gpu".to_owned(), "slow".to_owned()]));
        assert_eq!(needs(&[], &["gpu"], &[]).profile_and_tags(), (None, vec!["gpu".to_owned()]));
    }
}

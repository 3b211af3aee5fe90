//! Limits of the data that a worker sends about itself, because agq keeps that data and shows it to
//! all users.

use std::collections::BTreeMap;

use agenix_protocol::{
    documents::{
        Capabilities, WorkerRegistration, WorkerSandbox, check_resource_variables, is_profile_name,
        profile_of_sandbox_tag, to_json,
    },
    limits::{
        MAX_WORKER_CAPABILITIES, MAX_WORKER_DESCRIPTIONS, MAX_WORKER_PROFILES, MAX_WORKER_SANDBOX_BYTES,
        MAX_WORKER_SANDBOX_TEXT_BYTES, MAX_WORKER_STATS_BYTES, MAX_WORKER_TAGS_BYTES, MAX_WORKER_WORD_BYTES,
    },
};
use serde_json::{Map, Value};

use crate::rejection::Rejection;

/// Checks that the capabilities are legal names, and not too many.
pub fn check_capabilities(capabilities: &Capabilities) -> Result<(), Rejection> {
    let count = capabilities.commands().count();
    if count > MAX_WORKER_CAPABILITIES {
        let text = format!(
            "it has {count} tools and agentic units, max {MAX_WORKER_CAPABILITIES}: name those to offer, as agw does with --tools"
        );
        return Err(Rejection::InvalidCapabilities(text));
    }
    for (kind, names) in [("tools", &capabilities.tools), ("agentic_units", &capabilities.agentic_units)] {
        for (at, name) in names.iter().enumerate() {
            if name.is_empty() || name.len() > 255 || name.contains(|c: char| c.is_control() || c == '/') {
                let text = format!("{kind}[{at}] is not the name of a program");
                return Err(Rejection::InvalidCapabilities(text));
            }
        }
    }
    Ok(())
}

/// Checks that the other texts and tags of a registration are short enough to store and show.
pub(super) fn check_words(registration: &WorkerRegistration) -> Result<(), Rejection> {
    let instance = registration.instance.as_deref().unwrap_or_default();
    for (field, word) in [
        ("hostname", registration.hostname.as_str()),
        ("platform", &registration.platform),
        ("agw_version", &registration.agw_version),
        ("instance", instance),
    ] {
        if word.len() > MAX_WORKER_WORD_BYTES {
            let text = format!("{field} has {} bytes, max {MAX_WORKER_WORD_BYTES}", word.len());
            return Err(Rejection::InvalidRegistration(text));
        }
    }
    let tags = to_json(&registration.tags).len();
    if tags > MAX_WORKER_TAGS_BYTES {
        let text = format!("tags have {tags} bytes of JSON, max {MAX_WORKER_TAGS_BYTES}");
        return Err(Rejection::InvalidRegistration(text));
    }
    if let Some(tag) = registration.tags.keys().find(|tag| profile_of_sandbox_tag(tag).is_some()) {
        return Err(Rejection::InvalidRegistration(format!(
            "tags has '{}': a worker names its sandbox profiles in the field sandbox",
            tag.escape_debug()
        )));
    }
    check_resource_variables(&registration.resources)
        .map_err(|error| Rejection::InvalidRegistration(format!("resources: {error}")))?;
    let sandbox = registration.sandbox.as_ref().map_or(Ok(()), check_sandbox);
    sandbox.map_err(|fault| Rejection::InvalidRegistration(format!("sandbox.{fault}")))
}

/// Checks the names of the profiles, and that the sandbox is short enough to store and show.
fn check_sandbox(sandbox: &WorkerSandbox) -> Result<(), String> {
    let count = sandbox.profiles.len();
    if count > MAX_WORKER_PROFILES {
        return Err(format!("profiles has {count} profiles, max {MAX_WORKER_PROFILES}"));
    }
    let default = sandbox.default_profile.iter().map(|name| ("default_profile", name));
    let names = default.chain(sandbox.profiles.keys().map(|name| ("profiles", name)));
    for (field, name) in names {
        if !is_profile_name(name) {
            let shown: String = name.chars().take(MAX_WORKER_WORD_BYTES).collect();
            return Err(format!(
                "{field} has the name '{}', which is not valid: use 1 to 64 lower-case letters, digits and '-', '_'",
                shown.escape_debug()
            ));
        }
    }
    let unmet = sandbox.profiles.values().flatten().map(|text| ("profiles", text));
    let enforced = sandbox.enforced.iter().flat_map(|(name, text)| [("enforced", name), ("enforced", text)]);
    let missing = sandbox.missing.iter().flat_map(|(name, missing)| {
        [("missing", name), ("missing", &missing.reason), ("missing", &missing.remedy)]
    });
    let mut texts = unmet.chain(enforced).chain(missing);
    if let Some((field, text)) = texts.find(|(_, text)| text.len() > MAX_WORKER_SANDBOX_TEXT_BYTES) {
        return Err(format!(
            "{field} has a text of {} bytes, max {MAX_WORKER_SANDBOX_TEXT_BYTES}",
            text.len()
        ));
    }
    // One bound for the number of texts of all fields.
    let bytes = to_json(sandbox).len();
    if bytes > MAX_WORKER_SANDBOX_BYTES {
        return Err(format!(
            "profiles, enforced and missing have {bytes} bytes of JSON, max {MAX_WORKER_SANDBOX_BYTES}"
        ));
    }
    Ok(())
}

/// Returns the name and the array of the field that lists the jobs of the worker: `active_job_ids`,
/// or else `active_jobs`, which may also be the number of its jobs.
pub fn listed_jobs(stats: &Map<String, Value>) -> Option<(&'static str, &[Value])> {
    let array = |field: &'static str| Some((field, stats.get(field)?.as_array()?.as_slice()));
    ["active_job_ids", "active_jobs"].into_iter().find_map(array)
}

/// Checks the size of the statistics, to store and show. The array of [`listed_jobs`] does not
/// count, because the number of ids has a limit of its own.
pub fn check_stats(stats: &Map<String, Value>) -> Result<(), Rejection> {
    let listed = listed_jobs(stats).map(|(field, _)| field);
    let is_counted = |field: &String| listed != Some(field.as_str());
    let counted: BTreeMap<&String, &Value> = stats.iter().filter(|(field, _)| is_counted(field)).collect();
    let bytes = to_json(&counted).len();
    if bytes > MAX_WORKER_STATS_BYTES {
        let text =
            format!("they have {bytes} bytes of JSON without the ids of jobs, max {MAX_WORKER_STATS_BYTES}");
        return Err(Rejection::InvalidStats(text));
    }
    Ok(())
}

/// Maximum number of bytes of the description of an agentic unit. agq cuts longer descriptions.
pub const MAX_DESCRIPTION_BYTES: usize = 4096;

/// Cuts long descriptions, and removes surplus descriptions.
pub fn shorten_descriptions(registration: &mut WorkerRegistration) {
    while registration.descriptions.len() > MAX_WORKER_DESCRIPTIONS {
        registration.descriptions.pop_last();
    }
    for description in registration.descriptions.values_mut() {
        description.truncate(description.floor_char_boundary(MAX_DESCRIPTION_BYTES));
    }
}

#[cfg(test)]
mod tests {
    use agenix_protocol::{
        documents::{Capabilities, WorkerRegistration, parse},
        limits::{
            MAX_WORKER_CAPABILITIES, MAX_WORKER_DESCRIPTIONS, MAX_WORKER_STATS_BYTES, MAX_WORKER_TAGS_BYTES,
            MAX_WORKER_WORD_BYTES,
        },
    };
    use serde_json::{Map, Value, json};

    use super::{check_capabilities, check_stats, check_words, shorten_descriptions};

    fn registration() -> WorkerRegistration {
        WorkerRegistration::of("w".parse().unwrap())
    }

    #[test]
    fn resources_with_one_variable_are_refused() {
        let with = |json: &str| {
            let resources = parse(json.as_bytes()).unwrap();
            check_words(&WorkerRegistration { resources, ..registration() })
                .map_err(|error| error.to_string())
        };
        assert_eq!(with(r#"{"cpus":1,"a-b":1}"#), Ok(()));
        let refused = with(r#"{"a-b":1,"a_b":1}"#).unwrap_err();
        assert!(refused.contains("resources: 'a-b' and 'a_b' are both AGX_RESOURCE_A_B"), "{refused}");
    }

    type With = fn(String) -> WorkerRegistration;

    #[test]
    fn registration_texts_are_bounded() {
        let word = |more: usize| "h".repeat(MAX_WORKER_WORD_BYTES + more);
        let fields: [(&str, With); 4] = [
            ("hostname", |hostname| WorkerRegistration { hostname, ..registration() }),
            ("platform", |platform| WorkerRegistration { platform, ..registration() }),
            ("agw_version", |agw_version| WorkerRegistration { agw_version, ..registration() }),
            ("instance", |instance| WorkerRegistration { instance: Some(instance), ..registration() }),
        ];
        for (field, with) in fields {
            assert!(check_words(&with(word(0))).is_ok());
            let error = check_words(&with(word(1))).unwrap_err().to_string();
            assert!(error.ends_with(&format!("{field} has 256 bytes, max 255")), "{error}");
        }
    }

    /// Returns an object whose JSON has `bytes` bytes.
    fn object(bytes: usize) -> Map<String, Value> {
        let frame = r#"{"a":""}"#.len();
        [("a".to_owned(), Value::from("x".repeat(bytes - frame)))].into_iter().collect()
    }

    #[test]
    fn tags_and_statistics_are_bounded() {
        let tags = |bytes| check_words(&WorkerRegistration { tags: object(bytes), ..registration() });
        assert!(tags(MAX_WORKER_TAGS_BYTES).is_ok() && tags(MAX_WORKER_TAGS_BYTES + 1).is_err());
        let mut stats = object(MAX_WORKER_STATS_BYTES);
        assert!(check_stats(&stats).is_ok());
        stats.insert("active_job_ids".into(), json!(vec!["0190a8f0-0000-7000-8000-000000000000"; 5000]));
        assert!(check_stats(&stats).is_ok(), "the ids of jobs have a bound of their own");
        assert!(check_stats(&object(MAX_WORKER_STATS_BYTES + 1)).is_err());
    }

    #[test]
    fn only_the_field_that_lists_jobs_does_not_count_as_statistics() {
        let long = Value::from("x".repeat(MAX_WORKER_STATS_BYTES));
        let of = |fields: &[(&str, &Value)]| -> Map<String, Value> {
            fields.iter().map(|(field, value)| ((*field).to_owned(), (*value).clone())).collect()
        };
        let (none, many) = (json!([]), json!([long]));
        assert!(check_stats(&of(&[("active_jobs", &many)])).is_ok());
        assert!(check_stats(&of(&[("active_jobs", &json!(2)), ("active_job_ids", &many)])).is_ok());
        for fields in [
            [("active_jobs", &long), ("active_job_ids", &none)],
            [("active_jobs", &many), ("active_job_ids", &none)],
            [("active_jobs", &none), ("active_job_ids", &long)],
            [("active_jobs", &json!(2)), ("active_job_ids", &json!({"x": long}))],
        ] {
            let error = check_stats(&of(&fields)).unwrap_err().to_string();
            assert!(error.ends_with("bytes of JSON without the ids of jobs, max 65536"), "{error}");
        }
    }

    #[test]
    fn capabilities_and_descriptions_are_bounded() {
        let names = |count: usize| (0..count).map(|number| number.to_string()).collect::<Vec<_>>();
        let offer = |tools, units| Capabilities { tools: names(tools), agentic_units: names(units) };
        assert!(check_capabilities(&offer(MAX_WORKER_CAPABILITIES - 1, 1)).is_ok());
        let error = check_capabilities(&offer(MAX_WORKER_CAPABILITIES, 1)).unwrap_err().to_string();
        assert!(error.contains("it has 20001 tools and agentic units, max 20000"), "{error}");
        let described = |count: usize| names(count).into_iter().map(|name| (name, "d".into())).collect();
        for (count, expected) in [(MAX_WORKER_DESCRIPTIONS, 1000), (MAX_WORKER_DESCRIPTIONS + 1, 1000)] {
            let mut registration = WorkerRegistration { descriptions: described(count), ..registration() };
            shorten_descriptions(&mut registration);
            assert_eq!(registration.descriptions.len(), expected);
        }
    }

    fn in_sandbox(sandbox: &Value) -> Result<(), String> {
        let registration = json!({"worker_id": "w", "capabilities": [], "sandbox": sandbox});
        check_words(&parse(registration.to_string().as_bytes()).unwrap()).map_err(|error| error.to_string())
    }

    #[test]
    fn sandbox_of_a_registration_is_bounded() {
        let profiles = |count: usize| {
            let names = (0..count).map(|number| (number.to_string(), json!([])));
            json!({"profiles": names.collect::<Map<_, _>>()})
        };
        assert_eq!(in_sandbox(&profiles(64)), Ok(()));
        let text = "x".repeat(1024);
        for sandbox in [
            json!({"default_profile": "reader", "profiles": {"reader": [text]}}),
            json!({"enforced": {"files": text}, "missing": {"net": {"reason": text, "remedy": text}}}),
        ] {
            assert_eq!(in_sandbox(&sandbox), Ok(()));
        }
        let long = format!("{text}x");
        let cases = [
            (profiles(65), "profiles has 65 profiles, max 64"),
            (
                json!({"profiles": {"a b": []}}),
                "profiles has the name 'a b', which is not valid: use 1 to 64 lower-case letters, digits and '-', '_'",
            ),
            (
                json!({"default_profile": "Reader"}),
                "default_profile has the name 'Reader', which is not valid: use 1 to 64 lower-case letters, digits and '-', '_'",
            ),
            (json!({"profiles": {"reader": [long]}}), "profiles has a text of 1025 bytes, max 1024"),
            (json!({"enforced": {"files": long}}), "enforced has a text of 1025 bytes, max 1024"),
            (
                json!({"missing": {"net": {"reason": "", "remedy": long}}}),
                "missing has a text of 1025 bytes, max 1024",
            ),
            (
                json!({"profiles": {"reader": vec![text; 64]}}),
                "profiles, enforced and missing have 65780 bytes of JSON, max 65536",
            ),
        ];
        for (sandbox, words) in cases {
            let words = format!("Invalid worker registration: sandbox.{words}");
            assert_eq!(in_sandbox(&sandbox), Err(words));
        }
    }

    #[test]
    fn tags_name_no_sandbox_profiles() {
        for sandbox in [json!(null), json!({"profiles": {"reader": []}})] {
            let json = json!({"worker_id": "w", "capabilities": [], "tags": {"sandbox:reader": true}, "sandbox": sandbox});
            let error = check_words(&parse(json.to_string().as_bytes()).unwrap()).unwrap_err().to_string();
            assert_eq!(
                error,
                "Invalid worker registration: tags has 'sandbox:reader': a worker names its sandbox profiles in the field sandbox"
            );
        }
    }
}

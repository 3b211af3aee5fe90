//! Tests of jobs with orders, as a correct and a malicious agq give them.

use std::{fs, path::Path, sync::Arc};

use agenix_order::{Envelope, Grant, Order, SignatureKind, SigningKey};
use agenix_protocol::{
    documents::{JobDocument, Plan, PlanCache, to_json},
    ids::JobId,
    time::Timestamp,
};
use agenix_sandbox::profile::Profile;
use serde_json::{Value, json};

use super::{Trust, TrustSettings};
use crate::exec::{
    admission::{AdmissionControl, Unadmitted, WorkerPrograms, denied::Denied, rights::Rights},
    programs::OfferedPrograms,
    resource_wait::is_shortage,
};

const NOW: &str = "2026-11-30T00:00:00Z";

fn now() -> Timestamp {
    Timestamp::parse(NOW).unwrap()
}

fn job_id() -> JobId {
    "j".parse().unwrap()
}

fn key() -> SigningKey {
    SigningKey::from_seed(&[1; 32])
}

fn write_trust(dir: &Path, rest: &str) {
    let text = format!("[signers.ci]\nkey = \"{}\"\ntrust = \"full\"\n{rest}", key().public());
    fs::write(dir.join("trust.toml"), text).unwrap();
}

fn trust(dir: &Path, has_serials: bool) -> Trust {
    write_trust(dir, "");
    let serials = has_serials.then(|| dir.join("serials"));
    Trust::read(TrustSettings { file: dir.join("trust.toml"), cluster: "prod".into(), serials }).unwrap()
}

fn plan(args: &[&str]) -> Value {
    let types = json!({"file": {"type": "path", "under": "/data"}});
    json!({"plan_id": "p", "tasks": [{"task_number": 1, "command": "wc", "args": args}], "inputs": types})
}

fn envelope(plan: &Value, terms: &Value) -> String {
    let mut all = json!({"for": ["prod"], "not_after": "2026-12-01T00:00:00Z", "serial": "s"});
    for (name, value) in terms.as_object().unwrap() {
        all[name] = value.clone();
    }
    let order: Order = serde_json::from_value(json!({"v": 1, "plan": plan, "terms": all})).unwrap();
    let mut envelope = Envelope::new(&order);
    envelope.sign(&key(), SignatureKind::Order);
    envelope.to_json()
}

/// Returns the job that agq makes of a plan.
fn job(plan: &Value, order: Option<&str>, input: &Value) -> JobDocument {
    let mut plan: Plan = serde_json::from_value(plan.clone()).unwrap();
    plan.plan_id.get_or_insert_with(|| "generated".parse().unwrap());
    let plan_id = plan.plan_id.clone().unwrap();
    let plan: Value = serde_json::from_str(&to_json(&plan)).unwrap();
    let mut job = json!({"job_id": "j", "action_id": "a", "plan_id": plan_id, "plan": plan, "inputs": input, "attempt": 1});
    if let Some(order) = order {
        job["order"] = serde_json::from_str(order).unwrap();
    }
    serde_json::from_str(&job.to_string()).unwrap()
}

fn refusal(trust: &Trust, job: &JobDocument) -> String {
    match trust.authorise(job, &PlanCache::default(), now()) {
        Err(Denied::Refused(reason)) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn signed_plan_runs_and_an_unsigned_one_is_that_of_a_stranger() {
    let dir = tempfile::tempdir().unwrap();
    let (trust, plans) = (trust(dir.path(), false), PlanCache::default());
    let (plan, input) = (plan(&["{{input.file}}"]), json!({"file": "/data/a"}));
    let order = envelope(&plan, &json!({}));
    let (first, rights) = trust.authorise(&job(&plan, Some(&order), &input), &plans, now()).unwrap();
    let Rights::Signed(verified) = rights else { panic!("{rights:?}") };
    assert_eq!(verified.signers, ["ci"]);
    let (again, _) = trust.authorise(&job(&plan, Some(&order), &input), &plans, now()).unwrap();
    assert!(Arc::ptr_eq(&first, &again), "the signatures are checked once");
    let (_, rights) = trust.authorise(&job(&plan, None, &input), &plans, now()).unwrap();
    assert!(matches!(rights, Rights::Stranger));
}

#[test]
fn plan_and_input_that_agq_has_changed_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let trust = trust(dir.path(), false);
    let (signed, input) = (plan(&["{{input.file}}"]), json!({"file": "/data/a"}));
    let order = envelope(&signed, &json!({}));
    let differs = "the plan of the job is not the plan of its signed order";
    let other = plan(&["-l", "{{input.file}}"]);
    assert_eq!(refusal(&trust, &job(&other, Some(&order), &input)), differs);
    let mut renamed = job(&signed, Some(&order), &input);
    renamed.plan_id = "q".parse().unwrap();
    assert_eq!(refusal(&trust, &renamed), differs, "the id of the job");
    let mut other_id = signed.clone();
    other_id["plan_id"] = json!("q");
    assert_eq!(refusal(&trust, &job(&other_id, Some(&order), &input)), differs);
    let outside = refusal(&trust, &job(&signed, Some(&order), &json!({"file": "/etc/shadow"})));
    assert_eq!(
        outside,
        "the order does not permit this input: input.file is not a path below /data, without '.', '..' and empty parts"
    );
}

#[test]
fn plan_without_an_id_has_the_id_of_agq() {
    let dir = tempfile::tempdir().unwrap();
    let trust = trust(dir.path(), false);
    let mut unnamed = plan(&["{{input.file}}"]);
    unnamed.as_object_mut().unwrap().remove("plan_id");
    let order = envelope(&unnamed, &json!({}));
    let input = json!({"file": "/data/a"});
    assert!(trust.authorise(&job(&unnamed, Some(&order), &input), &PlanCache::default(), now()).is_ok());
    assert!(refusal(&trust, &job(&plan(&["-l"]), Some(&order), &input)).contains("is not the plan"));
}

#[test]
fn terms_and_signatures_are_checked_for_each_attempt() {
    let dir = tempfile::tempdir().unwrap();
    let trust = trust(dir.path(), false);
    let (plan, input) = (plan(&["{{input.file}}"]), json!({"file": "/data/a"}));
    let job_under = |terms: &Value| job(&plan, Some(&envelope(&plan, terms)), &input);
    assert!(refusal(&trust, &job_under(&json!({"for": ["test"]}))).starts_with("the order is for test"));
    let valid = job_under(&json!({}));
    let later = Timestamp::parse("2026-12-01T00:00:00Z").unwrap();
    assert!(trust.authorise(&valid, &PlanCache::default(), now()).is_ok());
    let expired = trust.authorise(&valid, &PlanCache::default(), later).unwrap_err();
    assert!(
        matches!(&expired, Denied::Refused(reason) if reason.starts_with("the order expired at")),
        "{expired:?}"
    );

    // The order is refused with a changed signature, and after a revocation of the key.
    let text = envelope(&plan, &json!({})).replace("\"sig\":\"", "\"sig\":\"AAAA");
    assert!(refusal(&trust, &job(&plan, Some(&text), &input)).starts_with("no signature of the order"));
    write_trust(dir.path(), &format!("[revoked]\nkeys = [\"{}\"]", key().public()));
    trust.reload().unwrap();
    assert_eq!(refusal(&trust, &valid), "the key of 'ci' that signed the order is revoked");
    fs::write(dir.path().join("trust.toml"), "[signers").unwrap();
    assert!(trust.reload().is_err());
    assert_eq!(refusal(&trust, &valid), "the key of 'ci' that signed the order is revoked");
}

#[test]
fn reload_of_a_file_with_a_profile_that_the_worker_lacks_only_revokes() {
    let dir = tempfile::tempdir().unwrap();
    let mut trust = trust(dir.path(), false);
    trust.set_profiles(Some(["reader".to_owned()].into()));
    let (plan, plans) = (plan(&["{{input.file}}"]), PlanCache::default());
    let valid = job(&plan, Some(&envelope(&plan, &json!({}))), &json!({"file": "/data/a"}));
    let grant = |trust: &Trust| match trust.authorise(&valid, &plans, now()) {
        Ok((_, Rights::Signed(verified))) => verified.grant,
        other => panic!("{other:?}"),
    };
    let write = |profile: &str, rest: &str| {
        let text = format!("[signers.ci]\nkey = \"{}\"\nprofile = \"{profile}\"\n{rest}", key().public());
        fs::write(dir.path().join("trust.toml"), text).unwrap();
    };
    write("biulder", "");
    let error = trust.reload().unwrap_err().to_string();
    assert!(error.starts_with("signers.ci.profile is 'biulder', which this worker does not have"), "{error}");
    assert_eq!(grant(&trust), Grant::Full, "the file stays as it was");
    write("biulder", &format!("[revoked]\nkeys = [\"{}\"]", key().public()));
    assert!(trust.reload().is_err());
    assert_eq!(refusal(&trust, &valid), "the key of 'ci' that signed the order is revoked");
    write("reader", "");
    trust.reload().unwrap();
    assert_eq!(grant(&trust), Grant::Profile("reader".into()));
}

#[test]
fn limited_order_is_used_as_often_as_it_permits() {
    let dir = tempfile::tempdir().unwrap();
    let plan = plan(&["{{input.file}}"]);
    let twice = job(&plan, Some(&envelope(&plan, &json!({"uses": 2}))), &json!({"file": "/data/a"}));
    let rights = |trust: &Trust| trust.authorise(&twice, &PlanCache::default(), now()).unwrap().1;
    let without = trust(dir.path(), false);
    let refused = without.record_use(&rights(&without), &job_id(), now()).unwrap().unwrap_err();
    assert!(
        matches!(&refused, Denied::Refused(reason) if reason.ends_with("set trust.serials")),
        "{refused:?}"
    );

    let first = trust(dir.path(), true);
    first.record_use(&rights(&first), &job_id(), now()).unwrap().unwrap();
    drop(first);
    let second = trust(dir.path(), true);
    second.record_use(&rights(&second), &job_id(), now()).unwrap().unwrap();
    let used_up = second.record_use(&rights(&second), &job_id(), now()).unwrap().unwrap_err();
    let reason = "the order s permits 2 uses, and this worker has seen them all";
    assert_eq!(used_up, Denied::Refused(reason.into()));
    second.record_use(&Rights::Stranger, &job_id(), now()).unwrap().unwrap();
}

#[test]
fn job_that_has_waited_starts_only_with_the_rights_of_the_present_trust_file() {
    let dir = tempfile::tempdir().unwrap();
    let plan = plan(&["{{input.file}}"]);
    let order = envelope(&plan, &json!({"not_after": "2999-12-01T00:00:00Z"}));
    let job = job(&plan, Some(&order), &json!({"file": "/data/a"}));
    write_trust(dir.path(), "");
    let file = dir.path().join("trust.toml");
    let settings = TrustSettings { file, cluster: "prod".into(), serials: None };
    let admission = AdmissionControl::default().with_trust(Some(settings)).unwrap();
    let (programs, plans) = (OfferedPrograms::default(), PlanCache::default());
    let worker = WorkerPrograms { programs: &programs, plans: &plans, sandboxes: None };
    let admitted = admission.admit_job(&job, worker).unwrap();
    assert!(admitted.profile.is_none());
    admission.start(&job, worker, None).unwrap().unwrap();
    let prepared = Profile::reader();
    let Err(Unadmitted::Failed(reason)) = admission.start(&job, worker, Some(&prepared)).unwrap() else {
        panic!("it starts in another sandbox")
    };
    let differs =
        "it was prepared to run in the sandbox profile 'reader', and now has to run without a sandbox";
    assert!(reason.contains(differs), "{reason}");

    let revoked_key = format!("[revoked]\nkeys = [\"{}\"]", key().public());
    for (rest, expected) in [
        (revoked_key.as_str(), "the key of 'ci' that signed the order is revoked"),
        ("[revoked]\nserials = [\"s\"]", "the serial s of the order is revoked"),
        ("not_after = \"2020-01-01\"", "the trust in 'ci', who signed the order, ended at"),
    ] {
        write_trust(dir.path(), rest);
        assert!(admission.reload().is_empty());
        let Err(Unadmitted::Refused(refusal)) = admission.start(&job, worker, None).unwrap() else {
            panic!("it starts: {rest}")
        };
        let (reason, _) = refusal.into_results();
        assert!(reason.contains(expected), "{reason}");
    }
}

#[test]
fn use_of_an_order_is_recorded_once_the_disk_takes_it() {
    let dir = tempfile::tempdir().unwrap();
    let [directory, away] = ["uses", "away"].map(|name| dir.path().join(name));
    fs::create_dir(&directory).unwrap();
    let plan = plan(&["{{input.file}}"]);
    let order = envelope(&plan, &json!({"not_after": "2999-12-01T00:00:00Z", "uses": 1}));
    let job = job(&plan, Some(&order), &json!({"file": "/data/a"}));
    write_trust(dir.path(), "");
    let (file, serials) = (dir.path().join("trust.toml"), directory.join("serials"));
    let settings = TrustSettings { file, cluster: "prod".into(), serials: Some(serials.clone()) };
    let admission = AdmissionControl::default().with_trust(Some(settings)).unwrap();
    let (programs, plans) = (OfferedPrograms::default(), PlanCache::default());
    let worker = WorkerPrograms { programs: &programs, plans: &plans, sandboxes: None };
    let start = || admission.start(&job, worker, None);

    admission.trust.as_ref().unwrap().serials.as_ref().unwrap().rewrite_next();
    fs::rename(&directory, &away).unwrap();
    for _again in 0..2 {
        let error = start().unwrap_err();
        assert!(is_shortage(&error) && error.to_string().contains("uses: "), "{error}");
    }
    fs::rename(&away, &directory).unwrap();
    start().unwrap().unwrap();
    assert_eq!(fs::read_to_string(&serials).unwrap().lines().count(), 1);
    assert!(matches!(start().unwrap(), Err(Unadmitted::Refused(_))), "the order permits one use");
}

//! Tests of the admission.

use std::{ffi::OsStr, fs, os::unix::fs::PermissionsExt, path::Path, sync::Arc};

use agenix_order::SigningKey;
use agenix_protocol::documents::{JobDocument, Plan, PlanCache, parse};
use serde_json::value::RawValue;

use super::{
    AdmissionControl, AdmissionRefusal, Allowed, AskedPlans, TrustSettings, Unadmitted, WorkerPrograms,
    denied::Denied,
};
use crate::exec::programs::OfferedPrograms;

const POLICY: &str = r#"
version = 1
use = ["cat"]
[paths]
read = ["/data"]
[tools.sort]
options = ["-r", "-n"]
args = "read*"
[tools.awk]
class = "interpreter"
"#;

fn plan(tasks: &str) -> Arc<Plan> {
    Arc::new(parse(format!(r#"{{"tasks": [{tasks}]}}"#).as_bytes()).unwrap())
}

fn raw(json: &str) -> &RawValue {
    serde_json::from_str(json).unwrap()
}

fn typed(tasks: &str) -> Arc<Plan> {
    let inputs = r#"{"file": {"type": "path", "under": "/data"}}"#;
    Arc::new(parse(format!(r#"{{"tasks": [{tasks}], "inputs": {inputs}}}"#).as_bytes()).unwrap())
}

fn admission(dir: &Path, policy: &str) -> AdmissionControl {
    let file = dir.join("policy.toml");
    fs::write(&file, policy).unwrap();
    AdmissionControl::read(Some(file), AskedPlans::Refuse).unwrap()
}

fn reason(refusal: AdmissionRefusal) -> String {
    refusal.into_results().0
}

#[test]
fn worker_without_a_policy_admits_every_plan() {
    let plan = plan(r#"{"task_number": 1, "command": "sh", "args": ["-c", "id"]}"#);
    assert_eq!(
        AdmissionControl::default().admit(&plan, raw("{}"), &OfferedPrograms::default()),
        Ok(Allowed::default())
    );
}

#[test]
fn worker_refuses_what_its_policy_does_not_allow() {
    let dir = tempfile::tempdir().unwrap();
    let admission = admission(dir.path(), POLICY);
    let refused = |tasks: &str| {
        let refusal = admission.admit(&plan(tasks), raw("{}"), &OfferedPrograms::default()).unwrap_err();
        let (reason, results) = refusal.into_results();
        assert_eq!(results.len(), 1);
        assert_eq!(results[0].exit_code, 78, "agq does not retry it");
        reason
    };
    let unlisted = refused(r#"{"task_number": 1, "command": "sh", "args": ["-c", "id"]}"#);
    assert_eq!(
        unlisted,
        "refused: task 1 (sh), command: the tool 'sh' is not listed; instead: use one of awk, cat, sort; the policy of this worker refuses it"
    );
    let second = refused(
        r#"{"task_number": 1, "command": "cat"}, {"task_number": 2, "command": "sort", "args": ["-o", "x"]}"#,
    );
    assert!(second.starts_with("refused: task 2 (sort), args[0]: the option '-o' is not listed"), "{second}");
    let asked = refused(r#"{"task_number": 1, "command": "awk", "args": ["1"]}"#);
    assert!(asked.ends_with("the policy of this worker asks for the approval of a person"), "{asked}");
}

#[test]
fn worker_checks_typed_inputs_again() {
    let dir = tempfile::tempdir().unwrap();
    let plan = typed(r#"{"task_number": 1, "command": "sort", "args": ["{{input.file}}"]}"#);
    for admission in [AdmissionControl::default(), admission(dir.path(), POLICY)] {
        let admit = |input: &'static str| admission.admit(&plan, raw(input), &OfferedPrograms::default());
        assert_eq!(admit(r#"{"file": "/data/a"}"#).map(|allowed| allowed.sandbox), Ok(None));
        for wrong in
            [r#"{"file": "/etc/passwd"}"#, r#"{"file": ["/data/a"]}"#, r#"{"file": "-o/data/a"}"#, "{}"]
        {
            assert!(admit(wrong).is_err(), "{wrong}");
        }
        let reason = reason(admit(r#"{"file": "/data/../etc/passwd"}"#).unwrap_err());
        assert_eq!(
            reason,
            "refused: task 1 (sort), input.file is not a path below /data, without '.', '..' and empty parts"
        );
    }
}

#[test]
fn policy_names_the_sandbox_profile_of_allowed_plans() {
    let dir = tempfile::tempdir().unwrap();
    let admission = admission(dir.path(), "version = 1\nprofile = \"builder\"\nuse = [\"cat\"]");
    let sandbox = admission.admit(
        &plan(r#"{"task_number": 1, "command": "cat"}"#),
        raw("{}"),
        &OfferedPrograms::default(),
    );
    assert_eq!(sandbox.unwrap().sandbox.unwrap().profile, "builder");
}

#[test]
fn allowed_plan_has_the_rules_and_the_digest_of_the_policy() {
    let dir = tempfile::tempdir().unwrap();
    let admission = admission(dir.path(), POLICY);
    let plan = plan(
        r#"{"task_number": 1, "command": "cat"}, {"task_number": 2, "command": "sort", "args": ["-r"]}"#,
    );
    let rules = admission.admit(&plan, raw("{}"), &OfferedPrograms::default()).unwrap().rules.unwrap();
    assert_eq!(*rules.policy, *agenix_order::sha256(POLICY.as_bytes()));
    let names: Vec<_> = rules.rules.iter().map(|(number, rule)| (*number, rule.as_str())).collect();
    assert_eq!(names, [(1, "tools.cat"), (2, "tools.sort")]);
}

#[test]
fn reload_applies_to_plans_that_were_judged_before() {
    let dir = tempfile::tempdir().unwrap();
    let admission = admission(dir.path(), POLICY);
    let plan = plan(r#"{"task_number": 1, "command": "cat"}"#);
    let admit = || admission.admit(&plan, raw("{}"), &OfferedPrograms::default());
    assert!(admit().is_ok());
    fs::write(dir.path().join("policy.toml"), "version = 1").unwrap();
    assert_eq!(faults(&admission), [""; 0]);
    assert!(admit().is_err());
    fs::write(dir.path().join("policy.toml"), "version = 2").unwrap();
    let faults = faults(&admission);
    assert!(faults[0].contains("version: 2 is not supported") && admit().is_err(), "{faults:?}");
}

#[test]
fn job_that_has_waited_starts_only_if_the_present_policy_allows_it() {
    let dir = tempfile::tempdir().unwrap();
    let admission = admission(dir.path(), POLICY);
    let job = br#"{"job_id": "j", "action_id": "a", "plan_id": "p", "inputs": {}, "attempt": 1,
        "plan": {"tasks": [{"task_number": 1, "command": "cat"}]}}"#;
    let job: JobDocument = parse(job).unwrap();
    let (programs, plans) = (OfferedPrograms::default(), PlanCache::default());
    let worker = WorkerPrograms { programs: &programs, plans: &plans, sandboxes: None };
    assert!(admission.admit_job(&job, worker).is_ok());
    assert!(admission.start(&job, worker, None).unwrap().is_ok());
    fs::write(dir.path().join("policy.toml"), "version = 1").unwrap();
    assert_eq!(faults(&admission), [""; 0]);
    let started = admission.start(&job, worker, None).unwrap();
    assert!(matches!(started, Err(Unadmitted::Refused(_))), "{started:?}");
}

/// Reads the files of `admission` again, and returns the faults.
fn faults(admission: &AdmissionControl) -> Vec<String> {
    admission.reload().into_iter().map(|(name, error)| format!("{name}: {error:#}")).collect()
}

fn write_trust(dir: &Path, profile: &str) {
    let key = SigningKey::from_seed(&[1; 32]).public();
    let text = format!("[signers.ci]\nkey = \"{key}\"\nprofile = \"{profile}\"\n");
    fs::write(dir.join("trust.toml"), text).unwrap();
}

#[test]
fn reload_applies_the_trust_file_in_spite_of_a_wrong_policy_and_the_reverse() {
    let dir = tempfile::tempdir().unwrap();
    let policy = |text: &str| fs::write(dir.path().join("policy.toml"), text).unwrap();
    write_trust(dir.path(), "first");
    let file = dir.path().join("trust.toml");
    let settings = TrustSettings { file: file.clone(), cluster: "prod".into(), serials: None };
    let admission = admission(dir.path(), POLICY).with_trust(Some(settings)).unwrap();
    assert_eq!(admission.trusted_profiles(), ["first"]);
    let of_another_profile = format!("profile = \"builder\"\n{POLICY}");
    for (wrong, profile) in [("version = 2", "second"), (&*of_another_profile, "third")] {
        policy(wrong);
        write_trust(dir.path(), profile);
        let faults = faults(&admission);
        assert!(faults.len() == 1 && faults[0].starts_with("policy: "), "{faults:?}");
        assert_eq!(admission.trusted_profiles(), [profile]);
    }
    policy("version = 1");
    fs::write(&file, "[signers").unwrap();
    let faults = faults(&admission);
    assert!(faults.len() == 1 && faults[0].starts_with("trust file: "), "{faults:?}");
    assert_eq!(admission.trusted_profiles(), ["third"], "the file stays as it was");
    let cat = plan(r#"{"task_number": 1, "command": "cat"}"#);
    assert!(
        admission.admit(&cat, raw("{}"), &OfferedPrograms::default()).is_err(),
        "the policy is the new one"
    );
}

#[test]
fn policy_whose_examples_fail_is_not_used() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("policy.toml");
    fs::write(&file, "version = 1\n[tools.sort]\noptions = [\"-r\"]\nok = [[\"-n\"]]").unwrap();
    let error = format!("{:#}", AdmissionControl::read(Some(file), AskedPlans::Refuse).unwrap_err());
    assert!(error.contains("tools.sort.ok: the example [\"-n\"] is judged otherwise"), "{error}");
}

/// Attack: another program takes the place of a listed one.
#[test]
fn program_is_the_file_that_the_policy_names() {
    let dir = tempfile::tempdir().unwrap();
    let directory = |name: &str, content: &str| {
        let path = dir.path().join(name);
        fs::create_dir(&path).unwrap();
        let program = path.join("tool");
        fs::write(&program, content).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        path
    };
    let (own, planted) = (directory("own", "#!/bin/sh\n"), directory("planted", "#!/bin/sh\nid\n"));
    let sha256 = "a8076d3d28d21e02012b20eaf7dbf75409a6277134439025f282e368e3305abf";
    let program = own.join("tool");
    let path = program.display();
    let policy = format!("version = 1\n[tools.tool]\npath = '{path}'\nsha256 = '{sha256}'");
    let admission = admission(dir.path(), &policy);
    let plan = plan(r#"{"task_number": 1, "command": "tool"}"#);
    let admit =
        |path: &OsStr| admission.admit(&plan, raw("{}"), &OfferedPrograms::find(path, None)).map_err(reason);
    assert_eq!(admit(own.as_os_str()).map(|allowed| allowed.sandbox), Ok(None));
    let first = std::env::join_paths([&planted, &own]).unwrap();
    let shadowed = admit(&first).unwrap_err();
    assert!(shadowed.contains("and PATH of this worker has"), "{shadowed}");
    fs::write(&program, "#!/bin/sh\nid\n").unwrap();
    let replaced = admit(own.as_os_str()).unwrap_err();
    assert!(replaced.contains("and the policy names a8076d3d"), "{replaced}");
}

#[test]
fn worker_refuses_a_profile_that_needs_approval_and_that_no_plan_names() {
    let dir = tempfile::tempdir().unwrap();
    let policy = format!("{POLICY}\n[ask]\nprofiles = [\"builder\"]\n");
    for asked in [AskedPlans::Refuse, AskedPlans::LeaveToAgq] {
        let admission = AdmissionControl { asked, ..admission(dir.path(), &policy) };
        assert_eq!(admission.check_unjudged_profile("reader", None), Ok(()));
        assert_eq!(admission.check_unjudged_profile("builder", Some("builder")), Ok(()), "it was judged");
        for named in [None, Some("reader")] {
            let denied = admission.check_unjudged_profile("builder", named).unwrap_err();
            let Denied::Refused(reason) = denied else { panic!("{denied:?}") };
            assert!(reason.starts_with("plans in the sandbox profile 'builder' need approval"), "{reason}");
        }
    }
}

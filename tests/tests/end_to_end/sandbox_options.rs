//! Options of agx that ask for a sandbox, and the texts of agx about sandboxes. No job of these
//! tests runs in a sandbox.

use std::process::Stdio;

use e2e::{Agq, Lab, Ran, eventually};
use serde_json::{Value, json};

/// Waits for the plan of a map on an agq without other plans, and returns it.
fn plan_of_map(lab: &Lab, agq: &Agq) -> Value {
    let id = eventually("the map submits its plan", || {
        let plans = lab.agx(agq, &["--json", "plan", "list"]).expect(0).data();
        plans[0].as_str().map(str::to_owned)
    });
    lab.agx(agq, &["--json", "plan", "get", &id]).expect(0).data()
}

#[test]
fn map_and_plan_from_ask_for_the_profile_and_its_tag() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let mut map = lab.command("agx");
    map.env("AGQ_ADDR", agq.address()).args(["map", "--sandbox=my-own_2", "--", "sort", ":::", "a"]);
    let map = map.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let plan = plan_of_map(&lab, &agq);
    assert_eq!(plan["sandbox"], json!({"profile": "my-own_2"}));
    assert_eq!(plan["requires"]["tags"], json!(["sandbox:my-own_2"]));
    let action = eventually("the map submits its action", || {
        let actions = lab.agx(&agq, &["--json", "history"]).expect(0).data();
        actions[0]["action_id"].as_str().map(str::to_owned)
    });
    let jobs = lab.agx(&agq, &["--json", "job", "list", &action]).expect(0).data();
    let why = lab.agx(&agq, &["job", "explain", jobs[0].as_str().unwrap()]).expect(0).out;
    assert!(why.contains("it runs only in a sandbox with the profile my-own_2"), "{why}");
    lab.agx(&agq, &["action", "cancel", &action]).expect(0);
    Ran::from(map.wait_with_output().unwrap()).expect(1);
    let from = ["plan", "from", "sort", "--id", "p", "--submit", "--sandbox"];
    lab.agx(&agq, &from).expect(0);
    let plan = lab.agx(&agq, &["--json", "plan", "get", "p"]).expect(0).data();
    assert_eq!(plan["sandbox"], json!({"profile": "reader"}));
    assert_eq!(plan["requires"]["tags"], json!(["sandbox:reader"]));
    lab.file("p.json", &plan.to_string());
    let checked = lab.agx(&agq, &["plan", "check", "p.json"]).expect(0).out;
    assert!(checked.ends_with("its workers need sort, the sandbox profile reader\n"), "{checked}");
}

#[test]
fn options_that_contradict_the_sandbox_are_refused() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let owner = "the owner of the worker decides what its profiles read";
    let name = "the name of a profile has 1 to 64 lower-case letters";
    for (args, code, why) in [
        (&["map", "--sandbox", "--sandbox-read", "/", "--", "sort", ":::", "a"][..], 2, owner),
        (&["map", "--dry-run", "--sandbox", "--sandbox-read", "/", "--", "sort", ":::", "a"], 2, owner),
        (&["run", "--sandbox", "--sandbox-read", "/", "--", "sort"], 125, owner),
        (&["map", "--sandbox=BAD NAME", "--", "sort", ":::", "a"], 2, name),
        (&["run", "--sandbox=", "--", "sort"], 2, "--sandbox"),
        (&["up", "--sandbox=Reader"], 2, name),
        (&["plan", "from", "sort", "--sandbox=../x"], 2, name),
        (&["map", "--sandbox-read", "/", "--", "sort", ":::", "a"], 2, "--sandbox"),
        (&["up", "--sandbox-read", "/"], 2, "--sandbox"),
        (&["map", "--local", "--sandbox", "--", "./a.sh", ":::", "a"], 2, "run the programs of the system"),
        (&["run", "--local", "--sandbox", "--", "./a.sh"], 125, "run the programs of the system"),
        (
            &["map", "--local", "--sandbox", "--sandbox-read", "/no", "--", "sort", ":::", "a"],
            2,
            "could not read /no",
        ),
        (&["map", "--local", "--sandbox", "--cwd", "no", "--", "sort", ":::", "a"], 2, "could not read "),
    ] {
        let refused = lab.agx(&agq, args).expect(code).err;
        assert!(refused.contains(why), "{args:?}: {refused}");
    }
    let plans = lab.agx(&agq, &["--json", "plan", "list"]).expect(0).data();
    assert_eq!(plans, json!([]));
}

#[cfg(target_os = "linux")]
#[test]
fn message_of_a_worker_that_does_not_start_is_shown() {
    let lab = Lab::on_files();
    for (command, words, code) in [("map", &["echo", ":::", "a"][..], 2), ("run", &["echo"], 125)] {
        let mut agx = lab.command("agx");
        agx.args([command, "--local", "--sandbox=nope", "--"]).args(words);
        let ended = Ran::from(agx.output().unwrap()).expect(code).err;
        assert!(ended.contains("agw of this command has ended: agw: --sandbox is 'nope'"), "{ended}");
        assert!(
            ended.ends_with("  `agw sandbox` shows what this machine can enforce, and the remedies\n"),
            "{ended}"
        );
    }
}

#[test]
fn dry_run_and_worker_commands_show_the_sandbox() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let shown = lab.agx(&agq, &["map", "--dry-run", "--sandbox", "--", "sort", ":::", "a"]).expect(0);
    assert_eq!(shown.out, "sort a\n");
    assert!(shown.err.contains("the jobs would run in a sandbox with the profile reader"), "{}", shown.err);
    let args = ["map", "--json", "--dry-run", "--sandbox=builder", "--", "sort", ":::", "a"];
    assert_eq!(lab.agx(&agq, &args).expect(0).data()["sandbox"], json!({"profile": "builder"}));
    let _agw = lab.agw(&agq, "worker-1", &["--tag", "gpu"]);
    let worker = lab.agx(&agq, &["worker", "get", "worker-1"]).expect(0).out;
    assert!(worker.starts_with("worker worker-1: active\n"), "{worker}");
    assert!(worker.contains("tags        gpu\n") && worker.contains("  sandbox "), "{worker}");
    let unknown = lab.agx(&agq, &["worker", "get", "worker-l"]).expect(4).err;
    assert!(unknown.contains("there is no worker 'worker-l'\n  did you mean 'worker-1'?"), "{unknown}");
    assert!(lab.agx(&agq, &["worker", "list"]).expect(0).out.lines().next().unwrap().ends_with("SANDBOX"));
}

#[cfg(target_os = "linux")]
#[test]
fn doctor_shows_what_this_machine_enforces() {
    let lab = Lab::on_files();
    let doctor = |without: &str| {
        let mut doctor = lab.command("agx");
        // With a key, agx would search an agq at the default address.
        doctor.env_remove("AGQ_SESSION_KEY");
        Ran::from(doctor.arg("doctor").env("AGW_SANDBOX_WITHOUT", without).output().unwrap())
    };
    // A machine without a sandbox is no problem.
    let without = doctor("landlock").expect(0).out;
    assert!(without.contains("ok    sandbox this machine cannot enforce the profile reader"), "{without}");
    assert!(without.contains("files_read      nothing: "), "{without}");
    let wrong = doctor("landlok").expect(1).out;
    assert!(wrong.contains("WRONG sandbox `agw sandbox` has failed: "), "{wrong}");
    let mut json = lab.command("agx");
    json.env_remove("AGQ_SESSION_KEY");
    let json = Ran::from(json.args(["doctor", "--json"]).output().unwrap()).expect(0).data();
    let found = json.as_array().unwrap().iter().find(|finding| finding["what"] == "sandbox").unwrap();
    assert!(found["sandbox"]["enforced"].is_object() && found["is_well"] == true, "{found}");
}

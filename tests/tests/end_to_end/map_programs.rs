//! `agx map` with programs by path, with the number of the slot, with the idle timeout, and on
//! workers that a dry run names.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use e2e::{Lab, Ran};

use crate::support::map;

fn mapped(lab: &Lab, args: &[&str]) -> Ran {
    Ran::from(map(lab, args).output().unwrap())
}

fn script(path: &Path, text: &str, mode: u32) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn map_runs_programs_by_path_on_this_machine() {
    let lab = Lab::on_files();
    let elsewhere = lab.path().join("else where");
    fs::create_dir(&elsewhere).unwrap();
    script(&lab.path().join("a.sh"), "#!/bin/sh\necho \"here $1\"\n", 0o755);
    script(&elsewhere.join("a.sh"), "#!/bin/sh\necho \"there $1\"\n", 0o755);
    script(&lab.path().join("plain"), "#!/bin/sh\n", 0o644);
    script(&lab.path().join("bare"), "echo\n", 0o755);
    assert_eq!(mapped(&lab, &["-k", "--", "./a.sh {} | tr a b", ":::", "a"]).expect(0).out, "here b\n");
    let there = elsewhere.display().to_string();
    assert_eq!(mapped(&lab, &["--cwd", &there, "./a.sh", ":::", "x"]).expect(0).out, "there x\n");
    let braces = lab.path().join("{{input.line}}");
    fs::create_dir(&braces).unwrap();
    script(&braces.join("a.sh"), "#!/bin/sh\necho \"braces $1\"\n", 0o755);
    let there = braces.display().to_string();
    assert_eq!(mapped(&lab, &["--cwd", &there, "./a.sh", ":::", "x"]).expect(0).out, "braces x\n");
    let absolute = elsewhere.join("a.sh").display().to_string();
    assert_eq!(mapped(&lab, &["--", &absolute, "{}", ":::", "x"]).expect(0).out, "there x\n");
    for (program, why) in [
        ("./no", "there is no program './no'"),
        ("./plain", "'./plain' is not a file that can be executed"),
        ("./{}", "the program cannot come from the input"),
    ] {
        let refused = mapped(&lab, &["--", program, ":::", "x"]).expect(2).err;
        assert!(refused.contains(why), "{refused}");
    }
    let failed = mapped(&lab, &["--", "./bare", ":::", "x"]).expect(1).err;
    assert!(failed.contains("a script needs a first line that names its interpreter"), "{failed}");
}

#[test]
fn map_refuses_paths_on_a_cluster_and_other_workers_never_get_them() {
    let lab = Lab::new();
    script(&lab.path().join("a.sh"), "#!/bin/sh\necho ran\n", 0o755);
    let socket = lab.path().join("agq.sock").display().to_string();
    let agq = lab.agq(&["--socket", &socket]);
    let _named = lab.agw(&agq, "named", &[]);
    let remote = lab.agx(&agq, &["map", "--", "./a.sh", ":::", "x"]).expect(2).err;
    assert!(remote.contains("not its path") && remote.contains("write a.sh"), "{remote}");
    let local = |lab: &Lab| {
        Ran::from(
            map(lab, &["--", "./a.sh", ":::", "x"])
                .env("AGQ_ADDR", format!("unix:{socket}"))
                .output()
                .unwrap(),
        )
    };
    let refused = local(&lab).expect(2).err;
    assert!(refused.contains("no worker of this agq runs programs by path, as './a.sh'"), "{refused}");
    assert!(refused.contains("put it on the PATH of the workers, and write a.sh"), "{refused}");
    // A plan that asks for such a worker waits, and its user gets a note.
    let task = r#"{"task_number":1,"command":"./a.sh"}"#;
    lab.submit_plan(
        &agq,
        &format!(r#"{{"plan_id":"p","requires":{{"tags":["program-paths"]}},"tasks":[{task}]}}"#),
    );
    lab.submit_action(&agq, "p", "a", "[{}]");
    let job = lab.agx(&agq, &["job", "list", "a", "--json"]).expect(0).data()[0].as_str().unwrap().to_owned();
    let why = lab.agx(&agq, &["job", "explain", &job]).expect(0).out;
    assert!(why.contains("named comes closest and lacks tag program-paths"), "{why}");
    let _paths = lab.agw(&agq, "paths", &["--program-paths"]);
    lab.agx(&agq, &["action", "watch", "a"]).expect(0);
    assert_eq!(lab.agx(&agq, &["action", "results", "a"]).expect(0).out, "ran\n");
    assert_eq!(local(&lab).expect(0).out, "ran\n");
}

#[test]
fn map_gives_each_running_job_a_slot_of_its_own() {
    let lab = Lab::on_files();
    // A slot that two running jobs share lets the second mkdir fail.
    let job = "mkdir \"$1\" && ls / > /dev/null && rmdir \"$1\" && echo \"$1\"";
    let inputs: Vec<String> = (0..60).map(|number| number.to_string()).collect();
    let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
    let args = [&["-j", "3", "--", "sh", "-c", job, "sh", "slot{%}", "{}", ":::"], &inputs[..]].concat();
    let out = mapped(&lab, &args).expect(0).out;
    assert!(out.lines().all(|slot| ["slot1", "slot2", "slot3"].contains(&slot)), "{out}");
    let args = ["--joblog", "log", "-j1", "--", "echo \\{%} {%} {}", ":::", "a"];
    assert_eq!(mapped(&lab, &args).expect(0).out, "{%} 1 a\n");
    let log = fs::read_to_string(lab.path().join("log")).unwrap();
    assert!(log.trim_end().ends_with("echo {%} {%} a"), "{log}");
}

#[test]
fn map_ends_a_task_that_writes_nothing() {
    let lab = Lab::on_files();
    let silent = mapped(
        &lab,
        &["--idle-timeout", "1", "--joblog", "log", "--", "sh", "-c", "echo a; sleep 600", "sh", ":::", "x"],
    );
    let silent = silent.expect(1);
    assert_eq!(silent.out, "a\n");
    assert!(
        silent.err.contains("agw: task 1 was ended: nothing was written for 1 s (idle timeout)"),
        "{}",
        silent.err
    );
    assert!(silent.err.contains("sh wrote nothing for too long"), "{}", silent.err);
    let log = fs::read_to_string(lab.path().join("log")).unwrap();
    assert_eq!(log.lines().nth(1).unwrap().split('\t').nth(6), Some("-1"), "{log}");
}

#[test]
fn map_dry_run_says_where_the_jobs_would_run() {
    let lab = Lab::new();
    let mut agq = lab.agq(&[]);
    let dry = |program: &str| {
        let args = ["map", "--dry-run", "--json", "--", program, ":::", "x"];
        let ran = lab.agx(&agq, &args).expect(0);
        (ran.data()["workers"].clone(), ran.err)
    };
    let (workers, why) = dry("sort");
    assert_eq!(
        (workers, &*why),
        (serde_json::json!([]), "agx: no job could run, because this agq has no worker\n")
    );
    let _agw = lab.agw(&agq, "w1", &["--tools", "sort"]);
    let (workers, why) = dry("sort");
    assert_eq!(
        (workers, &*why),
        (serde_json::json!(["w1"]), "agx: each job could run on 1 of 1 workers: w1\n")
    );
    let (workers, why) = dry("uniq");
    assert_eq!(workers, serde_json::json!([]));
    assert!(why.contains("w1 comes closest and lacks tool uniq"), "{why}");
    agq.kill();
    let ran = lab.agx(&agq, &["map", "--dry-run", "--", "sort", ":::", "x"]).expect(0);
    assert_eq!(ran.out, "sort x\n");
    assert!(ran.err.contains("it is not known where the jobs would run"), "{}", ran.err);
}

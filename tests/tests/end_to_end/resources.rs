//! Jobs that want quantities of resources: what a worker offers, what their tasks get, and that a
//! worker never gives more than it offers.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use e2e::{Agq, Lab, eventually};
use serde_json::Value;

use crate::support::{action, ended, numbered};

/// Variable of each worker with the file in which its tasks record what they have.
const RECORD: &str = "RECORD";
/// Records the start and the end of a task. The lines of a file are in the order of the events,
/// because each is one small append.
const SCRIPT: &str = concat!(
    "line() { echo \"$1 $AGW_RUN ${AGX_RESOURCE_CPUS:-0} ${AGX_RESOURCE_MEMORY:-0} ",
    "${AGX_RESOURCE_LICENCES:-0} ${CUDA_VISIBLE_DEVICES:-none} ${ROCR_VISIBLE_DEVICES:-none}\" >> \"$RECORD\"; }\n",
    "line start; sleep 0.01; line end"
);

fn submit_plan(lab: &Lab, agq: &Agq, id: &str, resources: &str, command: &str, args: &[&str]) {
    let args = serde_json::to_string(args).unwrap();
    lab.submit_plan(
        agq,
        &format!(
            r#"{{"plan_id":"{id}","requires":{{"resources":{resources}}},
                "tasks":[{{"task_number":1,"command":"{command}","args":{args}}}]}}"#
        ),
    );
}

/// Offer of a worker: hundredths of processors, bytes, licences, and the number of GPUs.
struct Offered {
    cpus: u64,
    memory: u64,
    licences: u64,
    gpus: usize,
}

/// Quantities that a task has recorded.
#[derive(Debug, Default, Clone)]
struct Held {
    cpus: u64,
    memory: u64,
    licences: u64,
    gpus: Vec<String>,
}

fn held(line: &str) -> (bool, String, Held) {
    let fields: Vec<&str> = line.split(' ').collect();
    let [event, run, cpus, memory, licences, cuda, rocr] = fields[..] else { panic!("a line: {line}") };
    assert_eq!(cuda, rocr);
    let (whole, part) = cpus.split_once('.').unwrap_or((cpus, "0"));
    let hundredths = whole.parse::<u64>().unwrap() * 100 + format!("{part:0<2}").parse::<u64>().unwrap();
    let gpus = match cuda {
        "none" | "-1" => Vec::new(),
        list => list.split(',').map(str::to_owned).collect(),
    };
    let (memory, licences) = (memory.parse().unwrap(), licences.parse().unwrap());
    (event == "start", run.to_owned(), Held { cpus: hundredths, memory, licences, gpus })
}

/// Replays what the tasks of one worker recorded, and returns the most processors at a time.
fn check_record(record: &str, offered: &Offered) -> u64 {
    let (mut running, mut most) = (BTreeMap::new(), 0);
    for line in record.lines() {
        let (is_start, run, held) = held(line);
        if !is_start {
            assert!(running.remove(&run).is_some(), "{line}");
            continue;
        }
        running.insert(run, held);
        let sum = |of: fn(&Held) -> u64| running.values().map(of).sum::<u64>();
        let cpus = sum(|held| held.cpus);
        assert!(cpus <= offered.cpus, "{line}: {running:?}");
        assert!(sum(|held| held.memory) <= offered.memory, "{line}: {running:?}");
        assert!(sum(|held| held.licences) <= offered.licences, "{line}: {running:?}");
        let gpus: Vec<&String> = running.values().flat_map(|held| &held.gpus).collect();
        assert_eq!(gpus.len(), gpus.iter().collect::<BTreeSet<_>>().len(), "{line}: {running:?}");
        assert!(gpus.len() <= offered.gpus, "{line}: {running:?}");
        most = most.max(cpus);
    }
    assert!(running.is_empty(), "{running:?}");
    most
}

#[test]
fn jobs_never_have_more_than_their_worker_offers() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let workers = [
        (
            "w1",
            "cpus=2 memory=1G gpus=0,1 licences=1",
            Offered { cpus: 200, memory: 1 << 30, licences: 1, gpus: 2 },
        ),
        (
            "w2",
            "cpus=3.5 memory=600M gpus=4,5,GPU-x",
            Offered { cpus: 350, memory: 600 << 20, licences: 0, gpus: 3 },
        ),
        ("w3", "cpus=1 memory=0 gpus=0", Offered { cpus: 100, memory: 0, licences: 0, gpus: 0 }),
    ];
    let records = workers.each_ref().map(|(id, ..)| lab.file(&format!("{id}.record"), ""));
    let _running: Vec<_> = workers
        .iter()
        .zip(&records)
        .map(|((id, resources, _), record)| {
            let mut agw = lab.command("agw");
            agw.env("AGQ_ADDR", agq.address()).env("AGW_RESOURCES", resources).env(RECORD, record);
            agw.args(["--max-concurrent-jobs", "8"]);
            lab.agw_by(id, agw)
        })
        .collect();
    let plans = [
        r#"{"cpus":0.5}"#,
        r#"{"cpus":1,"gpus":1}"#,
        r#"{"cpus":1.5,"memory":"256M"}"#,
        r#"{"gpus":2}"#,
        r#"{"licences":1,"cpus":0.25}"#,
        "{}",
    ];
    for (at, resources) in plans.iter().enumerate() {
        let id = format!("p{at}");
        submit_plan(&lab, &agq, &id, resources, "sh", &["-c", SCRIPT]);
        lab.submit_action(&agq, &id, &id, &numbered(60));
    }
    for at in 0..plans.len() {
        eventually("the jobs complete", || {
            let action = action(&lab, &agq, &format!("p{at}"));
            assert_eq!(action["failed"].as_u64().unwrap_or_default(), 0, "{action}");
            (action["completed"] == 60).then_some(())
        });
    }
    let texts = records.map(|record| fs::read_to_string(record).unwrap());
    let most: Vec<u64> =
        texts.iter().zip(&workers).map(|(text, (.., offered))| check_record(text, offered)).collect();
    assert!(most[1] > 100, "some of the jobs ran at the same time: {most:?}");
    let lines: usize = texts.iter().map(|text| text.lines().count()).sum();
    assert_eq!(lines, plans.len() * 60 * 2);
}

#[test]
fn job_waits_until_the_processes_of_a_cancelled_one_have_ended() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let resources = ["--resource", "licences=1", "--max-concurrent-jobs", "4"];
    let _worker = lab.agw(&agq, "w", &resources);
    let (pids, go) = (lab.path().join("pids"), lab.path().join("go"));
    let [pids, go] = [pids, go].map(|path| path.display().to_string());
    let deaf = "trap : TERM; sh -c 'trap : TERM; echo $$ >> \"$1\"; while :; do sleep 0.02; done' sh \"$1\"";
    let first = [&["-c", deaf, "sh", &pids][..]].concat();
    submit_plan(&lab, &agq, "first", r#"{"licences":1}"#, "sh", &first);
    // A process that was killed is there for a moment, and one that was not killed never ends.
    let look = "while read pid; do n=0; while kill -0 $pid 2> /dev/null && [ $n -lt 100 ]; do sleep 0.02; n=$((n+1)); done; \
        kill -0 $pid 2> /dev/null && echo $pid runs; done < \"$1\"; echo looked; : > \"$2\"";
    submit_plan(&lab, &agq, "second", r#"{"licences":1}"#, "sh", &["-c", look, "sh", &pids, &go]);
    lab.submit_action(&agq, "first", "first", "[{}]");
    eventually("the first job runs", || fs::read_to_string(&pids).ok().filter(|text| text.ends_with('\n')));
    lab.submit_action(&agq, "second", "second", "[{}]");
    lab.agx(&agq, &["action", "cancel", "first"]).expect(0);
    assert_eq!(ended(&lab, &agq, "second")["stdout"], "looked\n");
}

/// Runs a job that takes about 100 MB, and returns its status. `more` are further fields of its
/// plan.
fn hungry(lab: &Lab, agq: &Agq, id: &str, resources: &str, more: &str) -> Value {
    // tail(1) keeps all bytes that it may have to print.
    let tasks = r#"[{"task_number":1,"command":"head","args":["-c","100000000","/dev/zero"]},
        {"task_number":2,"command":"tail","args":["-c","100000000"],"input_from_task":1,"stream":true},
        {"task_number":3,"command":"wc","args":["-c"],"input_from_task":2,"stream":true}]"#;
    let plan =
        format!(r#"{{"plan_id":"{id}","requires":{{"resources":{resources}}},"tasks":{tasks}{more}}}"#);
    lab.submit_plan(agq, &plan);
    lab.submit_action(agq, id, id, "[{}]");
    ended(lab, agq, id)
}

#[cfg(target_os = "linux")]
#[test]
fn job_beyond_its_memory_fails_and_its_result_says_what_bounds_it() {
    for sandbox in [&[][..], &["--sandbox", "reader"]] {
        let lab = Lab::new();
        let agq = lab.agq(&[]);
        let _worker = lab.agw(&agq, "w", &[&["--resource", "memory=1G"], sandbox].concat());
        let small = hungry(&lab, &agq, "small", r#"{"memory":"64M"}"#, "");
        assert_eq!(small["status"], "failed", "{small}");
        let limit = &small["task_results"][1]["memory_limit"];
        assert_eq!(limit["bytes"], 64 << 20, "{small}");
        assert!(matches!(limit["by"].as_str(), Some("cgroup" | "rlimit")), "{small}");
        let large = hungry(&lab, &agq, "large", r#"{"memory":"512M"}"#, "");
        assert_eq!(
            (large["status"].as_str(), large["stdout"].as_str()),
            (Some("completed"), Some("100000000\n"))
        );
        let without = hungry(&lab, &agq, "without", "{}", "");
        assert_eq!(without["status"], "completed");
        assert!(without["task_results"][1]["memory_limit"].is_null(), "{without}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn job_that_the_kernel_kills_for_lack_of_memory_is_retried_with_more() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let _worker = lab.agw(&agq, "w", &["--resource", "memory=1G"]);
    let more = r#","max_retries":1,"retry_memory_factor":4"#;
    let job = hungry(&lab, &agq, "p", r#"{"memory":"64M"}"#, more);
    assert_eq!(job["attempt"], 2, "{job}");
    // Without a control group, the reason of the failure is unknown.
    let is_told = job["task_results"][1]["memory_limit"]["by"] == "cgroup";
    let (memory, status) = if is_told { (256 << 20, "completed") } else { (64 << 20, "dead") };
    assert_eq!((&job["resources"]["memory"], &job["status"]), (&memory.into(), &status.into()), "{job}");
}

#[cfg(target_os = "linux")]
#[test]
fn peak_memory_of_a_task_is_that_of_gnu_time() {
    const TIME: &str = "/usr/bin/time";
    let lab = Lab::new();
    let measured = lab.path().join("time");
    let file = measured.display().to_string();
    if !std::process::Command::new(TIME).args(["-v", "true"]).output().is_ok_and(|ran| ran.status.success()) {
        println!("skipped: there is no GNU time");
        return;
    }
    let agq = lab.agq(&[]);
    let _worker = lab.agw(&agq, "w", &[]);
    let args = ["-v", "-o", &file, "dd", "if=/dev/zero", "of=/dev/null", "bs=100M", "count=1"];
    submit_plan(&lab, &agq, "p", "{}", "time", &args);
    lab.submit_action(&agq, "p", "a", "[{}]");
    let job = ended(&lab, &agq, "a");
    let peak = job["task_results"][0]["peak_memory_bytes"].as_u64().expect("it is above that of agw");
    let text = fs::read_to_string(measured).unwrap();
    let line = text.lines().find_map(|line| line.trim().strip_prefix("Maximum resident set size (kbytes): "));
    let expected = line.unwrap().parse::<u64>().unwrap() * 1024;
    assert!(peak.abs_diff(expected) * 20 <= expected, "agw says {peak}, and time {expected}");
    assert!(expected > 100 << 20);
}

#[test]
fn agx_shows_and_uses_resources() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let _worker =
        lab.agw(&agq, "w", &["--resource", "cpus=2.5", "--resource", "memory=0", "--resource", "gpus=0,1"]);
    let shown = lab.agx(&agq, &["worker", "get", "w"]).expect(0).out;
    assert!(shown.contains("  resources   cpus 0/2.5, gpus 0/2\n"), "{shown}");
    assert!(lab.agx(&agq, &["worker", "list"]).expect(0).out.contains("cpus 0/2.5, gpus 0/2"));
    let print = "echo $AGX_RESOURCE_CPUS $AGX_RESOURCE_GPUS $CUDA_VISIBLE_DEVICES $ROCR_VISIBLE_DEVICES";
    let map = ["map", "--cpus", "0.5", "--gpus", "2", "--", "sh", "-c", print, "sh", ":::", "a"];
    assert_eq!(lab.agx(&agq, &map).expect(0).out, "0.5 2 0,1 0,1\n");
    let run = ["run", "--cpus", "1", "--", "sh", "-c", print];
    assert_eq!(lab.agx(&agq, &run).expect(0).out, "1 -1 -1\n");
    submit_plan(&lab, &agq, "p", r#"{"cpus":1,"gpus":1}"#, "sh", &["-c", print]);
    let inputs = lab.file("one.json", "[{}]").display().to_string();
    let submit = [
        "action", "submit", "p", "--id", "a", "--inputs", &inputs, "--gpus", "0", "--cpus", "1.25", "--wait",
    ];
    let noted = lab.agx(&agq, &submit).expect(0).err;
    assert!(!noted.contains("no job could run"), "{noted}");
    assert_eq!(ended(&lab, &agq, "a")["stdout"], "1.25 -1 -1\n");
    let large = ["action", "submit", "p", "--inputs", &inputs, "--cpus", "64"];
    let noted = lab.agx(&agq, &large).expect(0).err;
    assert!(noted.contains("w comes closest and lacks cpus 64 (it offers 2.5); the jobs wait"), "{noted}");
    let from = ["plan", "from", "true", "--memory", "1G", "--resource", "licences=2"];
    let plan: Value = serde_json::from_str(&lab.agx(&agq, &from).expect(0).out).unwrap();
    assert_eq!(plan["requires"]["resources"], serde_json::json!({"licences": 2, "memory": 1 << 30}));
}

#[test]
fn machine_that_can_never_run_a_job_refuses_it_at_once() {
    let lab = Lab::new();
    let offered = "cpus=3.5 memory=0 gpus=0";
    for (args, code) in [(["map", "--local"], 2), (["run", "--local"], 125)] {
        let mut agx = lab.command("agx");
        agx.env("AGW_RESOURCES", offered).args(args).args(["--gpus", "1", "--", "true"]);
        if args[0] == "map" {
            agx.args([":::", "a"]);
        }
        let ran = e2e::Ran::from(agx.output().unwrap()).expect(code);
        assert!(ran.err.contains("a job needs gpus 1, and this machine offers cpus 3.5\n"), "{}", ran.err);
    }
}

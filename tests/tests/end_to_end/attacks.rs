//! Attacks of the threat model, by plans with real tools, on a worker that runs them in a sandbox.
//! The numbers are those of the threat model. Each attack is tried with all mechanisms of the
//! kernel and without namespaces, and also outside a sandbox where it is harmless, to show that it
//! would succeed there. Without Landlock, no worker starts.

mod attack;
mod files;
mod kernel;
mod limits;
mod network;
mod processes;
mod programs;
mod refusals;
mod report;
mod scene;
mod targets;

use std::fs;

use serde_json::Value;

use self::{
    attack::{AttackCase, AttackConditions, Outside, Stopped},
    scene::{Processes, Scene, SceneRegime},
    targets::DirectorySnapshot,
};

/// Attacks that other tests of this crate try: the number, the attack, the test, its file and
/// its test.
const ELSEWHERE: [(u8, &str, &str, &str, &str); 3] = [
    (
        29,
        "sends escape sequences to the terminal of a person",
        "terminal",
        include_str!("terminal.rs"),
        "task_output_is_escaped_on_a_terminal_alone",
    ),
    (
        30,
        "forges lines of a log by line feeds",
        "log_lines",
        include_str!("log_lines.rs"),
        "log_of_a_worker_has_one_line_for_a_refusal_with_line_feeds",
    ),
    (
        31,
        "brings code into the dashboard",
        "http::dashboard",
        include_str!("http/dashboard.rs"),
        "dashboard_comes_with_a_strict_policy_and_nothing_else_without_a_session",
    ),
];

/// Numbers of the threat model that this test tries.
const NUMBERS: [u8; 40] = [
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28,
    29, 30, 31, 32, 33, 34, 35, 36, 39, 40, 44, 45,
];

fn attacks(facts: AttackConditions) -> Vec<AttackCase> {
    let tables = [
        files::attacks(),
        network::attacks(),
        kernel::attacks(facts),
        limits::attacks(),
        processes::attacks(facts),
        programs::attacks(),
    ];
    let mut all: Vec<AttackCase> = tables.into_iter().flatten().collect();
    all.sort_by_key(|attack| attack.number);
    all
}

#[test]
fn attacks_with_all_mechanisms_are_stopped() {
    attack(SceneRegime::All);
    for (number, attack, test, ..) in ELSEWHERE {
        let outcome = format!("in the test {test}");
        report::append((number, attack), (SceneRegime::All.word(), ""), (&outcome, false));
    }
}

#[test]
fn attacks_without_namespaces_are_stopped() {
    attack(SceneRegime::WithoutNamespaces);
}

/// Shows that the attacks are real ones.
#[test]
fn attacks_without_a_sandbox_succeed() {
    let scene = Scene::new(SceneRegime::Outside);
    let (_worker, processes) = scene.start();
    let mut faults = Vec::new();
    for (id, attack) in attacks(scene.facts()).iter().enumerate() {
        let named = (attack.number, &*attack.name);
        if let Outside::NotTried(reason) = attack.outside {
            report::append(
                named,
                (SceneRegime::Outside.word(), ""),
                (&format!("not tried: {reason}"), false),
            );
            continue;
        }
        let (before, job) = run(&scene, &format!("a{id}"), attack, &processes);
        let stdout = last_task(&job)["stdout"].as_str().unwrap_or_default().to_owned();
        let is_shown = match attack.outside {
            Outside::Prints(text) => stdout.contains(&scene.targets.fill(text)),
            Outside::Changes => before != scene.targets.snapshot(),
            Outside::NotTried(_) => true,
        };
        let outcome = if is_shown { "succeeds" } else { "fails" };
        report::append(named, (SceneRegime::Outside.word(), ""), (outcome, false));
        if !is_shown {
            faults.push(format!("{} {}: {job}", attack.number, attack.name));
        }
        scene.targets.reached();
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    scene.release_victim();
}

#[test]
fn table_has_each_number_once_or_more() {
    let all = attacks(AttackConditions {
        has_32_bit_calls: true,
        permits_namespaces: true,
        permits_tracing: true,
        honours_set_user_id: true,
    });
    let elsewhere = ELSEWHERE.iter().map(|(number, ..)| *number);
    let mut found: Vec<u8> = all.iter().map(|attack| attack.number).chain(elsewhere).collect();
    found.extend(refusals::NUMBERS);
    found.sort_unstable();
    found.dedup();
    assert_eq!(found, NUMBERS);
    for (number, _, _, source, test) in ELSEWHERE {
        assert!(source.contains(&format!("fn {test}()")), "{number}: there is no test {test}");
    }
}

/// Tries all attacks in a sandbox, and fails if one of them is not stopped as its row demands.
fn attack(regime: SceneRegime) {
    let scene = Scene::new(regime);
    let (_worker, processes) = scene.start();
    let mut faults = Vec::new();
    for (id, attack) in attacks(scene.facts()).iter().enumerate() {
        let stopped = match regime {
            SceneRegime::WithoutNamespaces => attack.without_namespaces.unwrap_or(attack.inside),
            _ => attack.inside,
        };
        let named = (attack.number, &*attack.name);
        if let Stopped::NotEnforced(reason) = stopped {
            let outcome = format!("not enforced: {reason}");
            report::append(named, (regime.word(), attack.wall), (&outcome, false));
            continue;
        }
        let (before, job) = run(&scene, &format!("a{id}"), attack, &processes);
        let wall = last_task(&job)["sandbox"]["enforced"][attack.wall].as_str().unwrap_or(attack.wall);
        let effect = effect(&scene, &processes, &before);
        let fault = end_fault(&scene, attack, stopped, &job).or(effect);
        let outcome = fault.as_ref().map_or("stopped".to_owned(), |fault| format!("NOT STOPPED: {fault}"));
        report::append(named, (regime.word(), wall), (&outcome, fault.is_some()));
        faults.extend(fault.map(|fault| format!("{} {}: {fault}: {job}", attack.number, attack.name)));
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    scene.release_victim();
}

/// Runs an attack on new targets. Returns the targets before the attack, and the last job.
fn run(scene: &Scene, id: &str, attack: &AttackCase, processes: &Processes) -> (DirectorySnapshot, Value) {
    scene.targets.renew();
    if attack.plants_program {
        scene.plant_program();
    }
    let before = scene.targets.snapshot();
    (before, scene.run(id, attack, processes))
}

fn last_task(job: &Value) -> &Value {
    job["task_results"].as_array().and_then(|tasks| tasks.last()).unwrap_or(&Value::Null)
}

/// Returns the difference between the end of a job and the end of an attack that was stopped.
fn end_fault(scene: &Scene, attack: &AttackCase, stopped: Stopped, job: &Value) -> Option<String> {
    let task = last_task(job);
    let (code, stdout) = (&task["exit_code"], task["stdout"].as_str().unwrap_or_default());
    let is_as_expected = match stopped {
        Stopped::Ends(expected, text) => *code == expected && stdout == scene.targets.fill(text),
        Stopped::EndsWithCode(expected) => *code == expected,
        Stopped::Lacks(text) => code.is_i64() && !stdout.contains(text),
        Stopped::NotEnforced(_) => false,
    };
    if !is_as_expected {
        return Some(format!("it ended with {code} and {stdout:?} instead of {stopped:?}"));
    }
    let says = scene.targets.fill(attack.says);
    let texts = [&job["error"], &task["stderr"], &task["sandbox"]["denied"]];
    if !texts.iter().any(|text| text.to_string().contains(&says)) {
        return Some(format!("nothing says '{says}'"));
    }
    let strays = task["sandbox"]["strays"].as_u64().unwrap_or_default();
    (attack.leaves_strays && strays == 0).then(|| "the report has no stray processes".to_owned())
}

/// Returns an effect of an attack outside its sandbox. `before` are the files before the attack.
fn effect(scene: &Scene, processes: &Processes, before: &DirectorySnapshot) -> Option<String> {
    let reached = scene.targets.reached();
    let after = scene.targets.snapshot();
    let all = || before.keys().chain(after.keys());
    if let Some(path) = all().find(|path| before.get(*path) != after.get(*path)) {
        return Some(format!("{} has changed", path.display()));
    }
    if let Some(name) = reached.first() {
        return Some(format!("the {name} listener was reached"));
    }
    if let Some(name) = processes.ended().or_else(|| scene.decoy.has_ended().then_some("other process")) {
        return Some(format!("the {name} has ended"));
    }
    let outside = scene.targets.fill("{outside}");
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let stays = entries.map(|entry| fs::read(entry.path().join("cmdline")).unwrap_or_default());
    let left = stays.map(|words| String::from_utf8_lossy(&words).into_owned());
    left.filter(|words| words.contains(&outside))
        .map(|words| format!("a process is left: {}", words.replace('\0', " ")))
        .next()
}

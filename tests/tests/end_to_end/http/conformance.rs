//! Conformance suite of the Open Job Spec, if its cases are stored beside this repository.

use std::process::Command;

use e2e::{Lab, Postgres, Ran};

/// Maximum wait of a case in seconds. Cases with longer waits are skipped.
const MAX_WAIT_SECS: &str = "10";

/// Message of the system about a port on which another process listens.
const IN_USE: &str = "Address already in use";

#[test]
fn conformance_cases_beside_this_repository_pass() {
    let shared = Lab::repository("../shared");
    let (runner, suites) = (shared.join("tools/ojs_conformance.py"), shared.join("ojs/suites"));
    if !runner.is_file() || !suites.is_dir() {
        println!("SKIPPED: the conformance cases are not in {}", shared.display());
        return;
    }
    let lab = Lab::new();
    let spawn = spawn(&lab);
    let mut run = Command::new("python3");
    run.arg(runner)
        .args(["--spawn", &spawn, "--jobs", "4", "--max-wait", MAX_WAIT_SECS, "--suites"])
        .arg(suites);
    run.args(["--header", &format!("Authorization: Bearer {}", lab.key())]);
    run.env("AGQ_SESSION_KEY", lab.key()).current_dir(lab.path());
    let mut ran = Ran::from(run.output().unwrap());
    let again = without_port(&ran);
    if !again.is_empty() {
        run.args(again.iter().flat_map(|case| ["--only", case]));
        ran = Ran::from(run.output().unwrap());
    }
    let failed: Vec<&str> = failures(&ran).collect();
    assert!(failed.is_empty() && ran.code == 0, "{}\n{}\n{}", failed.join("\n"), ran.out, ran.err);
}

fn failures(ran: &Ran) -> impl Iterator<Item = &str> {
    ran.out.lines().filter(|line| line.starts_with("FAIL"))
}

/// Returns the cases to repeat if all failed cases failed because another process took the port
/// that the runner had chosen, before agq listened on it.
fn without_port(ran: &Ran) -> Vec<String> {
    if !failures(ran).all(|line| line.contains("the server did not come up") && line.contains(IN_USE)) {
        return Vec::new();
    }
    failures(ran).filter_map(|line| line.split_whitespace().nth(1)).map(str::to_owned).collect()
}

/// Returns the command that starts an agq for a case, on files or on a database of its own. The
/// name of the database contains the process id too, because a port may be reused within one run.
fn spawn(lab: &Lab) -> String {
    let agq = format!("{}/agq --port 0 --http 127.0.0.1:{{port}} --data-dir {{dir}}", lab.bin().display());
    let Some(database) = lab.database() else { return agq };
    let url = database.url();
    let (address, socket) = url.split_once("?host=").expect("it is reached by a socket");
    let (server, name) = address.rsplit_once('/').expect("it has a name");
    let createdb = Postgres::programs().expect("the database runs").join("createdb");
    let script = format!(
        "#!/bin/sh\nset -e\n{} -h {socket} -U agq {name}_$1_$$\nexec {}/agq --port 0 --http 127.0.0.1:$1 --data-dir $2 --store '{server}/{name}_'$1_$$'?host={socket}'\n",
        createdb.display(),
        lab.bin().display()
    );
    let script = lab.file("spawn.sh", &script);
    format!("sh {} {{port}} {{dir}}", script.display())
}

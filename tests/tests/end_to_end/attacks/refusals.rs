//! Workers without the sandbox that a job needs: they get no such job (44), or do not start (45).

use std::{
    fs,
    process::{Command, Stdio},
};

use e2e::{Lab, Ran};

use super::{
    attacks, report,
    scene::{Scene, SceneRegime},
};
use crate::support::{RawConnection, ended, only_job, plan};

/// Numbers of the threat model that these tests try.
pub(super) const NUMBERS: [u8; 2] = [44, 45];

/// Exit code of a worker with wrong settings.
const USAGE: i32 = 2;

#[test]
fn worker_without_landlock_does_not_start_and_runs_no_job() {
    let scene = Scene::new(SceneRegime::WithoutLandlock);
    scene.lab.submit_plan(&scene.agq, &plan("p", "cat", &[&scene.targets.fill("{secret}")]));
    scene.lab.submit_action(&scene.agq, "p", "a", "[{}]");
    let refused = run(scene.worker_command()).expect(USAGE).err;
    let expected = "agw: this machine cannot enforce the sandbox profile 'reader': files_read, files_write, exec \
        and terminal are not enforced: the kernel has no Landlock";
    assert!(refused.contains(expected), "{refused}");
    assert_eq!(only_job(&scene.lab, &scene.agq, "a")["status"], "pending");
    let workers = scene.lab.agx(&scene.agq, &["worker", "list", "--json"]).expect(0).data();
    assert_eq!(workers, serde_json::json!([]));
    for attack in attacks(scene.facts()) {
        let named = (attack.number, &*attack.name);
        report::append(named, (SceneRegime::WithoutLandlock.word(), ""), ("agw does not start", false));
    }
}

#[test]
fn worker_without_a_sandbox_gets_no_job_that_needs_one() {
    let lab = Lab::on_files();
    let agq = lab.agq(&[]);
    let _worker = lab.agw(&agq, "w1", &[]);
    let bound = plan("bound", "echo", &["ran"]);
    let bound = bound.replacen('{', r#"{"sandbox":{"profile":"reader"},"#, 1);
    lab.submit_plan(&agq, &bound);
    lab.submit_plan(&agq, &plan("free", "echo", &["ran"]));
    lab.submit_action(&agq, "bound", "bound", "[{}]");
    lab.submit_action(&agq, "free", "free", "[{}]");
    // The later job overtakes the one that no worker can run.
    assert_eq!(ended(&lab, &agq, "free")["stdout"], "ran\n");
    let job = only_job(&lab, &agq, "bound");
    let has_waited = job["status"] == "pending";
    let named = (44, "takes a job that needs a sandbox to a worker without one");
    let outcome = if has_waited { "stopped" } else { "NOT STOPPED: the worker has got the job" };
    report::append(
        named,
        (SceneRegime::All.word(), "agq: gives such jobs to other workers"),
        (outcome, !has_waited),
    );
    assert!(has_waited, "{job}");
    let mut raw = RawConnection::open(&lab, &agq);
    raw.send(&format!("JOB.EXPLAIN {}\n", job["job_id"].as_str().unwrap()));
    let why = raw.bulk();
    assert!(why.contains("sandbox profile reader"), "{why}");
}

#[test]
fn worker_whose_sandbox_cannot_be_set_up_does_not_start() {
    let lab = Lab::on_files();
    let dir = tempfile::tempdir().unwrap();
    let cases = [
        (
            "[sandbox]\nmode = \"all\"\nscratch = \"{dir}/absent\"",
            "cannot create a scratch directory in {dir}/absent",
        ),
        ("[sandbox]\nmode = \"all\"\nscratch = \"/proc\"", "cannot create a scratch directory in /proc"),
        ("[sandbox]\nmode = ", "--config {dir}/agw.toml: "),
        ("[sandbox]\nmode = \"al\"", "unknown variant `al`"),
        ("[sandbox]\nmode = \"all\"\nfile = 1", "unknown field `file`"),
        (
            "[sandbox]\nmode = \"all\"\nstrangers = \"strict\"",
            "sandbox.strangers is 'strict', which is no profile",
        ),
        ("[sandbox]\nmode = \"all\"\n[profiles.reader]\nread = [\"data\"]", "'data' is not an absolute path"),
        (
            "[sandbox]\nmode = \"all\"\n[profiles.reader]\nneeds = [\"limits_memory\"]",
            "cannot enforce the sandbox profile 'reader': limits_memory is not enforced: ",
        ),
        ("[sandbox]\nmode = \"all\"\nuser = \"no-such-user\"", "sandbox.user"),
        ("[sandbox]\nmode = \"all\"\nuser = \"root\"", "sandbox.user is root"),
    ];
    for (config, expected) in cases {
        let fill = |text: &str| text.replace("{dir}", &dir.path().display().to_string());
        let file = dir.path().join("agw.toml");
        fs::write(&file, fill(config)).unwrap();
        let mut command = lab.command("agw");
        command.arg("--config").arg(&file).env("AGW_SANDBOX_WITHOUT", "control_groups");
        let refused = run(command).expect(USAGE).err;
        assert!(refused.contains(&fill(expected)), "{config}: {refused}");
        assert!(refused.starts_with("agw: "), "{config}: {refused}");
    }
    for (args, expected) in [
        (["--config", "/no/such/file"], "--config: cannot read /no/such/file: "),
        (["--sandbox", "strict"], "--sandbox is 'strict', which is no profile"),
    ] {
        let mut command = lab.command("agw");
        let refused = run(command.args(args)).expect(USAGE).err;
        assert!(refused.contains(expected), "{args:?}: {refused}");
    }
    for (without, expected) in [
        ("namespaces", "limits_disk is not enforced: "),
        ("seccomp", "terminal and kernel_surface are not enforced: system calls are not filtered"),
        ("namespaces,landlock,seccomp", "kernel_surface and limits_process are not enforced: "),
    ] {
        let mut command = lab.command("agw");
        let command = command.args(["--sandbox", "reader"]).env("AGW_SANDBOX_WITHOUT", without);
        let refused = run(command).expect(USAGE).err;
        assert!(refused.contains(expected), "{without}: {refused}");
    }
    let named = (45, "runs although its sandbox cannot be set up");
    report::append(named, (SceneRegime::All.word(), "worker: does not start"), ("stopped", false));
}

/// Runs a worker that does not start, without a server that it could reach.
fn run(mut command: impl std::borrow::BorrowMut<Command>) -> Ran {
    Ran::from(command.borrow_mut().stdout(Stdio::null()).output().unwrap())
}

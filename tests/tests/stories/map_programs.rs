//! `agx map` with programs by path, with the number of the slot, with the idle timeout, and on
//! workers that a dry run names.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Command};

use e2e::{Lab, Ran};

/// Returns an `agx map` command without a running agq. Its directory for temporary files is `tmp`
/// of the lab.
fn map(lab: &Lab, args: &[&str]) -> Command {
    let tmp = lab.path().join("tmp");
    fs::create_dir_all(&tmp).unwrap();
    let mut command = lab.command("agx");
    command.env("TMPDIR", tmp).arg("map").args(args);
    command
}

fn mapped(lab: &Lab, args: &[&str]) -> Ran {
    Ran::from(map(lab, args).output().unwrap())
}

fn script(path: &Path, text: &str, mode: u32) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
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

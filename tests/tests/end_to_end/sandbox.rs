//! Sandbox of untrusted jobs: what a machine can enforce.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    process::Command,
};

use e2e::{Lab, Ran};

/// Number of properties of a sandbox.
const PROPERTIES: usize = 14;

#[test]
fn agw_shows_what_stops_each_attack_on_this_machine() {
    let lab = Lab::on_files();
    // The user nobody, who is attacked if the test runs as root, has to reach the program.
    let dir = tempfile::Builder::new().permissions(Permissions::from_mode(0o755)).tempdir_in("/tmp").unwrap();
    let agw = dir.path().join("agw");
    fs::copy(lab.bin().join("agw"), &agw).unwrap();
    let sandbox = |args: &[&str], without: &str| {
        let mut command = Command::new(&agw);
        command.arg("sandbox").args(args).env("AGW_SANDBOX_WITHOUT", without);
        Ran::from(command.output().unwrap())
    };
    let document: serde_json::Value = serde_json::from_str(&sandbox(&["--json"], "").out).unwrap();
    assert_eq!((&document["schema"], &document["kind"]), (&"agw/1".into(), &"sandbox".into()));
    let count = |key: &str| document["data"][key].as_object().unwrap().len();
    assert_eq!(count("enforced") + count("missing"), PROPERTIES, "{document}");
    let without_landlock = sandbox(&[], "landlock").expect(1).out;
    assert_eq!(without_landlock.lines().count(), PROPERTIES + 2);
    assert!(without_landlock.contains("files_read      nothing: "), "{without_landlock}");
    assert!(without_landlock.ends_with("so untrusted jobs need another machine\n"), "{without_landlock}");
    let unknown = sandbox(&[], "landlok");
    assert!(unknown.code == 1 && unknown.err.contains("AGW_SANDBOX_WITHOUT: "), "{}", unknown.err);
}

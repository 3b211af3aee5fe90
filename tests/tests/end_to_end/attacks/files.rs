//! Attacks on files: reading, writing, links, and files that the plan names (1 to 7).

use serde_json::{Value, json};

use super::{
    attack::{AttackCase, Outside, Stopped},
    targets::SECRET,
};

/// Exit code of a task that could not be started.
const NOT_STARTED: Stopped = Stopped::EndsWithCode(126);

pub(super) fn attacks() -> Vec<AttackCase> {
    [reads(), files_of_the_plan(), processes(), writes()].into_iter().flatten().collect()
}

fn reads() -> Vec<AttackCase> {
    vec![
        AttackCase::tasks(
            1,
            "reads a file of the owner",
            "files_read",
            json!([{"command": "cat", "args": ["{secret}"]}]),
        )
        .prints_outside(SECRET)
        .ends(1, "")
        .says("{secret} is not readable in profile reader"),
        AttackCase::script(
            1,
            "reads the session key, and files of another job",
            "files_read",
            (
                &["cat", "ls"],
                "ls {scratch} && echo READ
                for f in {key} {scratch}/*/*/mine /proc/{victim}/cwd/mine; do cat $f && echo READ; done; echo end",
            ),
        )
        .prints_outside("READ")
        .ends(0, "end\n"),
        AttackCase::tasks(
            2,
            "reads a file by an input with ..",
            "files_read",
            json!([{"command": "cat", "args": ["{{input.path}}"]}]),
        )
        .input(json!({"path": "/usr/share/../..{secret}"}))
        .prints_outside(SECRET)
        .ends(1, "")
        .says("{secret} is not readable in profile reader"),
        AttackCase::script(
            3,
            "reads a file through a link that changes",
            "files_read",
            (
                &["cat", "ln", "seq", "sort"],
                "echo mine > mine; (while :; do ln -sfn mine l; ln -sfn {secret} l; done) & \
                for i in $(seq 300); do cat l; done 2> /dev/null | sort -u; kill $!",
            ),
        )
        .prints_outside(SECRET)
        .ends(0, "mine\n"),
    ]
}

/// Returns attacks by files that a plan names, and that the supervisor opens.
fn files_of_the_plan() -> Vec<AttackCase> {
    let plan = |name: &str, task: Value, says: &'static str| {
        let name = format!("has a plan that names {name}");
        AttackCase::tasks(4, name, "files_read", json!([task])).stopped(NOT_STARTED).says(says)
    };
    let writes = |name: &str, task: Value, says: &'static str| {
        let attack = plan(name, task, says).outside(Outside::Changes);
        AttackCase { wall: "files_write", ..attack }
    };
    let echo = |field: &str, path: &str| json!({"command": "echo", "args": ["x"], field: path});
    vec![
        writes(
            "a new file as stdout",
            echo("stdout", "{outside}/new"),
            "{outside}/new is not writable in profile reader",
        ),
        writes(
            "a file of the owner as stdout",
            echo("stdout", "{secret}"),
            "{secret} is not writable in profile reader",
        ),
        writes(
            "a file of the owner as stderr",
            echo("stderr", "{secret}"),
            "{secret} is not writable in profile reader",
        ),
        plan(
            "a file of the owner as stdin_file",
            json!({"command": "cat", "stdin_file": "{secret}"}),
            "step stdin: '{secret}'",
        )
        .prints_outside(SECRET),
        plan(
            "/etc/shadow as stdin_file",
            json!({"command": "cat", "stdin_file": "/etc/shadow"}),
            "step stdin: '/etc/shadow'",
        )
        .not_tried_outside("only root can read the file"),
        plan(
            "a directory of the owner as cwd",
            json!({"command": "pwd", "cwd": "{outside}"}),
            "step cwd: '{outside}'",
        )
        .prints_outside("{outside}"),
        plan("/root as cwd", json!({"command": "pwd", "cwd": "/root"}), "step cwd: '/root'")
            .not_tried_outside("only root can enter the directory"),
        AttackCase::tasks(
            4,
            "has a plan that names a link of an earlier task as stdin_file",
            "files_read",
            json!([
                {"command": "ln", "args": ["-s", "{secret}", "l"]},
                {"command": "cat", "stdin_file": "l"}
            ]),
        )
        .prints_outside(SECRET)
        .stopped(NOT_STARTED)
        .says("step stdin: "),
    ]
}

fn processes() -> Vec<AttackCase> {
    vec![
        AttackCase::script(
            5,
            "reads a file through /proc/PID/root",
            "files_read",
            (
                &["cat"],
                "for p in self 1 $PPID {worker} {supervisor} {victim}; do
                    cat /proc/$p/root{secret} && echo READ; done; echo end",
            ),
        )
        .prints_outside(SECRET)
        .ends(0, "end\n"),
        AttackCase::script(
            5,
            "opens descriptors of other processes",
            "memory",
            (
                &["cat", "ls"],
                "for p in {worker} {supervisor} {victim}; do ls /proc/$p/fd && echo READ
                    cat /proc/$p/fd/1 && echo READ; done; echo end",
            ),
        )
        .prints_outside("READ")
        .ends(0, "end\n"),
    ]
}

fn writes() -> Vec<AttackCase> {
    vec![
        AttackCase::script(
            6,
            "moves and links a file out of the scratch directory",
            "files_write",
            (
                &["ln", "mv"],
                "echo x > f; ln f {outside}/f || echo denied; mv f {outside}/g || echo denied
                [ -e {outside}/g ] || echo absent",
            ),
        )
        .outside(Outside::Changes)
        .ends(0, "denied\ndenied\nabsent\n"),
        AttackCase::script(
            7,
            "writes files that other programs read later",
            "files_write",
            (
                &["mkdir"],
                "for f in {outside}/.bashrc {outside}/.gitconfig {outside}/.mcp.json {early}/tool {readable}/f; do
                    (echo x > $f) || echo denied; done
                mkdir -p {outside}/.git/hooks || echo denied; (echo x >> {secret}) || echo denied",
            ),
        )
        .outside(Outside::Changes)
        .ends(0, "denied\ndenied\ndenied\ndenied\ndenied\ndenied\ndenied\n"),
        AttackCase::script(
            7,
            "changes the mode of a file of its user",
            "files_write",
            (&["chmod"], "chmod 600 {secret}"),
        )
        .outside(Outside::Changes)
        .stopped(Stopped::NotEnforced("Landlock has no right for modes, owners, times and attributes")),
        AttackCase::script(
            7,
            "writes files that a later job reads in its home",
            "leftovers",
            (
                &["mkdir"],
                "echo x > .bashrc; mkdir -p .git/hooks; echo x > .git/hooks/post-checkout; echo x > $HOME/.gitconfig",
            ),
        )
        .then(&["ls"], "ls -A; ls -A $HOME; ls -A $TMPDIR; echo end")
        .not_tried_outside("without a sandbox, a job has no home of its own")
        .ends(0, "end\n"),
    ]
}

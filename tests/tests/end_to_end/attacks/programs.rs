//! Attacks by programs that the plan does not name, and by environment variables (35, 36, 39, 40).

use std::path::Path;

use serde_json::json;

use super::{
    attack::{AttackCase, Stopped},
    targets::SECRET,
};

/// Tools that execute a program for their user: the name of the trick, the tools that the plan
/// names, and the script.
const TRICKS: [(&str, &[&str], &str); 14] = [
    ("find -exec", &["find"], "find /usr/bin/find -exec /usr/bin/id ';'"),
    ("find -execdir", &["find"], "find /usr/bin/find -execdir /usr/bin/id ';'"),
    ("sed e", &["sed"], "echo x | sed '1e id'"),
    ("awk system()", &["awk"], "awk 'BEGIN { system(\"/usr/bin/id\") }'"),
    ("awk getline", &["awk"], "awk 'BEGIN { \"/usr/bin/id\" | getline line; print line }'"),
    (
        "tar --checkpoint-action",
        &["tar"],
        "tar cf f --checkpoint=1 --checkpoint-action=exec=/usr/bin/id /etc/passwd",
    ),
    ("tar -I", &["tar", "cat"], "tar cf f -I /usr/bin/id /etc/passwd; cat f"),
    (
        "sort --compress-program",
        &["sort", "seq", "cat", "chmod"],
        "printf '#!/bin/sh\\necho uid= >> ran; cat' > run; chmod +x run
        seq 3000 | sort -S 1k --compress-program=./run > sorted; cat ran",
    ),
    ("split --filter", &["split"], "echo x | split --filter=/usr/bin/id"),
    ("env", &["env"], "env /usr/bin/id"),
    ("nice", &["nice"], "nice /usr/bin/id"),
    ("timeout", &["timeout"], "timeout 9 /usr/bin/id"),
    ("xargs", &["xargs"], "echo | xargs /usr/bin/id"),
    ("git alias", &["git"], "git -c alias.x='!/usr/bin/id' x"),
];

/// Program that loads other programs.
const LOADER: &str = "/lib64/ld-linux-x86-64.so.2";

pub(super) fn attacks() -> Vec<AttackCase> {
    [tricks(), without_a_file(), environment()].into_iter().flatten().collect()
}

fn tricks() -> Vec<AttackCase> {
    let is_present = |tool: &&str| Path::new("/usr/bin").join(tool).exists();
    let present = TRICKS.iter().filter(|(_, tools, _)| tools.iter().all(is_present));
    let attack = |(name, tools, script): &(&str, &[&str], &str)| {
        AttackCase::script(35, format!("executes a program by {name}"), "exec", (tools, script))
            .prints_outside("uid=")
            .stopped(Stopped::Lacks("uid="))
    };
    present.map(attack).collect()
}

fn without_a_file() -> Vec<AttackCase> {
    let mut all = vec![
        AttackCase::script(
            36,
            "executes a script in the scratch directory",
            "exec",
            (&["chmod"], "printf '#!/bin/sh\necho ran' > s; chmod +x s; ./s || echo denied"),
        )
        .prints_outside("ran\n"),
    ];
    #[cfg(target_arch = "x86_64")]
    all.push(
        AttackCase::perl(
            36,
            "executes a program from memory: memfd_create, execveat",
            "exec",
            r#"$| = 1; my ($name, $none) = ("x", ""); my $m = syscall(319, $name, 0);
            print $m < 0 ? $!+0 : "made", "\n"; open(my $f, "<", "/usr/bin/id");
            syscall(322, fileno($f), $none, 0, 0, 0x1000); print $!+0, "\n""#,
        )
        .prints_outside("made\n")
        .ends(0, "1\n1\n"),
    );
    // The loader runs any program that it can read, within the other walls of the sandbox.
    if Path::new(LOADER).exists() {
        all.push(
            AttackCase::script(
                36,
                "reads a file by a program that the loader runs",
                "files_read",
                (&[], "/lib64/ld-linux-x86-64.so.2 /bin/cat {secret} || echo denied"),
            )
            .prints_outside(SECRET),
        );
    }
    all
}

fn environment() -> Vec<AttackCase> {
    const WALL: &str = "supervisor: permitted variables";
    let sets = |variable: &str, says: &'static str| {
        let name = format!("has a plan that sets {variable}");
        let mut task = json!({"command": "env"});
        task["env"] = json!({ variable: "/nonexistent" });
        AttackCase::tasks(39, name, WALL, json!([task])).stopped(Stopped::EndsWithCode(126)).says(says)
    };
    vec![
        sets("LD_PRELOAD", "does not permit LD_PRELOAD").prints_outside("LD_PRELOAD="),
        sets("PATH", "does not permit PATH").prints_outside("PATH=/nonexistent"),
        sets("BASH_ENV", "does not permit BASH_ENV").prints_outside("BASH_ENV="),
        sets("GIT_SSH_COMMAND", "does not permit GIT_SSH_COMMAND").prints_outside("GIT_SSH_COMMAND="),
        AttackCase::perl(
            39,
            "reads variables of the worker",
            WALL,
            r#"print join(" ", sort keys %ENV), " $ENV{PATH}\n""#,
        )
        .prints_outside("SECRET_TOKEN")
        .ends(0, "HOME LANG PATH TMPDIR /usr/local/bin:/usr/bin:/bin\n"),
        AttackCase::tasks(
            40,
            "runs a program that was planted first on PATH",
            "worker: finds programs at its start",
            json!([{"command": "tool"}]),
        )
        .plants_program()
        .not_tried_outside("a worker without a sandbox finds programs at its start, too")
        .ends(0, "genuine\n"),
        AttackCase::script(
            40,
            "finds a planted program on its own PATH",
            WALL,
            (&["tool"], "tool || echo denied"),
        )
        .plants_program()
        .prints_outside("planted\n"),
    ]
}

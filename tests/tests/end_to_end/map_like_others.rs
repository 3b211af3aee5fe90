//! `agx map` beside GNU Parallel and xargs: what docs/migration.md calls the same has the same
//! output.
//!
//! The expected outputs are those of GNU Parallel 20221122 and of xargs of GNU findutils 4.9.0. The
//! tests also run xargs itself, and GNU Parallel itself if it is installed.

use std::{
    io::Write,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Stdio},
};

use e2e::{Lab, Ran};

/// Options, command and sources of a row, its stdin, and the output.
type MapCase<'r> = (&'r [&'r str], &'r str, &'r [&'r str], &'r str, &'r str);

const LIKE_PARALLEL: &[MapCase<'_>] = &[
    (&["-k"], "echo", &[":::", "a", "b"], "", "a\nb\n"),
    (&["-k"], "echo", &[], "a b\nc\n", "a b\nc\n"),
    (
        &["-k"],
        "echo {} {.} {/} {//} {/.} {#}",
        &[":::", "x/a.tar.gz", "b"],
        "",
        "x/a.tar.gz x/a.tar a.tar.gz x a.tar 1\nb b b . b 2\n",
    ),
    (&["-k", "-j", "1"], "echo {%} {}", &[":::", "a", "b"], "", "1 a\n1 b\n"),
    (&["-k", "-j", "1"], "echo {%}", &[":::", "a", "b"], "", "1\n1\n"),
    (&["-k"], "./tool {}", &[":::", "a b", "c"], "", "./tool [a b]\n./tool [c]\n"),
    (&["-k"], "./tool", &[], "a\n", "./tool [a]\n"),
    (&["-k"], "echo {2}-{1/.}", &[":::", "x/a.b", "c", ":::", "1", "2"], "", "1-a\n2-a\n1-c\n2-c\n"),
    (&["-k"], "echo {1} {2}", &[":::", "a", "b", ":::+", "1", "2"], "", "a 1\nb 2\n"),
    (&["-k"], "echo {1} {2}", &["::::", "lines", ":::", "x"], "", "p x\nq x\n"),
    (&["-k", "-a", "lines"], "echo {}", &[], "", "p\nq\n"),
    (&["-k", "-0"], "echo {}", &[], "a\0b c\0", "a\nb c\n"),
    (&["-k", "-I", "@@"], "echo @@.x", &[":::", "a"], "", "a.x\n"),
    (&["-k", "-j", "2"], "echo {}", &[":::", "a", "b", "c"], "", "a\nb\nc\n"),
    (&["-k", "-j", "200%"], "echo {}", &[":::", "a", "b"], "", "a\nb\n"),
    (&["-k", "--tag"], "echo x", &[":::", "a", "b"], "", "a\tx a\nb\tx b\n"),
    (&["-k", "--tag", "-N", "2"], "echo {1}", &[":::", "a", "b", "c"], "", "a b\ta\nc\tc\n"),
    (&["-k", "--dry-run"], "echo {} {#}", &[":::", "a", "b"], "", "echo a 1\necho b 2\n"),
    (&["-k", "--dry-run", "-n", "2"], "wc -l", &[":::", "a", "b", "c"], "", "wc -l a b\nwc -l c\n"),
    (&["-k", "--timeout", "1m"], "echo {}", &[":::", "a"], "", "a\n"),
    (&["-k", "--delay", "0.01"], "echo {}", &[":::", "a", "b", "c"], "", "a\nb\nc\n"),
    (&["--shuf", "-k"], "echo x {#}", &[":::", "a", "b", "c"], "", "x 1\nx 2\nx 3\n"),
    (&["-k", "--colsep", ","], "echo {2}-{1}", &[":::", "a,b", "c, d ,e"], "", "b-a\nd-c\n"),
    (&["-k", "-C", ","], "echo x{1}x", &[], "a\u{3000},b\n", "xa\u{3000}x\n"),
    (&["-k", "-C", "[ ]+"], "echo {2}-{1}", &[], "a  b\nc d\n", "b-a\nd-c\n"),
    (&["-k", "-C", "\\t"], "echo {2.}{3}.", &[], "a\tb.c\n", "b.\n"),
    (
        &["-k", "-C", ","],
        "echo {1} {2} {3} {4}",
        &[":::", "a,b", ":::", "c,d", "e,f"],
        "",
        "a b c d\na b e f\n",
    ),
    (
        &["-k", "--header", ":"],
        "echo {y} {x} {2}",
        &[":::", "x", "a", "b", ":::", "y", "c"],
        "",
        "c a c\nc b c\n",
    ),
    (&["-k", "--header", ":"], "echo {m}-{n} {1}", &["::::", "table"], "", "2-1 1\n4-3 3\n"),
    (&["-k", "--header", ":", "-C", ","], "echo {m.} {n/}", &[], "n,m\nx/a,b.txt\n", "b a\n"),
    (&["-k", "--pipe", "--block", "4"], "wc -l", &[], "1\n2\n3\n4\n5\n", "2\n2\n1\n"),
    (&["-k", "--pipe", "--block", "1k"], "tr 1 x", &[], "1\n2\n3\n", "x\n2\n3\n"),
    (&["-k", "-N", "2"], "echo {1}-{2}", &[":::", "a", "b", "c"], "", "a-b\nc-\n"),
    (&["-k", "-N", "2"], "echo", &[], "a\nb\nc\n", "a b\nc\n"),
    (&["-k", "-N", "2"], "echo {/.} {#}", &[":::", "x/a.c", "x/b.d", "c"], "", "a b 1\nc 2\n"),
    (&["-k", "-n", "2"], "echo {1} {2} {}", &[":::", "a", "b"], "", "a b a b\n"),
    (&["-k", "--max-args", "3"], "echo x {}", &[":::", "a", "b", "c", "d"], "", "x a b c\nx d\n"),
];

/// Arguments of xargs, arguments of `agx map`, stdin, and the output.
type XargsRow<'r> = (&'r [&'r str], &'r [&'r str], &'r str, &'r str);

const LIKE_XARGS: &[XargsRow<'_>] = &[
    (&["-P", "1", "-n", "1", "echo", "x"], &["-k", "-j", "8", "echo", "x"], "a\nb\n", "x a\nx b\n"),
    (&["-n", "2", "echo"], &["-k", "-n", "2", "--", "echo"], "a\nb\nc\n", "a b\nc\n"),
    (&["-n", "10", "echo"], &["-k", "-n", "10", "--", "echo"], "a\nb\nc\n", "a b c\n"),
    (&["-0", "-n", "2", "echo"], &["-k", "-0", "-n", "2", "--", "echo"], "a b\0c\0d", "a b c\nd\n"),
    (
        &["-I{}", "echo", "{}", "{}.out"],
        &["-k", "--", "echo {} {}.out"],
        "a b\nc\n",
        "a b a b.out\nc c.out\n",
    ),
    (&["-0", "-n", "1", "echo"], &["-k", "-0", "echo"], "a\nb\0c\0", "a\nb\nc\n"),
    (&["-I@", "echo", "@"], &["-k", "-I@", "echo", "@"], "a\nb\n", "a\nb\n"),
    (&["-n", "1", "./tool"], &["-k", "./tool"], "a\nb\n", "./tool [a]\n./tool [b]\n"),
];

fn lab() -> Lab {
    let lab = Lab::on_files();
    std::fs::create_dir(lab.path().join("tmp")).unwrap();
    lab.file("lines", "p\nq\n");
    lab.file("table", "n\tm\n1\t2\n3\t4\n");
    let tool = lab.file("tool", "#!/bin/sh\nprintf '%s [%s]\\n' \"$0\" \"$@\"\n");
    std::fs::set_permissions(tool, std::fs::Permissions::from_mode(0o755)).unwrap();
    lab
}

fn fed(mut command: Command, lab: &Lab, stdin: &str) -> Ran {
    let mut child = command
        .current_dir(lab.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A program that has its inputs elsewhere may end without a read.
    let _unread = child.stdin.take().unwrap().write_all(stdin.as_bytes());
    Ran::from(child.wait_with_output().unwrap())
}

fn map(lab: &Lab, args: &[&str], stdin: &str) -> Ran {
    let mut command = lab.command("agx");
    command.env("TMPDIR", lab.path().join("tmp")).arg("map").args(args);
    fed(command, lab, stdin)
}

/// Returns GNU Parallel with `home` for its files, or `None` if it is not installed.
fn parallel(home: &Path) -> Option<Command> {
    let mut command = Command::new("parallel");
    command.env("HOME", home).env("SHELL", "/bin/sh").env_remove("PARALLEL");
    let version = command.arg("--version").output().ok()?;
    let is_gnu = String::from_utf8_lossy(&version.stdout).starts_with("GNU parallel");
    let mut command = Command::new("parallel");
    command.env("HOME", home).env("SHELL", "/bin/sh").env_remove("PARALLEL").arg("--will-cite");
    is_gnu.then_some(command)
}

#[test]
fn map_prints_what_gnu_parallel_prints() {
    let lab = lab();
    for &(options, command, sources, stdin, expected) in LIKE_PARALLEL {
        let args = [options, &["--", command], sources].concat();
        assert_eq!(map(&lab, &args, stdin).expect(0).out, expected, "agx map {args:?}");
        if let Some(mut parallel) = parallel(lab.path()) {
            let args = [options, &[command], sources].concat();
            parallel.args(&args);
            assert_eq!(fed(parallel, &lab, stdin).expect(0).out, expected, "parallel {args:?}");
        }
    }
}

#[test]
fn map_prints_what_xargs_prints() {
    let lab = lab();
    for &(args, of_map, stdin, expected) in LIKE_XARGS {
        let mut xargs = Command::new("xargs");
        xargs.args(args);
        assert_eq!(fed(xargs, &lab, stdin).expect(0).out, expected, "xargs {args:?}");
        assert_eq!(map(&lab, of_map, stdin).expect(0).out, expected, "agx map {of_map:?}");
    }
}

#[test]
fn map_writes_the_joblog_and_the_results_of_gnu_parallel() {
    let lab = lab();
    let args = ["-j1", "--joblog", "log", "--results", "out", "echo {1} {2}", ":::", "a", "b", ":::", "c"];
    // Number, exit code, signal and command.
    let jobs = ["1 0 0 echo a c", "2 0 0 echo b c"];
    let files = ["out/1/a/2/c/stdout", "out/1/b/2/c/stdout"];
    let check = |program: &str| {
        let log = std::fs::read_to_string(lab.path().join("log")).unwrap();
        let job = |line: &str| {
            let fields: Vec<&str> = line.split('\t').collect();
            [fields[0], fields[6], fields[7], fields[8]].join(" ")
        };
        assert_eq!(log.lines().skip(1).map(job).collect::<Vec<_>>(), jobs, "{program}");
        let outputs = files.map(|file| std::fs::read_to_string(lab.path().join(file)).unwrap());
        assert_eq!(outputs, ["a c\n", "b c\n"], "{program}");
        std::fs::remove_dir_all(lab.path().join("out")).unwrap();
    };
    map(&lab, &args, "").expect(0);
    check("agx map");
    if let Some(mut parallel) = parallel(lab.path()) {
        parallel.args(args);
        fed(parallel, &lab, "").expect(0);
        check("parallel");
    }
}

#[test]
fn map_names_the_results_of_columns_like_gnu_parallel() {
    let lab = lab();
    let cases: [(&[&str], &str, &str); 3] = [
        (&["--colsep", ",", "echo {1}", ":::", "x,y,z", ":::", "p,q"], "1/x/2/y/3/z/4/p/5/q", "x\n"),
        (&["--header", ":", "--colsep", ",", "echo {n}", ":::", "n,m", "1,2"], "m/2/n/1", "1\n"),
        (&["--header", ":", "echo {b}", ":::", "b", "1", ":::", "a", "2"], "a/2/b/1", "1\n"),
    ];
    for (args, dir, expected) in cases {
        let args = [&["-j1", "--results", "out"], args].concat();
        let check = |program: &str| {
            let stdout = std::fs::read_to_string(lab.path().join("out").join(dir).join("stdout"));
            assert_eq!(stdout.unwrap_or_default(), expected, "{program} {args:?}");
            std::fs::remove_dir_all(lab.path().join("out")).unwrap();
        };
        map(&lab, &args, "").expect(0);
        check("agx map");
        if let Some(mut parallel) = parallel(lab.path()) {
            parallel.args(&args);
            fed(parallel, &lab, "").expect(0);
            check("parallel");
        }
    }
}

#[test]
fn map_resumes_where_gnu_parallel_resumes() {
    let lab = lab();
    let check = |program: &str, run: &dyn Fn(&[&str]) -> Ran| {
        let cat = ["-j1", "--joblog", "log", "cat {}", ":::", "lines", "late"];
        assert_eq!(run(&cat).expect(1).out, "p\nq\n", "{program}");
        lab.file("late", "l\n");
        let outs = ["--resume", "--resume-failed"]
            .map(|option| run(&[&[option], &cat[..], &["table"]].concat()).expect(0).out);
        assert_eq!(outs, ["n\tm\n1\t2\n3\t4\n", "l\n"], "{program}");
        for file in ["late", "log"] {
            std::fs::remove_file(lab.path().join(file)).unwrap();
        }
    };
    check("agx map", &|args| map(&lab, args, ""));
    if parallel(lab.path()).is_some() {
        check("parallel", &|args| {
            let mut parallel = parallel(lab.path()).unwrap();
            parallel.args(args);
            fed(parallel, &lab, "")
        });
    }
}

#[test]
fn map_differs_from_gnu_parallel_as_documented() {
    let lab = lab();
    let out = |args: &[&str]| map(&lab, args, "").expect(0).out;
    assert_eq!(out(&["-C", ",", "echo {} {1}", ":::", "a,b"]), "a,b a\n", "the whole line");
    assert_eq!(out(&["-C", ".", "echo {2}", ":::", "a.b"]), "b\n", "one character is text");
    for (args, why) in [
        (&["-N2", "echo x{}", ":::", "a", "b"][..], "write {} as a word of its own"),
        (&["-N2", "echo", ":::", "a", ":::", "b"], "-N takes the inputs of one source"),
        (&["-N2", "-C,", "echo", ":::", "a,b"], "cannot be used with"),
        (&["-N0", "echo", ":::", "a"], "from 1 to 100000"),
        (&["--header", "2", "echo", ":::", "a"], "only : is known"),
        (&["echo {-1}", ":::", "a", ":::", "b"], "{-1} counts from the last source"),
        (&["echo {= s/a/b/ =}", ":::", "a"], "an expression of perl"),
        (&["--results", "o.JSON", "echo", ":::", "a"], "tables are not supported"),
        (&["--joblog", "-", "echo", ":::", "a"], "give a file"),
        (&["--pipe", "wc -l {}"], "with --pipe a job has a block of stdin instead"),
        (&["--shuf", "--resume", "--joblog", "x", "echo", ":::", "a"], "cannot be used with"),
    ] {
        let refused = map(&lab, args, "").expect(2).err;
        assert!(refused.contains(why), "{args:?}: {refused}");
    }
    let option = map(&lab, &["-n2", "cat", ":::", "a", "-x"], "").expect(1).err;
    assert!(option.contains("its input '-x' begins with -"), "{option}");
}

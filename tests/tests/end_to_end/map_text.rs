//! Text of users that resembles the syntax of `agx map`, and names of others on a terminal.

use e2e::{Lab, Ran};

/// Runs `agx map` without a running agq, with `tmp` of the lab as the directory for temporary
/// files.
fn mapped(lab: &Lab, args: &[&str]) -> Ran {
    let tmp = lab.path().join("tmp");
    std::fs::create_dir_all(&tmp).unwrap();
    Ran::from(lab.command("agx").env("TMPDIR", tmp).arg("map").args(args).output().unwrap())
}

/// Returns true if `text` has no characters that a terminal would act on.
fn is_plain(text: &str) -> bool {
    !text.contains(|c: char| (c.is_control() && c != '\n' && c != '\t') || c == '\u{202e}')
}

#[test]
fn braces_of_other_languages_reach_the_program_as_they_are() {
    let lab = Lab::on_files();
    lab.file("years", "2024\n20\n");
    lab.file("a", "aax\n");
    let out = |args: &[&str]| mapped(&lab, args).expect(0).out;
    assert_eq!(out(&["--", "grep -cE '^[0-9]{4}$' {}", ":::", "years"]), "1\n");
    assert_eq!(out(&["--", "sed -nE '/^[0-9]{4}$/{s/^/y/;p}' {1}", ":::", "years"]), "y2024\n");
    assert_eq!(out(&["--", "awk '/x/{}' {}", ":::", "a"]), "");
    assert_eq!(out(&["--", "grep -E 'a\\{1}x' {}", ":::", "a"]), "aax\n");
    assert_eq!(
        out(&["-I", "@@", "--", "printf '%s %s {} {{.}} {1}' @@ {.}", ":::", "a"]),
        "a {.} {} {{.}} {1}"
    );
    assert_eq!(
        out(&["--", "printf '%s {{.Name}} \\{{.}} 5%% $x' {}", ":::", "a"]),
        "a {{.Name}} {{.}} 5% $x"
    );
    let refused = mapped(&lab, &["--dry-run", "--", "grep -E 'a{1}x' {}", ":::", "a"]).expect(2).err;
    assert!(refused.contains("\\{1} for these characters as they are"), "{refused}");
}

#[test]
fn terminal_shows_what_names_hold_and_does_not_act_on_it() {
    let lab = Lab::on_files();
    let bad = "x\u{1b}[2J\u{7}\nagx: all jobs completed\u{202e}";
    let failed = mapped(&lab, &["--", "false", ":::", bad]).expect(1).err;
    assert!(
        is_plain(&failed)
            && failed.contains("(x\\x1b[2J\\x07\\nagx: all jobs completed\\u202e)")
            && failed.lines().count() == 2,
        "{failed}"
    );
    let dry = mapped(&lab, &["--dry-run", "--", "echo", ":::", bad]).expect(0).out;
    assert_eq!(dry, "echo $'x\\033[2J\\007\\nagx: all jobs completed\\342\\200\\256'\n");
    let tagged = mapped(&lab, &["--tag", "--", "printf '\\033[1mout\\n%.0s'", ":::", bad]).expect(0).out;
    assert_eq!(
        tagged, "x\\x1b[2J\\x07\\nagx: all jobs completed\\u202e\t\u{1b}[1mout\n",
        "outputs stay as they are"
    );
    let nowhere = mapped(&lab, &["-a", "no\u{1b}[2J\nwhere", "--", "echo"]).expect(2).err;
    assert!(nowhere.starts_with("agx: cannot read no\\x1b[2J\\nwhere: ") && is_plain(&nowhere), "{nowhere}");

    lab.file("list", "\u{feff}a.txt\r\nb.txt\r\n");
    let crlf = mapped(&lab, &["-k", "-a", "list", "--", "false"]).expect(1).err;
    assert!(
        crlf.contains("input 1 ends with a carriage return (\\r): the list has the line ends of Windows"),
        "{crlf}"
    );
    assert!(crlf.contains("agx: job 1 (a.txt\\r): ") && is_plain(&crlf), "{crlf}");
}

#[test]
fn input_becomes_neither_code_nor_an_option() {
    let lab = Lab::on_files();
    let inputs = [":::", "$(touch pwned)", "a'b", "[x]", "a;touch pwned2"];
    let refused = mapped(&lab, &[&["--", "sh -c 'echo {}'"], &inputs[..]].concat()).expect(2).err;
    assert!(refused.contains("sh -c '… \"$1\" …' sh {}"), "{refused}");
    let safe =
        mapped(&lab, &[&["-k", "--", "sh -c 'echo \"$1\"' sh {}"], &inputs[..]].concat()).expect(0).out;
    assert_eq!(safe.lines().collect::<Vec<_>>(), inputs[1..]);
    let wanted =
        mapped(&lab, &["--inputs-may-be-code", "--", "sh -c 'echo {}'", ":::", "a b; echo c"]).expect(0).out;
    assert_eq!(wanted, "a b\nc\n");
    assert!(!lab.path().join("pwned").exists() && !lab.path().join("pwned2").exists());

    for name in ["-rf", "--version", "plain"] {
        lab.file(name, "1\n");
    }
    let left = || ["-rf", "--version", "plain"].map(|name| lab.path().join(name).exists());
    let names = [":::", "-rf", "plain", "--version"];
    let some = mapped(&lab, &[&["--", "rm", "-f"], &names[..]].concat()).expect(1);
    assert!(
        some.err.contains("agx: job 1: not run, because its input '-rf' begins with -")
            && some.err.contains("2 of 3 jobs failed"),
        "{}",
        some.err
    );
    assert_eq!(left(), [true, true, false]);
    let dry = mapped(&lab, &[&["--dry-run", "--", "rm -f {}"], &names[..]].concat()).expect(1);
    assert_eq!(dry.out, "rm -f plain\n");
    assert!(dry.err.contains("2 jobs would not run"), "{}", dry.err);
    mapped(&lab, &[&["--", "rm -f -- {}"], &names[..]].concat()).expect(0);
    assert_eq!(left(), [false; 3]);
    let sum = mapped(&lab, &["-k", "--", "expr", "1", "+", ":::", "-5", "5"]).expect(0).out;
    assert_eq!(sum, "-4\n6\n", "negative numbers are values");
    lab.file("plain", "1\n");
    for command in ["rm {1}{2} plain", "env -- rm {1} {2} plain"] {
        let whole = mapped(&lab, &["-C,", "--", command, ":::", ",-rf", "-rf,"]).expect(1).err;
        assert!(whole.contains("not run, because its argument '-rf' begins with -"), "{whole}");
    }
    assert!(lab.path().join("plain").exists());
    let words = mapped(&lab, &["--", "echo", "{}", ">", "new", ":::", "a"]).expect(0);
    assert_eq!(words.out, "a > new\n");
    assert!(words.err.contains("'>' is an argument of echo"), "{}", words.err);
    let meant = mapped(&lab, &["--inputs-may-be-options", "--", "sort {} n", ":::", "-r"]);
    assert!(meant.expect(1).err.contains("sort exited with code 2"));
}

#[test]
fn braces_of_find_are_left_to_find() {
    let lab = Lab::on_files();
    std::fs::create_dir(lab.path().join("a")).unwrap();
    let names = ["a/x.tmp", "a/keep"];
    for name in names {
        lab.file(name, "1\n");
    }
    let left = || names.map(|name| lab.path().join(name).exists());
    let find = "find {} -name '*.tmp' -exec rm -rf {} ';'";
    let refused = mapped(&lab, &["--", find, ":::", "a"]).expect(2).err;
    assert!(refused.contains("{} may stand for the input, or for text that find fills in"), "{refused}");
    assert_eq!(left(), [true; 2]);
    let find = ["--", "find", "{1}", "-name", "*.tmp", "-exec", "rm", "-rf", "\\{}", ";", ":::", "a"];
    mapped(&lab, &find).expect(0);
    assert_eq!(left(), [false, true]);
}

#[test]
fn files_of_other_programs_are_read_and_what_they_hold_is_shown() {
    let lab = Lab::on_files();
    let agq = lab.agq(&[]);
    let _agw = lab.agw(&agq, "w", &["--tools", "sh"]);
    let plan = r#"{"plan_id":"p","tasks":[{"task_number":1,"command":"sh","args":["-c","printf '\\033[2Jx\\r' >&2; exit $0","{{input.a}}"]}]}"#;
    lab.file("plan.json", &format!("\u{feff}{plan}"));
    lab.agx(&agq, &["plan", "check", "plan.json"]).expect(0);
    lab.agx(&agq, &["plan", "submit", "plan.json"]).expect(0);
    lab.file("inputs", "\u{feff}{\"a\":0}\r\n{\"a\":3,\"b\":\"\u{202e}\u{9b}2J\"}\r\n");
    let submitted =
        lab.agx(&agq, &["action", "submit", "p", "--inputs", "inputs", "--id", "a", "--wait"]).expect(1);
    assert!(is_plain(&submitted.err) && submitted.err.contains(r"\u202e\u009b2J"), "{}", submitted.err);
    let jobs = lab.agx(&agq, &["job", "list", "a", "--status", "failed"]).expect(0).out;
    let status = lab.agx(&agq, &["job", "status", jobs.trim()]).expect(0).out;
    assert!(is_plain(&status) && status.contains(r"\x1b[2Jx\r"), "{status}");
    let results = lab.agx(&agq, &["action", "results", "a"]).expect(1).err;
    assert!(is_plain(&results), "{results}");

    let utf16: Vec<u8> = "\u{feff}[{\"a\":1}]".encode_utf16().flat_map(u16::to_le_bytes).collect();
    std::fs::write(lab.path().join("wide"), utf16).unwrap();
    for args in [
        &["action", "submit", "p", "--inputs", "wide"][..],
        &["plan", "check", "wide"],
        &["action", "submit", "p", "--lines", "wide"],
    ] {
        let wide = lab.agx(&agq, args).expect(2).err;
        assert!(wide.contains("wide is UTF-16") && wide.contains("iconv -f UTF-16 -t UTF-8"), "{wide}");
    }
    let wide = mapped(&lab, &["-a", "wide", "--", "echo"]).expect(2).err;
    assert!(wide.contains("wide is UTF-16") && wide.contains("iconv -f UTF-16 -t UTF-8"), "{wide}");
    lab.file("lines", "0\r\n");
    let crlf = lab.agx(&agq, &["action", "submit", "p", "--lines", "lines", "--field", "a"]).expect(0).err;
    assert!(crlf.contains("a line of lines ends with \\r") && is_plain(&crlf), "{crlf}");
}

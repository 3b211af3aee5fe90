//! Results of pipelines, and refusals with their marks and advice.

use agenix_protocol::documents::Task;
use agenix_shell::{Braces, Meaning, Placeholders, Programs, argv, compile};
use serde_json::json;

fn meaning(braces: &Braces<'_>) -> Meaning {
    let (name, is_double) = (braces.inside, braces.is_double);
    let text = match name {
        "" if !is_double => "{{input.line}}".into(),
        "." if !is_double => "{{input.noext}}".into(),
        "" => {
            return Meaning::Refused {
                reason: "'{{}}' may be two things".into(),
                instead: "write one".into(),
            };
        }
        _ if name.starts_with("input.") => format!("{{{{{name}}}}}"),
        _ => return Meaning::Text,
    };
    Meaning::Placeholder(text)
}

const PLACEHOLDERS: Placeholders<'_> = Placeholders { only: None, meaning: &meaning };

fn tasks(text: &str) -> Vec<Task> {
    compile(text, PLACEHOLDERS, Programs::Named).unwrap_or_else(|refusal| panic!("{text}: {refusal}"))
}

fn args(text: &str) -> Vec<String> {
    tasks(text).remove(0).args
}

#[test]
fn pipelines_compile_to_a_task_per_command() {
    let plan = serde_json::to_value(tasks("LC_ALL=C sort -t ',' {input.file} 2>&1 | uniq -c > out.{} 2>err"))
        .unwrap();
    let expected = json!([
        {"task_number": 1, "command": "sort", "args": ["-t", ",", "{{input.file}}"], "stderr": "&1", "env": {"LC_ALL": "C"}},
        {"task_number": 2, "command": "uniq", "args": ["-c"], "input_from_task": 1, "stream": true,
         "stdout": "out.{{input.line}}", "stderr": "err"},
    ]);
    assert_eq!(plan, expected);
    assert_eq!(tasks("< {} sort").remove(0).stdin_file.as_deref(), Some("{{input.line}}"));
}

#[test]
fn quotes_and_escapes_follow_posix() {
    for (text, expected) in [
        (r#"a 'b c' "d e" f\ g"#, vec!["b c", "d e", "f g"]),
        (r#"a '$x `y` \n' "\$x \\ \" \n""#, vec![r"$x `y` \n", r#"$x \ " \n"#]),
        (r#"a '' "" x''y"#, vec!["", "", "xy"]),
        ("a b\\\nc", vec!["bc"]),
        ("a 'b\nc' # d", vec!["b\nc"]),
        (r#"a '*' "?" \* \[x]"#, vec!["*", "?", "*", "[x]"]),
        (r"a '{1,2}' \{1,2\} {", vec!["{1,2}", "{1,2}", "{"]),
        ("a x=1 --y=2", vec!["x=1", "--y=2"]),
        ("a '~' b~ \\~", vec!["~", "b~", "~"]),
        ("a '{}' \"{.}\" {}{.}", vec!["{{input.line}}", "{{input.noext}}", "{{input.line}}{{input.noext}}"]),
        ("awk '{print $1}'", vec!["{print $1}"]),
        (r"a \{} '\{}' \{.\} \{input.x}", vec!["{}", "{}", "{.}", "{input.x}"]),
        (r#"a '\{1\}' "\{1}""#, vec![r"\{1\}", r"\{1}"]),
        (r#"a \\{} "C:\\{}" 'x\'{}"#, vec![r"\{{input.line}}", r"C:\{{input.line}}", r"x\{{input.line}}"]),
        (r#"a '\\{}' \\\{} "\\\{}""#, vec![r"\{}", r"\{}", r"\{}"]),
        ("a '{{.Name}}' '{{range .}}{}'", vec![r#"{{"{{"}}.Name}}"#, r#"{{"{{"}}range .}}{{input.line}}"#]),
        ("a 'x\r'", vec!["x\r"]),
        ("a {{input.deep.er}}", vec!["{{input.deep.er}}"]),
        ("a [ ] é", vec!["[", "]", "é"]),
    ] {
        assert_eq!(args(text), expected, "{text}");
    }
}

#[test]
fn argv_has_the_same_placeholders_and_escapes() {
    let words = ["grep", "-E", r"a\{}x{{.}}", "$x", "{}"].map(String::from);
    assert_eq!(
        argv(&words, PLACEHOLDERS, Programs::Named).unwrap().args,
        ["-E", r#"a{}x{{"{{"}}.}}"#, "$x", "{{input.line}}"]
    );
    let another = Placeholders { only: Some("@"), ..PLACEHOLDERS };
    assert_eq!(argv(&words[..3], another, Programs::Named).unwrap().args, ["-E", r#"a\{}x{{"{{"}}.}}"#]);
    assert_eq!(compile("a '{}' @.x", another, Programs::Named).unwrap()[0].args, ["{}", "{{input.line}}.x"]);
}

#[test]
fn rendered_tasks_compile_to_the_same_tasks() {
    for text in [
        "sort {} | uniq -c",
        r#"A='b c' grep -e "it's" '*' '{1,2}' '{' '{a..b}' > 'x y' 2>&1"#,
        "tr a b < {input.file} 2> /dev/null | cat - '' a~b",
    ] {
        let once = tasks(text);
        assert_eq!(tasks(&agenix_shell::render(&once)), once, "{text}");
    }
    assert_eq!(agenix_shell::render(&tasks("sort -k 2,2 {} 'a b'")), "sort -k 2,2 {{input.line}} 'a b'");
}

#[test]
fn unsupported_constructs_are_marked_with_an_alternative() {
    let cases = [
        ("grep $x f", "     ^^", "variables need a shell", "double quotes around the pipeline"),
        ("grep \"é$x\" f", "       ^^", "variables need a shell", "single quotes"),
        ("grep ${x:-y} f", "     ^^^^^^^", "variables need a shell", "input.FIELD"),
        ("cat $(ls)", "    ^^^^^", "command substitution", "COMMAND | agx map"),
        ("cat `ls`", "    ^^^^", "command substitution", "COMMAND | agx map"),
        ("echo $((1+2))", "     ^^^^^^^^", "arithmetic", "its result"),
        ("cat *.csv", "    ^^^^^", "file name patterns", ":::"),
        ("cat [ab].csv", "    ^^^^^^^^", "file name patterns", ":::"),
        (r#"cat x[a"b"].csv"#, "          ^^^^^", "file name patterns", ":::"),
        ("cat ~/x", "    ^", "home directory", "whole path"),
        ("cat {a,b}", "    ^^^^^", "not by POSIX", "write the words out"),
        ("a && b", "     ^", "a plan is one pipeline", "agx workflow"),
        ("a || b", "     ^", "a plan is one pipeline", "agx workflow"),
        ("a ; b", "    ^", "a plan is one pipeline", "agx workflow"),
        ("a\nb", "^", "a plan is one pipeline", "agx workflow"),
        ("a &", "  ^", "& would", "leave it out"),
        ("! a", "^", "the shell's", "leave it out"),
        ("(a; b) | c", "^^^^^^", "a group", "one pipeline"),
        ("for x in a; do b; done", "^^^^^^^^^^^^^^^^^^^^^^", "a loop", ":::"),
        ("if a; then b; fi", "^^", "needs a shell", "a script"),
        ("cd /tmp", "^^", "a part of the shell", "\"cwd\""),
        ("X=1", "^^^", "no command", "name of a program"),
        ("./a.sh {}", "^^^^^^", "not its path", "write a.sh"),
        ("{} x", "^^", "cannot come from the input", "write its name"),
        ("a >> f", "     ^", "append", "agx map … > FILE"),
        ("a 3> f", "     ^", "of redirections a plan knows", "with these"),
        ("a 2>&1 > f", "         ^", "where stdout went before", "after the file"),
        ("a > f > g", "        ^", "redirected twice", "leave the first"),
        ("a > f | b", "        ^", "this pipe is empty", "tee"),
        ("a | b < f", "    ^", "from a file, and from the pipe", "leave one"),
        ("a <<< x", "       ^", "not of a plan", "printf"),
        ("a 'b", "  ^", "never closed", "close it"),
        ("a | ", "    ^", "could not read", "COMMAND"),
        ("a | | b", "    ^", "could not read", "COMMAND"),
        ("", "^", "no command", "sort {}"),
        ("awk '{{}}'", "    ^^^^^^", "'{{}}'", "write one"),
        ("wc f\r", "   ^^", "CRLF", "tr -d"),
        ("wc -l\r\n", "   ^^^", "CRLF", "tr -d"),
        ("a 'x' $'y'", "      ^^^^", "not POSIX", "'…'"),
    ];
    let wrong: Vec<String> = cases
        .iter()
        .filter_map(|(text, mark, reason, instead)| {
            let refusal = match compile(text, PLACEHOLDERS, Programs::Named) {
                Ok(tasks) => return Some(format!("{text}: compiled to {tasks:?}")),
                Err(refusal) => refusal,
            };
            let (marked, message) = (refusal.marked(), refusal.to_string());
            let is_right = marked.lines().last() == Some(mark)
                && message.contains(reason)
                && refusal.instead().contains(instead);
            (!is_right).then(|| format!("{message}\n  {}", refusal.instead()))
        })
        .collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn texts_that_the_parser_could_not_read_in_time_are_refused() {
    for (deep, reason) in [
        ("(".repeat(100_000), "too many brackets"),
        ("{ ".repeat(100_000), "too many brackets"),
        ("if ".repeat(40_000), "too many brackets"),
        ("case x in a) ".repeat(40), "too many brackets"),
        (format!("a {}", "a[''".repeat(40)), "too many brackets"),
        (format!("true # don't\n{}", "(".repeat(100_000)), "too many brackets"),
        ("( ".repeat(50), "could not read"),
        ("if ".repeat(50), "could not read"),
        ("case x in a) ".repeat(8), "could not read"),
        ("$(".repeat(1000), "command substitution"),
        ("\"$(".repeat(1000), "command substitution"),
        ("`".repeat(1000), "command substitution"),
        ("${".repeat(100_000), "variables need a shell"),
        (format!("a $(a <<E\n{}\nE\n)", "(".repeat(40)), "command substitution"),
        ("a 99999999999> f".to_owned(), "of redirections a plan knows"),
        ("a ~99999999999999999999".to_owned(), "home directory"),
    ] {
        let refusal = compile(&deep, PLACEHOLDERS, Programs::Named).expect_err("brackets");
        assert!(refusal.to_string().contains(reason), "{refusal}");
    }
    assert_eq!(args(&format!("awk '{}'", "$(".repeat(1000))), ["$(".repeat(1000)], "as it is");
}

#[test]
fn programs_by_path_are_allowed_where_the_caller_says_so() {
    let command = |text: &str| {
        compile(text, PLACEHOLDERS, Programs::ByPath)
            .map(|tasks| tasks[0].command.clone())
            .map_err(|no| no.to_string())
    };
    assert_eq!(command("./a.sh {}").unwrap(), "./a.sh");
    assert_eq!(command("'/opt/my tools/x' {}").unwrap(), "/opt/my tools/x");
    let words = ["../a".to_owned(), "x".to_owned()];
    assert_eq!(argv(&words, PLACEHOLDERS, Programs::ByPath).unwrap().command, "../a");
    for (text, words) in [
        ("./ {}", "cannot be the path"),
        ("./{} x", "cannot come from the input"),
        ("~/a {}", "home directory"),
    ] {
        assert!(command(text).unwrap_err().contains(words), "{text}: {:?}", command(text));
    }
}

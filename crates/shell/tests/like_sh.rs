//! Random pipelines have the same bytes on stdout, exit code and files as with `sh -c`.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

use std::{
    fs::File,
    path::Path,
    process::{Child, Command, Stdio},
};

use agenix_protocol::{
    documents::{STDERR_TO_STDOUT, Task},
    template,
};
use agenix_shell::{Braces, Meaning, Placeholders, Programs, compile};
use proptest::prelude::{Just, ProptestConfig, Strategy, any, prop, prop_oneof, proptest};

/// Generates the word of a shell for a random text.
fn word() -> impl Strategy<Value = String> {
    let text = prop_oneof![
        "[a-z0-9._,:/@%+-]{1,6}",
        "[ a-z$`\"\\\\*?~#;&|<>(){}!\\[\\]=^-]{0,8}",
        "[aéß€ \t]{1,4}",
    ];
    (text, 0..3u8).prop_map(|(text, kind)| quoted(&text, kind))
}

fn quoted(text: &str, kind: u8) -> String {
    match kind {
        0 => format!("'{}'", text.replace('\'', r"'\''")),
        1 => {
            let escape = |c: char| if "$`\"\\".contains(c) { format!("\\{c}") } else { c.to_string() };
            format!("\"{}\"", text.chars().map(escape).collect::<String>())
        }
        _ if text.is_empty() => "''".into(),
        _ => {
            let escape = |c: char| if c.is_alphanumeric() { c.to_string() } else { format!("\\{c}") };
            text.chars().map(escape).collect()
        }
    }
}

fn first() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::collection::vec(word(), 1..5).prop_map(|words| format!("printf '%s\\n' {}", words.join(" "))),
        Just("cat data".to_owned()),
        Just("cat nowhere 2>&1 | cat".to_owned()),
        Just("cat nowhere 2> complaint".to_owned()),
        Just("sort < data".to_owned()),
        Just("< data LC_ALL=C sort -r".to_owned()),
        word().prop_map(|word| format!("grep -F -e {word} data")),
        word().prop_map(|word| format!("X={word} printenv X")),
        Just("cat \\\n data {in}".to_owned()),
        Just(r#"printf '%s\n' C:\\{in} "C:\\"{in} 'C:\'{in}"#.to_owned()),
    ]
}

fn next() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("sort".to_owned()),
        Just("uniq -c".to_owned()),
        Just("wc -c".to_owned()),
        Just("tr a-z 'A-Z'".to_owned()),
        Just("head -n 1".to_owned()),
        Just("cat - data".to_owned()),
        Just("false".to_owned()),
        Just("sed -n '$p'".to_owned()),
        word().prop_map(|word| format!("grep -c -F -e {word}")),
        word().prop_map(|word| format!("grep -v -F -e {word} 2>/dev/null")),
    ]
}

fn pipeline() -> impl Strategy<Value = String> {
    let end = prop_oneof![2 => Just(""), 1 => Just(" | tee \"copy of {in}\""),
        1 => Just(" > out"), 1 => Just(" >| 'o ut'"), 1 => Just(" # | no more\n")];
    (first(), prop::collection::vec((next(), any::<bool>()), 0..4), end).prop_map(|(first, rest, end)| {
        let rest = rest
            .into_iter()
            .map(|(next, is_tight)| if is_tight { format!("|{next}") } else { format!(" | \n {next}") });
        first + &rest.collect::<String>() + end
    })
}

/// Bytes on stdout, exit code, and files of a program.
type ProgramResult = (Vec<u8>, i32, Vec<(String, Vec<u8>)>);

fn left(dir: &Path, out: Vec<u8>, code: i32) -> ProgramResult {
    let mut files: Vec<(String, Vec<u8>)> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.file_name().to_string_lossy().into_owned(), std::fs::read(entry.path()).unwrap()))
        .collect();
    files.sort();
    (out, code, files)
}

fn place() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("data"), "b\na\nab\n$x *\nb\n").unwrap();
    std::fs::write(dir.path().join("a b"), "of the input\n").unwrap();
    dir
}

fn by_sh(text: &str) -> ProgramResult {
    let dir = place();
    let text = text.replace("\"copy of {in}\"", "'copy of a b'").replace("{in}", "'a b'");
    let ran =
        Command::new("sh").args(["-c", &text]).current_dir(dir.path()).stdin(Stdio::null()).output().unwrap();
    left(dir.path(), ran.stdout, ran.status.code().unwrap_or(-1))
}

fn by_tasks(tasks: &[Task]) -> ProgramResult {
    let dir = place();
    let output = dir.path().join("stdout of the last");
    let (mut children, mut before): (Vec<Child>, Option<std::io::PipeReader>) = (Vec::new(), None);
    for (at, task) in tasks.iter().enumerate() {
        let input = serde_json::value::to_raw_value(&serde_json::json!({"in": "a b"})).unwrap();
        let text = |text: &str| template::fill(text, template::Values { input: &input, slot: "1" }).unwrap();
        let file = |name: &str| File::create(dir.path().join(text(name))).unwrap();
        let stdin = match (&task.stdin_file, before.take()) {
            (Some(name), _) => File::open(dir.path().join(text(name))).unwrap().into(),
            (None, Some(pipe)) => Stdio::from(pipe),
            (None, None) => Stdio::null(),
        };
        let stdout: std::os::fd::OwnedFd = if let Some(name) = &task.stdout {
            file(name).into()
        } else if at + 1 < tasks.len() {
            let (reader, writer) = std::io::pipe().unwrap();
            before = Some(reader);
            writer.into()
        } else {
            File::create(&output).unwrap().into()
        };
        let stderr = match task.stderr.as_deref() {
            None => Stdio::null(),
            Some(STDERR_TO_STDOUT) => stdout.try_clone().unwrap().into(),
            Some(name) => file(name).into(),
        };
        let mut command = Command::new(&task.command);
        command.args(task.args.iter().map(|arg| text(arg)));
        command.envs(task.env.iter().map(|(name, value)| (name, text(value)))).current_dir(dir.path());
        children.push(command.stdin(stdin).stdout(stdout).stderr(stderr).spawn().unwrap());
    }
    let codes: Vec<i32> =
        children.iter_mut().map(|child| child.wait().unwrap().code().unwrap_or(-1)).collect();
    let out = std::fs::read(&output).unwrap_or_default();
    let _none_where_it_went_to_a_file = std::fs::remove_file(output);
    left(dir.path(), out, *codes.last().unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn compiled_pipelines_behave_as_in_a_shell(text in pipeline()) {
        let meaning = |braces: &Braces<'_>| match (braces.inside, braces.is_double) {
            ("in", false) => Meaning::Placeholder("{{input.in}}".into()),
            _ => Meaning::Text,
        };
        let tasks = compile(&text, Placeholders { only: None, meaning: &meaning }, Programs::Named).unwrap_or_else(|refusal| panic!("{refusal}\n{}", refusal.instead()));
        proptest::prop_assert_eq!(by_tasks(&tasks), by_sh(&text), "{}", text);
    }

    #[test]
    fn any_text_compiles_or_is_refused(text in prop_oneof![any::<String>(), "[a-z$`'\"\\\\{}()|&;<>*?~#= \\n\\t!-]{0,40}"]) {
        let meaning = |braces: &Braces<'_>| match braces.inside {
            "" => Meaning::Placeholder("{{input.line}}".into()),
            _ => Meaning::Text,
        };
        if let Err(refusal) = compile(&text, Placeholders { only: None, meaning: &meaning }, Programs::Named) {
            proptest::prop_assert!(refusal.marked().ends_with('^') && !refusal.instead().is_empty());
        }
    }
}

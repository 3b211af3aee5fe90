//! Properties of all arguments: no panic, no file outside of the roots, and no input that changes
//! the meaning of an argument.

#![allow(clippy::unwrap_used, reason = "the policy of the test is valid")]

use agenix_policy::{Decision, Example, Policy, library_examples};
use agenix_protocol::documents::{InputType, Plan, Task, parse};
use proptest::{
    collection::vec,
    prelude::{Just, ProptestConfig, Strategy, any, prop_assert, prop_assert_eq, prop_oneof, proptest},
    sample::{Index, select},
};

fn policy() -> Policy {
    Policy::parse(
        "version = 1\nlibrary = true\n[paths]\nread = [\".\", \"/data\"]\nwrite = [\"out\", \"/data/out\"]",
    )
    .unwrap()
}

/// Arguments that attack.
const ATTACKS: [&str; 24] = [
    "-",
    "--",
    "-o",
    "-o/etc/x",
    "--output=/etc/x",
    "--help",
    "@a.txt",
    "+1",
    "../../etc/passwd",
    "/etc/passwd",
    "",
    "-f",
    "-fa.txt",
    "-exec",
    "-delete",
    "(",
    "!",
    "w x",
    "1e id",
    "s/a/b/e",
    "env",
    "out/x",
    "a.txt",
    "-n",
];

fn argument() -> impl Strategy<Value = String> {
    let attacks = select(&ATTACKS[..]).prop_map(String::from);
    let examples: Vec<String> = library_examples().into_iter().flat_map(|example| example.args).collect();
    prop_oneof![attacks, select(examples), "[-a-z0-9=,./+@{}\"]{0,8}", any::<String>(), placeholder()]
}

/// Argument with a placeholder.
fn placeholder() -> impl Strategy<Value = String> {
    const SHAPES: [&str; 6] =
        ["{{input.x}}", "{{input.x[]}}", "-e{{input.x}}", "-d{{input.x}}", "-s{{input.x}}", "-t{{input.x}}"];
    prop_oneof![
        select(&SHAPES[..]).prop_map(String::from),
        "-[a-zA-Z]{1,2}=?\\{\\{input.x\\}\\}",
        "--(key|regexp|expression|lines|label|format|suffix|separator)=\\{\\{input.x\\}\\}",
    ]
}

/// Returns true if the normalized path is a file that the policy of the tests allows.
fn is_inside(path: &str) -> bool {
    let is_below_a_root = !path.starts_with('/') || path.starts_with("/data/") || path == "/data";
    is_below_a_root && !path.split('/').any(|part| part == "..")
}

/// Fills the placeholders of the tests.
fn filled(args: &[String], value: &str) -> Vec<String> {
    let mut filled = Vec::new();
    for arg in args {
        match arg.as_str() {
            "{{input.x[]}}" => filled.extend([value.to_owned(), value.to_owned()]),
            arg => filled.push(arg.replace("{{input.x}}", value)),
        }
    }
    filled
}

/// Argument with the placeholder of a typed input.
fn typed_argument() -> impl Strategy<Value = String> {
    const SHAPES: [&str; 24] = [
        "{{input.x}}",
        "{{input.x[]}}",
        "{{input.x}}.gz",
        "{{input.x}}/../a",
        "/data/{{input.x}}",
        "/data/out/{{input.x}}",
        "/data/out{{input.x}}",
        "/data/{{input.x}}/a",
        "/data/..{{input.x}}",
        "/etc/{{input.x}}",
        "out/{{input.x}}",
        "{{input.x}}{{input.x}}",
        "-n{{input.x}}",
        "-k{{input.x}}",
        "-t{{input.x}}",
        "-w{{input.x}}",
        "--lines={{input.x}}",
        "--sort={{input.x}}",
        "--relative-to={{input.x}}",
        "-r{{input.x}}",
        "--{{input.x}}",
        "-{{input.x}}",
        "@{{input.x}}",
        "+{{input.x}}",
    ];
    select(&SHAPES[..]).prop_map(String::from)
}

/// Type of an input, and a value of it.
fn typed_value() -> impl Strategy<Value = (InputType, String)> {
    let under = select(&["/data", "/data/out", "/etc", "/"][..]);
    let path = (under, "[-a-z@+ .]{1,4}(/[-a-z@+]{1,3})?")
        .prop_filter("normal", |(_, rest)| !rest.split('/').any(|part| matches!(part, "." | "..")));
    let path = path.prop_map(|(under, rest)| {
        let whole = format!("{}/{rest}", under.trim_end_matches('/'));
        (InputType::Path { under: under.into() }, whole)
    });
    let int = (-3i64..5, 0i64..5).prop_flat_map(|(min, width)| (Just(min), Just(width), min..=min + width));
    let int = int.prop_map(|(min, width, value)| {
        (InputType::Int { min: Some(min), max: Some(min + width) }, value.to_string())
    });
    let any_int = any::<i64>().prop_map(|value| (InputType::Int { min: None, max: None }, value.to_string()));
    let name = "[A-Za-z0-9_][A-Za-z0-9_.:-]{0,3}".prop_map(|name| (InputType::Name {}, name));
    let words = vec(select(&ATTACKS[..]).prop_map(String::from), 1..4);
    let word = (words, any::<Index>()).prop_map(|(values, at)| {
        let value = values[at.index(values.len())].clone();
        (InputType::Enum { values }, value)
    });
    prop_oneof![path, int, any_int, name, word]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn any_arguments_are_judged_and_stay_inside_the_roots(
        tool in any::<Index>(),
        args in vec(argument(), 0..6),
    ) {
        let policy = policy();
        let tools = policy.tools();
        let judged = policy.judge_argv(tools[tool.index(tools.len())], &args);
        prop_assert!(judged.files.iter().all(|file| is_inside(&file.path)), "{:?}", judged.files);
        prop_assert_eq!(judged.decision == Decision::Allow, judged.findings.is_empty());
    }

    #[test]
    fn allowed_placeholders_are_allowed_with_every_value(
        example in select(library_examples()),
        at in any::<Index>(),
        template in placeholder(),
        is_after_dashes in any::<bool>(),
        value in prop_oneof![Just(String::new()), select(&ATTACKS[..]).prop_map(String::from), "[^\\x00{}]{0,12}"],
    ) {
        let Example { tool, mut args, .. } = example;
        let at = at.index(args.len() + 1);
        args.truncate(at.max(1));
        if is_after_dashes {
            args.push("--".to_owned());
        }
        args.push(template);
        let policy = policy();
        if policy.judge_argv(&tool, &args).decision == Decision::Allow {
            let filled = filled(&args, &value);
            let judged = policy.judge_argv(&tool, &filled);
            prop_assert_eq!(judged.decision, Decision::Allow, "{} {:?} {:?}", tool, filled, judged.findings);
        }
    }

    #[test]
    fn allowed_typed_inputs_are_allowed_with_every_value_of_the_type(
        example in select(library_examples()),
        at in any::<Index>(),
        template in typed_argument(),
        is_after_dashes in any::<bool>(),
        (input_type, value) in typed_value(),
    ) {
        let Example { tool, mut args, .. } = example;
        args.truncate(at.index(args.len() + 1));
        if is_after_dashes {
            args.push("--".to_owned());
        }
        args.push(template);
        let mut plan = parse::<Plan>(br#"{"tasks": []}"#).unwrap();
        plan.inputs.insert("x".into(), input_type);
        plan.tasks.push(Task { task_number: 1, command: tool.clone(), args: args.clone(), ..Task::default() });
        let policy = policy();
        if policy.judge(&plan).decision == Decision::Allow {
            let filled = filled(&args, &value);
            let judged = policy.judge_argv(&tool, &filled);
            prop_assert_eq!(judged.decision, Decision::Allow, "{} {:?} {:?}", tool, filled, judged.findings);
        }
    }
}

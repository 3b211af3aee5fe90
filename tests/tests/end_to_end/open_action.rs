//! `agx action submit --open`, `add` and `close`.

use std::{io::Write, process::Stdio};

use e2e::{Agq, Lab, Ran, eventually};
use serde_json::json;

use crate::support::{action, plan};

fn added_from_stdin(lab: &Lab, agq: &Agq, args: &[&str], stdin: &str) -> Ran {
    let mut command = lab.command("agx");
    command.env("AGQ_ADDR", agq.address()).args(args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(stdin.as_bytes()).unwrap();
    Ran::from(child.wait_with_output().unwrap())
}

#[test]
fn open_actions_get_inputs_until_they_are_closed() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let _agw = lab.agw(&agq, "w1", &[]);
    lab.submit_plan(&agq, &plan("p", "echo", &["{{input.line}}"]));
    let opened = lab.agx(&agq, &["action", "submit", "p", "--open", "--id", "a"]).expect(0);
    assert!(opened.out.contains("has 0 jobs and is open: `agx action add a`"), "{}", opened.out);
    let added = lab.agx(&agq, &["action", "add", "a", "one", "two", "--json"]).expect(0).data();
    assert_eq!(added, json!({"action_id": "a", "jobs_created": 2, "total_jobs": 2}));
    let added = added_from_stdin(&lab, &agq, &["action", "add", "a"], "three\nfour\n").expect(0);
    assert_eq!(added.out, "2 inputs are added to action a, which has 4 jobs\n");
    lab.file("inputs.json", r#"[{"line":"five"}]"#);
    for total in [5, 5] {
        let words = ["action", "add", "a", "--inputs", "inputs.json", "--at", "4", "--json"];
        assert_eq!(lab.agx(&agq, &words).expect(0).data()["total_jobs"], total, "a repetition adds nothing");
    }
    let nothing = added_from_stdin(&lab, &agq, &["action", "add", "a"], "").expect(0);
    assert_eq!(nothing.out, "0 inputs are added to action a, which has 5 jobs\n");
    let unfit = lab.agx(&agq, &["action", "add", "a", "--field", "x", "six"]).expect(4).err;
    assert!(unfit.contains("has no field 'line'"), "{unfit}");
    let closed = lab.agx(&agq, &["action", "close", "a", "--json"]).expect(0).data();
    assert_eq!(closed, json!({"action_id": "a"}));
    lab.agx(&agq, &["action", "watch", "a"]).expect(0);
    let results = lab.agx(&agq, &["action", "results", "a", "--ordered"]).expect(0).out;
    assert_eq!(results, "one\ntwo\nthree\nfour\nfive\n");
    let late = lab.agx(&agq, &["action", "add", "a", "six"]).expect(4).err;
    assert!(late.contains("not open"), "{late}");
    for words in [&["action", "add", "b", "x"][..], &["action", "close", "b"]] {
        let missing = lab.agx(&agq, words).expect(4).err;
        assert!(missing.contains("there is no action 'b'"), "{missing}");
    }
    let neither = lab.agx(&agq, &["action", "submit", "p"]).expect(2).err;
    assert!(neither.contains("there are no inputs") && neither.contains("--open"), "{neither}");
    lab.agx(&agq, &["action", "submit", "p", "--open", "--wait"]).expect(2);
}

#[test]
fn inputs_are_added_while_their_source_goes_on() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let _agw = lab.agw(&agq, "w1", &[]);
    lab.submit_plan(&agq, &plan("p", "echo", &["{{input.line}}"]));
    let lines = ["one\n\ntw", "o"];
    let objects = ["{\"line\":\"one\"}\n{\"line\":\"\"}{\"li", "ne\":\"two\"}"];
    for (id, more, [begin, end]) in
        [("a", &[][..], lines), ("b", &["--at", "0"][..], lines), ("c", &["--inputs", "-"][..], objects)]
    {
        lab.agx(&agq, &["action", "submit", "p", "--open", "--id", id]).expect(0);
        let mut command = lab.command("agx");
        command.env("AGQ_ADDR", agq.address()).args(["action", "add", id]).args(more);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(begin.as_bytes()).unwrap();
        eventually("both inputs run", || (action(&lab, &agq, id)["completed"] == 2).then_some(()));
        stdin.write_all(end.as_bytes()).unwrap();
        drop(stdin);
        let added = Ran::from(child.wait_with_output().unwrap()).expect(0);
        assert_eq!(added.out, format!("3 inputs are added to action {id}, which has 3 jobs\n"));
    }
}

#[test]
fn refusal_in_the_middle_names_the_input_and_what_was_added_before() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    lab.submit_plan(&agq, &plan("p", "echo", &["{{input.line}}"]));
    lab.file("lines", &("x\n".repeat(4500) + "a\0b\n"));
    for (id, at, advice) in
        [("a", &[][..], "give only the inputs after these"), ("b", &["--at", "0"][..], "--at 4000")]
    {
        lab.agx(&agq, &["action", "submit", "p", "--open", "--id", id]).expect(0);
        let words = [&["action", "add", id, "--lines", "lines"][..], at].concat();
        let refused = lab.agx(&agq, &words).expect(4).err;
        let place = "inputs[4500].line contains a NUL byte";
        let told = ["; 4000 inputs were added before", place, advice];
        assert!(told.iter().all(|text| refused.contains(text)), "{refused}");
        assert_eq!(action(&lab, &agq, id)["total_jobs"], 4000);
    }
}

//! From a plan and a few inputs to the results, as in the README.

use e2e::Lab;

#[test]
fn plan_runs_over_files_and_its_results_come_back_in_order() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let _agw = lab.agw(&agq, "w1", &[]);
    let plan = Lab::repository("examples/word-frequency.json");
    lab.agx(&agq, &["plan", "submit", plan.to_str().unwrap()]).expect(0);
    let files: Vec<String> = (0..20)
        .map(|n| lab.file(&format!("{n}.txt"), &format!("b a{n}x B\n")).display().to_string())
        .collect();
    lab.file("files", &(files.join("\n") + "\n"));

    let submit =
        ["action", "submit", "word-frequency", "--id", "a", "--lines", "files", "--field", "file", "--wait"];
    let waited = lab.agx(&agq, &submit).expect(0);
    assert!(waited.err.contains("20/20 done, 0 failed"), "{}", waited.err);

    let results = lab.agx(&agq, &["action", "results", "a", "--ordered"]).expect(0);
    // tr replaces the digits by line ends, so each file has a and x once, and b twice.
    let words: Vec<&str> = results.out.split_whitespace().collect();
    assert_eq!(words, ["1", "a", "2", "b", "1", "x"].repeat(20));
    lab.agx(&agq, &["action", "results", "a", "--output-dir", "out"]).expect(0);
    let last = std::fs::read_to_string(lab.path().join("out/19.out")).unwrap();
    assert!(results.out.ends_with(&last) && last.lines().count() == 3, "{last}");
    let again = lab.agx(&agq, &submit).expect(0);
    assert_eq!(again.out, waited.out, "the same submission again is answered as the first time");
}

#[test]
fn numbers_are_arguments_and_documents_as_they_were_submitted() {
    let numbers = ["123456789012345678901234567890", "18446744073709551616", "1.10", "1E5", "-0"];
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let _agw = lab.agw(&agq, "w1", &[]);
    lab.submit_plan(
        &agq,
        r#"{"plan_id":"p","tasks":[{"task_number":1,"command":"echo","args":["{{input.n}}","{{input.l}}"]}]}"#,
    );
    let inputs = numbers.map(|number| format!(r#"{{"n": {number}, "l": [{number}]}}"#)).join(",");
    lab.file("inputs.json", &format!("[{inputs}]"));
    let submit = ["action", "submit", "p", "--id", "a", "--inputs", "inputs.json", "--wait"];
    lab.agx(&agq, &submit).expect(0);
    let results = lab.agx(&agq, &["action", "results", "a", "--ordered"]).expect(0);
    let printed = numbers.map(|number| format!("{number} [{number}]\n")).join("");
    assert_eq!(results.out, printed);
    let jobs = lab.agx(&agq, &["job", "list", "a"]).expect(0);
    let first = jobs.out.lines().find_map(|line| line.split_whitespace().find(|word| word.len() == 36));
    let shown = lab.agx(&agq, &["--json", "job", "status", first.unwrap()]).expect(0);
    assert!(shown.out.contains(r#""inputs":{"n":123456789012345678901234567890,"#), "{}", shown.out);
}

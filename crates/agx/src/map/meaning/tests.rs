//! Tests of the meaning of braces.

use agenix_shell::{Meaning, Placeholders, Programs, compile};

use super::{BraceMeaning, BraceParser, Braces, in_plan};

const ONE: BraceParser<'static> =
    BraceParser { sources: 1, names: &[], is_grouped: false, is_renamed: false, may_be_code: false };
const TWO: BraceParser<'static> = BraceParser { sources: 2, ..ONE };
const CODE: BraceParser<'static> = BraceParser { may_be_code: true, ..ONE };

/// Returns the last argument of the command, or the refusal with its advice.
fn last(text: &str, meaning: &dyn Fn(&Braces<'_>) -> Meaning) -> Result<String, String> {
    compile(text, Placeholders { only: None, meaning }, Programs::Named)
        .map(|mut tasks| tasks.remove(0).args.pop().unwrap_or_default())
        .map_err(|refusal| format!("{refusal}\n{}", refusal.instead()))
}

fn of(text: &str, reader: BraceParser<'_>) -> Result<String, String> {
    last(text, &|braces| reader.read(braces).into())
}

#[test]
fn braces_of_other_languages_stay_text() {
    for (text, expected) in [
        ("grep -cE '^[0-9]{4}$'", "^[0-9]{4}$"),
        ("grep -E 'x{2}(a|b){3}.{4}'", "x{2}(a|b){3}.{4}"),
        ("grep 'a\\{1\\}x'", "a\\{1\\}x"),
        ("awk '/^[0-9]{4}/{print $1}'", "/^[0-9]{4}/{print $1}"),
        ("awk '/x/{}'", "/x/{}"),
        ("awk '/x/{} /y/ {print} END {}'", "/x/{} /y/ {print} END {}"),
        ("awk 'f(){};(NR>1){}'", "f(){};(NR>1){}"),
        ("sh -c 'echo ${#}'", "echo ${#}"),
        ("jq '{a: 1, b}'", "{a: 1, b}"),
        ("docker inspect -f '{{.Name}}'", r#"{{"{{"}}.Name}}"#),
        ("printf '100%s $x'", "100%s $x"),
        ("a '{- 1}{-x}{-#}{=}{=a}{a=}'", "{- 1}{-x}{-#}{=}{=a}{a=}"),
    ] {
        assert_eq!(of(text, ONE).as_deref(), Ok(expected), "{text}");
    }
}

#[test]
fn braces_with_the_syntax_of_placeholders_are_placeholders() {
    for (text, reader, expected) in [
        ("a {1}", ONE, "{{input.arg1}}"),
        ("a out/{1}_{}", ONE, "out/{{input.arg1}}_{{input.line}}"),
        ("a file{1}-x{2}", TWO, "file{{input.arg1}}-x{{input.arg2}}"),
        ("awk '/{}/'", CODE, "/{{input.line}}/"),
        ("awk '/dir/{}/'", CODE, "/dir/{{input.line}}/"),
        ("awk 'NR == {}'", CODE, "NR == {{input.line}}"),
        ("env awk 'NR == {#}'", ONE, "NR == {{input.seq}}"),
        ("awk -f p dir/{}", ONE, "dir/{{input.line}}"),
        ("awk {}", ONE, "{{input.line}}"),
        ("sh -c 'touch {#}'", ONE, "touch {{input.seq}}"),
        ("sh -c 'touch $${#}'", ONE, "touch $${{input.seq}}"),
        ("find dir -newer {}", ONE, "{{input.line}}"),
        ("find dir -exec cp {1}", ONE, "{{input.arg1}}"),
        ("find dir -exec ls \\; -name {.}", ONE, "{{input.line_noext}}"),
        ("xargs -I@ cp @ {}", ONE, "{{input.line}}"),
        ("xargs -n {}", ONE, "{{input.line}}"),
        ("sh -c {}", ONE, "{{input.line}}"),
        ("sh -c 'wc \"$1\"' sh {}", ONE, "{{input.line}}"),
        ("sh -c 'wc {}'", CODE, "wc {{input.line}}"),
        ("perl -e {}", ONE, "{{input.line}}"),
        ("ssh {} uptime", ONE, "uptime"),
        ("ssh host {}", ONE, "{{input.line}}"),
        ("ssh host wc {}", CODE, "{{input.line}}"),
        ("sed 's/{}/x/'", ONE, "s/{{input.line}}/x/"),
        ("perl x.pl -e{}", ONE, "-e{{input.line}}"),
        ("gawk -f lib.awk -vx={}", ONE, "-vx={{input.line}}"),
    ] {
        assert_eq!(of(text, reader).as_deref(), Ok(expected), "{text}");
    }
}

#[test]
fn ambiguous_braces_are_refused_with_both_alternatives() {
    for (text, reader, reason, instead) in [
        ("grep -E 'a{1}x' {}", ONE, "a repetition", "write {} for the input, or \\{1} for"),
        ("grep -E '[ab]{1}'", ONE, "a repetition", "\\{1}"),
        ("diff {1} {2}", ONE, "stands for source 2, and 1 source is given", "another :::"),
        ("a {3.}", TWO, "and 2 sources are given", "\\{3.}"),
        ("go list -f '{{.}}'", ONE, "or the placeholder {.} in braces", "\\{{.}}"),
        ("a '{{}}'", ONE, "or the placeholder {}", "-I TEXT"),
        ("a {-1}", TWO, "{-1} counts from the last source in GNU Parallel", "\\{-1}"),
        ("a {-2/.}", TWO, "{-2/.} counts from the last source", "as {2}"),
        ("a '{= s/x/y/ =}'", ONE, "{= s/x/y/ =} is an expression of perl in GNU Parallel", "sed"),
        ("a {input.x}", ONE, "have none", "\\{input.x}"),
        ("a '{{ input.x }}'", ONE, "have none", "\\{{ input.x }}"),
        ("awk 'NR==1{}'", ONE, "an empty action", "\\{}"),
        ("sh -c 'echo {}'", ONE, "a part of a shell script", "sh -c '… \"$1\" …' sh {}"),
        ("bash -o pipefail -c 'cat {.} | wc'", ONE, "{.} would become", "--inputs-may-be-code"),
        ("env dash -ec '{1} {2}'", TWO, "a shell script", "sh {}"),
        ("find {} -exec sh -c 'wc {}' \\;", ONE, "a shell script", "sh {}"),
        ("awk 'NR == {}'", ONE, "a program of awk", "awk -v x={} '… x …'"),
        ("timeout 5 awk '$0 ~ \"/{}\"'", ONE, "a program of awk", "--inputs-may-be-code"),
        ("perl -ne 'print if /{}/'", ONE, "a program of perl", "perl -e '… $ARGV[0] …' -- {}"),
        ("env python3 -c 'print(\"{}\")'", ONE, "a program of python", "sys.argv[1]"),
        ("ruby -e 'puts {}'", ONE, "a program of ruby", "ARGV[0]"),
        ("node -e 'f({})'", ONE, "a program of node", "process.argv[1]"),
        ("php -r 'f({});'", ONE, "a program of php", "$argv[1]"),
        ("gawk -e 'BEGIN {print \"{}\"}'", ONE, "a program of awk", "awk -v x={}"),
        ("gawk -f lib.awk --source='BEGIN {print \"{}\"}'", ONE, "a program of awk", "awk -v x={}"),
        ("perl -ne'print if /{}/'", ONE, "a program of perl", "$ARGV[0]"),
        ("python3 -c'print(\"{}\")'", ONE, "a program of python", "sys.argv[1]"),
        ("node --eval='f(\"{}\")'", ONE, "a program of node", "process.argv[1]"),
        ("fish --command 'echo {}'", ONE, "a shell script", "sh {}"),
        ("script -qc'echo {}'", ONE, "a shell script", "sh {}"),
        (
            "find {} -exec rm -rf {} \\;",
            ONE,
            "or for text that find fills in",
            "write {1} for the input, or \\{} for",
        ),
        ("find dir -exec sh -c 'rm {}'", CODE, "that find fills in", "\\{}"),
        ("xargs -I{} cp {1} out", ONE, "that xargs fills in", "\\{} for what xargs"),
        ("xargs -i cp {} out", ONE, "that xargs fills in", "{1} for the input"),
        ("parallel gzip {.}", ONE, "{.} may stand for the input", "write {1.} for the input, or \\{.} for"),
        ("ssh host 'wc {}'", ONE, "a shell of the host", "| ssh HOST"),
        ("ssh host wc {}", ONE, "a shell of the host", "| ssh HOST"),
    ] {
        let refusal = of(text, reader).expect_err(text);
        assert!(refusal.contains(reason) && refusal.contains(instead), "{text}: {refusal}");
    }
}

#[test]
fn alternatives_of_refusals_are_accepted() {
    for (text, expected) in [
        ("grep -E 'a\\{1}x'", "a{1}x"),
        ("diff '\\{2}'", "{2}"),
        ("go list -f '\\{{.}}'", r#"{{"{{"}}.}}"#),
        ("a '\\{input.x}'", "{input.x}"),
        ("git checkout '@\\{-1}'", "@{-1}"),
        ("awk 'NR==1\\{}'", "NR==1{}"),
        ("sh -c 'echo \\{}'", "echo {}"),
        ("sh -c 'echo $\\{#}'", "echo ${#}"),
        ("find {1} -exec rm -rf \\{}", "{}"),
        ("xargs -I\\{} cp \\{} {1}", "{{input.arg1}}"),
        ("xargs -I\\{}", "-I{}"),
        ("parallel mv \\{} {1.}", "{{input.arg1_noext}}"),
        ("awk -v x={} 'NR == x'", "NR == x"),
        ("perl -e 'print $ARGV[0]' -- {}", "{{input.line}}"),
        ("python3 -c 'import sys; print(sys.argv[1])' {}", "{{input.line}}"),
        ("ruby -e 'puts ARGV[0]' -- {}", "{{input.line}}"),
        ("node -e 'f(process.argv[1])' -- {}", "{{input.line}}"),
        ("php -r 'f($argv[1]);' -- {}", "{{input.line}}"),
    ] {
        assert_eq!(of(text, ONE).as_deref(), Ok(expected), "{text}");
    }
}

#[test]
fn renamed_placeholders_make_braces_text_and_scripts_are_still_checked() {
    let reader = BraceParser { is_renamed: true, ..ONE };
    let meaning = |braces: &Braces<'_>| reader.read(braces).into();
    let of = |text| compile(text, Placeholders { only: Some("@"), meaning: &meaning }, Programs::Named);
    assert_eq!(
        of("grep -E 'a{1}{}{{.}}' @").unwrap()[0].args,
        ["-E", r#"a{1}{}{{"{{"}}.}}"#, "{{input.line}}"]
    );
    assert_eq!(of("grep '/x/@'").unwrap()[0].args, ["/x/{{input.line}}"]);
    assert!(of("sh -c 'echo @'").unwrap_err().to_string().contains("a shell script"));
}

#[test]
fn numbered_braces_in_regular_expressions_are_doubtful() {
    let is_doubtful = |text: &str| {
        let found = std::cell::Cell::new(false);
        let meaning = |braces: &Braces<'_>| {
            let braced = TWO.read(braces);
            found.set(found.get() || matches!(braced, BraceMeaning::Doubtful(_)));
            braced.into()
        };
        last(text, &meaning).unwrap();
        found.get()
    };
    assert!(is_doubtful("grep -E 'a{1}x' {2}"));
    assert!(!is_doubtful("touch a{1}x {2}") && !is_doubtful("grep -e {1} {2}"));
}

#[test]
fn names_of_columns_are_placeholders() {
    let names = ["file", "n", "n"].map(String::from);
    let reader = BraceParser { sources: 3, names: &names, ..ONE };
    assert_eq!(of("a {file}.x", reader).unwrap(), "{{input.arg1}}.x");
    assert_eq!(of("a {file/.}-{3}", reader).unwrap(), "{{input.arg1_stem}}-{{input.arg3}}");
    assert_eq!(of("awk '{print}' {file}", reader).unwrap(), "{{input.arg1}}");
    for (text, reason, instead) in [
        ("a {n}", "{n} names several columns", "write the number"),
        ("a {4}", "{4} stands for column 4, and 3 columns are given", "name a column of the header"),
        ("sh -c 'wc {file}'", "{file} would become a part of a shell script", "sh -c"),
        ("a '{{file}}'", "or the placeholder {file} in braces", "\\{{file}}"),
    ] {
        let refusal = of(text, reader).unwrap_err();
        assert!(refusal.contains(reason) && refusal.contains(instead), "{text}: {refusal}");
    }
}

#[test]
fn placeholders_of_several_inputs_are_lists() {
    let grouped = BraceParser { sources: 2, is_grouped: true, ..ONE };
    for (text, expected) in [
        ("a {}", "{{input.lines[]}}"),
        ("a {/.}", "{{input.lines_stem[]}}"),
        ("a {#}", "{{input.seq}}"),
        ("a {2.}", "{{input.arg2_noext}}"),
    ] {
        assert_eq!(of(text, grouped).as_deref(), Ok(expected), "{text}");
    }
    let refusal = of("a {3}", grouped).unwrap_err();
    assert!(
        refusal.contains("input 3, and 2 inputs are given") && refusal.contains("a higher -N"),
        "{refusal}"
    );
}

#[test]
fn plan_braces_name_fields_or_the_line() {
    let of = |text: &str| last(text, &|braces| in_plan(braces, false));
    for (text, expected) in [
        ("a {}", "{{input.line}}"),
        ("a {input.file}.x", "{{input.file}}.x"),
        ("a '{{ input.file }}'", "{{input.file}}"),
        ("a '{{{input.file}}}'", r#"{{"{"}}{{input.file}}}"#),
        ("a '\\{{input.file}}'", r#"{{"{{"}}input.file}}"#),
        ("grep -E '[0-9]{4}'", "[0-9]{4}"),
        ("a '{{.}}'", r#"{{"{{"}}.}}"#),
        ("a '\\{.}\\{}'", "{.}{}"),
        ("sh -c 'echo ${#}'", "echo ${#}"),
        ("find {} -exec rm \\{}", "{}"),
        ("find dir -exec cp {input.file}", "{{input.file}}"),
        ("awk '/x/{}'", "/x/{}"),
    ] {
        assert_eq!(of(text).as_deref(), Ok(expected), "{text}");
    }
    for (text, reason) in [
        ("a {.}", "{.} is made by `agx map` alone"),
        ("a {2}", "{2} is made by"),
        ("a '{{}}'", "{} in braces"),
        ("sh -c 'echo {input.x}'", "a shell script"),
        ("find {} -exec rm {} \\;", "for text that find fills in"),
    ] {
        assert!(of(text).unwrap_err().contains(reason), "{text}");
    }
}

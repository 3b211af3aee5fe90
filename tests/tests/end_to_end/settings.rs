//! Compares the tables of settings in docs/operations.md and docs/postgresql.md with `--help` of
//! agq and agw: the flags and their defaults.

use std::collections::BTreeMap;

use e2e::{Lab, Ran};

/// Flags of a program with their defaults, if these are fixed values.
type Defaults = BTreeMap<String, Option<String>>;

/// Returns the flags in `--help`.
fn of_help(program: &str) -> Defaults {
    let help = Ran::from(Lab::on_files().command(program).arg("--help").output().unwrap()).expect(0).out;
    let mut flags: Vec<(String, String)> = Vec::new();
    for line in help.lines() {
        // The description of a flag has a deeper indentation.
        match (line.strip_prefix("      --"), flags.last_mut()) {
            (Some(flag), _) => flags.push((until(flag, &[' ', '[']).to_owned(), String::new())),
            (None, Some((_, text))) => *text += &format!(" {}", line.trim_start()),
            (None, None) => {}
        }
    }
    let default = |text: &str| {
        let (_, behind) = text.split_once("[default: ")?;
        Some(plain(behind.split_once(']')?.0))
    };
    // The flag `--config` is described above the table.
    let flags = flags.into_iter().filter(|(flag, _)| flag != "config");
    flags.map(|(flag, text)| (flag, default(&text))).collect()
}

/// Returns the flags in the tables of a page below these headings.
fn of_page(page: &str, headings: &[&str]) -> Defaults {
    let mut defaults = Defaults::new();
    let mut is_there = false;
    for line in page.lines() {
        if line.starts_with('#') {
            is_there = headings.contains(&line.trim_start_matches('#').trim());
        }
        let cells: Vec<&str> = line.split(" | ").collect();
        if !is_there || !line.starts_with("| `--") {
            continue;
        }
        // The default is the last but one cell, after the cell of the variable, if there is one.
        let default = plain(cells[cells.len() - 2]);
        for flag in cells[0].split('`').filter_map(|part| part.strip_prefix("--")) {
            let has_default = !matches!(default.as_str(), "–" | "off");
            defaults.insert(until(flag, &[' ']).to_owned(), has_default.then(|| default.clone()));
        }
    }
    defaults
}

fn until<'t>(text: &'t str, ends: &[char]) -> &'t str {
    text.split(ends).next().unwrap_or(text)
}

/// Returns a default without its explanation, and a number without commas: `604,800 (a week)`
/// becomes `604800`.
fn plain(default: &str) -> String {
    let default = default.replace('`', "");
    let digits = default.replace(',', "");
    let number = until(&digits, &[' ']);
    if number.parse::<f64>().is_ok() {
        return number.to_owned();
    }
    until(&default, &[',', ';', '(']).trim().to_owned()
}

fn is_documented(program: &str, headings: &[&str]) {
    let page = |name: &str| std::fs::read_to_string(Lab::repository(name)).unwrap();
    let pages = page("docs/operations.md") + &page("docs/postgresql.md");
    let (helped, documented) = (of_help(program), of_page(&pages, headings));
    assert!(helped.len() > 10, "{helped:?}");
    assert!(helped.keys().eq(documented.keys()), "{helped:#?}\n{documented:#?}");
    for (flag, default) in helped {
        // The page may describe a default that the help does not have, such as `all`.
        if default.is_some() {
            assert_eq!(documented[&flag], default, "--{flag} of {program}");
        }
    }
}

#[test]
fn those_of_agq_are_as_documented() {
    is_documented("agq", &["Settings of agq", "Settings"]);
}

#[test]
fn those_of_agw_are_as_documented() {
    is_documented("agw", &["Settings of agw"]);
}

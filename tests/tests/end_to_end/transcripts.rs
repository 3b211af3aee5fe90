//! Plays each transcript of the pages in docs/protocol against a new agq.
//!
//! `> …` sends a line, and `< …` is a line of the reply. `2> …` and `2< …` use a second connection.
//! In a reply, `…` matches any text, and `{name}` captures text that later lines can use.

use std::collections::{BTreeMap, HashMap};

use e2e::{Agq, Lab};

use crate::support::RawConnection;

struct Transcript {
    page: String,
    line: usize,
    is_bare: bool,
    lines: Vec<String>,
}

/// The pages of docs/protocol in the order of their names: path, text.
fn pages() -> Vec<(String, String)> {
    let mut pages: Vec<(String, String)> = std::fs::read_dir(Lab::repository("docs/protocol"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .map(|name| format!("docs/protocol/{name}"))
        .map(|path| (path.clone(), std::fs::read_to_string(Lab::repository(&path)).unwrap()))
        .collect();
    pages.sort_unstable();
    pages
}

fn transcripts(page: &str, text: &str) -> Vec<Transcript> {
    let mut found = Vec::new();
    let mut open: Option<Transcript> = None;
    for (number, line) in (1..).zip(text.lines()) {
        match (&mut open, line) {
            (None, "```transcript" | "```transcript bare") => {
                open = Some(Transcript {
                    page: page.to_owned(),
                    line: number,
                    is_bare: line.ends_with("bare"),
                    lines: Vec::new(),
                });
            }
            (Some(_), "```") => found.extend(open.take()),
            (Some(transcript), line) => transcript.lines.push(line.to_owned()),
            (None, _) => {}
        }
    }
    found
}

#[test]
fn every_transcript_of_the_protocol_pages_is_true() {
    let transcripts: Vec<Transcript> =
        pages().iter().flat_map(|(page, text)| transcripts(page, text)).collect();
    assert!(transcripts.len() >= 80, "the pages have only {} transcripts", transcripts.len());
    // Backups copy files, and PostgreSQL has backups of its own.
    let is_on_files = !Lab::is_on_postgres();
    let is_of_backups =
        |transcript: &&Transcript| transcript.lines.iter().any(|line| line.contains("BACKUP"));
    let played = transcripts.iter().filter(|transcript| is_on_files || !is_of_backups(transcript));
    let failures: Vec<String> = played.filter_map(|transcript| play(transcript).err()).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

fn play(transcript: &Transcript) -> Result<(), String> {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let mut connections: BTreeMap<char, RawConnection> = BTreeMap::new();
    let mut names = HashMap::from([("key".to_owned(), lab.key().to_owned())]);
    for (at, line) in (transcript.line + 1..).zip(&transcript.lines) {
        let numbered = line.starts_with(|c: char| c.is_ascii_digit());
        let (number, rest) =
            if numbered { (line.chars().next().unwrap_or('1'), &line[1..]) } else { ('1', line.as_str()) };
        let raw = connections.entry(number).or_insert_with(|| connect(transcript, &lab, &agq));
        if let Some(command) = rest.strip_prefix("> ") {
            raw.send(&format!("{}\n", filled(command, &names)));
        } else if let Some(expected) = rest.strip_prefix("< ") {
            let got = raw.line();
            if !matches(&filled(expected, &names), &got, &mut names) {
                return Err(format!("{}:{at}:\n  expected {expected}\n  got      {got}", transcript.page));
            }
        } else if !line.trim().is_empty() {
            return Err(format!("{}:{at}: neither '> ' nor '< ': {line}", transcript.page));
        }
    }
    Ok(())
}

fn connect(transcript: &Transcript, lab: &Lab, agq: &Agq) -> RawConnection {
    if transcript.is_bare { RawConnection::bare(agq) } else { RawConnection::open(lab, agq) }
}

fn filled(text: &str, names: &HashMap<String, String>) -> String {
    names.iter().fold(text.to_owned(), |text, (name, value)| text.replace(&format!("{{{name}}}"), value))
}

/// Returns true if `got` matches `expected`, and stores the captured names.
fn matches(expected: &str, got: &str, names: &mut HashMap<String, String>) -> bool {
    let Some(start) = expected.find(['…', '{']) else { return expected == got };
    if !got.starts_with(&expected[..start]) {
        return false;
    }
    let (rest, got) = (&expected[start..], &got[start..]);
    if let Some(after) = rest.strip_prefix('…') {
        let ends = got.char_indices().map(|(at, _)| at).chain([got.len()]);
        return ends
            .into_iter()
            .any(|at| matches(after, &got[at..], &mut names.clone()) && matches(after, &got[at..], names));
    }
    let name = rest[1..]
        .split('}')
        .next()
        .filter(|name| !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase()));
    let Some(name) = name.filter(|name| rest[1 + name.len()..].starts_with('}')) else {
        return got.starts_with('{') && matches(&rest[1..], &got[1..], names);
    };
    let is_id = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let end = got.find(|c| !is_id(c)).unwrap_or(got.len());
    names.insert(name.to_owned(), got[..end].to_owned());
    matches(&rest[name.len() + 2..], &got[end..], names)
}

#[test]
fn patterns_match_what_they_say() {
    let mut names = HashMap::new();
    assert!(matches(r#"{"job_id":"{job}",…,"n":1}"#, r#"{"job_id":"j-1","x":{},"n":1}"#, &mut names));
    assert_eq!(names["job"], "j-1");
    assert!(!matches("+OK", "+OK ", &mut names));
    assert!(!matches("$…x", "$y", &mut names));
}

/// Returns the text of an error without its code `ERR` and without punctuation, in lower case.
fn sort_key(row: &str) -> Option<String> {
    let text = row.strip_prefix("| `")?.split('`').next()?;
    let text = text.strip_prefix("ERR ").unwrap_or(text).to_lowercase();
    Some(text.chars().filter(|c| c.is_alphanumeric() || *c == ' ').collect())
}

#[test]
fn error_texts_are_sorted_alphabetically() {
    let page = std::fs::read_to_string(Lab::repository("docs/protocol/README.md")).unwrap();
    let rows = page.lines().skip_while(|line| !line.starts_with("| Error | Given by")).skip(2);
    let texts: Vec<String> = rows.map_while(sort_key).collect();
    assert!(texts.len() >= 100, "the table has only {} rows", texts.len());
    let misplaced = texts.windows(2).find(|pair| pair[0] > pair[1]);
    assert_eq!(misplaced, None);
}

#[test]
fn pages_name_every_command_as_the_table_does() {
    let pages: String = pages().into_iter().map(|(_, text)| text).collect();
    let pages = pages.split_whitespace().collect::<Vec<_>>().join(" ").replace("\\|", "|");
    let mut missing = Vec::new();
    for command in agenix_protocol::request::Command::all() {
        let syntax = format!("{} {}", command.name, command.syntax);
        if !pages.contains(&format!("`{}`", syntax.trim_end())) {
            missing.push(syntax);
        }
    }
    assert!(missing.is_empty(), "docs/protocol does not show {missing:#?}");
}

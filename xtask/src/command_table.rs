//! Generates the table of commands in docs/protocol/README.md from the table of commands in
//! `agenix-protocol`.
//!
//! A command's link leads to the section that shows the syntax of the command, such as
//! `` `PLAN.GET <plan_id>` ``; of several sections, to the one that has the command in its heading.

use std::fs;

use agenix_protocol::request::{AgentAccess, Command, CommandAccess, CommandKind};
use anyhow::Context;

use agenix_harness::{generated::spliced, report::root};

const INDEX: &str = "docs/protocol/README.md";
/// Pages that describe commands, in the order of the table: name of the file, title.
const PAGES: [(&str, &str); 11] = [
    ("connections", "Connections"),
    ("plans", "Plans"),
    ("actions", "Actions"),
    ("jobs", "Jobs"),
    ("outputs", "Outputs"),
    ("queues", "Queues"),
    ("workers", "Workers"),
    ("schedules-and-workflows", "Schedules and workflows"),
    ("keys", "Keys"),
    ("events", "Events"),
    ("admin", "Administration"),
];

/// Writes the current table into the index.
pub(crate) fn run() -> anyhow::Result<()> {
    let path = root().join(INDEX);
    let index = fs::read_to_string(&path).with_context(|| format!("cannot read {INDEX}"))?;
    fs::write(&path, current(&index)?).with_context(|| format!("cannot write {INDEX}"))?;
    println!("the table of commands in {INDEX} is written");
    Ok(())
}

/// Returns the index with the current table between its marks.
fn current(index: &str) -> anyhow::Result<String> {
    let mut sections = Vec::new();
    for (page, _) in PAGES {
        let path = format!("docs/protocol/{page}.md");
        let text = fs::read_to_string(root().join(&path)).with_context(|| format!("cannot read {path}"))?;
        sections.extend(sections_of(page, &text));
    }
    let commands: Vec<&Command> = Command::all().collect();
    spliced(index, "commands", &table(&commands, &sections)?)
}

/// Part of a page below a heading.
struct PageSection {
    page: &'static str,
    heading: String,
    /// Text in one line, without the escapes of table cells.
    text: String,
}

fn sections_of(page: &'static str, text: &str) -> Vec<PageSection> {
    let text = format!("\n{text}");
    let parts = text.split("\n## ").skip(1).filter_map(|part| part.split_once('\n'));
    let section = |(heading, body): (&str, &str)| PageSection {
        page,
        heading: heading.to_owned(),
        text: body.split_whitespace().collect::<Vec<_>>().join(" ").replace("\\|", "|"),
    };
    parts.map(section).collect()
}

impl PageSection {
    /// Returns true if the heading names `command`.
    fn is_about(&self, command: &Command) -> bool {
        self.heading.split([' ', ',']).any(|word| word == command.name)
    }
}

/// Returns the anchor that GitHub and mdBook give to a heading.
fn anchor(heading: &str) -> String {
    let heading = heading.to_lowercase().replace(' ', "-");
    heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_')).collect()
}

/// Returns the rows of all commands, grouped by page. Fails if no section has the syntax of a
/// command.
fn table(commands: &[&Command], sections: &[PageSection]) -> anyhow::Result<String> {
    let mut placed = Vec::new();
    for command in commands {
        let call = format!("`{}`", format!("{} {}", command.name, command.syntax).trim_end());
        let showing = || sections.iter().filter(|section| section.text.contains(&call));
        let section = showing().find(|section| section.is_about(command)).or_else(|| showing().next());
        let section = section.with_context(|| format!("no page of docs/protocol shows {call}"))?;
        placed.push((section, *command));
    }
    let mut text = String::from(
        "| Command | Arguments | Role | Agents | Order | Summary |\n|---|---|---|---|---|---|\n",
    );
    for (page, title) in PAGES {
        text += &format!("| **[{title}]({page}.md)** | | | | | |\n");
        for (section, command) in placed.iter().filter(|(section, _)| section.page == page) {
            text += &row(section, command);
        }
    }
    Ok(text)
}

fn row(section: &PageSection, command: &Command) -> String {
    let link = format!("[`{}`]({}.md#{})", command.name, section.page, anchor(&section.heading));
    let arguments = match command.syntax.replace('|', "\\|") {
        none if none.is_empty() => none,
        some => format!("`{some}` "),
    };
    let role = match command.access {
        CommandAccess::Everyone => "all",
        CommandAccess::Client => "client",
        CommandAccess::Worker => "worker",
        CommandAccess::Admin => "admin",
    };
    let agents = match command.agent {
        AgentAccess::Refused => "–",
        AgentAccess::Permitted => "yes",
        AgentAccess::Own => "own",
    };
    let order = match command.kind {
        CommandKind::Read => "read",
        // The exception of `Request::flow`.
        CommandKind::Write if command.name == "LMOVE" => "alone",
        CommandKind::Write => "write",
        CommandKind::Session | CommandKind::Steps | CommandKind::Blocking => "alone",
    };
    format!("| {link} | {arguments}| {role} | {agents} | {order} | {} |\n", command.summary)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_table_of_the_index_is_current() {
        let index = fs::read_to_string(root().join(INDEX)).unwrap();
        assert!(
            index == current(&index).unwrap(),
            "The table of commands in {INDEX} is stale: run `cargo xtask command-table`."
        );
    }

    #[test]
    fn command_links_to_the_section_with_its_syntax() {
        let page = "# Plans\n\n## PLAN.GET\n\n`PING [message]`\n\n## ECHO, PING\n\n`PING\n[message]`\n";
        let commands = [Command::find("PING").unwrap()];
        let table = table(&commands, &sections_of("plans", page)).unwrap();
        assert!(
            table.contains("| [`PING`](plans.md#echo-ping) | `[message]` | all | yes | write | "),
            "{table}"
        );
    }

    #[test]
    fn command_without_a_section_is_an_error() {
        let error = table(&[Command::find("PING").unwrap()], &[]).unwrap_err();
        assert_eq!(error.to_string(), "no page of docs/protocol shows `PING [message]`");
    }
}

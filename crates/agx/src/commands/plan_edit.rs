//! `agx plan edit`: a new plan from a stored one, by an editor.

use std::{
    io::{self, Write},
    path::Path,
    process::{Command, ExitStatus},
};

use agenix_client::Connection;
use agenix_protocol::{
    documents::{Plan, parse},
    ids::PlanId,
};
use tempfile::NamedTempFile;

use super::plan_write::{checked, hidden_env, pretty, show_stored, store};
use crate::{
    connection_args::ConnectionArgs,
    error::{CliError, Result},
    output::OutputFormat,
    util::{signals::outlive_interrupts, text::without_mark},
};

/// Stores the edited plan under a new id, because plans are immutable. An edited plan that is not
/// stored stays in its file.
pub(super) async fn edit(
    server: &ConnectionArgs,
    plan_id: &PlanId,
    new_id: Option<PlanId>,
    output: OutputFormat,
) -> Result<()> {
    let help = "see the plans with `agx plan list`";
    let mut connection = server.connect().await?;
    let stored = connection.plan(plan_id).await?;
    let mut plan = stored.ok_or_else(|| CliError::not_found("plan", plan_id, help))?;
    if let Some(names) = hidden_env(&plan) {
        return Err(CliError::usage(
            format!("agq hides values of the plan from your key, and shows *** for {names}"),
            "use the key that stored the plan, or write a new plan",
        ));
    }
    plan.plan_id = Some(match new_id {
        Some(id) => id,
        None => free_id(&mut connection, plan_id).await?,
    });
    // agq may restart while the user edits.
    drop(connection);
    let file = edited(&pretty(&plan))?;
    let stored = match plan_in(file.path()) {
        Ok(plan) => store(server, &plan).await,
        Err(failure) => Err(failure),
    };
    match stored {
        Ok(plan_id) => show_stored(plan_id, output),
        Err(failure) => Err(keeping(file, failure)),
    }
}

/// Returns the next id that no plan has.
async fn free_id(connection: &mut Connection, plan_id: &PlanId) -> Result<PlanId> {
    let mut id = next_id(plan_id)?;
    while connection.plan(&id).await?.is_some() {
        id = next_id(&id)?;
    }
    Ok(id)
}

/// Returns the next id: `sort` becomes `sort-2`, `sort-2` becomes `sort-3`.
fn next_id(plan_id: &PlanId) -> Result<PlanId> {
    let text = plan_id.as_str();
    let next = |number: &str| number.parse::<u32>().ok()?.checked_add(1);
    let numbered = text.rsplit_once('-').and_then(|(stem, number)| Some((stem, next(number)?)));
    let (stem, number) = numbered.unwrap_or((text, 2));
    PlanId::new(format!("{stem}-{number}"))
        .map_err(|error| CliError::usage(error.to_string(), "choose one with --id"))
}

/// Opens a file with `json` in the editor of the user. Returns the file when the editor has ended.
fn edited(json: &str) -> Result<NamedTempFile> {
    let file = tempfile::Builder::new().prefix("plan-").suffix(".json").tempfile();
    let mut file = file.map_err(|error| cannot_edit(&error))?;
    let text = format!("{json}\n");
    file.write_all(text.as_bytes()).map_err(|error| cannot_edit(&error))?;
    let editor = editor(|name| std::env::var(name).ok());
    let mut words = editor.split_whitespace();
    let program = words.next().unwrap_or("vi");
    // The keys of the terminal send signals to all of its programs, and are for the editor.
    outlive_interrupts();
    let ended = Command::new(program).args(words).arg(file.path()).status();
    if ended.as_ref().is_ok_and(ExitStatus::success) {
        return Ok(file);
    }
    let outcome = ended.map_or_else(|error| error.to_string(), |status| status.to_string());
    let failure = CliError::usage(
        format!("{program}: {outcome}"),
        "set EDITOR to an editor that is installed; nothing was stored",
    );
    let is_changed = std::fs::read(file.path()).is_ok_and(|left| left != text.as_bytes());
    Err(if is_changed { keeping(file, failure) } else { failure })
}

/// Reads the plan that an editor has left in `file`.
fn plan_in(file: &Path) -> Result<Plan> {
    let wrong = |problem: String| CliError::usage(problem, "fix it");
    let json = std::fs::read(file).map_err(|error| cannot_edit(&error))?;
    let text =
        without_mark(&json).map_err(|encoding| wrong(format!("it is {encoding}, and plans are UTF-8")))?;
    checked(parse(text).map_err(|error| wrong(error.to_string()))?)
}

/// Keeps the file of an edited plan that is not stored. Returns `failure` with its path.
fn keeping(file: NamedTempFile, failure: CliError) -> CliError {
    match file.into_temp_path().keep() {
        Ok(path) => failure.after(
            format!("the edited plan is in {}", path.display()),
            "afterwards `agx plan submit FILE` stores it",
        ),
        Err(error) => cannot_edit(&error.error),
    }
}

fn cannot_edit(error: &io::Error) -> CliError {
    CliError::usage(format!("cannot write the plan to edit it: {error}"), "is the disk full?")
}

/// Returns the command of the editor that a variable names. An empty variable counts as not set.
fn editor(variable: impl Fn(&str) -> Option<String>) -> String {
    let named = |name| variable(name).filter(|command| !command.trim().is_empty());
    ["VISUAL", "EDITOR"].into_iter().find_map(named).unwrap_or_else(|| "vi".into())
}

#[cfg(test)]
mod tests {
    use super::{CliError, PlanId, editor, keeping, next_id};

    #[test]
    fn plan_edit_ignores_an_empty_variable_of_the_editor() {
        let with = |visual: Option<&str>, other: Option<&str>| {
            editor(|name| {
                let value = if name == "VISUAL" { visual } else { other };
                value.map(str::to_owned)
            })
        };
        assert_eq!(with(Some("code --wait"), Some("nano")), "code --wait");
        assert_eq!([with(None, Some("nano")), with(Some(""), Some("nano"))], ["nano", "nano"]);
        assert_eq!([with(None, None), with(Some(" "), Some(""))], ["vi", "vi"]);
    }

    #[test]
    fn plan_edit_increments_the_id() {
        let next = |id: &str| next_id(&PlanId::new(id).unwrap()).unwrap().to_string();
        assert_eq!([next("sort"), next("sort-2"), next("a-b")], ["sort-2", "sort-3", "a-b-2"]);
        assert_eq!(next("a-4294967295"), "a-4294967295-2");
    }

    #[test]
    fn plan_edit_keeps_the_file_of_a_plan_that_is_not_stored() {
        let dir = tempfile::tempdir().unwrap();
        let file = tempfile::NamedTempFile::new_in(dir.path()).unwrap();
        let path = file.path().to_owned();
        let failure = keeping(file, CliError::NoServer { problem: "away".into(), help: "wait".into() });
        assert_eq!(failure.exit_code(), 3);
        assert_eq!(failure.to_string(), format!("away; the edited plan is in {}", path.display()));
        assert!(path.exists() && failure.help().unwrap().contains("`agx plan submit FILE`"));
    }
}

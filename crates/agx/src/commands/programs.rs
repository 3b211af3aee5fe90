//! Programs of `agx map` and `agx run`: whether the workers can run them.

use std::path::Path;

use agenix_client::{Connection, Server};
use agenix_protocol::{
    byte_escape::decode_os,
    documents::{PROGRAM_PATHS, Plan, Task},
};

use crate::{
    error::{CliError, Result},
    sandbox::ProfileArg,
    util::path_lookup,
};

/// Returns the tags that the workers need: the one for programs by path, if a task has a path.
pub(super) fn required_tags(tasks: &[Task]) -> Vec<String> {
    if tasks.iter().any(Task::is_program_path) { vec![PROGRAM_PATHS.to_owned()] } else { Vec::new() }
}

/// Refuses programs by path for tasks in a sandbox, which read the programs of the system.
pub(super) fn check_sandbox(tasks: &[Task], profile: &ProfileArg) -> Result<()> {
    let path = tasks.iter().find(|task| task.is_program_path()).filter(|_| profile.name().is_some());
    let Some(Task { command, .. }) = path else { return Ok(()) };
    let name = command.rsplit('/').next().unwrap_or(command);
    Err(CliError::usage(
        format!(
            "a program is named, not its path, as '{command}': tasks in the sandbox run the programs of the system"
        ),
        format!(
            "write {name}, and put it into a directory of the system such as /usr/local/bin; a script runs as an argument of its \
             interpreter, as sh {command}, if the tasks can read it"
        ),
    ))
}

/// Searches the programs in PATH, which the worker of this command inherits, and those with a path
/// in the file system, below `cwd` if they are relative.
pub(super) fn check_programs(plan: &Plan, cwd: Option<&str>) -> Result<()> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let here = path_lookup::on(&path);
    for task in &plan.tasks {
        if task.is_program_path() {
            check_path(&task.command, cwd)?;
        } else if !here.contains(&task.command) {
            let name = &task.command;
            let help = match path_lookup::nearest(name, here.iter().map(String::as_str)) {
                Some(nearest) => format!("did you mean {nearest}?"),
                None => "install it, or put its directory into PATH".into(),
            };
            return Err(CliError::usage(format!("there is no program '{name}' on PATH"), help));
        }
    }
    Ok(())
}

fn check_path(program: &str, cwd: Option<&str>) -> Result<()> {
    let file = Path::new(&decode_os(cwd.unwrap_or("."))).join(decode_os(program));
    if !file.exists() {
        let help = match cwd {
            Some(cwd) if Path::new(program).is_relative() => format!("the path is relative to {cwd}"),
            _ => "correct the path".into(),
        };
        return Err(CliError::usage(format!("there is no program '{program}'"), help));
    }
    if !path_lookup::is_program(&file) {
        return Err(CliError::usage(
            format!("'{program}' is not a file that can be executed"),
            format!("chmod +x {program}, if it is a program"),
        ));
    }
    Ok(())
}

/// Refuses a plan with a path if no worker of the server runs programs by path.
pub(super) async fn check_workers(server: &Server, plan: &Plan) -> Result<()> {
    let Some(task) = plan.tasks.iter().find(|task| task.is_program_path()) else { return Ok(()) };
    let workers = Connection::open_without_timeout(server).await?.workers().await?;
    let has_paths = |tag: Option<&serde_json::Value>| tag.and_then(serde_json::Value::as_bool) == Some(true);
    if workers.iter().any(|worker| worker.state != "dead" && has_paths(worker.tags.get(PROGRAM_PATHS))) {
        return Ok(());
    }
    let program = &task.command;
    let name = program.rsplit('/').next().unwrap_or(program);
    Err(CliError::usage(
        format!("no worker of this agq runs programs by path, as '{program}'"),
        format!(
            "put it on the PATH of the workers, and write {name}; the worker of `agx up`, and `agx map --local`, take paths"
        ),
    ))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use agenix_protocol::documents::Task;

    use super::{check_path, required_tags};

    #[test]
    fn map_looks_up_paths_below_the_directory_of_the_tasks() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a.sh");
        std::fs::write(&file, "").unwrap();
        let cwd = dir.path().to_str();
        let of = |program: &str| check_path(program, cwd).map_err(|failure| failure.to_string());
        assert_eq!(of("./a.sh").unwrap_err(), "'./a.sh' is not a file that can be executed");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(of("./a.sh"), Ok(()));
        assert_eq!(of(file.to_str().unwrap()), Ok(()));
        assert_eq!(of("./b.sh").unwrap_err(), "there is no program './b.sh'");
        assert_eq!(of("../").unwrap_err(), "'../' is not a file that can be executed");
    }

    #[test]
    fn map_requires_workers_for_paths_only_if_a_task_has_one() {
        let task = |command: &str| Task { command: command.into(), ..Task::default() };
        assert_eq!(required_tags(&[task("sort"), task("./x")]), ["program-paths"]);
        assert!(required_tags(&[task("sort")]).is_empty());
    }
}

//! Plan that a command makes for itself: its id, its directory, and the programs that it may name.

use agenix_client::Server;
use agenix_protocol::{
    byte_escape::{decode_os, encode_os},
    documents::{Plan, Task, to_json},
    ids::{PlanId, QueueName},
    template,
};
use agenix_shell::Programs;
use sha2::{Digest, Sha256};

use crate::{
    connection_args::ConnectionArgs,
    error::{CliError, Result},
    output::OutputFormat,
    util::duration::MAX_LIMIT_SECS,
};

/// Timeout of a task without a time limit. Every task of a plan needs a timeout, so "none" is a
/// hundred years.
pub(super) const NO_TIMEOUT_SECS: u64 = MAX_LIMIT_SECS;

/// Environment variable that agw sets for each task.
const TASK: &str = "AGW_RUN";

/// Returns the server for the jobs of a command, or `None` if agx starts its own: without a server,
/// with `--local`, and in a task if only the default profile of `agx up` names a server. In a task,
/// the jobs could wait forever for slots that tasks such as this one hold. If `names_workers` is
/// true, an option selects workers, which only a server has.
pub(super) fn server_for_jobs(
    server: &ConnectionArgs,
    is_local: bool,
    names_workers: bool,
    output: OutputFormat,
) -> Result<Option<Server>> {
    let given = if is_local { None } else { server.given()? };
    let is_in_task = || std::env::var_os(TASK).is_some_and(|value| !value.is_empty());
    if given.is_none() || names_workers || !is_in_task() || !server.is_default_of_up()? {
        return Ok(given);
    }
    output.note(
        "agx: this command is a task of a worker, which may hold the slot that its jobs would wait for: agx starts an agq and a \
         worker for it, as with --local; --profile local uses those of `agx up`",
    );
    Ok(None)
}

/// Returns true if the workers of the server seem to be on this machine.
fn is_here(server: &Server) -> bool {
    server.address().starts_with("unix:")
}

/// Returns the programs that commands may name: those with a path on this machine only.
pub(super) fn permitted_programs(given: &Result<Option<Server>>) -> Programs {
    match given {
        Ok(server) if server.as_ref().is_none_or(is_here) => Programs::ByPath,
        _ => Programs::Named,
    }
}

/// Returns the directory of the tasks: the current one, if the workers seem to be on this machine.
/// A worker of this command is in the current directory, but its tasks in a sandbox are not.
pub(super) fn cwd(
    given: Option<&String>,
    server: Option<&Server>,
    is_sandboxed: bool,
) -> Result<Option<String>> {
    let in_own_sandbox = server.is_none() && is_sandboxed;
    if !in_own_sandbox && (given.is_some() || !server.is_some_and(is_here)) {
        return Ok(given.cloned());
    }
    let here = std::env::current_dir().map_err(|error| {
        CliError::usage(format!("the current directory has no usable path: {error}"), "name one with --cwd")
    })?;
    let cwd = given.map_or_else(|| here.clone(), |given| here.join(decode_os(given)));
    Ok(Some(encode_os(cwd.as_os_str())))
}

/// Sets the directory of the tasks. Braces in its path are text, because the current directory may
/// have any name.
pub(super) fn set_cwd(tasks: &mut [Task], cwd: Option<&str>) {
    let cwd = cwd.map(template::literal);
    tasks.iter_mut().for_each(|task| task.cwd.clone_from(&cwd));
}

/// Returns the plan with an id that is a digest of its content, so equal commands share a plan.
pub(super) fn identified(mut plan: Plan, prefix: &str) -> Result<Plan> {
    let digest = Sha256::digest(to_json(&plan));
    let hash: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    let id = PlanId::new(format!("{prefix}-{hash}"));
    plan.plan_id = Some(id.map_err(|error| CliError::usage(error.to_string(), "this is a bug in agx"))?);
    Ok(plan)
}

/// Removes the queue that `option` names, because a worker that agx starts serves the default one
/// only, and warns the user.
pub(super) fn ignore_queue(queue: &mut Option<QueueName>, option: &str, output: OutputFormat) {
    if queue.take().is_some() {
        output.note(&format!("agx: {option} is for a cluster; the worker that agx starts serves one queue"));
    }
}

#[cfg(test)]
mod tests {
    use agenix_client::Server;
    use agenix_protocol::{documents::Task, template::fields};

    use super::{cwd, set_cwd};

    #[test]
    fn tasks_run_in_the_current_directory_of_agx_on_this_machine() {
        let here = std::env::current_dir().unwrap().display().to_string();
        let server = |address: &str| Server::new(address, "k".repeat(64).into()).unwrap();
        let (socket, remote) = (server("unix:/x"), server("h:1"));
        let of = |given: Option<&str>, server: Option<&Server>, is_sandboxed| {
            cwd(given.map(str::to_owned).as_ref(), server, is_sandboxed).unwrap()
        };
        assert_eq!(of(None, None, false), None, "a worker of this command is there");
        assert_eq!(of(None, None, true).unwrap(), here, "a sandbox is not");
        assert_eq!(of(Some("a"), None, true).unwrap(), format!("{here}/a"));
        assert_eq!(of(Some("/a"), None, true).unwrap(), "/a");
        for is_sandboxed in [false, true] {
            assert_eq!(of(None, Some(&socket), is_sandboxed).unwrap(), here);
            assert_eq!(of(None, Some(&remote), is_sandboxed), None);
            assert_eq!(of(Some("a"), Some(&remote), is_sandboxed).unwrap(), "a");
        }
    }

    #[test]
    fn braces_in_the_directory_of_tasks_are_text() {
        let mut tasks = [Task::default(), Task::default()];
        set_cwd(&mut tasks, Some("/a/{{input.line}}"));
        for task in &tasks {
            let cwd = task.cwd.as_deref().unwrap();
            assert_eq!((cwd, fields(cwd)), (r#"/a/{{"{{"}}input.line}}"#, Ok(vec![])));
        }
        set_cwd(&mut tasks, None);
        assert!(tasks.iter().all(|task| task.cwd.is_none()));
    }
}

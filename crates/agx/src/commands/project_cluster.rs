//! agq and worker of a directory, which `agx mcp` starts in the background if no agq is named. Each
//! directory has an agq of its own, so that the tasks of one project cannot read the files of
//! another.

use std::path::Path;

use agenix_client::{Address, Server, key_in};
use sha2::{Digest, Sha256};

use crate::{
    background::{
        embedded::new_key,
        local_cluster::{MAX_WAIT, key_of, new_worker_id, part, spec_texts, text, wait_for_worker, worker},
        supervisor::{self, DirLock, SupervisorSpec},
    },
    error::{CliError, Result},
    output::OutputFormat,
    profiles::{ServerProfile, UserDir, write_secret},
    sandbox::{DEFAULT_PROFILE, examine, worker_option_texts},
};

/// File with the key of the MCP server: a client, which may approve nothing.
const CLIENT_KEY: &str = "client-key";
/// Config file of agq, which names the key of the client.
const CONFIG: &str = "agq.toml";

/// Returns the agq of `directory`, with the key of a client. Starts agq and a worker if they do not
/// run. agq and the worker stay when agx ends.
pub(super) async fn ensure(directory: &Path, output: OutputFormat) -> Result<Server> {
    check(directory)?;
    let home = UserDir::find()?;
    let name = name_of(directory);
    let dir = home.default_path(&name)?;
    let agq = Address::Unix(dir.join("agq.sock")).to_string();
    if let Some(lock) = supervisor::try_lock_dir(&dir).await? {
        let options_of_agw = sandbox_options(directory, output).await?;
        start(lock, &home, (&name, &dir, &agq), options_of_agw, output).await?;
    }
    let unusable =
        |problem: String| CliError::usage(problem, format!("`agx down {name}` ends it; then try again"));
    let key = key_in(&dir.join(CLIENT_KEY)).map_err(|error| unusable(error.to_string()))?;
    Server::new(&agq, key).map_err(unusable)
}

/// Refuses directories whose files are not those of a project, because tasks may read them all.
fn check(directory: &Path) -> Result<()> {
    let is_home = std::env::home_dir().is_some_and(|home| home == directory);
    if directory.parent().is_some() && !is_home {
        return Ok(());
    }
    let problem = format!("the tasks could read everything in {}", directory.display());
    Err(CliError::usage(problem, "name the directory of a project with --cwd, or an agq with --agq"))
}

/// Returns the name of the profile of a directory.
fn name_of(directory: &Path) -> String {
    let digest = Sha256::digest(directory.as_os_str().as_encoded_bytes());
    let hash: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    format!("mcp-{hash}")
}

/// Returns the options of a worker whose tasks read `directory` in a sandbox; no options if the
/// machine cannot enforce a sandbox.
async fn sandbox_options(directory: &Path, output: OutputFormat) -> Result<Vec<String>> {
    match examine().await {
        Ok(machine) if machine.enforces_reader => worker_option_texts(DEFAULT_PROFILE, directory, &[]),
        _ => {
            output.note(
                "agx: tasks run without a sandbox, because this machine cannot enforce one; `agx doctor` says why",
            );
            Ok(Vec::new())
        }
    }
}

async fn start(
    lock: DirLock,
    home: &UserDir,
    (name, dir, agq): (&str, &Path, &str),
    options_of_agw: Vec<String>,
    output: OutputFormat,
) -> Result<()> {
    let (key, key_file) = key_of(dir)?;
    let client_key = match key_in(&dir.join(CLIENT_KEY)) {
        Ok(_) => None,
        Err(_) => Some(new_key()),
    };
    if let Some(client_key) = client_key {
        write_secret(dir, CONFIG, &format!("[clients]\nmcp = '{client_key}'"))?;
        write_secret(dir, CLIENT_KEY, &client_key)?;
    }
    let mut of_agq = spec_texts(&["--end-with-stdin", "--no-tcp", "--http", "off"]);
    for (option, path) in [
        ("--socket", dir.join("agq.sock")),
        ("--session-key-file", key_file.clone()),
        ("--data-dir", dir.join("data")),
        ("--config", dir.join(CONFIG)),
    ] {
        of_agq.extend([option.to_owned(), text(&path)]);
    }
    let mut of_agw = worker(agq, &key_file, None, None);
    of_agw.extend(options_of_agw);
    let worker_id = new_worker_id(name, std::process::id(), uuid::Uuid::new_v4());
    of_agw.extend(["--worker-id".into(), worker_id.clone()]);
    let spec = SupervisorSpec { services: vec![part("agq", of_agq)?, part("agw", of_agw)?] };
    let (_line, logs) = supervisor::start(lock, dir, &spec)?;
    let profile = ServerProfile { session_key_file: Some(key_file.into()), ..ServerProfile::new(agq) };
    home.change(|all| drop(all.profiles.insert(name.to_owned(), profile)))?;
    if !wait_for_worker(agq, &key, &worker_id).await? {
        let why = logs.last_line_of("agw").map(|line| format!(": {line}")).unwrap_or_default();
        let problem =
            format!("agq runs, but its worker has not registered within {} s{why}", MAX_WAIT.as_secs());
        let help = format!("look at {}; `agx down {name}` ends both", dir.join("agw.log").display());
        return Err(CliError::usage(problem, help));
    }
    output.note(&format!(
        "agx: agq and a worker run in the background, with data in {}; `agx --profile {name}` shows them, and `agx down {name}` ends them",
        dir.display()
    ));
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{check, name_of};

    #[test]
    fn directory_of_everything_is_refused() {
        assert!(check(Path::new("/")).is_err());
        assert!(check(&std::env::home_dir().unwrap()).is_err());
        assert!(check(&std::env::home_dir().unwrap().join("project")).is_ok());
    }

    #[test]
    fn each_directory_has_a_name_of_its_own() {
        let [a, b] = ["/p/a", "/p/b"].map(|path| name_of(Path::new(path)));
        assert!(a != b && a.len() == b.len() && a.starts_with("mcp-"), "{a} {b}");
    }
}

//! `agx up`, `agx down`, `agx join`

use std::path::{Path, PathBuf};

use agenix_client::{Address, Connection, Token};
use agenix_protocol::{byte_escape::encode_os, ids::WorkerId};
use clap::Args;
use secrecy::ExposeSecret;

use super::read;
use crate::{
    background::{
        local_cluster::{
            KEY, MAX_WAIT, check_key_of_worker, key_of, new_worker_id, part, spec_texts, text,
            wait_for_registration, wait_for_worker, worker,
        },
        supervisor::{self, LogTails, SupervisorSpec},
    },
    connection_args::{ConnectionArgs, server_of},
    documents::{Down, Joined, Up},
    error::{CliError, Result},
    output::OutputFormat,
    profiles::{LOCAL, ServerProfile, UserDir, check_name, write_secret},
    sandbox::{DEFAULT_PROFILE, parse_profile, worker_option_texts},
    util::{path_text::PathText, text::any_bytes},
};

#[derive(Debug, Args)]
pub(crate) struct UpArgs {
    /// Number of concurrent jobs of the worker [default: the number of processors]
    #[arg(short = 'j', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) jobs: Option<u32>,
    #[command(flatten)]
    pub(crate) sandbox: WorkerSandboxArgs,
    #[command(flatten)]
    pub(crate) resources: WorkerResourceArgs,
    /// Options for agq, after --, as -- --bind 0.0.0.0 --insecure
    #[arg(last = true, value_name = "OPTION", value_parser = any_bytes())]
    pub(crate) options_of_agq: Vec<String>,
}

/// Options for the sandbox of a worker on this machine.
#[derive(Debug, Args)]
pub(crate) struct WorkerSandboxArgs {
    /// Run every job of the worker in a sandbox with this profile, as --sandbox=builder; the jobs
    /// read the current directory [default without =PROFILE: reader]
    #[arg(long, value_name = "PROFILE", num_args = 0..=1, require_equals = true,
          default_missing_value = DEFAULT_PROFILE, value_parser = parse_profile)]
    pub(crate) sandbox: Option<String>,
    /// Also let the jobs in the sandbox read PATH; can be repeated
    #[arg(long, value_name = "PATH", requires = "sandbox")]
    pub(crate) sandbox_read: Vec<PathBuf>,
}

/// Resources of a worker on this machine.
#[derive(Debug, Args)]
pub(crate) struct WorkerResourceArgs {
    /// Resource that jobs may want a quantity of, as for agw: cpus=3.5, memory=16G, gpus=0,1 or
    /// licences=3; can be repeated [default: the CPUs, the memory and the GPUs of this machine]
    #[arg(long = "resource", value_name = "NAME=AMOUNT")]
    pub(crate) resources: Vec<String>,
}

impl WorkerResourceArgs {
    /// Returns the options of agw.
    fn options(&self) -> impl Iterator<Item = String> {
        self.resources.iter().flat_map(|resource| ["--resource".to_owned(), resource.clone()])
    }
}

#[derive(Debug, Args)]
pub(crate) struct DownArgs {
    /// Name that was given to `agx join` [default: local, the name of `agx up`]
    pub(crate) name: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct JoinArgs {
    /// Token; - reads it from stdin, which keeps it out of the shell history
    pub(crate) token: String,
    /// Name of the profile
    #[arg(long, value_name = "NAME", default_value = "cluster")]
    pub(crate) name: String,
    /// Only create the profile: start no worker on this machine
    #[arg(long, conflicts_with_all = ["sandbox", "resources", "worker_id"])]
    pub(crate) no_worker: bool,
    /// Id of the worker: for the key of a worker, its name in `[workers]` of agq's config file
    /// [default: worker-HOSTNAME-PID]
    #[arg(long, value_name = "ID")]
    pub(crate) worker_id: Option<WorkerId>,
    /// Number of concurrent jobs of the worker [default: the number of processors]
    #[arg(short = 'j', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) jobs: Option<u32>,
    #[command(flatten)]
    pub(crate) sandbox: WorkerSandboxArgs,
    #[command(flatten)]
    pub(crate) resources: WorkerResourceArgs,
}

const CA: &str = "ca.pem";
/// End of the names of files of a token that agq has not accepted yet.
const UNCHECKED: &str = ".new";

pub(crate) async fn up(args: &UpArgs, server: &ConnectionArgs, output: OutputFormat) -> Result<()> {
    let options_of_agw = of_sandbox(&args.sandbox)?.unwrap_or_else(|| spec_texts(&["--program-paths"]));
    let home = UserDir::find()?;
    let dir = home.default_path(LOCAL)?;
    // The lock comes first, so that a second `agx up` changes nothing.
    let hold = supervisor::lock_dir(&dir).await?;
    let (key, key_file) = key_of(&dir)?;
    let socket = dir.join("agq.sock");
    let agq = Address::Unix(socket.clone()).to_string();
    let mut of_agq = spec_texts(&["--end-with-stdin", "--socket"]);
    of_agq.extend([text(&socket), "--session-key-file".into(), text(&key_file), "--data-dir".into()]);
    of_agq.push(text(&dir.join("data")));
    of_agq.extend(args.options_of_agq.iter().cloned());
    let mut of_agw = worker(&agq, &key_file, None, args.jobs);
    of_agw.extend(options_of_agw);
    of_agw.extend(args.resources.options());
    let worker_id = new_worker_id(LOCAL, std::process::id(), uuid::Uuid::new_v4());
    of_agw.extend(["--worker-id".into(), worker_id.clone()]);
    let spec = SupervisorSpec { services: vec![part("agq", of_agq)?, part("agw", of_agw)?] };
    let (line, logs) = supervisor::start(hold, &dir, &spec)?;
    let profile = ServerProfile { session_key_file: Some(key_file.into()), ..ServerProfile::new(&agq) };
    home.change(|all| {
        all.profiles.insert(LOCAL.into(), profile.clone());
        all.current = Some(LOCAL.into());
    })?;
    if !wait_for_worker(&profile.agq, &key, &worker_id).await? {
        let why = logs.last_line_of("agw").map(|line| format!(": {line}")).unwrap_or_default();
        return Err(CliError::usage(
            format!("agq runs, but its worker has not registered within {} s{why}", MAX_WAIT.as_secs()),
            format!("look at {}, and stop both with `agx down`", dir.join("agw.log").display()),
        ));
    }
    let document = Up {
        profile: LOCAL.into(),
        agq: profile.agq.clone(),
        directory: encode_os(dir.as_os_str()),
        says: line.clone(),
        workers: 1,
    };
    let key = dir.join(KEY);
    let web = line.split([' ', ',']).find(|word| word.starts_with("http"));
    let web = web.map(|address| {
        format!("  {address}/\n    to look at it with a browser; the key is in {}\n", key.display())
    });
    let web = web.unwrap_or_default();
    match server.address() {
        Ok(Some(address)) => output.note(&format!(
            "agx: AGQ_ADDR, AGQ_URL or --agq says {address}: this overrides the profile '{LOCAL}'"
        )),
        Ok(None) => {}
        Err(error) => output.note(&format!("agx: other commands will fail: {error}")),
    }
    let sandbox = sandbox_text(&args.sandbox);
    output.show("up", &document, |_| {
        format!(
            "{line}\na worker is registered; both run in the background, with logs in {}\n{sandbox}\n{web}  \
             seq 3 | agx map -- echo      # runs there: the default profile is '{LOCAL}'\n  \
             agx                          # overview\n  agx down                     # ends both; the data stays",
            dir.display()
        )
    })
}

fn sandbox_text(args: &WorkerSandboxArgs) -> String {
    let text = |profile| format!("its jobs run in a sandbox with the profile {profile}\n");
    args.sandbox.as_ref().map(text).unwrap_or_default()
}

/// Returns the options of a worker with a sandbox.
fn of_sandbox(args: &WorkerSandboxArgs) -> Result<Option<Vec<String>>> {
    let Some(profile) = &args.sandbox else { return Ok(None) };
    worker_option_texts(profile, Path::new("."), &args.sandbox_read).map(Some)
}

pub(crate) async fn down(args: &DownArgs, output: OutputFormat) -> Result<()> {
    let home = UserDir::find()?;
    let name = args.name.as_deref().unwrap_or(LOCAL);
    let nothing = || {
        let problem = format!("nothing named '{name}' runs in the background");
        Err(CliError::usage(problem, help_for_nothing(name)))
    };
    let Some(dir) = home.known_path(name)?.filter(|dir| supervisor::was_started(dir)) else {
        return nothing();
    };
    let was_there = supervisor::stop(&dir, output).await?;
    // The profile stays if another `agx up` holds the lock, because it owns the profile now.
    if let Ok(_held) = supervisor::lock_dir(&dir).await {
        home.change(|all| {
            all.profiles.remove(name);
            all.current.take_if(|current| current == name);
        })?;
    }
    if !was_there {
        return nothing();
    }
    output
        .show("down", &Down { profile: name.to_owned() }, |_| format!("'{name}' has ended; its data is kept"))
}

pub(crate) async fn join(args: &JoinArgs, output: OutputFormat) -> Result<()> {
    check_name(&args.name)?;
    let text_of_token = if args.token == "-" {
        String::from_utf8_lossy(&read(Path::new("-"))?).into_owned()
    } else {
        args.token.clone()
    };
    let options_of_sandbox = of_sandbox(&args.sandbox)?;
    let token = Token::parse(&text_of_token).map_err(|problem| {
        CliError::usage(format!("this token cannot be used: {problem}"), "run `agq token` where agq runs")
    })?;
    let home = UserDir::find()?;
    let dir = home.default_path(&args.name)?;
    let hold = supervisor::lock_dir(&dir).await?;
    check_token(&token, &dir, args).await?;
    let ca = token.ca.is_some().then(|| dir.join(CA));
    let mut of_agw = worker(&token.agq, &dir.join(KEY), ca.as_deref(), args.jobs);
    of_agw.extend(options_of_sandbox.into_iter().flatten());
    of_agw.extend(args.resources.options());
    of_agw.extend(args.worker_id.iter().flat_map(|id| ["--worker-id".to_owned(), id.to_string()]));
    let spec = SupervisorSpec { services: vec![part("agw", of_agw)?] };
    let profile = stored(&token, &dir, "")?;
    home.change(|all| {
        all.profiles.insert(args.name.clone(), profile);
        all.current = Some(args.name.clone());
    })?;
    if !args.no_worker {
        let (_, logs) = supervisor::start(hold, &dir, &spec)?;
        check_registration(&logs, &args.name, &dir).await?;
    }
    let document = Joined { profile: args.name.clone(), agq: token.agq.clone(), worker: !args.no_worker };
    output.show("join", &document, |_| {
        let worker = if args.no_worker {
            String::new()
        } else {
            let log = dir.join("agw.log");
            format!(
                "a worker on this machine takes jobs, with its log in {}; `agx down {}` ends it\n{}",
                log.display(),
                args.name,
                sandbox_text(&args.sandbox)
            )
        };
        format!("{worker}agx uses {} by default: the default profile is '{}'", token.agq, args.name)
    })
}

/// Checks that agq accepts the token. The errors are reported here, because the worker would report
/// them in a log only. The profile in `dir` keeps its key and its CA.
async fn check_token(token: &Token, dir: &Path, args: &JoinArgs) -> Result<()> {
    let profile = stored(token, dir, UNCHECKED)?;
    let checked = check_profile(&profile, args).await;
    for name in [KEY, CA] {
        // A token without a CA has no second file.
        let _missing = std::fs::remove_file(dir.join(format!("{name}{UNCHECKED}")));
    }
    checked
}

async fn check_profile(profile: &ServerProfile, args: &JoinArgs) -> Result<()> {
    let mut connection = Connection::open(&server_of(profile)?).await?;
    if args.no_worker {
        return Ok(());
    }
    check_key_of_worker(&mut connection, args.worker_id.as_ref()).await
}

/// Writes the key and the CA of `token` to files in `dir`, whose names end with `suffix`. Returns
/// the profile with these files.
fn stored(token: &Token, dir: &Path, suffix: &str) -> Result<ServerProfile> {
    let write = |name: &str, text: &str| write_secret(dir, &format!("{name}{suffix}"), text);
    let key_file = write(KEY, token.key.expose_secret())?;
    let ca = token.ca.as_deref().map(|ca| write(CA, ca)).transpose()?;
    Ok(ServerProfile {
        session_key_file: Some(key_file.into()),
        tls_ca: ca.map(PathText::from),
        ..ServerProfile::new(&token.agq)
    })
}

/// Waits until agq has the worker that the profile `name` started in `dir`. An error quotes the log
/// of the worker.
async fn check_registration(logs: &LogTails, name: &str, dir: &Path) -> Result<()> {
    if wait_for_registration(logs).await {
        return Ok(());
    }
    let why = logs.last_line_of("agw").map(|line| format!(": {line}")).unwrap_or_default();
    Err(CliError::usage(
        format!("the worker has not registered with agq within {} s{why}", MAX_WAIT.as_secs()),
        format!("look at {}; the worker keeps trying until `agx down {name}`", dir.join("agw.log").display()),
    ))
}

/// Returns the advice for a name of which nothing runs in the background.
fn help_for_nothing(name: &str) -> String {
    if name == LOCAL {
        return "`agx up` starts it".into();
    }
    format!(
        "`agx join TOKEN --name {name}` starts a worker; `agx profile remove {name}` removes a profile without one"
    )
}

#[cfg(test)]
mod tests {
    use super::help_for_nothing;

    #[test]
    fn down_names_the_command_that_starts_what_it_ends() {
        assert_eq!(help_for_nothing("local"), "`agx up` starts it");
        let other = help_for_nothing("cluster");
        assert!(other.contains("agx join") && other.contains("`agx profile remove cluster`"), "{other}");
    }
}

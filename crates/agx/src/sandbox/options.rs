//! Options that select the sandbox of jobs, and the options of a worker that agx starts for them.

use std::{
    ffi::OsString,
    iter,
    path::{Path, PathBuf},
};

use agenix_protocol::{
    byte_escape::{decode_os, encode_os},
    documents::{Plan, PlanSandbox, is_profile_name, sandbox_tag},
};
use clap::Args;

use crate::error::{CliError, Result};

/// Profile of `--sandbox` without a value.
pub(crate) const DEFAULT_PROFILE: &str = "reader";

#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ProfileArg {
    /// Run the tasks in a sandbox with this profile of the worker, as --sandbox=builder; reader,
    /// builder and network are built in [default without =PROFILE: reader]
    #[arg(long, value_name = "PROFILE", num_args = 0..=1, require_equals = true,
          default_missing_value = DEFAULT_PROFILE, value_parser = parse_profile)]
    sandbox: Option<String>,
}

impl ProfileArg {
    /// Returns the name of the profile.
    pub(crate) fn name(&self) -> Option<&str> {
        self.sandbox.as_deref()
    }

    pub(crate) fn of_plan(&self) -> Option<PlanSandbox> {
        self.sandbox.clone().map(|profile| PlanSandbox { profile })
    }

    /// Returns the plan with the sandbox, and with the tag of the workers that offer the profile.
    pub(crate) fn apply(&self, mut plan: Plan) -> Plan {
        if let Some(profile) = &self.sandbox {
            let tag = sandbox_tag(profile);
            if !plan.requires.tags.contains(&tag) {
                plan.requires.tags.push(tag);
            }
            plan.sandbox = self.of_plan();
        }
        plan
    }
}

#[derive(Debug, Clone, Default, Args)]
pub(crate) struct SandboxArgs {
    #[command(flatten)]
    pub(crate) profile: ProfileArg,
    /// Also let the tasks read PATH, on a worker that agx starts for this command; they always read
    /// their working directory there; can be repeated
    #[arg(long, value_name = "PATH", requires = "sandbox")]
    sandbox_read: Vec<PathBuf>,
}

impl SandboxArgs {
    /// Refuses the options that configure a worker, if an existing agq runs the jobs.
    pub(crate) fn check_for_server(&self) -> Result<()> {
        if self.sandbox_read.is_empty() {
            return Ok(());
        }
        Err(CliError::usage(
            "--sandbox-read is for a worker that agx starts for this command: on an agq, the owner of the worker decides what \
             its profiles read",
            "leave it out; or start a worker for this command with --local; or let `agx up --sandbox --sandbox-read PATH` \
             start the worker",
        ))
    }

    /// Returns the options of a worker for this command, if the jobs run in a sandbox. `cwd` is the
    /// working directory of the tasks.
    pub(crate) fn worker_options(&self, cwd: Option<&str>) -> Result<Option<Vec<OsString>>> {
        let Some(profile) = self.profile.name() else { return Ok(None) };
        let cwd = decode_os(cwd.unwrap_or("."));
        worker_options(profile, Path::new(&cwd), &self.sandbox_read).map(Some)
    }
}

/// Returns the options of a worker that runs its jobs in a sandbox, in which tasks read `directory`
/// and `paths`.
fn worker_options(profile: &str, directory: &Path, paths: &[PathBuf]) -> Result<Vec<OsString>> {
    let mut options: Vec<OsString> = vec!["--sandbox".into(), profile.into()];
    for path in iter::once(directory).chain(paths.iter().map(PathBuf::as_path)) {
        options.extend(["--sandbox-read".into(), absolute(path)?.into()]);
    }
    Ok(options)
}

/// Returns the options of [`worker_options`] as texts with byte escapes, for the file with the
/// options of a supervisor.
pub(crate) fn worker_option_texts(profile: &str, directory: &Path, paths: &[PathBuf]) -> Result<Vec<String>> {
    Ok(worker_options(profile, directory, paths)?.iter().map(|option| encode_os(option)).collect())
}

/// Returns the absolute path of an existing file, without symbolic links and `..`.
fn absolute(path: &Path) -> Result<PathBuf> {
    path.canonicalize().map_err(|error| {
        CliError::usage(
            format!("tasks in the sandbox could not read {}: {error}", path.display()),
            "name a file or a directory that exists",
        )
    })
}

/// Parses the name of a profile.
pub(crate) fn parse_profile(text: &str) -> Result<String, String> {
    if is_profile_name(text) {
        Ok(text.to_owned())
    } else {
        Err(format!(
            "the name of a profile has 1 to 64 lower-case letters, digits, - and _, as {DEFAULT_PROFILE}"
        ))
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use agenix_protocol::documents::{Plan, parse};
    use clap::Parser;

    use super::{SandboxArgs, parse_profile, worker_options};

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        sandbox: SandboxArgs,
        words: Vec<String>,
    }

    fn line(args: &[&str]) -> Result<Line, String> {
        Line::try_parse_from(["agx"].iter().chain(args)).map_err(|error| error.to_string())
    }

    fn plan(tags: &str) -> Plan {
        let json =
            format!(r#"{{"tasks":[{{"task_number":1,"command":"sort"}}],"requires":{{"tags":[{tags}]}}}}"#);
        parse(json.as_bytes()).unwrap()
    }

    #[test]
    fn sandbox_takes_its_value_only_with_an_equals_sign() {
        let profile = |args: &[&str]| line(args).unwrap().sandbox.profile.name().map(str::to_owned);
        assert_eq!(profile(&["sort"]), None);
        assert_eq!(profile(&["--sandbox", "sort"]).unwrap(), "reader");
        assert_eq!(line(&["--sandbox", "sort"]).unwrap().words, ["sort"]);
        assert_eq!(profile(&["--sandbox=builder"]).unwrap(), "builder");
        assert!(line(&["--sandbox=BAD NAME"]).unwrap_err().contains("the name of a profile has 1 to 64"));
        assert!(line(&["--sandbox="]).is_err());
        assert!(line(&["--sandbox-read", "/"]).unwrap_err().contains("--sandbox"));
    }

    #[test]
    fn profile_names_are_short_and_plain() {
        let longest = "x".repeat(64);
        for legal in ["reader", "a", "my-own_2", &longest] {
            assert_eq!(parse_profile(legal).unwrap(), legal);
        }
        for wrong in ["", "Reader", "a b", "a/b", "a:b", "é", "..", &"x".repeat(65)] {
            assert!(parse_profile(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn plan_gets_the_sandbox_and_its_tag_once() {
        let profile = line(&["--sandbox=builder"]).unwrap().sandbox.profile;
        let applied = profile.apply(plan(r#""gpu""#));
        assert_eq!(applied.requires.tags, ["gpu", "sandbox:builder"]);
        assert_eq!(applied.sandbox.as_ref().unwrap().profile, "builder");
        assert_eq!(profile.apply(applied.clone()), applied);
        assert_eq!(line(&[]).unwrap().sandbox.profile.apply(plan("")), plan(""));
    }

    #[test]
    fn worker_reads_absolute_paths_that_exist() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("a")).unwrap();
        let options = worker_options("reader", &root, &[root.join("a/../a/.")]).unwrap();
        let expected = ["--sandbox".into(), "reader".into(), "--sandbox-read".into(), root.clone()];
        let expected: Vec<PathBuf> =
            expected.into_iter().chain(["--sandbox-read".into(), root.join("a")]).collect();
        assert_eq!(options.iter().map(PathBuf::from).collect::<Vec<_>>(), expected);
        let error = worker_options("reader", Path::new("/no/such"), &[]).unwrap_err().to_string();
        assert!(error.starts_with("tasks in the sandbox could not read /no/such: "), "{error}");
    }

    #[test]
    fn worker_for_a_command_has_a_sandbox_only_if_it_is_asked_for() {
        let options = |args: &[&str]| line(args).unwrap().sandbox.worker_options(Some("/")).unwrap();
        assert_eq!(options(&[]), None);
        let read = ["--sandbox", "reader", "--sandbox-read", "/", "--sandbox-read", "/usr"];
        assert_eq!(options(&["--sandbox", "--sandbox-read", "/usr"]).unwrap(), read);
    }

    #[test]
    fn an_existing_worker_decides_what_its_profiles_read() {
        let check = |args: &[&str]| line(args).unwrap().sandbox.check_for_server();
        assert_eq!(check(&["--sandbox"]).map_err(|error| error.to_string()), Ok(()));
        let error = check(&["--sandbox", "--sandbox-read", "/"]).unwrap_err().to_string();
        assert!(error.contains("the owner of the worker decides what its profiles read"), "{error}");
    }
}

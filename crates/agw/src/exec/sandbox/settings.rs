//! Sandbox settings, which the owner of the worker decides in the file of `--config` or by
//! `--sandbox`. Neither agq nor a plan can change the settings.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use agenix_protocol::{
    byte_escape::{decode_os, encode_os},
    documents::is_profile_name,
};
use agenix_sandbox::profile::Profile;
use anyhow::{Context, bail};
use serde::Deserialize;
use tracing::warn;

/// Maximum number of supervisors that wait for a job, for each profile.
const MAX_SPARES: u32 = 64;
/// Profile of jobs whose plan names none, unless the file names another one.
const READER: &str = "reader";

/// Jobs that run in a sandbox.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Mode {
    /// No jobs. Jobs whose plan names a profile go to other workers.
    #[default]
    Off,
    /// Jobs whose plan names a profile.
    Requested,
    /// All jobs except those that a signer with full trust has signed. Without a trust file, all
    /// jobs.
    Untrusted,
    /// All jobs.
    All,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SandboxSettings {
    pub(crate) mode: Mode,
    /// Profile of jobs whose plan names none, with [`Mode::Untrusted`] and [`Mode::All`].
    pub(crate) strangers: String,
    /// Profiles that plans may name.
    pub(crate) profiles: BTreeMap<String, Profile>,
    /// User of the tasks, for a worker that runs as root.
    pub(crate) user: Option<String>,
    /// Directory of the scratch directories. The spool directory if absent.
    pub(crate) scratch: Option<PathBuf>,
    /// Number of supervisors for each profile that wait for a job.
    pub(crate) spares: u32,
}

/// Table `[sandbox]` of the file of `--config`.
#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct SandboxTable {
    mode: Mode,
    strangers: String,
    user: Option<String>,
    scratch: Option<PathBuf>,
    spares: u32,
}

impl Default for SandboxTable {
    fn default() -> Self {
        Self { mode: Mode::Off, strangers: READER.into(), user: None, scratch: None, spares: 1 }
    }
}

impl SandboxSettings {
    /// Refuses profiles that pass one of `variables`, which are secrets, to every task.
    pub(crate) fn keep_from_profiles<'v>(
        &self,
        variables: impl Iterator<Item = &'v str>,
    ) -> anyhow::Result<()> {
        for variable in variables {
            let passes = |profile: &&Profile| profile.env.iter().any(|name| name == variable);
            if let Some(profile) = self.profiles.values().find(passes) {
                bail!(
                    "profiles.{}.env has {variable}, which is a secret: rename the variable of agw",
                    profile.name
                );
            }
        }
        Ok(())
    }
}

/// Returns the settings with the tables of the file of `--config`, and with `profile` as the
/// profile of all jobs, if that is given. Tasks of `profile` also read the paths `read`.
pub(crate) fn read(
    (sandbox, profiles): (SandboxTable, BTreeMap<String, toml::Table>),
    profile: Option<&str>,
    read: &[PathBuf],
) -> anyhow::Result<SandboxSettings> {
    let mut settings = parse(sandbox, profiles)?;
    if let Some(profile) = profile {
        settings.mode = Mode::All;
        profile.clone_into(&mut settings.strangers);
    }
    if settings.mode != Mode::Off {
        let field = if profile.is_some() { "--sandbox" } else { "sandbox.strangers" };
        complete(&mut settings.profiles, &settings.strangers, field)?;
    }
    for path in read {
        let path = std::path::absolute(path).context("--sandbox-read")?;
        if let Some(profile) = settings.profiles.get_mut(&settings.strangers) {
            profile.read.push(encode_os(path.as_os_str()));
        }
    }
    settings.profiles.values().try_for_each(Profile::check)?;
    Ok(settings)
}

impl SandboxSettings {
    /// Refuses profiles whose tasks could read the key in the file `key`. Warns if tasks run
    /// outside of a sandbox, because such tasks can read the key.
    pub(crate) fn keep_key_from_tasks(&self, key: &Path, has_trust: bool) -> anyhow::Result<()> {
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_missing| path.to_path_buf());
        let key = real(key);
        for profile in self.profiles.values() {
            let paths = || profile.read.iter().chain(&profile.write);
            let has_key = |path: &&String| key.starts_with(real(Path::new(&decode_os(path))));
            if let Some(path) = paths().find(has_key) {
                let (name, key) = (&profile.name, key.display());
                bail!("tasks of the profile {name} can read {path}, and the key {key} in it: move the key");
            }
        }
        if self.mode == Mode::All || (self.mode == Mode::Untrusted && !has_trust) {
            return Ok(());
        }
        warn!("tasks outside of a sandbox can read the key {}, unless another user runs them", key.display());
        Ok(())
    }

    /// Returns the names of the profiles, or `None` if no job runs in a sandbox.
    pub(crate) fn profile_names(&self) -> Option<BTreeSet<String>> {
        (self.mode != Mode::Off).then(|| self.profiles.keys().cloned().collect())
    }

    /// Adds the profiles that a trust file grants, and checks the mode.
    pub(crate) fn grant(&mut self, profiles: &[String]) -> anyhow::Result<()> {
        match self.mode {
            Mode::Off => Ok(()),
            Mode::Requested => {
                bail!("sandbox.mode is 'requested': with [trust], use \"untrusted\", \"all\" or \"off\"")
            }
            Mode::Untrusted | Mode::All => profiles.iter().try_for_each(|profile| {
                complete(&mut self.profiles, profile, "the profile of a signer in trust.file")
            }),
        }
    }
}

fn parse(sandbox: SandboxTable, profiles: BTreeMap<String, toml::Table>) -> anyhow::Result<SandboxSettings> {
    let SandboxTable { mode, strangers, user, scratch, spares } = sandbox;
    if spares > MAX_SPARES {
        bail!("sandbox.spares is {spares}, max {MAX_SPARES}");
    }
    if let Some(scratch) = scratch.as_ref().filter(|scratch| !scratch.is_absolute()) {
        bail!("sandbox.scratch is '{}': give an absolute path", scratch.display());
    }
    let profiles = profiles.into_iter().map(|(name, table)| {
        let profile = profile(&name, table).with_context(|| format!("profiles.{name}"))?;
        Ok((name, profile))
    });
    let profiles = profiles.collect::<anyhow::Result<_>>()?;
    Ok(SandboxSettings { mode, strangers, profiles, user, scratch, spares })
}

/// Returns a profile from its table. Values that the table lacks are those of the built-in profile
/// of the same name, or else of `reader`.
fn profile(name: &str, table: toml::Table) -> anyhow::Result<Profile> {
    if !is_profile_name(name) {
        bail!("the name has to be 1 to 64 lower-case letters, digits, '-' or '_'");
    }
    let built_in = Profile::built_in(name).unwrap_or_else(Profile::reader);
    let mut values = toml::Table::try_from(built_in)?;
    for (key, value) in table {
        match (values.get_mut(&key), value) {
            (Some(toml::Value::Table(of_built_in)), toml::Value::Table(own)) => of_built_in.extend(own),
            (_, value) => drop(values.insert(key, value)),
        }
    }
    values.insert("name".into(), name.into());
    Ok(values.try_into()?)
}

/// Adds the profile `name` of the setting `field` if the file does not define it, and it is a
/// built-in profile.
fn complete(profiles: &mut BTreeMap<String, Profile>, name: &str, field: &str) -> anyhow::Result<()> {
    if profiles.contains_key(name) {
        return Ok(());
    }
    let Some(built_in) = Profile::built_in(name) else {
        bail!(
            "{field} is '{name}', which is no profile: use reader, builder or network, or define [profiles.{name}] in the file of --config"
        );
    };
    profiles.insert(name.to_owned(), built_in);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use agenix_sandbox::profile::{Network, Profile};

    use super::{Mode, SandboxSettings, read};
    use crate::config_file::ConfigFile;

    fn of(text: &str) -> anyhow::Result<SandboxSettings> {
        with(text, None, &[])
    }

    fn with(text: &str, profile: Option<&str>, paths: &[PathBuf]) -> anyhow::Result<SandboxSettings> {
        let ConfigFile { sandbox, profiles, .. } = toml::from_str(text)?;
        read((sandbox, profiles), profile, paths)
    }

    #[test]
    fn sandbox_is_off_unless_the_owner_turns_it_on() {
        assert_eq!(of("").unwrap().mode, Mode::Off);
        let settings = of("[sandbox]\nmode = \"untrusted\"").unwrap();
        assert_eq!((settings.mode, &*settings.strangers), (Mode::Untrusted, "reader"));
        assert_eq!(settings.profiles, [("reader".to_owned(), Profile::reader())].into());
    }

    #[test]
    fn key_that_tasks_of_a_profile_could_read_is_refused() {
        let keep = |paths: &str, key: &str| {
            let text = format!("[sandbox]\nmode = \"all\"\n[profiles.reader]\n{paths}");
            let kept = of(&text).unwrap().keep_key_from_tasks(Path::new(key), false);
            kept.map_err(|error| error.to_string())
        };
        assert_eq!(keep("read = [\"/data\"]", "/keys/data"), Ok(()));
        assert_eq!(keep("read = [\"/data\"]", "/database/key"), Ok(()));
        let expected =
            "tasks of the profile reader can read /data, and the key /data/a/key in it: move the key";
        for paths in ["read = [\"/x\", \"/data\"]", "write = [\"/data\"]"] {
            assert_eq!(keep(paths, "/data/a/key").unwrap_err(), expected);
        }
    }

    #[test]
    fn table_of_a_profile_changes_the_built_in_one() {
        let text = r#"
            [sandbox]
            mode = "requested"
            [profiles.builder]
            write = ["/build"]
            limits = { cpu_secs = 5 }
            [profiles.fetch]
            network = "on"
        "#;
        let settings = of(text).unwrap();
        assert_eq!(settings.profiles.keys().collect::<Vec<_>>(), ["builder", "fetch", "reader"]);
        let (builder, built_in) = (&settings.profiles["builder"], Profile::builder());
        assert_eq!(builder.write, ["/build"]);
        assert_eq!((builder.execute, builder.limits.cpu_secs), (built_in.execute, 5));
        assert_eq!(builder.limits.processes, built_in.limits.processes);
        let fetch = &settings.profiles["fetch"];
        assert_eq!((&*fetch.name, fetch.network, fetch.execute), ("fetch", Network::On, Default::default()));
    }

    #[test]
    fn option_runs_all_jobs_in_one_profile() {
        let settings = with("", Some("builder"), &[PathBuf::from("/data")]).unwrap();
        assert_eq!((settings.mode, &*settings.strangers), (Mode::All, "builder"));
        assert_eq!(settings.profiles["builder"].read, ["/data"]);
        let unknown = with("", Some("strict"), &[]).unwrap_err().to_string();
        assert!(unknown.starts_with("--sandbox is 'strict', which is no profile: use reader"), "{unknown}");
    }

    #[test]
    fn wrong_file_is_refused_with_the_place() {
        let cases = [
            ("[sandbox]\nmod = \"all\"", "unknown field `mod`"),
            ("[sandbox]\nmode = \"on\"", "unknown variant `on`"),
            ("[sandbox]\nspares = 65", "sandbox.spares is 65, max 64"),
            ("[sandbox]\nscratch = \"x\"", "sandbox.scratch is 'x': give an absolute path"),
            ("[profiles.A]", "profiles.A: the name has to be"),
            ("[profiles.a]\nnetwork = \"some\"", "profiles.a: unknown variant `some`"),
            ("[profiles.a]\nreads = []", "profiles.a: unknown field `reads`"),
            (
                "[sandbox]\nmode = \"all\"\n[profiles.reader]\nread = [\"x\"]",
                "profile 'reader', read: 'x' is not an absolute path",
            ),
            ("[sandbox]\nmode = \"all\"\nstrangers = \"a\"", "sandbox.strangers is 'a', which is no profile"),
        ];
        for (text, expected) in cases {
            let error = format!("{:#}", of(text).unwrap_err());
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}

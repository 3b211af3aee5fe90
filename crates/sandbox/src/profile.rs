//! Profile: permissions and limits of a class of jobs, as plain data. The owner of a worker writes
//! profiles; a plan can only name one.

use std::path::{Component, Path};

use serde::{Deserialize, Serialize};

use crate::property::{Property, PropertySet};

/// Permission to use the network.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Network {
    /// None.
    #[default]
    Off,
    /// Internet sockets.
    On,
}

/// Permission to execute programs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Execute {
    /// Programs that the job names.
    #[default]
    Listed,
    /// All programs that the profile can read.
    Any,
}

/// Limits of a job. Bounds of the values are in [`Profile::check`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ResourceLimits {
    /// Maximum number of processes and threads, with the three of the supervisor.
    pub processes: u64,
    /// Maximum memory of all processes of a job in bytes, with its scratch directory. A control
    /// group enforces the maximum.
    pub memory: u64,
    /// Maximum address space of a process in bytes.
    pub address_space: u64,
    /// Maximum size of a file in bytes, which includes the output of a task.
    pub file_size: u64,
    /// Maximum number of open files of a process.
    pub open_files: u64,
    /// Maximum processor time of a process in seconds.
    pub cpu_secs: u64,
    /// Maximum bytes in the scratch directory.
    pub scratch_bytes: u64,
    /// Maximum number of files and directories in the scratch directory.
    pub scratch_inodes: u64,
}

impl Default for ResourceLimits {
    fn default() -> Self {
        Self {
            processes: 64,
            memory: 4 << 30,
            address_space: 4 << 30,
            file_size: 1 << 30,
            open_files: 256,
            cpu_secs: 600,
            scratch_bytes: 256 << 20,
            scratch_inodes: 16_384,
        }
    }
}

/// Permissions and limits of a class of jobs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Name for reports.
    #[serde(default)]
    pub name: String,
    /// Absolute paths that tasks read, beside the programs and libraries of the system.
    #[serde(default)]
    pub read: Vec<String>,
    /// Absolute paths that tasks read and write, beside the scratch directory.
    #[serde(default)]
    pub write: Vec<String>,
    /// Network.
    #[serde(default)]
    pub network: Network,
    /// Programs.
    #[serde(default)]
    pub execute: Execute,
    /// Names of environment variables that tasks get from the worker, and that a plan may set.
    #[serde(default = "default_environment")]
    pub env: Vec<String>,
    /// Limits.
    #[serde(default)]
    pub limits: ResourceLimits,
    /// Properties that have to hold. All except `limits_memory` if absent, and without those that
    /// the permissions of the profile exclude.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needs: Option<PropertySet>,
}

/// Error for a value of a profile.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("profile '{profile}', {field}: '{value}' {reason}")]
pub struct InvalidProfile {
    /// Name of the profile.
    pub profile: String,
    /// Field.
    pub field: &'static str,
    /// Value.
    pub value: String,
    /// Reason and valid values.
    pub reason: String,
}

impl Profile {
    /// Returns the profile for strangers, which reads the programs of the system, and writes
    /// nothing but its scratch directory.
    #[must_use]
    pub fn reader() -> Self {
        Self {
            name: "reader".into(),
            read: Vec::new(),
            write: Vec::new(),
            network: Network::Off,
            execute: Execute::Listed,
            env: default_environment(),
            limits: ResourceLimits::default(),
            needs: None,
        }
    }

    /// Returns the profile for builds: more resources, and any program that the task can read. The
    /// owner of the worker adds the paths that builds write.
    #[must_use]
    pub fn builder() -> Self {
        let limits = ResourceLimits {
            processes: 1024,
            memory: 16 << 30,
            address_space: 16 << 30,
            file_size: 8 << 30,
            open_files: 4096,
            cpu_secs: 3600,
            scratch_bytes: 4 << 30,
            scratch_inodes: 1 << 20,
        };
        Self { name: "builder".into(), execute: Execute::Any, limits, ..Self::reader() }
    }

    /// Returns the profile with internet sockets, and otherwise the permissions of `reader`.
    #[must_use]
    pub fn network() -> Self {
        Self { name: "network".into(), network: Network::On, ..Self::reader() }
    }

    /// Returns the built-in profile `name`.
    #[must_use]
    pub fn built_in(name: &str) -> Option<Self> {
        match name {
            "reader" => Some(Self::reader()),
            "builder" => Some(Self::builder()),
            "network" => Some(Self::network()),
            _ => None,
        }
    }

    /// Returns the properties that have to hold for a job of this profile.
    #[must_use]
    pub fn needs(&self) -> PropertySet {
        let mut needs = self.needs.clone().unwrap_or_else(|| {
            let mut all = PropertySet::all();
            all.remove(Property::LimitsMemory);
            all
        });
        if self.network == Network::On {
            needs.remove(Property::Network);
        }
        if self.execute == Execute::Any {
            needs.remove(Property::Exec);
        }
        needs
    }

    /// Checks all values.
    ///
    /// # Errors
    ///
    /// Returns the field, the value and the reason of the first value that is invalid.
    pub fn check(&self) -> Result<(), InvalidProfile> {
        let invalid = |field, value: &str, reason: &str| {
            Err(InvalidProfile {
                profile: self.name.clone(),
                field,
                value: value.escape_debug().to_string(),
                reason: reason.to_owned(),
            })
        };
        for (field, paths) in [("read", &self.read), ("write", &self.write)] {
            for path in paths {
                if !Path::new(path).is_absolute() || path.contains('\0') {
                    return invalid(field, path, "is not an absolute path");
                }
                if Path::new(path).components().any(|part| part == Component::ParentDir) {
                    return invalid(field, path, "has '..': name the directory itself");
                }
            }
        }
        for name in &self.env {
            if name.is_empty() || name.contains(['=', '\0']) {
                return invalid("env", name, "is not the name of an environment variable");
            }
            if RESERVED.contains(&&**name) {
                return invalid("env", name, "is set by the sandbox");
            }
        }
        for (field, value, least) in self.limits.bounds() {
            if value < least || value > MAX_LIMIT {
                return invalid(
                    field,
                    &value.to_string(),
                    &format!("is not between {least} and {MAX_LIMIT}"),
                );
            }
        }
        Ok(())
    }
}

/// Environment variables that a supervisor sets for each task.
pub const RESERVED: [&str; 3] = ["HOME", "PATH", "TMPDIR"];
/// Maximum of each limit, which leaves no room for an overflow.
const MAX_LIMIT: u64 = 1 << 60;

impl ResourceLimits {
    /// Returns the name, the value and the minimum of each limit. With less, the supervisor itself
    /// could not start a task, because tasks inherit the limits of the supervisor.
    fn bounds(&self) -> [(&'static str, u64, u64); 8] {
        [
            ("limits.processes", self.processes, 8),
            ("limits.memory", self.memory, 64 << 20),
            ("limits.address_space", self.address_space, 64 << 20),
            ("limits.file_size", self.file_size, 4096),
            ("limits.open_files", self.open_files, 32),
            ("limits.cpu_secs", self.cpu_secs, 1),
            ("limits.scratch_bytes", self.scratch_bytes, 4096),
            ("limits.scratch_inodes", self.scratch_inodes, 2),
        ]
    }
}

fn default_environment() -> Vec<String> {
    let names = ["LANG", "LANGUAGE", "LC_ALL", "LC_COLLATE", "LC_CTYPE", "LC_NUMERIC", "TZ", "TRACEPARENT"];
    names.map(String::from).into()
}

#[cfg(test)]
mod tests {
    use super::{Execute, Network, Profile, ResourceLimits};
    use crate::property::Property;

    fn refusal(change: impl FnOnce(&mut Profile)) -> String {
        let mut profile = Profile::reader();
        change(&mut profile);
        profile.check().unwrap_err().to_string()
    }

    #[test]
    fn profile_is_read_from_toml() {
        let text = r#"
            read = ["/data"]
            network = "on"
            execute = "any"
            needs = ["files_read", "exec"]
            [limits]
            cpu_secs = 5
        "#;
        let profile: Profile = toml::from_str(text).unwrap();
        assert_eq!(
            (&*profile.read[0], profile.network, profile.execute),
            ("/data", Network::On, Execute::Any)
        );
        assert_eq!(profile.limits, ResourceLimits { cpu_secs: 5, ..ResourceLimits::default() });
        assert_eq!(profile.needs().to_string(), "files_read");
        profile.check().unwrap();
    }

    #[test]
    fn profile_rejects_unknown_fields_and_words() {
        for text in ["reads = []", "network = \"maybe\"", "needs = [\"files\"]", "[limits]\nmemories = 1"] {
            assert!(toml::from_str::<Profile>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn built_in_profiles_are_valid_and_need_what_they_do_not_permit() {
        for name in ["reader", "builder", "network"] {
            let profile = Profile::built_in(name).unwrap();
            profile.check().unwrap();
            let needs = profile.needs();
            assert!(needs.contains(Property::FilesRead) && !needs.contains(Property::LimitsMemory));
            assert_eq!(needs.contains(Property::Network), name != "network");
            assert_eq!(needs.contains(Property::Exec), name != "builder");
        }
        assert_eq!(Profile::built_in("strangers"), None);
    }

    #[test]
    fn invalid_profile_names_field_and_value() {
        let path = refusal(|profile| profile.read = vec!["data".into()]);
        assert_eq!(path, "profile 'reader', read: 'data' is not an absolute path");
        let parent = refusal(|profile| profile.write = vec!["/data/../etc".into()]);
        assert_eq!(parent, "profile 'reader', write: '/data/../etc' has '..': name the directory itself");
        let name = refusal(|profile| profile.env = vec!["A=B".into()]);
        assert!(name.starts_with("profile 'reader', env: 'A=B' is not"), "{name}");
        let home = refusal(|profile| profile.env = vec!["HOME".into()]);
        assert!(home.ends_with("env: 'HOME' is set by the sandbox"), "{home}");
    }

    #[test]
    fn limits_have_bounds() {
        let least = ResourceLimits {
            processes: 8,
            memory: 64 << 20,
            address_space: 64 << 20,
            file_size: 4096,
            open_files: 32,
            cpu_secs: 1,
            scratch_bytes: 4096,
            scratch_inodes: 2,
        };
        Profile { limits: least, ..Profile::reader() }.check().unwrap();
        let below = refusal(|profile| profile.limits.open_files = 31);
        assert!(below.contains("limits.open_files: '31' is not between 32 and"), "{below}");
        assert!(refusal(|profile| profile.limits.cpu_secs = 0).contains("cpu_secs"));
        assert!(refusal(|profile| profile.limits.scratch_bytes = u64::MAX).contains("scratch_bytes"));
    }
}

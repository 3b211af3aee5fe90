//! Policy: the parsed file.

use std::collections::{BTreeMap, HashMap};

use agenix_protocol::documents::is_profile_name;
use serde::Deserialize;

use crate::{
    asks::Asks,
    library,
    path::Paths,
    tool::{Tool, ToolTable, environment},
    value_type::ValueType,
};

/// Version of the format.
const VERSION: u32 = 1;

/// Inputs that may stand for files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Inputs {
    /// None.
    #[default]
    Typed,
    /// All. Only the sandbox bounds the files then.
    Any,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PolicyFile {
    version: u32,
    profile: Option<String>,
    #[serde(default)]
    inputs: Inputs,
    #[serde(default)]
    library: bool,
    #[serde(default, rename = "use")]
    used: Vec<String>,
    #[serde(default)]
    paths: Paths,
    #[serde(default)]
    env: BTreeMap<String, String>,
    #[serde(default)]
    tools: BTreeMap<String, ToolTable>,
    #[serde(default)]
    ask: Asks,
}

/// Error in the file of a policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}{reason}")]
pub struct InvalidPolicy {
    /// Part of the file with a colon, or nothing if the reason names the position.
    pub(crate) place: String,
    pub(crate) reason: String,
}

/// Policy: the tools that plans may run, and the arguments and files of each.
#[derive(Debug, Clone)]
pub struct Policy {
    pub(crate) profile: Option<String>,
    pub(crate) inputs: Inputs,
    pub(crate) paths: Paths,
    pub(crate) env: BTreeMap<String, ValueType>,
    pub(crate) asks: Asks,
    /// Tools of the file.
    own: BTreeMap<String, Tool>,
    /// Tools of the library that the file uses.
    shipped: HashMap<&'static str, &'static Tool>,
}

impl Policy {
    /// Parses a file. Unknown fields are errors.
    ///
    /// # Errors
    ///
    /// Returns the place and the reason of the first error.
    pub fn parse(text: &str) -> Result<Self, InvalidPolicy> {
        let wrong = |place: &str, reason: String| InvalidPolicy { place: format!("{place}: "), reason };
        let unreadable =
            |error: toml::de::Error| InvalidPolicy { place: String::new(), reason: error.to_string() };
        let file: PolicyFile = toml::from_str(text).map_err(unreadable)?;
        if file.version != VERSION {
            return Err(wrong("version", format!("{} is not supported: write {VERSION}", file.version)));
        }
        if let Some(profile) = file.profile.as_ref().filter(|profile| !is_profile_name(profile)) {
            return Err(wrong("profile", format!("'{profile}' is not the name of a sandbox profile")));
        }
        let mut shipped = HashMap::new();
        if file.library {
            shipped.extend(library::tools().map(|tool| (&*tool.name, tool)));
        }
        for name in &file.used {
            let tool = library::tool(name).ok_or_else(|| {
                wrong("use", format!("the library has no '{name}'; it has {}", library::names()))
            })?;
            shipped.insert(&*tool.name, tool);
        }
        let mut own: BTreeMap<String, Tool> = BTreeMap::new();
        for (name, table) in file.tools {
            let tool = Tool::parse(&name, table, library::tool);
            let tool = tool.map_err(|reason| wrong(&format!("tools.{name}"), reason))?;
            let other = own.values().find(|other| other.path.is_some() && other.path == tool.path);
            if let Some(other) = other {
                return Err(wrong(&tool.rule, format!("{} has the same path", other.rule)));
            }
            own.insert(name, tool);
        }
        Ok(Self {
            profile: file.profile,
            inputs: file.inputs,
            paths: file.paths.checked().map_err(|reason| wrong("paths", reason))?,
            env: environment(&file.env).map_err(|reason| wrong("env", reason))?,
            asks: file.ask.checked().map_err(|reason| wrong("ask.profiles", reason))?,
            own,
            shipped,
        })
    }

    /// Returns the tool that a task with this command would run: a tool of the file before one of
    /// the library.
    pub(crate) fn tool(&self, command: &str) -> Option<&Tool> {
        if command.contains('/') {
            return self.own.values().find(|tool| tool.path.as_deref() == Some(command));
        }
        self.own.get(command).or_else(|| self.shipped.get(command).copied())
    }

    /// Returns the tools of the file.
    pub(crate) fn own_tools(&self) -> impl Iterator<Item = &Tool> {
        self.own.values()
    }

    /// Returns the sandbox profile that plans run in, if the policy names one.
    #[must_use]
    pub fn profile(&self) -> Option<&str> {
        self.profile.as_deref()
    }

    /// Returns what a person has to approve beside single tools.
    #[must_use]
    pub fn asks(&self) -> &Asks {
        &self.asks
    }

    /// Returns the names of all tools, sorted.
    #[must_use]
    pub fn tools(&self) -> Vec<&str> {
        let mut names: Vec<&str> =
            self.own.keys().map(String::as_str).chain(self.shipped.keys().copied()).collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}

//! Properties: guarantees about a task that a profile needs. A property names a guarantee, and not
//! the mechanism of the kernel that enforces the guarantee.

use std::{collections::BTreeSet, fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// Guarantee about a task in a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Property {
    /// Reads only files of the profile and of the system.
    FilesRead,
    /// Writes, creates, moves and deletes only files of the profile and of its scratch directory.
    /// Modes, owners, times and extended attributes of other files of its user are not protected.
    FilesWrite,
    /// Executes only the programs that its job names.
    Exec,
    /// Has no network.
    Network,
    /// Reaches no Unix socket, whether it has a path or an abstract name.
    UnixSockets,
    /// Signals only processes of its own job.
    Signals,
    /// Cannot read or change the memory of processes outside its job.
    Memory,
    /// No process, file or memory segment outlives its job.
    Leftovers,
    /// Has no terminal, and cannot get one.
    Terminal,
    /// Cannot gain privileges from set-user-ID programs, file capabilities or new namespaces.
    Privileges,
    /// Cannot call parts of the kernel that tasks do not need.
    KernelSurface,
    /// Processes, memory, open files, file size and processor time are bounded for each process.
    LimitsProcess,
    /// Bytes and files in the scratch directory are bounded.
    LimitsDisk,
    /// Memory is bounded for the sum of all processes of a job.
    LimitsMemory,
}

impl Property {
    /// All properties, in the order of reports.
    pub const ALL: [Self; 14] = [
        Self::FilesRead,
        Self::FilesWrite,
        Self::Exec,
        Self::Network,
        Self::UnixSockets,
        Self::Signals,
        Self::Memory,
        Self::Leftovers,
        Self::Terminal,
        Self::Privileges,
        Self::KernelSurface,
        Self::LimitsProcess,
        Self::LimitsDisk,
        Self::LimitsMemory,
    ];

    /// Returns the stable word for the wire and for configuration files.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::FilesRead => "files_read",
            Self::FilesWrite => "files_write",
            Self::Exec => "exec",
            Self::Network => "network",
            Self::UnixSockets => "unix_sockets",
            Self::Signals => "signals",
            Self::Memory => "memory",
            Self::Leftovers => "leftovers",
            Self::Terminal => "terminal",
            Self::Privileges => "privileges",
            Self::KernelSurface => "kernel_surface",
            Self::LimitsProcess => "limits_process",
            Self::LimitsDisk => "limits_disk",
            Self::LimitsMemory => "limits_memory",
        }
    }
}

impl fmt::Display for Property {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// Error for a word that names no property.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a property: use {known}", known = PropertySet::all())]
pub struct UnknownProperty(String);

impl FromStr for Property {
    type Err = UnknownProperty;

    fn from_str(word: &str) -> Result<Self, UnknownProperty> {
        let found = Self::ALL.into_iter().find(|property| property.word() == word);
        found.ok_or_else(|| UnknownProperty(word.to_owned()))
    }
}

/// Set of properties. The text of a set is a list of words with commas, in the order of
/// [`Property::ALL`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PropertySet(BTreeSet<Property>);

impl PropertySet {
    /// Returns the set of all properties.
    #[must_use]
    pub fn all() -> Self {
        Property::ALL.into_iter().collect()
    }

    /// Returns true if the set has `property`.
    #[must_use]
    pub fn contains(&self, property: Property) -> bool {
        self.0.contains(&property)
    }

    /// Returns true if the set has no property.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a property.
    pub fn insert(&mut self, property: Property) {
        self.0.insert(property);
    }

    /// Removes a property.
    pub fn remove(&mut self, property: Property) {
        self.0.remove(&property);
    }

    /// Returns the properties of this set that `other` does not have.
    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        Self(self.0.difference(&other.0).copied().collect())
    }

    /// Returns the properties in their order.
    pub fn iter(&self) -> impl Iterator<Item = Property> {
        self.0.iter().copied()
    }
}

impl FromIterator<Property> for PropertySet {
    fn from_iter<I: IntoIterator<Item = Property>>(properties: I) -> Self {
        Self(properties.into_iter().collect())
    }
}

impl fmt::Display for PropertySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, property) in self.iter().enumerate() {
            f.write_str(if at == 0 { "" } else { "," })?;
            f.write_str(property.word())?;
        }
        Ok(())
    }
}

impl FromStr for PropertySet {
    type Err = UnknownProperty;

    fn from_str(list: &str) -> Result<Self, UnknownProperty> {
        let words = list.split(',').map(str::trim).filter(|word| !word.is_empty());
        words.map(Property::from_str).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{Property, PropertySet};

    #[test]
    fn property_has_the_same_word_in_text_and_in_json() {
        for property in Property::ALL {
            assert_eq!(property.word().parse(), Ok(property));
            assert_eq!(serde_json::to_string(&property).unwrap(), format!("\"{property}\""));
        }
    }

    #[test]
    fn property_set_is_read_as_it_is_written() {
        let all = PropertySet::all();
        assert_eq!(all.iter().count(), Property::ALL.len());
        assert_eq!(all.to_string().parse(), Ok(all));
        assert_eq!("exec, network".parse::<PropertySet>().unwrap().to_string(), "exec,network");
        assert_eq!("".parse(), Ok(PropertySet::default()));
    }

    #[test]
    fn property_set_rejects_an_unknown_word() {
        let error = "exec,files".parse::<PropertySet>().unwrap_err().to_string();
        assert!(error.starts_with("'files' is not a property: use files_read,"), "{error}");
    }

    #[test]
    fn property_set_without_another_keeps_the_rest() {
        let two: PropertySet = [Property::Exec, Property::Network].into_iter().collect();
        let one: PropertySet = [Property::Network, Property::Terminal].into_iter().collect();
        assert_eq!(two.without(&one).to_string(), "exec");
    }
}

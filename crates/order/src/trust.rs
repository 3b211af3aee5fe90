//! Trust file of a worker: keys that sign orders, and the rights of their plans.

use std::collections::{BTreeMap, BTreeSet};

use agenix_protocol::{documents::is_profile_name, time::Timestamp};
use serde::Deserialize;

use crate::{error::InvalidTrustFile, inputs::InputBounds, key::PublicKey, order::is_name};

/// Rights that the owner of a worker grants to the plans of a signer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Grant {
    /// Plans run outside of the sandbox.
    Full,
    /// Plans run in this profile of the sandbox.
    Profile(String),
}

/// Signer of a trust file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signer {
    /// Keys, of which any signs for the name.
    pub keys: Vec<PublicKey>,
    /// Rights of the plans.
    pub grant: Grant,
    /// End of the trust. Default: none.
    pub not_after: Option<Timestamp>,
    /// Bounds that the inputs of the plans need.
    pub inputs: InputBounds,
    /// Number of `approvers` who have to sign the same envelope.
    pub approvals: usize,
    /// Names of signers who may approve.
    pub approvers: BTreeSet<String>,
}

/// Trust file.
///
/// ```
/// use agenix_order::{Grant, TrustFile};
///
/// let file = TrustFile::parse(
///     r#"
///     [signers.alice]
///     key = "ed25519:11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo="
///     trust = "full"
///     not_after = "2027-01-01"
///
///     [revoked]
///     serials = ["a1"]
///     "#,
/// )?;
/// assert_eq!(file.signer("alice").unwrap().grant, Grant::Full);
/// # Ok::<(), agenix_order::InvalidTrustFile>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustFile {
    signers: BTreeMap<String, Signer>,
    /// Keys of all signers with the names of their owners. A revoked key stays, so that a refusal
    /// can name the signer.
    pub(crate) keys: Vec<NamedKey>,
    /// Keys of workers, which sign provenance.
    worker_keys: Vec<NamedKey>,
    revoked_keys: BTreeSet<PublicKey>,
    revoked_serials: BTreeSet<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NamedKey {
    pub(crate) key: PublicKey,
    pub(crate) name: String,
}

impl AsRef<PublicKey> for NamedKey {
    fn as_ref(&self) -> &PublicKey {
        &self.key
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TrustTable {
    #[serde(default)]
    signers: BTreeMap<String, SignerTable>,
    #[serde(default)]
    workers: BTreeMap<String, WorkerTable>,
    #[serde(default)]
    revoked: RevokedTable,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SignerTable {
    key: Option<String>,
    #[serde(default)]
    keys: Vec<String>,
    trust: Option<FullTrust>,
    profile: Option<String>,
    not_after: Option<String>,
    inputs: Option<AnyInputs>,
    #[serde(default)]
    approvals: usize,
    #[serde(default)]
    approvers: BTreeSet<String>,
}

/// Keys of a worker.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WorkerTable {
    key: Option<String>,
    #[serde(default)]
    keys: Vec<String>,
}

/// The only value of `trust`: rights that are not those of a profile.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum FullTrust {
    Full,
}

/// The only value of `inputs`.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum AnyInputs {
    Any,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct RevokedTable {
    keys: Vec<String>,
    serials: BTreeSet<String>,
}

impl TrustFile {
    /// Parses a trust file in TOML.
    ///
    /// # Errors
    ///
    /// Returns the place and the reason of the first fault, also for two signers with one key.
    pub fn parse(text: &str) -> Result<Self, InvalidTrustFile> {
        let table: TrustTable = toml::from_str(text).map_err(|error| InvalidTrustFile(error.to_string()))?;
        let mut signers = BTreeMap::new();
        let mut keys: Vec<NamedKey> = Vec::new();
        for (name, table) in table.signers {
            let signer =
                signer(&name, table).map_err(|why| InvalidTrustFile(format!("signers.{name}: {why}")))?;
            for key in &signer.keys {
                if let Some(other) = keys.iter().find(|other| other.key == *key) {
                    let text = format!("signers.{name}: the key {key} is also that of '{}'", other.name);
                    return Err(InvalidTrustFile(text));
                }
                keys.push(NamedKey { key: *key, name: name.clone() });
            }
            signers.insert(name, signer);
        }
        for (name, signer) in &signers {
            if let Some(missing) = signer.approvers.iter().find(|approver| !signers.contains_key(*approver)) {
                let text = format!("signers.{name}: the approver '{missing}' is no signer of the file");
                return Err(InvalidTrustFile(text));
            }
        }
        let worker_keys = worker_keys(&table.workers)?;
        let revoked = table.revoked.keys.iter().map(|key| key.parse::<PublicKey>());
        let revoked_keys = revoked
            .collect::<Result<_, _>>()
            .map_err(|error| InvalidTrustFile(format!("revoked.keys: {error}")))?;
        Ok(Self { signers, keys, worker_keys, revoked_keys, revoked_serials: table.revoked.serials })
    }

    /// Returns a signer by its name.
    pub fn signer(&self, name: &str) -> Option<&Signer> {
        self.signers.get(name)
    }

    /// Returns the signers by their names.
    pub fn signers(&self) -> impl Iterator<Item = (&str, &Signer)> {
        self.signers.iter().map(|(name, signer)| (name.as_str(), signer))
    }

    /// Returns this file with the revoked keys and serials of `other`, too.
    #[must_use]
    pub fn with_revocations_of(&self, other: &Self) -> Self {
        let mut file = self.clone();
        file.revoked_keys.extend(&other.revoked_keys);
        file.revoked_serials.extend(other.revoked_serials.iter().cloned());
        file
    }

    pub(crate) fn worker_keys(&self) -> &[NamedKey] {
        &self.worker_keys
    }

    pub(crate) fn is_revoked_key(&self, key: &PublicKey) -> bool {
        self.revoked_keys.contains(key)
    }

    pub(crate) fn is_revoked_serial(&self, serial: &str) -> bool {
        self.revoked_serials.contains(serial)
    }
}

/// Returns the keys of the workers with their names. No two workers have one key.
fn worker_keys(workers: &BTreeMap<String, WorkerTable>) -> Result<Vec<NamedKey>, InvalidTrustFile> {
    let mut all: Vec<NamedKey> = Vec::new();
    for (name, WorkerTable { key, keys }) in workers {
        let wrong = |why: String| InvalidTrustFile(format!("workers.{name}: {why}"));
        for key in named_keys(name, key.as_ref(), keys).map_err(wrong)? {
            if let Some(other) = all.iter().find(|other| other.key == key) {
                return Err(wrong(format!("the key {key} is also that of '{}'", other.name)));
            }
            all.push(NamedKey { key, name: name.clone() });
        }
    }
    Ok(all)
}

/// Checks a name, and returns its keys, of which there is at least one.
fn named_keys(name: &str, key: Option<&String>, keys: &[String]) -> Result<Vec<PublicKey>, String> {
    if !is_name(name) {
        return Err("the name has to be 1 to 64 letters, digits, '.', '_', '-' and ':'".into());
    }
    let keys = key.into_iter().chain(keys).map(|key| key.parse::<PublicKey>());
    let keys: Vec<PublicKey> = keys.collect::<Result<_, _>>().map_err(|error| error.to_string())?;
    if keys.is_empty() {
        return Err("give a key".into());
    }
    Ok(keys)
}

fn signer(name: &str, table: SignerTable) -> Result<Signer, String> {
    let keys = named_keys(name, table.key.as_ref(), &table.keys)?;
    let grant = match (table.trust, table.profile) {
        (Some(FullTrust::Full), None) => Grant::Full,
        (None, Some(profile)) if is_profile_name(&profile) => Grant::Profile(profile),
        (None, Some(profile)) => {
            return Err(format!("'{}' is not the name of a profile", profile.escape_debug()));
        }
        (_, _) => return Err("give either trust = \"full\" or a profile".into()),
    };
    let not_after = table.not_after.map(|text| {
        let time = Timestamp::parse(&text).or_else(|| Timestamp::parse(&format!("{text}T00:00:00Z")));
        time.ok_or_else(|| format!("not_after is '{}', which is no date", text.escape_debug()))
    });
    let mut approvers = table.approvers;
    approvers.remove(name);
    if table.approvals > approvers.len() {
        return Err(format!("{} approvals need as many approvers besides '{name}'", table.approvals));
    }
    let inputs = table.inputs.map_or(InputBounds::Required, |AnyInputs::Any| InputBounds::Any);
    Ok(Signer {
        keys,
        grant,
        not_after: not_after.transpose()?,
        inputs,
        approvals: table.approvals,
        approvers,
    })
}

#[cfg(test)]
mod tests {
    use super::{Grant, TrustFile};
    use crate::{inputs::InputBounds, key::SigningKey};

    fn key(number: u8) -> String {
        SigningKey::from_seed(&[number; 32]).public().to_string()
    }

    #[test]
    fn trust_file_has_signers_with_keys_and_rights() {
        let (one, two, three) = (key(1), key(2), key(3));
        let file = TrustFile::parse(&format!(
            r#"
            [signers.alice]
            key = "{one}"
            keys = ["{two} laptop"]
            trust = "full"
            [signers.robot]
            key = "{three}"
            profile = "reader"
            not_after = "2027-01-01"
            inputs = "any"
            approvals = 1
            approvers = ["alice", "robot"]
            "#
        ))
        .unwrap();
        let (alice, robot) = (file.signer("alice").unwrap(), file.signer("robot").unwrap());
        assert_eq!((alice.keys.len(), &alice.grant, alice.inputs), (2, &Grant::Full, InputBounds::Required));
        assert_eq!((&robot.grant, robot.inputs), (&Grant::Profile("reader".into()), InputBounds::Any));
        assert_eq!(robot.not_after.unwrap().to_string(), "2027-01-01T00:00:00.000Z");
        assert_eq!(robot.approvers.iter().collect::<Vec<_>>(), ["alice"], "nobody approves alone");
        assert!(TrustFile::parse("").unwrap().signers().next().is_none(), "an empty file trusts nobody");
    }

    #[test]
    fn trust_file_is_refused_with_the_place() {
        let (one, two) = (key(1), key(2));
        let of = |rest: &str| format!("[signers.a]\nkey = \"{one}\"\n{rest}");
        for (text, expected) in [
            (of(""), "signers.a: give either trust"),
            (of("trust = \"full\"\nprofile = \"reader\""), "signers.a: give either trust"),
            (of("trust = \"most\""), "unknown variant `most`"),
            (of("trusted = true"), "unknown field `trusted`"),
            (of("profile = \"R\""), "signers.a: 'R' is not the name of a profile"),
            (
                of("trust = \"full\"\nnot_after = \"soon\""),
                "signers.a: not_after is 'soon', which is no date",
            ),
            (of("trust = \"full\"\napprovals = 1"), "signers.a: 1 approvals need"),
            (of("trust = \"full\"\napprovals = 1\napprovers = [\"a\"]"), "signers.a: 1 approvals need"),
            (of("trust = \"full\"\napprovers = [\"b\"]"), "signers.a: the approver 'b' is no signer"),
            (
                of(&format!("trust = \"full\"\n[signers.b]\nkey = \"{one}\"\ntrust = \"full\"")),
                "is also that of 'a'",
            ),
            (format!("[signers.a]\nkeys = [\"{two}\", \"{two}\"]\ntrust = \"full\""), "is also that of 'a'"),
            ("[signers.a]\ntrust = \"full\"".into(), "signers.a: give a key"),
            (
                "[signers.a]\nkey = \"ssh-rsa AAAA\"\ntrust = \"full\"".into(),
                "'ssh-rsa' is not a type of keys",
            ),
            ("[signers.\"a b\"]\nkey = \"x\"\ntrust = \"full\"".into(), "the name has to be"),
            ("[revoked]\nkeys = [\"x\"]".into(), "revoked.keys: 'x' is not a type"),
            ("signer = 1".into(), "unknown field `signer`"),
            ("[workers.w1]".into(), "workers.w1: give a key"),
            ("[workers.\"a b\"]\nkey = \"x\"".into(), "workers.a b: the name has to be"),
            (format!("[workers.w1]\nkey = \"{one}\"\n[workers.w2]\nkey = \"{one}\""), "workers.w2: the key"),
            (format!("[workers.w1]\nkey = \"{one}\"\ntrust = \"full\""), "unknown field `trust`"),
        ] {
            let error = TrustFile::parse(&text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}

//! Keyring: maps keys to identities, which are the session key and the named keys of admins,
//! clients, workers and agents (worker spec §7.1).
//!
//! Only hashes are kept. This module does no I/O.

use std::{
    collections::BTreeSet,
    fmt, mem,
    sync::{Arc, PoisonError, RwLock},
};

use agenix_protocol::{
    ids::WorkerId,
    request::{AgentAccess, Command, CommandAccess},
};
use agenix_rules::{
    budget::Budget,
    fair_share::KeyShares,
    owner::{AgentTerms, Owner},
    rejection::Rejection,
};
use anyhow::{Context, bail};
use serde::Serialize;
use subtle::ConditionallySelectable;

use crate::{auth::session_key::KeyHash, registry::budgets::BudgetTerms};

/// Maximum number of bytes in the name of a client, an admin or an agent.
const MAX_NAME_BYTES: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Role {
    /// May use every command: the session key, and the keys of admins.
    Admin,
    /// May submit and watch.
    Client,
    /// May claim jobs and report on them, as the worker of its name.
    Worker,
    /// May submit, and see and change what it has submitted.
    Agent,
}

impl Role {
    /// Returns true if the role may use a command. An agent may use some commands on its own
    /// records alone.
    pub(crate) fn may_use(self, command: &Command) -> bool {
        if self == Self::Agent { command.agent != AgentAccess::Refused } else { self.allows(command.access) }
    }

    /// Returns true for a role that may read the records of all owners, and has this access.
    pub(crate) fn allows(self, access: CommandAccess) -> bool {
        match access {
            CommandAccess::Everyone => self != Self::Agent,
            CommandAccess::Client => matches!(self, Self::Client | Self::Admin),
            CommandAccess::Worker => matches!(self, Self::Worker | Self::Admin),
            CommandAccess::Admin => self == Self::Admin,
        }
    }

    /// Returns the refusal of a command that the role may not use.
    pub(crate) fn refusal(self, command: &Command) -> Rejection {
        let text = format!("This key is {}'s and may not use {}", self.with_article(), command.name);
        Rejection::NotPermitted(text)
    }

    /// Returns the role for messages: `a client`.
    fn with_article(self) -> &'static str {
        match self {
            Self::Admin => "an admin",
            Self::Client => "a client",
            Self::Worker => "a worker",
            Self::Agent => "an agent",
        }
    }
}

impl Role {
    fn as_str(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Client => "client",
            Self::Worker => "worker",
            Self::Agent => "agent",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) role: Role,
    /// Id of the worker, or name of the client, admin or agent; `admin` for the session key.
    pub(crate) name: Arc<str>,
    /// Owner of the records that the key submits; `None` for the session key.
    pub(crate) owner: Option<Owner>,
    /// Terms of the key of an agent.
    pub(crate) terms: Option<Arc<AgentTerms>>,
}

impl Identity {
    /// Returns the identity of a named key.
    pub(crate) fn new(role: Role, name: &str) -> Self {
        let terms = (role == Role::Agent).then(Arc::default);
        Self { role, name: name.into(), owner: Some(Owner::new(role.as_str(), name)), terms }
    }

    /// Returns the identity of the session key.
    pub(crate) fn of_session_key() -> Self {
        Self { owner: None, ..Self::new(Role::Admin, "admin") }
    }
}

/// Keys with their identities, the budgets of their names, and their shares. `Debug` shows no key.
#[derive(Debug, Default)]
pub(crate) struct SessionKeys(Vec<(KeyHash, Identity)>, BudgetTerms, Vec<(Owner, KeyShares)>);

impl SessionKeys {
    /// Fails if the key is already in the set.
    pub(crate) fn add_session_key(&mut self, hash: KeyHash) -> anyhow::Result<()> {
        self.push(hash, Identity::of_session_key(), "session key")
    }

    /// Adds a key of at least 32 bytes, or `sha256:` and its hash in hexadecimal digits. Fails if
    /// the name is not valid or ambiguous, or if the key is already in the set.
    pub(crate) fn add(&mut self, role: Role, name: &str, key: &str) -> anyhow::Result<()> {
        let place = format!("[{role}s] '{name}'");
        match role {
            Role::Worker => drop(WorkerId::new(name).with_context(|| format!("the name in {place}"))?),
            Role::Admin | Role::Client | Role::Agent => check_name(name, &place)?,
        }
        let hash = KeyHash::read(key, &place)?;
        let is_other = |other: &Identity| other.role != Role::Admin && other.role != role;
        let mut certifiable = self.0.iter().filter(|(_, other)| is_other(other));
        if role != Role::Admin
            && let Some((_, other)) = certifiable.find(|(_, other)| *other.name == *name)
        {
            bail!(
                "{place} is also in [{}s]: a certificate of that name could be either, so choose another name",
                other.role
            );
        }
        self.push(hash, Identity::new(role, name), &place)
    }

    /// Adds the key of an agent with its terms, like [`Self::add`].
    pub(crate) fn add_agent(&mut self, name: &str, key: &str, terms: AgentTerms) -> anyhow::Result<()> {
        self.add(Role::Agent, name, key)?;
        if let Some((_, identity)) = self.0.last_mut() {
            identity.terms = Some(Arc::new(terms));
        }
        Ok(())
    }

    /// Sets the budget of the client or agent with a name, or that it has none.
    pub(crate) fn set_budget(&mut self, name: &str, budget: Option<Budget>) {
        self.1.insert(name.to_owned(), budget);
    }

    pub(crate) fn budgets(&self) -> &BudgetTerms {
        &self.1
    }

    /// Sets the shares of a client or agent.
    pub(crate) fn set_shares(&mut self, role: Role, name: &str, shares: KeyShares) {
        self.2.push((Owner::new(role.as_str(), name), shares));
    }

    pub(crate) fn shares(&self) -> &[(Owner, KeyShares)] {
        &self.2
    }

    pub(crate) fn has_admin(&self) -> bool {
        self.0.iter().any(|(_, identity)| identity.role == Role::Admin)
    }

    /// Returns the numbers of keys of each role, for the log.
    pub(crate) fn numbers(&self) -> String {
        let number = |role: Role| {
            let count = self.0.iter().filter(|(_, identity)| identity.role == role).count();
            format!("{count} {role}{}", if count == 1 { "" } else { "s" })
        };
        [Role::Admin, Role::Client, Role::Worker, Role::Agent].map(number).join(", ")
    }

    fn push(&mut self, hash: KeyHash, identity: Identity, place: &str) -> anyhow::Result<()> {
        let duplicate = self.0.iter().find(|(other, _)| hash.matches(other).into());
        if let Some((_, Identity { role, name, .. })) = duplicate {
            bail!(
                "the key of {place} is also that of {role} '{name}': every key must be unique, so make another with `openssl rand -hex 32`"
            );
        }
        self.0.push((hash, identity));
        Ok(())
    }
}

#[derive(Debug)]
pub(crate) struct Keyring(RwLock<SessionKeys>);

impl Keyring {
    pub(crate) fn new(keys: SessionKeys) -> Self {
        Self(RwLock::new(keys))
    }

    /// Takes constant time: every entry is compared, whether or not one matches.
    pub(crate) fn identify(&self, key: &[u8]) -> Option<Identity> {
        self.identify_hash(&KeyHash::of(key))
    }

    pub(crate) fn identify_hash(&self, key: &KeyHash) -> Option<Identity> {
        let keys = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let mut place = u32::MAX;
        for (at, (hash, _)) in (0..u32::MAX).zip(&keys.0) {
            place.conditional_assign(&at, hash.matches(key));
        }
        let place = usize::try_from(place).ok()?;
        keys.0.get(place).map(|(_, identity)| identity.clone())
    }

    /// Returns the identity of a verified certificate with these DNS names, which is never an
    /// admin.
    pub(crate) fn of_certificate(&self, names: &[String]) -> Option<Identity> {
        let keys = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let named = |name: &String| {
            let mut listed = keys.0.iter().filter(|(_, identity)| identity.role != Role::Admin);
            listed.find(|(_, identity)| *identity.name == **name)
        };
        names.iter().find_map(named).map(|(_, identity)| identity.clone())
    }

    /// Replaces all keys, and returns role and name of those that have none any more. Connections
    /// that are logged in keep their identity.
    pub(crate) fn replace(&self, keys: SessionKeys) -> Vec<String> {
        let holder = |(_, identity): &(KeyHash, Identity)| format!("{} {}", identity.role, identity.name);
        let listed: BTreeSet<String> = keys.0.iter().map(holder).collect();
        let old = mem::replace(&mut *self.0.write().unwrap_or_else(PoisonError::into_inner), keys);
        old.0.iter().map(holder).filter(|holder| !listed.contains(holder)).collect()
    }
}

fn check_name(name: &str, place: &str) -> anyhow::Result<()> {
    let is_legal = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    if name.is_empty() || name.len() > MAX_NAME_BYTES || !name.bytes().all(is_legal) {
        bail!(
            "the name in {place} is not valid: use 1 to {MAX_NAME_BYTES} letters, digits and '.', '_', '-'"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use agenix_protocol::request::{AgentAccess, Command, CommandAccess};
    use agenix_rules::owner::AgentTerms;

    use super::{Identity, Keyring, Role, SessionKeys};
    use crate::auth::session_key::KeyHash;

    fn key(letter: &str) -> String {
        letter.repeat(64)
    }

    fn identity(role: Role, name: &str) -> Option<Identity> {
        Some(Identity::new(role, name))
    }

    fn keys() -> SessionKeys {
        let mut keys = SessionKeys::default();
        keys.add_session_key(KeyHash::of(key("s").as_bytes())).unwrap();
        keys.add(Role::Worker, "w1", &key("w")).unwrap();
        keys.add(Role::Worker, "w2", &key("x")).unwrap();
        keys.add(Role::Client, "alice", &key("a")).unwrap();
        keys.add(Role::Admin, "root", &key("r")).unwrap();
        keys.add_agent("claude-1", &key("c"), terms()).unwrap();
        keys
    }

    fn terms() -> AgentTerms {
        AgentTerms { queues: Some(["agents".parse().unwrap()].into()) }
    }

    #[test]
    fn agents_have_their_terms_and_own_what_they_submit() {
        let found = Keyring::new(keys()).identify(key("c").as_bytes()).unwrap();
        assert_eq!((found.role, found.terms.as_deref()), (Role::Agent, Some(&terms())));
        assert_eq!(found.owner.unwrap().as_str(), "agent:claude-1");
        let others = [identity(Role::Client, "alice").unwrap(), Identity::of_session_key()];
        let owners = others.map(|identity| (identity.owner.map(|owner| owner.to_string()), identity.terms));
        assert_eq!(owners, [(Some("client:alice".to_owned()), None), (None, None)]);
    }

    #[test]
    fn agents_may_use_what_the_table_of_commands_says() {
        for command in Command::all() {
            let expected = command.agent != AgentAccess::Refused;
            assert_eq!(Role::Agent.may_use(command), expected, "{}", command.name);
            assert_eq!(
                Role::Client.may_use(command),
                Role::Client.allows(command.access),
                "{}",
                command.name
            );
        }
    }

    #[test]
    fn roles_allow_exactly_their_commands() {
        let roles = [Role::Admin, Role::Client, Role::Worker, Role::Agent];
        let table = [
            (CommandAccess::Everyone, [true, true, true, false]),
            (CommandAccess::Client, [true, true, false, false]),
            (CommandAccess::Worker, [true, false, true, false]),
            (CommandAccess::Admin, [true, false, false, false]),
        ];
        for (access, allowed) in table {
            assert_eq!(roles.map(|role| role.allows(access)), allowed, "{access:?}");
        }
    }

    #[test]
    fn keyring_identifies_known_keys_only() {
        let keyring = Keyring::new(keys());
        let identify = |letter: &str| keyring.identify(key(letter).as_bytes());
        assert_eq!(identify("s"), Some(Identity::of_session_key()));
        assert_eq!(identify("w"), identity(Role::Worker, "w1"));
        assert_eq!(identify("x"), identity(Role::Worker, "w2"));
        assert_eq!(identify("a"), identity(Role::Client, "alice"));
        assert_eq!(identify("r"), identity(Role::Admin, "root"));
        assert_eq!(identify("y"), None);
        assert_eq!(keyring.identify(b""), None);
        assert_eq!(keyring.identify(&key("s").as_bytes()[1..]), None);
        assert!(!format!("{keyring:?}").contains("www"));
    }

    #[test]
    fn certificate_maps_to_a_listed_worker_or_client_only() {
        let keyring = Keyring::new(keys());
        let of = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
            keyring.of_certificate(&names)
        };
        assert_eq!(of(&["host.example", "w2"]), identity(Role::Worker, "w2"));
        assert_eq!(of(&["alice"]), identity(Role::Client, "alice"));
        assert_eq!(of(&["w3"]), None, "a worker that is not listed");
        assert_eq!(of(&["root"]), None, "a certificate never stands for an admin");
        assert_eq!(of(&["admin"]), None);
        assert_eq!(of(&[]), None);
    }

    #[test]
    fn replace_replaces_all_keys_and_names_those_that_are_gone() {
        let keys = keys();
        assert_eq!(keys.numbers(), "2 admins, 1 client, 2 workers, 1 agent");
        let keyring = Keyring::new(keys);
        let mut others = SessionKeys::default();
        others.add(Role::Worker, "w1", &key("n")).unwrap();
        let gone = keyring.replace(others);
        assert_eq!(gone, ["admin admin", "worker w2", "client alice", "admin root", "agent claude-1"]);
        assert_eq!(keyring.identify(key("w").as_bytes()), None);
        assert_eq!(keyring.identify(key("n").as_bytes()), identity(Role::Worker, "w1"));
    }

    #[test]
    fn keyring_rejects_duplicate_keys_and_ambiguous_names() {
        let mut keys = keys();
        let duplicate = keys.add(Role::Worker, "w3", &key("a")).unwrap_err().to_string();
        let words = "[workers] 'w3' is also that of client 'alice'";
        assert!(duplicate.contains(words) && !duplicate.contains("aaa"), "{duplicate}");
        let session = keys.add(Role::Client, "bob", &key("s")).unwrap_err().to_string();
        assert!(session.contains("is also that of admin 'admin'"), "{session}");
        let name = keys.add(Role::Client, "w1", &key("z")).unwrap_err().to_string();
        assert!(name.contains("[clients] 'w1' is also in [workers]"), "{name}");
        let agent = keys.add(Role::Agent, "alice", &key("z")).unwrap_err().to_string();
        assert!(agent.contains("[agents] 'alice' is also in [clients]"), "{agent}");
        assert!(keys.add(Role::Admin, "alice", &key("b")).is_ok(), "no certificate is an admin's");
    }

    #[test]
    fn key_names_are_checked_at_the_edge_and_one_past_it() {
        let mut keys = SessionKeys::default();
        assert!(keys.add(Role::Client, &"c".repeat(64), &key("1")).is_ok());
        assert!(keys.add(Role::Client, &"c".repeat(65), &key("2")).is_err());
        assert!(keys.add(Role::Client, "", &key("2")).is_err());
        assert!(keys.add(Role::Client, "a b", &key("2")).is_err());
        assert!(keys.add(Role::Worker, "w.1", &key("2")).is_err(), "a worker's id has no '.'");
        assert!(keys.add(Role::Worker, "w_1", &key("2")).is_ok());
        assert!(!keys.has_admin());
    }
}

//! `agx key`

use agenix_order::{Envelope, PublicKey, SignatureKind, SigningKey};
use clap::Subcommand;
use serde_json::{Value, json};

use crate::{
    documents::{KeyRotated, KeyShown},
    error::Result,
    output::{OutputFormat, table},
    signing_keys::{NamedKeys, SigningKeys},
    util::clock::now,
};

/// Type of the statement that a key has replaced another one.
const ROTATION_TYPE: &str = "application/vnd.agenix.key-rotation+json";

#[derive(Debug, Subcommand)]
pub(crate) enum SigningKeyCommand {
    /// Make a key that signs plans, and print its public key
    New { name: String },
    /// List your keys
    List,
    /// Print the public key of a name, for the trust file of a worker
    Show { name: String },
    /// Replace a key, and print a statement that the old key has signed; the old key is kept once
    Rotate { name: String },
}

pub(crate) fn run(command: &SigningKeyCommand, output: OutputFormat) -> Result<()> {
    let keys = SigningKeys::find()?;
    match command {
        SigningKeyCommand::New { name } => {
            let key = keys.create(name)?;
            output.show("key.new", &shown(name, &key, None), line)
        }
        SigningKeyCommand::List => {
            let all: Vec<KeyShown> = keys.all()?.iter().map(|(name, keys)| shown_keys(name, keys)).collect();
            output.show("key.list", &all, |all| list(all))
        }
        SigningKeyCommand::Show { name } => {
            let shown = shown_keys(name, &keys.get(name)?);
            output.show("key.show", &shown, line)
        }
        SigningKeyCommand::Rotate { name } => rotate(&keys, name, output),
    }
}

fn rotate(keys: &SigningKeys, name: &str, output: OutputFormat) -> Result<()> {
    let (new, old) = keys.rotate(name)?;
    let (new_key, old_key) = (new.public().to_string(), old.public().to_string());
    let payload = json!({"v": 1, "name": name, "old": old_key, "new": new_key, "at": now().to_string()});
    let payload = payload.to_string().into_bytes();
    let mut statement = Envelope { payload_type: ROTATION_TYPE.into(), payload, signatures: Vec::new() };
    statement.sign(&old, SignatureKind::Order);
    let statement: Value = serde_json::from_str(&statement.to_json()).unwrap_or_default();
    let rotated = KeyRotated { name: name.to_owned(), public_key: new_key, previous: old_key, statement };
    output.show("key.rotate", &rotated, |rotated| {
        format!(
            "the key {} is replaced; as long as both are valid, workers trust\nkeys = [\"{}\", \"{}\"]\nstatement of the old key: {}",
            rotated.name, rotated.public_key, rotated.previous, rotated.statement
        )
    })
}

fn shown_keys(name: &str, keys: &NamedKeys) -> KeyShown {
    shown(name, &keys.current, keys.previous.as_ref().map(SigningKey::public))
}

fn shown(name: &str, key: &SigningKey, previous: Option<PublicKey>) -> KeyShown {
    let key = key.public();
    let (keyid, public_key) = (key.keyid().to_string(), key.to_string());
    KeyShown { name: name.to_owned(), keyid, public_key, previous: previous.map(|key| key.to_string()) }
}

/// Returns the line of a public key with its name.
fn line(shown: &KeyShown) -> String {
    format!("{} {}", shown.public_key, shown.name)
}

fn list(all: &[KeyShown]) -> String {
    if all.is_empty() {
        return "there is no key: `agx key new` makes one".into();
    }
    let row = |shown: &KeyShown| vec![shown.name.clone(), shown.keyid.clone(), shown.public_key.clone()];
    table(&["NAME", "ID", "PUBLIC KEY"], &all.iter().map(row).collect::<Vec<_>>())
}

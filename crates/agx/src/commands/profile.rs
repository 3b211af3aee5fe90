//! `agx profile`

use clap::Subcommand;

use crate::{
    connection_args::ConnectionArgs,
    documents::{NameRef, ProfileListed, ProfileSet},
    error::Result,
    output::{OutputFormat, table},
    profiles::{ServerProfile, UserDir, check_name, not_found},
};

#[derive(Debug, Subcommand)]
pub(crate) enum ProfileCommand {
    /// List the profiles
    List,
    /// Store --agq, --session-key-file and the certificates as a profile
    Set { name: String },
    /// Make this the default profile
    Use { name: String },
    /// Remove a profile
    Remove { name: String },
}

pub(crate) fn run(server: &ConnectionArgs, command: ProfileCommand, output: OutputFormat) -> Result<()> {
    let home = UserDir::find()?;
    match command {
        ProfileCommand::List => list(&home, output),
        ProfileCommand::Set { name } => {
            check_name(&name)?;
            let profile = server.as_profile()?;
            home.change(|all| {
                all.profiles.insert(name.clone(), profile.clone());
                all.current.get_or_insert_with(|| name.clone());
            })?;
            output.show("profile.set", &ProfileSet { name, agq: profile.agq }, |set| {
                format!("profile {}: {}", set.name, set.agq)
            })
        }
        ProfileCommand::Use { name } => {
            if !home.profiles()?.profiles.contains_key(&name) {
                return Err(not_found(&name));
            }
            home.change(|all| all.current = Some(name.clone()))?;
            output.show("profile.use", &NameRef { name }, |used| {
                format!("the default profile is {}", used.name)
            })
        }
        ProfileCommand::Remove { name } => {
            if !home.profiles()?.profiles.contains_key(&name) {
                return Err(not_found(&name));
            }
            home.change(|all| {
                all.profiles.remove(&name);
                all.current.take_if(|current| *current == name);
            })?;
            output.show("profile.remove", &NameRef { name }, |gone| {
                format!("the profile {} is removed", gone.name)
            })
        }
    }
}

fn list(home: &UserDir, output: OutputFormat) -> Result<()> {
    let all = home.profiles()?;
    let is_current = |name: &String| all.current.as_ref() == Some(name);
    let entry = |(name, profile): (&String, &ServerProfile)| ProfileListed {
        name: name.clone(),
        agq: profile.agq.clone(),
        in_use: is_current(name),
    };
    let document: Vec<_> = all.profiles.iter().map(entry).collect();
    output.show("profile.list", &document, |_| {
        if all.profiles.is_empty() {
            return "there is no profile: `agx up`, `agx join` and `agx profile set` make one".into();
        }
        let row = |(name, profile): (&String, &ServerProfile)| {
            vec![
                name.clone(),
                profile.agq.clone(),
                if is_current(name) { "in use".into() } else { String::new() },
            ]
        };
        table(&["PROFILE", "AGQ", ""], &all.profiles.iter().map(row).collect::<Vec<_>>())
    })
}

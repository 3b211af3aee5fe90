//! `agx profile …`

use serde_json::json;

use crate::{
    cli::{ProfileCommand, ServerArgs},
    failure::Failure,
    home::{Home, Profile, check_name, not_found},
    output::{Output, table},
};

pub(super) fn run(server: &ServerArgs, command: ProfileCommand, output: Output) -> Result<(), Failure> {
    let home = Home::find()?;
    match command {
        ProfileCommand::List => list(&home, output),
        ProfileCommand::Set { name } => {
            check_name(&name)?;
            let profile = server.as_profile()?;
            home.change(|all| {
                all.profiles.insert(name.clone(), profile.clone());
                all.current.get_or_insert_with(|| name.clone());
            })?;
            output.show("profile.set", &json!({"name": name, "agq": profile.agq}), |_| {
                format!("profile {name}: {}", profile.agq)
            })
        }
        ProfileCommand::Use { name } => {
            if !home.profiles()?.profiles.contains_key(&name) {
                return Err(not_found(&name));
            }
            home.change(|all| all.current = Some(name.clone()))?;
            output.show("profile.use", &json!({"name": name}), |_| format!("the profile {name} is in use"))
        }
        ProfileCommand::Remove { name } => {
            if !home.profiles()?.profiles.contains_key(&name) {
                return Err(not_found(&name));
            }
            home.change(|all| {
                all.profiles.remove(&name);
                all.current.take_if(|current| *current == name);
            })?;
            output.show("profile.remove", &json!({"name": name}), |_| format!("the profile {name} is gone"))
        }
    }
}

fn list(home: &Home, output: Output) -> Result<(), Failure> {
    let all = home.profiles()?;
    let is_current = |name: &String| all.current.as_ref() == Some(name);
    let entry = |(name, profile): (&String, &Profile)| json!({"name": name, "agq": profile.agq, "in_use": is_current(name)});
    let document: Vec<_> = all.profiles.iter().map(entry).collect();
    output.show("profile.list", &document, |_| {
        if all.profiles.is_empty() {
            return "there is no profile: `agx up`, `agx join` and `agx profile set` make one".into();
        }
        let row = |(name, profile): (&String, &Profile)| {
            vec![
                name.clone(),
                profile.agq.clone(),
                if is_current(name) { "in use".into() } else { String::new() },
            ]
        };
        table(&["PROFILE", "AGQ", ""], &all.profiles.iter().map(row).collect::<Vec<_>>())
    })
}

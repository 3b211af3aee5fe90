//! Tests of the whole command line.

use std::collections::BTreeSet;

use clap::{Command, CommandFactory, Parser};

use super::Cli;

#[test]
fn the_command_line_is_well_formed() {
    Cli::command().debug_assert();
}

/// clap does not detect that an argument with the id of a global option shares the value of the
/// option.
#[test]
fn no_argument_has_the_id_of_a_global_option() {
    fn check(command: &Command, global: &BTreeSet<String>) {
        let own = command.get_arguments().map(|arg| (arg.get_id().to_string(), arg.is_global_set()));
        let (everywhere, here): (Vec<_>, Vec<_>) = own.partition(|(_, is_global)| *is_global);
        for (id, _) in &here {
            assert!(!global.contains(id), "{}: {id}", command.get_name());
        }
        let mut global = global.clone();
        for (id, _) in everywhere {
            assert!(global.insert(id.clone()), "{}: {id}", command.get_name());
        }
        command.get_subcommands().for_each(|command| check(command, &global));
    }
    check(&Cli::command(), &BTreeSet::new());
}

#[test]
fn up_does_not_pass_global_options_to_agq() {
    let cli = Cli::try_parse_from(["agx", "--agq", "h:1", "up", "--", "--port", "0"]).unwrap();
    let Some(super::Command::Up(up)) = cli.command else { panic!("{cli:?}") };
    assert_eq!(up.options_of_agq, ["--port", "0"]);
    assert_eq!(cli.server.address().unwrap().as_deref(), Some("h:1"));
    let cli = Cli::try_parse_from(["agx", "--agq", "h:1", "up"]).unwrap();
    assert!(matches!(cli.command, Some(super::Command::Up(up)) if up.options_of_agq.is_empty()));
}

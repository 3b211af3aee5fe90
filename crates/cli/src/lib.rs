//! Command-line conventions that agq, agw and agx share: which environment variables count as
//! settings, errors for output that cannot be written, refused threads, and syncs of directories.

#![forbid(unsafe_code)]

mod directory;
pub mod log;
mod threads;

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io::{self, ErrorKind, IsTerminal, StdinLock, StdoutLock, Write},
    path::{Path, PathBuf},
};

use agenix_protocol::printable::{is_hidden, one_line, printable};
use agenix_sys::{Standard, check, restore_signals};

use clap::{Arg, Command, Parser, builder::Resettable};

pub use directory::sync_directory;
pub use threads::{check_threads, refused_thread};

/// Parses the command line, and ends the process if it is wrong or asks for help.
///
/// An empty environment variable counts as unset, because compose files and units write
/// `NAME=${NAME:-}`. A variable that Kubernetes sets for a Service of the same name is ignored,
/// with a warning on stderr.
///
/// The call also restores signals that the parent process ignored or blocked, and so precedes other
/// threads.
pub fn parse<T: Parser>() -> T {
    restore_signals();
    let mut warnings = Vec::new();
    let command = without_foreign_variables(T::command(), &|name| std::env::var_os(name), &mut warnings);
    let program = command.get_name().to_owned();
    for warning in warnings {
        // The program starts even if stderr cannot be written.
        let _unread = writeln!(io::stderr(), "{program}: {}", one_line(&warning));
    }
    let mut command = command;
    let matches = command.try_get_matches_from_mut(std::env::args_os());
    let parsed = matches.and_then(|matches| T::from_arg_matches(&matches));
    let parsed = parsed.unwrap_or_else(|error| end(&program, &error.format(&mut command)));
    let open = openable(MIN_FILES);
    // The program also starts on a system without /dev/null.
    if open < MIN_FILES && Path::new("/dev/null").exists() {
        let _unread = writeln!(
            io::stderr(),
            "{program}: the limit of open files allows only {open} more: raise it with `ulimit -n`"
        );
        std::process::exit(UNUSABLE);
    }
    parsed
}

/// Exit code of a process that cannot write its help or version, or that can open too few files.
const UNUSABLE: i32 = 2;
/// Number of files that must open before `main`, because tokio panics otherwise.
const MIN_FILES: usize = 8;

/// Returns the number of further files that this process can open, up to `most`.
#[must_use]
pub fn openable(most: usize) -> usize {
    let open: Vec<File> = (0..most).map_while(|_| File::open("/dev/null").ok()).collect();
    open.len()
}

/// Returns the directory for temporary files. An empty TMPDIR counts as unset, like every other
/// variable; the standard library takes it as the current directory.
#[must_use]
pub fn temp_dir() -> PathBuf {
    or_usual(std::env::temp_dir())
}

fn or_usual(temp_dir: PathBuf) -> PathBuf {
    if temp_dir.as_os_str().is_empty() { "/tmp".into() } else { temp_dir }
}

/// Prints a message of clap, such as the help, and ends the process.
fn end(program: &str, message: &clap::Error) -> ! {
    if message.use_stderr() {
        if io::stderr().is_terminal()
            && std::env::args_os().any(|arg| arg.to_string_lossy().contains(is_hidden))
        {
            // The arguments may be names of files of other users, which a shell has filled in.
            let _unread = write!(io::stderr(), "{}", printable(&message.render().to_string()));
            std::process::exit(message.exit_code());
        }
        message.exit();
    }
    let printed = stdout().map(drop).and_then(|()| message.print()).and_then(|()| stdout()?.flush());
    match printed {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            let _unread = writeln!(io::stderr(), "{program}: the output could not be written: {error}");
            std::process::exit(UNUSABLE);
        }
        _ => std::process::exit(message.exit_code()),
    }
}

/// Locks stdout. The error is `EBADF` if stdout was closed when this process started: the standard
/// library then opens `/dev/null` in its place.
pub fn stdout() -> io::Result<StdoutLock<'static>> {
    check(Standard::Stdout)?;
    Ok(io::stdout().lock())
}

/// Locks stdin. The error is `EBADF` if stdin was closed when this process started.
pub fn stdin() -> io::Result<StdinLock<'static>> {
    check(Standard::Stdin)?;
    Ok(io::stdin().lock())
}

/// Removes the environment variables that do not count as settings from the arguments of `command`
/// and its subcommands. `value_of` reads the environment.
fn without_foreign_variables(
    command: Command,
    value_of: &dyn Fn(&OsStr) -> Option<OsString>,
    warnings: &mut Vec<String>,
) -> Command {
    let command = command.mut_args(|arg| match foreign(&arg, value_of) {
        None => arg,
        Some(warning) => {
            warnings.extend(warning);
            arg.env(Resettable::Reset)
        }
    });
    command.mut_subcommands(|subcommand| without_foreign_variables(subcommand, value_of, warnings))
}

/// Returns `Some` if the variable of `arg` is no setting, with a warning if useful.
fn foreign(arg: &Arg, value_of: &dyn Fn(&OsStr) -> Option<OsString>) -> Option<Option<String>> {
    let name = arg.get_env()?;
    let value = value_of(name)?;
    if value.is_empty() {
        return Some(None);
    }
    let (name, value) = (name.to_string_lossy(), value.to_string_lossy());
    let is_service_link =
        name.ends_with("_PORT") && (value.starts_with("tcp://") || value.starts_with("udp://"));
    is_service_link.then(|| {
        let warning = format!(
            "warning: {name}={value} is ignored: Kubernetes sets it for a Service of that name; set \
             `enableServiceLinks: false` in the pod, or give the Service another name"
        );
        Some(warning)
    })
}

#[cfg(test)]
mod tests {
    use std::ffi::{OsStr, OsString};

    use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};

    use super::{or_usual, without_foreign_variables};

    #[derive(Debug, Parser)]
    struct Cli {
        #[arg(long, env = "AGX_TEST_PORT", default_value_t = 6380, global = true)]
        port: u16,
        #[arg(long, env = "AGX_TEST_FILE")]
        file: Option<String>,
        #[command(subcommand)]
        command: Option<Sub>,
    }

    #[derive(Debug, Subcommand)]
    enum Sub {
        Check(Check),
    }

    #[derive(Debug, Args)]
    struct Check {
        #[arg(long, env = "AGX_TEST_DIR")]
        dir: Option<String>,
    }

    /// Parses `args` with the variables in `environment` instead of the real environment.
    fn parsed(environment: &[(&str, &str)], args: &[&str]) -> (Cli, Vec<String>) {
        let value_of = |name: &OsStr| -> Option<OsString> {
            environment.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into())
        };
        let mut warnings = Vec::new();
        let command = without_foreign_variables(Cli::command(), &value_of, &mut warnings);
        let left: Vec<String> = command
            .get_arguments()
            .chain(command.get_subcommands().flat_map(|sub| sub.get_arguments()))
            .filter_map(|arg| Some(arg.get_env()?.to_string_lossy().into_owned()))
            .collect();
        warnings.extend(left);
        let matches = command.try_get_matches_from([&["agx"][..], args].concat()).unwrap();
        (Cli::from_arg_matches(&matches).unwrap(), warnings)
    }

    #[test]
    fn temporary_directory_that_is_empty_counts_as_unset() {
        assert_eq!(or_usual("".into()), std::path::Path::new("/tmp"));
        assert_eq!(or_usual("/scratch".into()), std::path::Path::new("/scratch"));
    }

    #[test]
    fn variables_that_are_empty_count_as_unset_in_subcommands_too() {
        let empty = [("AGX_TEST_PORT", ""), ("AGX_TEST_FILE", ""), ("AGX_TEST_DIR", "")];
        let (cli, left) = parsed(&empty, &["check"]);
        assert_eq!((cli.port, cli.file), (6380, None));
        assert!(matches!(cli.command, Some(Sub::Check(check)) if check.dir.is_none()));
        assert_eq!(left, [""; 0], "no argument looks at its variable any more");
        let (_, left) = parsed(&[("AGX_TEST_FILE", "f")], &[]);
        assert_eq!(left, ["AGX_TEST_PORT", "AGX_TEST_FILE", "AGX_TEST_DIR"]);
    }

    #[test]
    fn variables_of_a_kubernetes_service_are_ignored_with_a_warning() {
        for value in ["tcp://10.96.1.2:6380", "udp://10.96.1.2:6380"] {
            let (cli, warnings) = parsed(&[("AGX_TEST_PORT", value)], &[]);
            assert_eq!(cli.port, 6380);
            assert!(warnings[0].contains(&format!("AGX_TEST_PORT={value} is ignored")), "{warnings:?}");
            assert!(warnings[0].contains("enableServiceLinks: false"), "{warnings:?}");
            assert_eq!(warnings[1..], ["AGX_TEST_FILE", "AGX_TEST_DIR"]);
        }
        let (_, warnings) =
            parsed(&[("AGX_TEST_FILE", "tcp://10.96.1.2:6380"), ("AGX_TEST_PORT", "7000")], &[]);
        assert_eq!(warnings, ["AGX_TEST_PORT", "AGX_TEST_FILE", "AGX_TEST_DIR"], "only _PORT is a port");
    }
}

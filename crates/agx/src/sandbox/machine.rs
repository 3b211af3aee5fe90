//! Properties of a sandbox that this machine enforces, as `agw sandbox` finds them.

use std::{
    process::{Output, Stdio},
    time::Duration,
};

use agenix_protocol::documents::parse;
use serde::Deserialize;
use tokio::{process::Command, time::timeout};

use crate::{background::embedded::program, documents::MachineSandbox};

/// Maximum time of an examination.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// Document that `agw sandbox --json` prints.
#[derive(Deserialize)]
struct Document {
    data: MachineSandbox,
}

/// Lets agw attack a sandbox on this machine. The error is a reason for people.
pub(crate) async fn examine() -> Result<MachineSandbox, String> {
    let agw = program("agw").map_err(|failure| failure.to_string())?;
    let mut command = Command::new(agw);
    command.args(["sandbox", "--json"]).stdin(Stdio::null()).kill_on_drop(true);
    let ended = timeout(MAX_WAIT, command.output()).await;
    let ended = ended.map_err(|_| format!("it has not ended within {} s", MAX_WAIT.as_secs()))?;
    found(&ended.map_err(|error| error.to_string())?)
}

/// Returns the result of an examination that has ended. Exit code 1 means that the profile `reader`
/// cannot be enforced, or that the examination failed.
fn found(ended: &Output) -> Result<MachineSandbox, String> {
    match parse::<Document>(&ended.stdout) {
        Ok(document) => Ok(MachineSandbox { enforces_reader: ended.status.success(), ..document.data }),
        Err(_) => {
            let stderr = String::from_utf8_lossy(&ended.stderr);
            let line = stderr.lines().find(|line| !line.trim().is_empty());
            Err(line.map_or_else(|| ended.status.to_string(), str::to_owned))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        os::unix::process::ExitStatusExt,
        process::{ExitStatus, Output},
    };

    use super::found;

    fn ended(code: i32, stdout: &str, stderr: &str) -> Output {
        Output {
            status: ExitStatus::from_raw(code << 8),
            stdout: stdout.as_bytes().to_vec(),
            stderr: stderr.as_bytes().to_vec(),
        }
    }

    #[test]
    fn examination_is_read_from_the_document_and_the_exit_code() {
        let json = r#"{"data":{"enforced":{"exec":"Landlock"},"missing":{"network":{"reason":"a","remedy":"b"}},
            "regime":"namespaces"},"kind":"sandbox","schema":"agw/1"}"#;
        let enough = found(&ended(0, json, "")).unwrap();
        assert_eq!((enough.regime.as_deref(), enough.enforces_reader), (Some("namespaces"), true));
        assert_eq!(enough.missing["network"].remedy, "b");
        let none = r#"{"data":{"enforced":{},"missing":{},"regime":null}}"#;
        assert!(!found(&ended(1, none, "")).unwrap().enforces_reader);
    }

    #[test]
    fn examination_that_fails_is_an_error() {
        let error = found(&ended(2, "", "\nerror: unrecognized subcommand 'sandbox'\n\nUsage: agw\n"));
        assert_eq!(error.unwrap_err(), "error: unrecognized subcommand 'sandbox'");
        assert_eq!(found(&ended(1, "", "")).unwrap_err(), "exit status: 1");
    }
}

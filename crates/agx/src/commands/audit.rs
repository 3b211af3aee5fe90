//! `agx audit`: verification of the hash chain of an audit log.

use std::{
    fs::File,
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
};

use agenix_rules::audit_chain::{ChainHead, ChainVerifier};
use clap::{Args, Subcommand};

use crate::{
    documents::{AuditMisfit, AuditVerified},
    error::{CliError, Result},
    output::{OutputFormat, counted},
};

/// Maximum number of bytes of a line with its end.
const MAX_LINE_BYTES: u64 = 64 * 1024 * 1024;

#[derive(Debug, Subcommand)]
pub(crate) enum AuditCommand {
    /// Verify that no line of an audit log was changed, removed, inserted or moved
    ///
    /// Each line of the audit log of agq has the hash of the line before. Lines that are missing at
    /// the end, and a log that was rewritten, show only by a hash that was kept elsewhere:
    /// --head. INFO and METRICS of agq have it.
    Verify(AuditVerifyArgs),
}

#[derive(Debug, Args)]
pub(crate) struct AuditVerifyArgs {
    /// Files of one log, the oldest first, or - for stdin
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Hash that the end of the log had once; later lines may follow
    #[arg(long, value_name = "HASH")]
    head: Option<ChainHead>,
}

pub(crate) fn run(command: &AuditCommand, output: OutputFormat) -> Result<()> {
    match command {
        AuditCommand::Verify(args) => verify(args, output),
    }
}

fn verify(args: &AuditVerifyArgs, output: OutputFormat) -> Result<()> {
    let mut verifier = ChainVerifier::new(args.head);
    let mut misfit = None;
    for file in &args.files {
        misfit = verify_file(&mut verifier, file)?;
        if misfit.is_some() {
            break;
        }
    }
    let lines_after_head = args.head.and(verifier.after_wanted()).filter(|_lines| misfit.is_none());
    let found = AuditVerified {
        fits: misfit.is_none() && (args.head.is_none() || lines_after_head.is_some()),
        lines: verifier.chained(),
        unchained_lines: verifier.unchained(),
        torn_lines: verifier.torn(),
        begins_after: verifier.first_prev().map(|head| head.to_string()),
        head: verifier.head().map(|head| head.to_string()),
        lines_after_head,
        misfit,
    };
    output.show("audit.verify", &found, |found| text(found, args.head))?;
    if found.fits { Ok(()) } else { Err(CliError::AuditMisfit) }
}

/// Verifies the lines of a file. Returns the first line that does not fit.
fn verify_file(verifier: &mut ChainVerifier, file: &Path) -> Result<Option<AuditMisfit>> {
    let failed = |error| {
        CliError::usage(
            format!("cannot read {}: {error}", file.display()),
            "give files that can be read, or - for stdin",
        )
    };
    let reader: Box<dyn Read> = if file == Path::new("-") {
        Box::new(agenix_cli::stdin().map_err(failed)?)
    } else {
        Box::new(File::open(file).map_err(failed)?)
    };
    let mut reader = BufReader::new(reader);
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        let mut rest = (&mut reader).take(MAX_LINE_BYTES + 1);
        let length = rest.read_until(b'\n', &mut line).map_err(failed)?;
        if length == 0 {
            break;
        }
        if length as u64 > MAX_LINE_BYTES {
            return Err(CliError::usage(
                format!("{}: line {number} has more than {MAX_LINE_BYTES} bytes", file.display()),
                "give the files of an audit log of agq",
            ));
        }
        if let Err(misfit) = verifier.push(line.strip_suffix(b"\n").unwrap_or(&line)) {
            let file = file.display().to_string();
            return Ok(Some(AuditMisfit { file, line: number, reason: misfit.to_string() }));
        }
    }
    Ok(None)
}

fn text(found: &AuditVerified, wanted: Option<ChainHead>) -> String {
    let fitting = counted(found.lines, "line fits", "lines fit");
    let mut lines = match &found.misfit {
        Some(misfit) => {
            let before = format!("before it {fitting}");
            vec![format!("{}, line {}: {}", misfit.file, misfit.line, misfit.reason), before]
        }
        None => vec![fitting],
    };
    match (found.begins_after.as_deref(), found.unchained_lines) {
        (Some(prev), 0) if prev != ChainHead::START.to_string() => {
            lines.push(format!("the log begins after a line with the hash {prev}, in a file before"));
        }
        _ => {}
    }
    if found.unchained_lines > 0 {
        let unchained = counted(found.unchained_lines, "line has", "lines have");
        lines.push(format!(
            "{unchained} no hash: an agq without hash chain wrote them, and a change of them shows nowhere"
        ));
    }
    if found.torn_lines > 0 {
        let torn = counted(found.torn_lines, "line is", "lines are");
        lines.push(format!("{torn} incomplete: agq or its machine crashed, or the disk was full"));
    }
    if let (Some(wanted), None) = (wanted, &found.misfit) {
        lines.push(match found.lines_after_head {
            Some(0) => "the log ends with the hash of --head".to_owned(),
            Some(after) => {
                format!("{} after the hash of --head", counted(after, "line follows", "lines follow"))
            }
            None => format!("no line has the hash {wanted}: lines at the end are missing or were changed"),
        });
    }
    lines.extend(found.head.as_ref().map(|head| format!("head: {head}")));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use agenix_rules::audit_chain::AuditChain;

    use super::{AuditVerifyArgs, verify};
    use crate::{error::CliError, output::OutputFormat};

    #[test]
    fn verify_takes_files_in_their_order() {
        let dir = tempfile::tempdir().unwrap();
        let mut chain = AuditChain::default();
        let mut write = |name: &str| {
            let line = format!("{{\"prev\":\"{}\"}}", chain.head());
            chain.push_line(line.as_bytes());
            let path = dir.path().join(name);
            std::fs::write(&path, line + "\n").unwrap();
            path
        };
        let (first, second) = (write("1"), write("2"));
        let verified = |files: &[&PathBuf], head| {
            let files = files.iter().map(|file| (*file).clone()).collect();
            verify(&AuditVerifyArgs { files, head }, OutputFormat::default())
        };
        let head = Some(chain.head());
        assert!(verified(&[&first, &second], head).is_ok() && verified(&[&second], head).is_ok());
        assert!(matches!(verified(&[&second, &first], None), Err(CliError::AuditMisfit)));
        assert!(matches!(verified(&[&first], head), Err(CliError::AuditMisfit)));
        assert!(matches!(verified(&[&dir.path().join("3")], None), Err(CliError::Usage { .. })));
        let endless = verified(&[&PathBuf::from("/dev/zero")], None);
        assert!(matches!(endless, Err(CliError::Usage { .. })));
    }
}

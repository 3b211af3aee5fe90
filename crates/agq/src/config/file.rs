//! Config file, which may hold keys, so errors show the line number and no values.

use std::path::Path;

use anyhow::{Context, anyhow};

use super::options::Options;
use crate::auth::session_key::MIN_KEY_BYTES;

pub(super) fn read(path: &Path) -> anyhow::Result<Options> {
    let shown = path.display();
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read the config file {shown}"))?;
    parse(&text).with_context(|| format!("the config file {shown} is wrong"))
}

/// The error has the message of `toml` without the source line that `toml` would quote.
fn parse(text: &str) -> anyhow::Result<Options> {
    toml::from_str(text).map_err(|error| {
        let message = without_values(error.message());
        let before = error.span().and_then(|span| text.get(..span.start));
        match before {
            Some(before) => anyhow!("line {}: {message}", before.matches('\n').count() + 1),
            None => anyhow!("{message}"),
        }
    })
}

/// Replaces the string in `invalid type: string "…", expected u16`, and every word that is long
/// enough to be a key.
fn without_values(message: &str) -> String {
    const VALUE: &str = "string \"";
    let (start, end) = (message.find(VALUE), message.rfind('"'));
    let message = match (start, end) {
        (Some(start), Some(end)) if end >= start + VALUE.len() => {
            format!("{}a string{}", &message[..start], &message[end + 1..])
        }
        _ => message.to_owned(),
    };
    let short = |word| if str::len(word) < MIN_KEY_BYTES { word } else { "…" };
    message.split(' ').map(short).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn config_file_error_names_the_line_and_hides_keys() {
        let key = "k".repeat(64);
        for (text, words) in [
            (format!("port = 1\n\nprot = '{key}'"), "line 3: unknown field `prot`"),
            (format!("port = 1\nworkers = '{key}'"), "line 2: invalid type: a string"),
            (format!("[workers]\nw1 = '{key}'\nw2 = '{key}"), "line 3: "),
            (format!("[workers]\nw1 = {key}"), "line 2: "),
            (format!("port = '{key} \"'"), "line 1: invalid type: a string"),
            (format!("brpop-reply = '{key}'"), "line 1: unknown variant"),
            (format!("[workers.w1]\nkey = '{key}'"), "invalid type: map"),
        ] {
            let error = format!("{:#}", parse(&text).unwrap_err());
            assert!(error.contains(words) && !error.contains("kkk"), "{error}");
        }
    }

    #[test]
    fn config_file_accepts_every_option() {
        let options = parse(
            "bind = '127.0.0.1'\nport = 0\nno-tcp = false\nsocket = 's'\ntls-cert = 'c'\ntls-key = 'k'\n\
             tls-client-ca = 'ca'\ninsecure = true\ndata-dir = 'd'\nblob-dir = 'b'\nblobs = 'off'\nsession-key-file = 'f'\naudit-log = 'a'\n\
             heartbeat-interval = 30\nheartbeat-factor = 3\njob-timeout = 60\nstart-timeout = 0.5\n\
             keep-ended = 60\nkeep-dead = 60\nkeep-ended-count = 1\nkeep-blob-bytes = 1\nno-quarantine = true\nshare-weights = 'a=1'\npriority-queues = 'q'\nbrpop-reply = 'pair'\nauth-errors = 'plain'\n\
             max-message-bytes = 1\nmax-elements = 1\nmax-plan-bytes = 1\nmax-tasks = 1\nmax-inputs = 1\nmax-concurrency-keys = 1\n\
             max-pipeline = 1\nmax-connections-per-ip = 1\nmax-commands-per-second = 1\nmax-auth-failures = 1\n\
             [admins]\nroot = 'r'\n[clients]\nalice = 'a'\n[workers]\n'worker-001' = 'w'\n\
             [agents]\none = 'o'\n'claude-1' = { key = 'c', queues = ['agents'] }\n",
        );
        let options = options.unwrap();
        assert_eq!((options.admins.len(), options.clients.len(), options.workers.len()), (1, 1, 1));
        assert_eq!(options.agents.len(), 2);
        assert!(!format!("{options:?}").contains("\"r\""), "keys are not shown");
    }
}

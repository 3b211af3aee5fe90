//! Clients over HTTP whose jobs are unique, and stand under limits with keys of their own.

use std::io;

use super::{
    agq::Agq,
    crew::{Client, Crew},
    http::OverHttp,
    texts::Texts,
};

/// Maximum number of jobs that run under a limit at once.
const CONCURRENCY: usize = 4;
/// How long a fetch waits for a job. It may have to: all jobs that are ready may stand under limits
/// that are reached, or that another node holds.
const WAIT_MS: u32 = 10_000;

/// A client whose jobs stand under so many limits in turn.
pub(super) struct Limited {
    http: OverHttp,
    keys: usize,
}

/// Connects so many clients, each to the next of these nodes.
pub(super) fn crew(nodes: Vec<Agq>, clients: usize, keys: usize) -> anyhow::Result<Crew<Limited, Vec<Agq>>> {
    let texts = Texts::new(1);
    let client = |number: usize| {
        let http = OverHttp::connect_whole(&nodes[number % nodes.len()], number, &texts)?;
        Ok(Limited { http, keys })
    };
    let clients = (0..clients).map(client).collect::<io::Result<_>>()?;
    Ok(Crew::new(clients, nodes))
}

impl Client for Limited {
    fn cycle(&mut self, number: usize) -> io::Result<()> {
        self.http.submit_with(&number.to_string(), &options(number % self.keys))?;
        let id = self.http.fetch_within(WAIT_MS)?;
        self.http.ack(&id, number)
    }
}

fn options(key: usize) -> String {
    format!(
        r#"{{"unique":{{"keys":["type","args"]}},"rate_limit":{{"key":"customer-{key}","concurrency":{CONCURRENCY}}}}}"#
    )
}

#[cfg(test)]
mod tests {
    use super::options;

    #[test]
    fn options_are_json() {
        let options: serde_json::Value = serde_json::from_str(&options(7)).unwrap();
        assert_eq!(options["rate_limit"]["key"], "customer-7");
    }
}

//! Clients over HTTP whose jobs are unique and have rate limits with keys.

use std::io;

use super::{
    agq::AgqServer,
    clients::{Clients, CycleClient},
    http::HttpClient,
    payloads::Payloads,
};

/// Greatest number of jobs that run under a limit at once.
const CONCURRENCY: usize = 4;
/// Time for which a fetch waits for a job. All ready jobs may have limits that are reached, or that
/// another node has locked.
const WAIT_MS: u32 = 10_000;

/// A client whose jobs have the limits `0..keys` in turn.
pub(super) struct LimitedClient {
    http: HttpClient,
    keys: usize,
}

/// Connects clients to the nodes in turn.
pub(super) fn clients(
    nodes: Vec<AgqServer>,
    clients: usize,
    keys: usize,
) -> anyhow::Result<Clients<LimitedClient, Vec<AgqServer>>> {
    let payloads = Payloads::new(1);
    let client = |number: usize| {
        let http = HttpClient::connect_whole(&nodes[number % nodes.len()], number, &payloads)?;
        Ok(LimitedClient { http, keys })
    };
    let clients = (0..clients).map(client).collect::<io::Result<_>>()?;
    Ok(Clients::new(clients, nodes))
}

impl CycleClient for LimitedClient {
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

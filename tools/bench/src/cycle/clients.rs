//! Clients that run cycles in parallel, each on its own connection, and their rate.

use std::{
    io, thread,
    time::{Duration, Instant},
};

use anyhow::anyhow;

use crate::measure::per_second;

/// Distance between the numbers of the payloads of two clients.
const NUMBERS_APART: usize = 1_000_003;

pub(super) trait CycleClient: Send {
    /// Submits a job, claims one, and completes the claimed job. `number` selects the payloads.
    fn cycle(&mut self, number: usize) -> io::Result<()>;
}

/// All clients of a server, and the server itself.
pub(super) struct Clients<C, S> {
    // The clients are dropped first.
    clients: Vec<C>,
    server: S,
}

impl<C: CycleClient, S> Clients<C, S> {
    pub(super) fn new(clients: Vec<C>, server: S) -> Self {
        Self { clients, server }
    }

    pub(super) fn server(&self) -> &S {
        &self.server
    }

    /// Drops the clients, and returns the server.
    pub(super) fn into_server(self) -> S {
        self.server
    }

    /// Runs all clients for `span`, and returns their cycles per second. Cycles that have begun are
    /// finished and counted.
    pub(super) fn cycles_per_sec(&mut self, span: Duration) -> anyhow::Result<f64> {
        let started = Instant::now();
        let until = started + span;
        let done = self.all(|at, client| cycles_until(client, at * NUMBERS_APART, until))?;
        Ok(per_second(done, started.elapsed()))
    }

    /// Runs one cycle for each number below `count`. The numbers go to the clients in turn.
    pub(super) fn do_cycles(&mut self, count: usize) -> anyhow::Result<()> {
        let clients = self.clients.len();
        let share = |at, client: &mut C| {
            (at..count).step_by(clients).try_for_each(|number| client.cycle(number)).map(|()| 0)
        };
        self.all(share).map(drop)
    }

    /// Runs `work` for all clients in parallel, and returns the sum of the results.
    fn all(&mut self, work: impl Fn(usize, &mut C) -> io::Result<usize> + Sync) -> anyhow::Result<usize> {
        let work = &work;
        let counts: Vec<_> = thread::scope(|scope| {
            let clients = self.clients.iter_mut().enumerate();
            let threads: Vec<_> = clients.map(|(at, client)| scope.spawn(move || work(at, client))).collect();
            threads.into_iter().map(thread::ScopedJoinHandle::join).collect()
        });
        let mut sum = 0;
        for count in counts {
            sum += count.map_err(|_| anyhow!("a client's thread panicked"))??;
        }
        Ok(sum)
    }
}

fn cycles_until(client: &mut impl CycleClient, first: usize, until: Instant) -> io::Result<usize> {
    let mut done = 0;
    while Instant::now() < until {
        client.cycle(first + done)?;
        done += 1;
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::{Clients, CycleClient};

    /// A client that records the numbers of its cycles.
    struct Recording(Vec<usize>);

    impl CycleClient for Recording {
        fn cycle(&mut self, number: usize) -> io::Result<()> {
            self.0.push(number);
            if number < 9 { Ok(()) } else { Err(io::ErrorKind::Other.into()) }
        }
    }

    #[test]
    fn clients_share_cycles() {
        let mut all = Clients::new(vec![Recording(Vec::new()), Recording(Vec::new())], ());
        all.do_cycles(5).unwrap();
        assert_eq!((&*all.clients[0].0, &*all.clients[1].0), (&[0, 2, 4][..], &[1, 3][..]));
        assert!(all.do_cycles(10).is_err());
    }
}

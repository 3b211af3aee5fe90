//! Clients that each do cycle after cycle over a connection of their own, one request at a time, and how many those were.

use std::{
    io, thread,
    time::{Duration, Instant},
};

use anyhow::anyhow;

use crate::measure::per_second;

/// Apart so far are the numbers of two clients' texts.
const APART: usize = 1_000_003;

/// One client.
pub(super) trait Client: Send {
    /// Submits a job, claims one, completes that. The number tells its texts from others.
    fn cycle(&mut self, number: usize) -> io::Result<()>;
}

/// All clients of a server, and the server, which is there as long as they are.
pub(super) struct Crew<C, S> {
    // The first to be dropped.
    clients: Vec<C>,
    server: S,
}

impl<C: Client, S> Crew<C, S> {
    pub(super) fn new(clients: Vec<C>, server: S) -> Self {
        Self { clients, server }
    }

    pub(super) fn server(&self) -> &S {
        &self.server
    }

    /// The server, without its clients.
    pub(super) fn into_server(self) -> S {
        self.server
    }

    /// How many cycles a second all of them together do for so long. A cycle that was begun is ended, and counts with its time.
    pub(super) fn cycles_per_sec(&mut self, span: Duration) -> anyhow::Result<f64> {
        let started = Instant::now();
        let until = started + span;
        let done = self.all(|at, client| cycles_until(client, at * APART, until))?;
        Ok(per_second(done, started.elapsed()))
    }

    /// Does one cycle for each number from 0 to `count`, the clients in turn.
    pub(super) fn do_cycles(&mut self, count: usize) -> anyhow::Result<()> {
        let clients = self.clients.len();
        let share = |at, client: &mut C| {
            (at..count).step_by(clients).try_for_each(|number| client.cycle(number)).map(|()| 0)
        };
        self.all(share).map(drop)
    }

    /// Lets all clients work at once, and returns the sum of what they count.
    fn all(&mut self, work: impl Fn(usize, &mut C) -> io::Result<usize> + Sync) -> anyhow::Result<usize> {
        let work = &work;
        let counts: Vec<_> = thread::scope(|scope| {
            let clients = self.clients.iter_mut().enumerate();
            let hands: Vec<_> = clients.map(|(at, client)| scope.spawn(move || work(at, client))).collect();
            hands.into_iter().map(thread::ScopedJoinHandle::join).collect()
        });
        let mut sum = 0;
        for count in counts {
            sum += count.map_err(|_| anyhow!("a client's thread panicked"))??;
        }
        Ok(sum)
    }
}

fn cycles_until(client: &mut impl Client, first: usize, until: Instant) -> io::Result<usize> {
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

    use super::{Client, Crew};

    /// A client that notes the numbers of its cycles.
    struct Noting(Vec<usize>);

    impl Client for Noting {
        fn cycle(&mut self, number: usize) -> io::Result<()> {
            self.0.push(number);
            if number < 9 { Ok(()) } else { Err(io::ErrorKind::Other.into()) }
        }
    }

    #[test]
    fn clients_divide_cycles_among_them() {
        let mut crew = Crew::new(vec![Noting(Vec::new()), Noting(Vec::new())], ());
        crew.do_cycles(5).unwrap();
        assert_eq!((&*crew.clients[0].0, &*crew.clients[1].0), (&[0, 2, 4][..], &[1, 3][..]));
        assert!(crew.do_cycles(10).is_err());
    }
}

//! TCP proxy in front of agq that simulates a bad network. The proxy cuts connections at any byte,
//! delays or strands them, and redirects new ones. The proxy never loses or changes bytes of a live
//! connection.

use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use fastrand::Rng;

/// Maximum number of bytes that are forwarded at a time.
const CHUNK: usize = 16 * 1024;

/// A proxy on a port of its own. The drop cuts all connections and closes the port.
pub struct Proxy {
    address: SocketAddr,
    road: Arc<Road>,
    accepting: Option<JoinHandle<()>>,
}

/// State that all connections share.
struct Road {
    to: Mutex<String>,
    links: Mutex<Vec<Arc<Link>>>,
    weather: Mutex<Weather>,
    /// Notified when the faults end.
    cleared: Condvar,
    is_closed: AtomicBool,
}

struct Weather {
    rng: Rng,
    is_cut_off: bool,
    held_until: Option<Instant>,
    delay: Duration,
}

/// One connection: its two sockets, and the number of bytes that it may still forward.
struct Link {
    client: TcpStream,
    server: TcpStream,
    left: Mutex<Option<usize>>,
    /// True if the proxy silently drops all bytes.
    is_stranded: AtomicBool,
}

impl Proxy {
    /// Starts a proxy to the address `to`. `rng` chooses the bytes at which connections are cut.
    pub fn start(to: String, rng: Rng) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
        let address = listener.local_addr().expect("a listener has an address");
        let weather = Weather { rng, is_cut_off: false, held_until: None, delay: Duration::ZERO };
        let road = Arc::new(Road {
            to: Mutex::new(to),
            links: Mutex::default(),
            weather: Mutex::new(weather),
            cleared: Condvar::new(),
            is_closed: AtomicBool::new(false),
        });
        let shared = Arc::clone(&road);
        let accepting = Some(thread::spawn(move || accept(&listener, &shared)));
        Self { address, road, accepting }
    }

    /// Returns the address of the proxy.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// Cuts every open connection, and returns their number.
    pub fn cut_all(&self) -> usize {
        let links = lock(&self.road.links);
        links.iter().for_each(|link| link.cut());
        links.len()
    }

    /// Forwards new connections to the address `to`. Open connections keep their server.
    pub fn lead_to(&self, to: String) {
        *lock(&self.road.to) = to;
    }

    /// Stops forwarding on all open connections without closing them, as if their peer had
    /// vanished. New connections work. Returns the number of stranded connections.
    pub fn strand_all(&self) -> usize {
        let links = lock(&self.road.links);
        links.iter().for_each(|link| link.is_stranded.store(true, Ordering::Relaxed));
        links.len()
    }

    /// Cuts every open connection after a random number of bytes below `bytes`, at any place in a
    /// frame. Returns the number of these connections.
    pub fn cut_after(&self, bytes: usize) -> usize {
        let links = lock(&self.road.links);
        let mut weather = lock(&self.road.weather);
        for link in links.iter() {
            *lock(&link.left) = Some(weather.rng.usize(..bytes.max(1)));
        }
        links.len()
    }

    /// Forwards nothing for `duration`, and keeps all connections open.
    pub fn pause(&self, duration: Duration) {
        lock(&self.road.weather).held_until = Some(Instant::now() + duration);
    }

    /// Forwards nothing until [`Self::calm`], and keeps all connections open, as if the cable were
    /// unplugged.
    pub fn cut_off(&self) {
        lock(&self.road.weather).is_cut_off = true;
    }

    /// Delays each chunk of bytes by `by` from now on.
    pub fn delay(&self, by: Duration) {
        lock(&self.road.weather).delay = by;
    }

    /// Ends all faults. Pending cuts of [`Self::cut_after`] still take effect.
    pub fn calm(&self) {
        let mut weather = lock(&self.road.weather);
        (weather.is_cut_off, weather.held_until, weather.delay) = (false, None, Duration::ZERO);
        self.road.cleared.notify_all();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.road.is_closed.store(true, Ordering::Relaxed);
        self.calm();
        self.cut_all();
        // The connection wakes the accepting thread. An error means that this thread has ended.
        let _woken = TcpStream::connect(self.address);
        if let Some(accepting) = self.accepting.take() {
            // A panic of the thread would have been reported already.
            let _ended = accepting.join();
        }
    }
}

impl Road {
    /// Waits for as long as the faults hold up bytes.
    fn hold(&self) {
        let wait = {
            let weather = self.cleared.wait_while(lock(&self.weather), |weather| weather.is_cut_off);
            let weather = weather.unwrap_or_else(PoisonError::into_inner);
            let held = weather.held_until.map(|until| until.saturating_duration_since(Instant::now()));
            weather.delay.max(held.unwrap_or_default())
        };
        if !wait.is_zero() {
            #[expect(clippy::disallowed_methods, reason = "the time that passes is the fault")]
            thread::sleep(wait);
        }
    }
}

impl Link {
    /// Returns the number of `bytes` that this connection may still forward, and subtracts them.
    fn allowed(&self, bytes: usize) -> usize {
        let mut left = lock(&self.left);
        let Some(left) = left.as_mut() else { return bytes };
        let allowed = bytes.min(*left);
        *left -= allowed;
        allowed
    }

    fn cut(&self) {
        // One side may have closed its socket before.
        let _gone = self.client.shutdown(Shutdown::Both);
        let _gone = self.server.shutdown(Shutdown::Both);
    }
}

fn accept(listener: &TcpListener, road: &Arc<Road>) {
    for client in listener.incoming() {
        if road.is_closed.load(Ordering::Relaxed) {
            return;
        }
        let road = Arc::clone(road);
        // A client that cannot be accepted tries again, as if agq were unreachable.
        let Ok(client) = client else { continue };
        thread::spawn(move || serve(&road, client));
    }
}

/// Forwards the bytes of one connection until its end.
fn serve(road: &Road, client: TcpStream) {
    let to = lock(&road.to).clone();
    let Ok(server) = TcpStream::connect(to) else { return };
    let no_delay = client.set_nodelay(true).and_then(|()| server.set_nodelay(true));
    if no_delay.is_err() {
        return;
    }
    let link = Arc::new(Link { client, server, left: Mutex::default(), is_stranded: AtomicBool::default() });
    lock(&road.links).push(Arc::clone(&link));
    if road.is_closed.load(Ordering::Relaxed) {
        link.cut();
    }
    thread::scope(|scope| {
        scope.spawn(|| carry(road, &link, &link.client, &link.server));
        carry(road, &link, &link.server, &link.client);
    });
    lock(&road.links).retain(|other| !Arc::ptr_eq(other, &link));
}

/// Forwards bytes in one direction until their end, or until the connection is cut.
fn carry(road: &Road, link: &Link, mut from: &TcpStream, mut to: &TcpStream) {
    let mut chunk = vec![0; CHUNK];
    while let Ok(read @ 1..) = from.read(&mut chunk) {
        road.hold();
        if link.is_stranded.load(Ordering::Relaxed) {
            continue;
        }
        let allowed = link.allowed(read);
        if to.write_all(&chunk[..allowed]).is_err() || allowed < read {
            return link.cut();
        }
    }
    if link.is_stranded.load(Ordering::Relaxed) {
        return;
    }
    // Bytes of the other direction may still be in flight.
    let _gone = to.shutdown(Shutdown::Write);
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

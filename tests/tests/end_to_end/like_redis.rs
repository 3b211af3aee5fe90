//! agq replies to the commands that it shares with Redis as Redis 7 does. The scripts in
//! tests/scripts run on both servers.

mod script;
pub(crate) mod wire;

use std::{
    collections::{BTreeSet, HashMap},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use e2e::{Lab, eventually};

use self::{
    script::{How, ScriptLine, steps},
    wire::{BOUND, Wire, elements, head, payload},
};
use crate::clients::found;

macro_rules! scripts {
    ($($name:ident)*) => {
        const SCRIPTS: &[&str] = &[$(stringify!($name)),*];
        $(
            #[test]
            fn $name() {
                compare(stringify!($name));
            }
        )*
    };
}

scripts! {
    connection
    expiry
    keys
    lists
    moves
    numbers
    pubsub
    sorted_set_ranges
    sorted_sets
    strings
    transactions
    waiting
    wrong_types
}

#[test]
fn every_script_is_played() {
    let files = std::fs::read_dir(Lab::repository("tests/scripts")).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let scripts: BTreeSet<String> =
        names.filter_map(|name| Some(name.strip_suffix(".redis")?.to_owned())).collect();
    assert!(scripts.iter().eq(SCRIPTS), "{scripts:?}");
}

/// A redis-server of this test, which the drop kills.
struct Redis {
    child: Child,
    socket: PathBuf,
}

impl Redis {
    fn start(program: &Path, lab: &Lab) -> Self {
        let socket = lab.path().join("redis.sock");
        let child = Command::new(program)
            .args(["--port", "0", "--databases", "1", "--save", "", "--appendonly", "no"])
            .args(["--requirepass", lab.key(), "--dir"])
            .arg(lab.path())
            .arg("--unixsocket")
            .arg(&socket)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let redis = Self { child, socket };
        eventually("redis-server listens", || UnixStream::connect(&redis.socket).ok());
        redis
    }

    fn connect(&self) -> Wire {
        let stream = UnixStream::connect(&self.socket).unwrap();
        stream.set_read_timeout(Some(BOUND)).unwrap();
        Wire::over(stream)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        // The server may have ended already.
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }
}

/// Returns the path of redis-server if its version is 7.
fn redis_7() -> Option<PathBuf> {
    let program = found::program("redis-server")?;
    let version = Command::new(&program).arg("--version").output().unwrap().stdout;
    let version = String::from_utf8_lossy(&version);
    if !version.contains("v=7.") {
        println!("SKIPPED: the comparison is with Redis 7, and this is {}", version.trim());
        return None;
    }
    Some(program)
}

/// Plays a script to both servers in both versions of RESP. Panics with all replies that differ.
fn compare(script: &str) {
    let Some(program) = redis_7() else { return };
    let file = format!("tests/scripts/{script}.redis");
    let steps = steps(&std::fs::read_to_string(Lab::repository(&file)).unwrap());
    let mut differences = Vec::new();
    for version in ["2", "3"] {
        let lab = Lab::new();
        let (redis, agq) = (Redis::start(&program, &lab), lab.agq(&[]));
        let theirs = play(&steps, || introduced(redis.connect(), &lab, version));
        let ours = play(&steps, || introduced(Wire::to(&agq), &lab, version));
        for (step, (theirs, ours)) in steps.iter().zip(theirs.iter().zip(&ours)) {
            if !alike(step.how, theirs, ours) {
                differences.push(format!(
                    "{file}:{} (RESP{version}): {}\n  redis {}\n  agq   {}",
                    step.line,
                    step.shown,
                    theirs.escape_ascii(),
                    ours.escape_ascii()
                ));
            }
        }
    }
    assert!(
        differences.is_empty(),
        "{} answers are not those of Redis:\n{}",
        differences.len(),
        differences.join("\n")
    );
}

/// Logs in as client libraries do.
fn introduced(mut wire: Wire, lab: &Lab, version: &str) -> Wire {
    wire.send(&["HELLO", version, "AUTH", "default", lab.key()].map(|word| word.as_bytes().to_vec()));
    let answer = wire.reply();
    assert!(answer.starts_with(b"*") || answer.starts_with(b"%"), "HELLO: {}", answer.escape_ascii());
    wire
}

/// Returns the reply of each step, or no bytes for a step that reads none.
fn play(steps: &[ScriptLine], connect: impl Fn() -> Wire) -> Vec<Vec<u8>> {
    let mut wires: HashMap<char, Wire> = HashMap::new();
    let mut replies = Vec::new();
    for step in steps {
        let wire = wires.entry(step.connection).or_insert_with(&connect);
        if step.how == How::Scanned {
            replies.push(scanned(wire, &step.words));
            continue;
        }
        if !step.words.is_empty() {
            wire.send(&step.words);
        }
        replies.push(if step.reads { wire.reply() } else { Vec::new() });
    }
    replies
}

/// Follows the cursor to its end. Returns all distinct elements in order, or the first reply that
/// is not a page.
fn scanned(wire: &mut Wire, words: &[Vec<u8>]) -> Vec<u8> {
    let mut words = words.to_vec();
    let mut found = BTreeSet::new();
    for _ in 0..1000 {
        wire.send(&words);
        let page = wire.reply();
        let parts = elements(&page);
        let [cursor, keys] = parts.as_slice() else { return page };
        found.extend(elements(keys));
        words[1] = payload(cursor).to_vec();
        if words[1] == b"0" {
            return found.into_iter().collect::<Vec<_>>().concat();
        }
    }
    b"<the cursor does not come back to 0>".to_vec()
}

/// Returns true if the reply of agq is equivalent to the one of Redis under `how`.
fn alike(how: How, redis: &[u8], agq: &[u8]) -> bool {
    if redis == agq {
        return true;
    }
    if is_about_form(redis) {
        return agq.starts_with(b"-ERR ");
    }
    match how {
        How::Near => both(redis, agq).is_some_and(|(a, b)| (a - b).abs() <= (a.abs() * 0.05).max(1.0)),
        How::Number => both(redis, agq).is_some_and(|(a, b)| a == b),
        How::Sorted => {
            let sorted = |reply: &[u8]| {
                let mut all = elements(reply);
                all.sort();
                all
            };
            sorted(redis) == sorted(agq) && head(redis) == head(agq)
        }
        How::Exactly | How::Scanned => {
            // A syntax error may be an element of EXEC's reply.
            let (theirs, ours) = (elements(redis), elements(agq));
            let is_alike = |(redis, agq): (&Vec<u8>, &Vec<u8>)| alike(How::Exactly, redis, agq);
            !theirs.is_empty() && head(redis) == head(agq) && theirs.iter().zip(&ours).all(is_alike)
        }
    }
}

/// Returns true if Redis refuses the form of a command, because agq words such errors differently.
fn is_about_form(reply: &[u8]) -> bool {
    let texts = ["unknown command", "unknown subcommand", "wrong number of arguments", "syntax error"];
    let after = reply.strip_prefix(b"-ERR ");
    after.is_some_and(|after| texts.iter().any(|text| after.starts_with(text.as_bytes())))
}

/// Returns the two replies as numbers, if both are numbers.
fn both(redis: &[u8], agq: &[u8]) -> Option<(f64, f64)> {
    let number = |reply: &[u8]| -> Option<f64> { std::str::from_utf8(payload(reply)).ok()?.parse().ok() };
    Some((number(redis)?, number(agq)?))
}

#[test]
fn replies_are_alike_only_where_they_may_differ() {
    let form = b"-ERR wrong number of arguments for 'get' command\r\n";
    assert!(alike(How::Exactly, form, b"-ERR Invalid arguments: use GET <key>\r\n"));
    assert!(!alike(How::Exactly, form, b"$-1\r\n"));
    assert!(!alike(How::Exactly, b"-ERR value is not an integer\r\n", b"-ERR Invalid arguments\r\n"));
    assert!(alike(How::Exactly, b"*2\r\n+OK\r\n-ERR syntax error\r\n", b"*2\r\n+OK\r\n-ERR Invalid\r\n"));
    assert!(!alike(How::Exactly, b"*2\r\n+OK\r\n:1\r\n", b"*2\r\n+OK\r\n:2\r\n"));
    assert!(!alike(How::Exactly, b"*0\r\n", b"*-1\r\n"));
    assert!(alike(How::Sorted, b"*2\r\n+a\r\n+b\r\n", b"*2\r\n+b\r\n+a\r\n"));
    assert!(!alike(How::Sorted, b"*2\r\n+a\r\n+b\r\n", b"*2\r\n+a\r\n+a\r\n"));
    assert!(alike(How::Near, b":100\r\n", b":99\r\n") && !alike(How::Near, b":100\r\n", b":-1\r\n"));
    assert!(alike(How::Number, b"$19\r\n0.10000000000000001\r\n", b"$3\r\n0.1\r\n"));
}

//! The part of the PGO workload for agq: cycles of jobs over RESP and over HTTP, and commands on
//! keys. One client runs as long as eight, because otherwise the paths of a single client would
//! count as rare.

use std::{io, path::Path, time::Duration};

use super::{
    agenix,
    agq::{AgqServer, SyncMode},
    clients::{Clients, CycleClient},
    http,
    setting::Setting,
    wire::BufferedConnection,
};

const LONG: Duration = Duration::from_secs(6);
const SHORT: Duration = Duration::from_secs(2);

/// Number of pipelines of commands on keys, and of commands in the long ones.
const PIPELINES: usize = 4_000;
const DEPTH: usize = 16;

/// Runs the workload. agq exits by itself, because it writes its profile only then.
pub(crate) fn run(bin: &Path) -> anyhow::Result<()> {
    let of = |clients, input_bytes, queued| Setting { clients, input_bytes, queued };
    for (setting, span) in [
        (of(1, 100, 0), LONG),
        (of(1, 100, 50_000), LONG),
        (of(8, 100, 50_000), LONG),
        (of(8, 4096, 0), SHORT),
        (of(64, 100, 0), SHORT),
    ] {
        let agq = AgqServer::start(bin, SyncMode::Always, None)?;
        exercise(agenix::clients(vec![agq], setting)?, span)?.into_iter().try_for_each(AgqServer::stop)?;
    }
    let shipped = || AgqServer::start(bin, SyncMode::AsShipped, None);
    exercise(http::whole(shipped()?, Setting::SLOW_DISK)?, SHORT)?.stop()?;
    let agq = shipped()?;
    keys(&mut agq.connect()?)?;
    agq.stop()
}

/// Runs the clients for `span`, and returns their server.
fn exercise<S>(mut clients: Clients<impl CycleClient, S>, span: Duration) -> anyhow::Result<S> {
    clients.cycles_per_sec(span)?;
    Ok(clients.into_server())
}

/// Writes and reads strings and lists, in long pipelines and in short ones.
fn keys(wire: &mut BufferedConnection) -> io::Result<()> {
    let value = "x".repeat(100);
    for round in 0..PIPELINES {
        let count = if round % 2 == 0 { DEPTH } else { 1 };
        let key = |n: usize| format!("key:{}", (round * 7 + n) % 1_000);
        for n in 0..count {
            wire.write_command(&["SET", &key(n), &value])?;
            wire.write_command(&["LPUSH", "list", &value])?;
        }
        wire.send()?;
        (0..2 * count).try_for_each(|_| wire.read_ok())?;
        for n in 0..count {
            wire.write_command(&["GET", &key(n)])?;
            wire.write_command(&["RPOP", "list"])?;
        }
        wire.send()?;
        (0..2 * count).try_for_each(|_| wire.bulk().map(drop))?;
    }
    Ok(())
}
